"""Which zero values mean "not set".

Kubernetes' types drop most zero values when they are written (`hostNetwork: false`, `subPath: ""`)
but keep those behind a pointer (`replicas: 0`, `storageClassName: ""`). The published schema does
not say which is which; these tables do, for the kinds we serve. Empty lists and maps are always
dropped, except where the schema requires the field.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Optional booleans and numbers without a pointer: dropped when false or 0.
_DROPPED = _words(
    """
    authenticated chapAuthDiscovery chapAuthSession clusterScope denied deprecated
    exclusiveMaximum exclusiveMinimum globalDefault hostIPC hostNetwork hostPID
    insecureSkipTLSVerify nullable paused preserveUnknownFields priority
    publishNotReadyAddresses readOnly sslEnabled stdin stdinOnce tty uniqueItems unschedulable
    x-kubernetes-embedded-resource x-kubernetes-int-or-string active availableReplicas count
    currentReplicas deprecatedCount failed failureThreshold fullyLabeledReplicas generation
    healthCheckNodePort hostPort initialDelaySeconds minReadySeconds nodePort number numberAvailable
    numberUnavailable observedGeneration partition periodSeconds readyReplicas replicas signal
    sizeBytes succeeded successThreshold timeoutSeconds unavailableReplicas
    updatedNumberScheduled updatedReplicas
    """
)
# The same names, but behind a pointer in these types.
_KEPT = _words(
    """
    AzureDiskVolumeSource.readOnly CSIVolumeSource.readOnly ClientIPConfig.timeoutSeconds
    DeploymentSpec.replicas MutatingWebhook.timeoutSeconds PodSpec.priority
    ReplicaSetSpec.replicas ReplicationControllerSpec.replicas StatefulSetSpec.replicas
    ValidatingWebhook.timeoutSeconds VolumeNodeResources.count
    RollingUpdateStatefulSetStrategy.partition StatefulSetStatus.availableReplicas
    HorizontalPodAutoscalerCondition.observedGeneration
    HorizontalPodAutoscalerStatus.observedGeneration
    """
)
# Optional texts behind a pointer: kept when empty. All other optional texts are dropped.
_KEPT_TEXT = _words(
    """
    appProtocol cachingMode capacityKey completionMode currentVolumeAttributesClassName
    endpointsNamespace failedIndexes fsGroupChangePolicy gmsaCredentialSpec
    gmsaCredentialSpecName holderIdentity hostnameOverride ingressClassName initiatorName
    internalTrafficPolicy ipFamilyPolicy ipMode loadBalancerClass localhostProfile managedBy
    mode mountPropagation nodeAffinityPolicy nodeTaintsPolicy pathType podGroupName
    podReplacementPolicy preemptionPolicy preferredHolder procMount reclaimPolicy
    recursiveReadOnly resourceClaimName resourceClaimTemplateName runAsUserName runtimeClassName
    scope seLinuxChangePolicy secretNamespace selectPolicy service stopSignal strategy
    succeededIndexes supplementalGroupsPolicy timeZone trafficDistribution
    unhealthyPodEvictionPolicy volumeAttributesClassName volumeBindingMode volumeMode zone
    IngressClassParametersReference.apiGroup TypedLocalObjectReference.apiGroup
    TypedObjectReference.apiGroup AllocatedDeviceStatus.shareID CSIDriverSpec.fsGroupPolicy
    CustomResourceDefinitionVersion.deprecationWarning
    CustomResourceSubresourceScale.labelSelectorPath Device.nodeName DeviceAttribute.string
    DeviceAttribute.version DeviceClassSpec.extendedResourceName
    DeviceConstraint.distinctAttribute DeviceConstraint.matchAttribute
    DeviceRequestAllocationResult.shareID DeviceTaintSelector.device DeviceTaintSelector.driver
    DeviceTaintSelector.pool JSONSchemaProps.$ref JSONSchemaProps.x-kubernetes-list-type
    JSONSchemaProps.x-kubernetes-map-type MatchResources.matchPolicy
    MutatingAdmissionPolicySpec.failurePolicy MutatingWebhook.failurePolicy
    MutatingWebhook.matchPolicy MutatingWebhook.reinvocationPolicy
    ParamRef.parameterNotFoundAction ResourceSliceSpec.nodeName
    ResourceSliceSpec.partitionTypeAttribute ServiceReference.path
    StorageHealthCondition.accessMode ValidatingAdmissionPolicySpec.failurePolicy
    ValidatingWebhook.failurePolicy ValidatingWebhook.matchPolicy Validation.reason
    ValidationRule.reason VolumeAttachmentSource.persistentVolumeName WebhookClientConfig.url
    PodFailurePolicyOnExitCodesRequirement.containerName IngressPortStatus.error
    PortStatus.error AzureDiskVolumeSource.fsType CSIVolumeSource.fsType
    LocalVolumeSource.fsType Endpoint.hostname AzureDiskVolumeSource.kind ResourceHealth.message
    ClusterTrustBundleProjection.name discovery.EndpointPort.name
    IngressClassParametersReference.namespace TypedObjectReference.namespace Endpoint.nodeName
    EndpointAddress.nodeName discovery.EndpointPort.protocol HTTPGetAction.protocol
    NetworkPolicyPort.protocol Container.restartPolicy ClusterTrustBundleProjection.signerName
    PersistentVolumeClaimSpec.storageClassName HostPathVolumeSource.type
    PodDNSConfigOption.value
    """
)


def is_dropped(type_name: str, field: str, schema_type: str, group: str = "") -> bool:
    """Does a zero value of this optional field mean that it is not set?

    The group tells types of one name apart.
    """
    qualified = f"{type_name}.{field}"
    if schema_type == "string":
        return _KEPT_TEXT.isdisjoint((field, qualified, f"{group}.{qualified}"))
    if schema_type in ("boolean", "integer", "number"):
        return field in _DROPPED and qualified not in _KEPT
    return schema_type in ("list", "map", "bytes")
