"""Fields that always show, also when nobody said anything about them.

Kubernetes writes some fields of its types even when they are empty: `rules: null`,
`currentReplicas: 0`. Those are mostly the fields its published schema calls required.
Filling them in here, once and by schema, means that no kind has to list its own.

Invariant: an absent part stays absent; only what is there is completed. (The schema does not say
which required parts are pointers: `selector: null` and `selector: {}` mean different things.)
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from motley.api import schema
from motley.api.schema import Field, Schema

Document = dict[str, Any]

_ZERO: dict[str, Callable[[], Any]] = {
    "string": str,
    "integer": int,
    "number": int,
    "boolean": bool,
    "object": dict,
    "quantity": lambda: "0",
    "int-or-string": int,
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Written although the schema calls them optional, and the other way round.
_ALSO_SHOWN = _words(
    """
    AllocatedDeviceStatus.conditions AzureFilePersistentVolumeSource.secretNamespace
    CSINodeDriver.topologyKeys ContainerImage.names ContainerStateRunning.startedAt
    ContainerStateTerminated.finishedAt ContainerStateTerminated.startedAt
    CustomResourceDefinitionStatus.conditions CustomResourceDefinitionStatus.storedVersions
    DaemonSetCondition.status DaemonSetCondition.type DeploymentCondition.status
    DeploymentCondition.type DeviceClaim.requests EventSeries.lastObservedTime
    NodeRuntimeHandler.name PodDisruptionBudgetStatus.currentHealthy
    PodDisruptionBudgetStatus.desiredHealthy PodDisruptionBudgetStatus.disruptionsAllowed
    PodDisruptionBudgetStatus.expectedPods PodFailurePolicyOnPodConditionsPattern.status
    ProjectedVolumeSource.sources ReplicaSetCondition.status ReplicaSetCondition.type
    ResourcePolicyRule.namespaces StatefulSetCondition.status StatefulSetCondition.type
    StatefulSetOrdinals.start StatefulSetStatus.availableReplicas
    TypedLocalObjectReference.apiGroup TypedObjectReference.apiGroup VolumeError.time
    """
)
_HIDDEN = _words(
    """
    CapacityRequestPolicyRange.min Container.image ContainerRestartRule.action
    ContainerRestartRuleOnExitCodes.operator CounterSet.counters
    DeviceCounterConsumption.counters FlowSchemaCondition.type ImageVolumeStatus.imageRef
    ParentReference.name ParentReference.resource PodCertificateProjection.keyType
    PodCertificateProjection.signerName PodSpec.containers
    PriorityLevelConfigurationCondition.type TokenReviewSpec.token
    ValidatingAdmissionPolicyBindingSpec.policyName
    ValidatingAdmissionPolicyBindingSpec.validationActions
    """
)
# Parts that are no pointers: empty, but there.
_PARTS = _words(
    """
    AllocationResult.devices ContainerStatus.lastState ContainerStatus.state
    CustomResourceDefinitionStatus.acceptedNames Endpoint.conditions IngressServiceBackend.port
    IngressStatus.loadBalancer MutatingWebhook.clientConfig ServiceStatus.loadBalancer
    ValidatingWebhook.clientConfig
    """
)
_NULL_TEXT = frozenset({"apiGroup", "secretNamespace"})  # behind a pointer: null, not empty


def _is_shown(owner: str, name: str, field: Field) -> bool:
    qualified = f"{owner}.{name}"
    if field.schema.type == "object":
        return qualified in _PARTS
    if field.schema.type in ("time", "microtime") and owner.endswith("Condition"):
        return True
    qualified = f"{owner}.{name}"
    return qualified in _ALSO_SHOWN or (field.is_required and qualified not in _HIDDEN)


def _maker(name: str, field: Field) -> Callable[[], Any] | None:
    return None if name in _NULL_TEXT else _ZERO.get(field.schema.type)


@cache
def _plan(node: Schema) -> tuple[tuple[tuple[str, Any], ...], tuple[tuple[str, Schema], ...]]:
    """What to fill in here (with a maker of it), and where to look further."""
    fill: list[tuple[str, Any]] = []
    deeper: list[tuple[str, Schema]] = []
    for name, field in node.fields.items():
        if _is_shown(node.name, name, field):
            fill.append((name, _maker(name, field)))
        inner = field.schema
        if inner.type == "object" or (inner.items is not None and inner.items.type == "object"):
            deeper.append((name, inner))
    return tuple(fill), tuple(deeper)


def complete(node: Schema, obj: Document) -> None:
    """Fill in what always shows, in place, here and in every part that is there."""
    fill, deeper = _plan(node)
    for name, make in fill:
        if name not in obj:
            obj[name] = make() if make is not None else None
        elif obj[name] == []:
            obj[name] = None
    for name, inner in deeper:
        found = obj.get(name)
        if not found and not isinstance(found, dict):
            continue
        if inner.type == "object":
            complete(inner, found)
        elif inner.items is not None:
            for item in found if isinstance(found, list) else found.values():
                complete(inner.items, item)


_FRAME = frozenset({"metadata", "kind", "apiVersion"})


def of_kind(
    api_version: str, kind: str, obj: Document, *, complete_parts: frozenset[str] = frozenset()
) -> None:
    """Complete an object of a kind; its metadata and its frame are the server's business.

    `complete_parts` need no look.
    """
    node = schema.of_type(api_version, kind)
    for name, field in node.fields.items():
        if name in _FRAME or name in complete_parts:
            continue
        found = obj.get(name)
        if isinstance(found, dict) and field.schema.type == "object":
            complete(field.schema, found)
        elif isinstance(found, list) and field.schema.items is not None:
            for item in found:
                if isinstance(item, dict):
                    complete(field.schema.items, item)
        elif _is_shown(node.name, name, field):
            make = _maker(name, field)
            obj.setdefault(name, make() if make is not None else None)
            if obj[name] == []:
                obj[name] = None
