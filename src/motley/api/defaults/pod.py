"""Defaults of pods and of everything that carries a pod template.

A pod gets a little more than a template: requests from limits, host ports, service links.
"""

from typing import Any

from motley.api import quantity

Document = dict[str, Any]

_FILE_MODE = 0o644


def pod(obj: Document) -> None:
    """A Pod."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("enableServiceLinks", True)
    for container in _containers(spec):
        _request_limits(container.get("resources"))
        if spec.get("hostNetwork"):
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort", 0))
    pod_spec(spec)


def template(spec: Document) -> None:
    """The `template` of a workload's spec."""
    found = spec.setdefault("template", {})
    found.setdefault("metadata", {})
    pod_spec(found.setdefault("spec", {}))


def pod_spec(spec: Document) -> None:
    """A PodSpec, wherever it stands."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1  # as Kubernetes reads it: at once, but politely
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    # The old name of the field mirrors the new one, in both directions.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in _containers(spec):
        _container(container)
    for volume_ in spec.get("volumes") or ():
        volume(volume_)


def _containers(spec: Document) -> list[Document]:
    return [
        *(spec.get("initContainers") or ()),
        *(spec.get("containers") or ()),
        *(spec.get("ephemeralContainers") or ()),
    ]


def _request_limits(resources: Document | None) -> None:
    """Who limits but does not request means: reserve that much."""
    limits = (resources or {}).get("limits")
    if resources is None or not limits:
        return
    requests = resources.setdefault("requests", {})
    for name, amount in limits.items():
        requests.setdefault(name, amount)


def request_pod_level(spec: Document) -> None:
    """Resources of the whole pod: what its containers ask for together, or else the limit.

    The server sets this on a new pod, and nobody owns it: no default of the type, because it
    follows from all the containers.
    """
    resources = spec.get("resources") or {}
    for name, limit in (resources.get("limits") or {}).items():
        asked = [
            amount
            for container in spec.get("containers") or ()
            if (amount := ((container.get("resources") or {}).get("requests") or {}).get(name))
        ]
        total = sum(quantity.quantity(amount).nano for amount in asked)
        wanted = (
            str(quantity.Quantity(total, quantity.quantity(asked[0]).format)) if asked else limit
        )
        resources.setdefault("requests", {}).setdefault(name, wanted)


def _container(container: Document) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        _field_reference(source.get("fieldRef"))
        _resource_reference(source.get("resourceFieldRef"))
        _file_reference(source.get("fileKeyRef"))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            _probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http_get(hook.get("httpGet"))


def pull_policy(image: str) -> str:
    """A moving tag is pulled every time, a fixed one once."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    tag = name.partition(":")[2] or "latest"
    return "Always" if tag == "latest" else "IfNotPresent"


def _probe(probe: Document) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _http_get(probe.get("httpGet"))
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _http_get(action: Document | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _field_reference(reference: Document | None) -> None:
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _resource_reference(reference: Document | None) -> None:
    if reference is not None:
        reference.setdefault("divisor", "0")


def _file_reference(reference: Document | None) -> None:
    if reference is not None:
        reference.setdefault("optional", False)


_SOURCE_DEFAULTS: dict[str, Document] = {
    "secret": {"defaultMode": _FILE_MODE},
    "configMap": {"defaultMode": _FILE_MODE},
    "downwardAPI": {"defaultMode": _FILE_MODE},
    "projected": {"defaultMode": _FILE_MODE},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "kind": "Shared",
        "fsType": "ext4",
        "readOnly": False,
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def volume(volume_: Document) -> None:
    """A volume of a pod, or the source part of a PersistentVolume."""
    if not any(key != "name" for key in volume_):
        volume_["emptyDir"] = {}
    volume_source(volume_)
    if (image := volume_.get("image")) is not None:
        image.setdefault("pullPolicy", pull_policy(image.get("reference", "")))
    for item in (volume_.get("downwardAPI") or {}).get("items") or ():
        _field_reference(item.get("fieldRef"))
        _resource_reference(item.get("resourceFieldRef"))
    for source in (volume_.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_reference(item.get("fieldRef"))
            _resource_reference(item.get("resourceFieldRef"))
    claim = (volume_.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("metadata", {})
        spec = claim.setdefault("spec", {})
        spec.setdefault("resources", {})
        spec.setdefault("volumeMode", "Filesystem")


def volume_source(source: Document) -> None:
    """What the kinds of storage themselves default."""
    for name, values in _SOURCE_DEFAULTS.items():
        if (given := source.get(name)) is not None:
            for key, value in values.items():
                given.setdefault(key, value)
