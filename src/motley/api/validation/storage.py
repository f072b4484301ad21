"""Rules for volumes, claims, classes and what drivers say of themselves."""

from typing import Any

from motley.api import names, quantity
from motley.api.validation import selector, volume
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    immutable,
    invalid,
    named,
    not_negative,
    one_of,
    required,
    too_long,
    unsupported,
)

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_PARAMETERS_MAX, _PARAMETERS_BYTES = 512, 256 * 1024
_NODE_ID_MAX = 256
_TOKEN_MIN_S, _TOKEN_MAX_S = 600, 2**32
_NOT_SOURCES = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)
_FIXED_SPEC = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)


def claim(obj: Document) -> Errors:
    """A PersistentVolumeClaim."""
    yield from claim_spec("spec", obj.get("spec") or {})


def claim_spec(field: str, spec: Document) -> Errors:
    """What a claim wants, wherever it stands."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{field}.accessModes", "at least 1 access mode is required")
    yield from selector.label_selector(f"{field}.selector", spec.get("selector"))
    yield from _access_modes(field, modes)
    yield from _storage_request(f"{field}.resources[storage]", spec)
    for part in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(part):
            yield from named(f"{field}.{part}", spec[part], names.check_dns_subdomain(spec[part]))
    yield from one_of(f"{field}.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        yield from _data_source(f"{field}.dataSource", source)
    if reference is not None:
        yield from _data_source(f"{field}.dataSourceRef", reference)
    if source is None or reference is None:
        return
    # Kubernetes shows a path here where the value should be, and a path has no JSON form.
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        yield invalid(field, {}, detail)
    elif any(source.get(part) != reference.get(part) for part in ("apiGroup", "kind", "name")):
        yield invalid(field, {}, "must match dataSourceRef")


def _access_modes(field: str, modes: list[str]) -> Errors:
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield unsupported(f"{field}.accessModes", mode, _ACCESS_MODES)
    known = set(modes) & set(_ACCESS_MODES)
    if "ReadWriteOncePod" in known and len(known) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{field}.accessModes", detail)


def _storage_request(field: str, spec: Document) -> Errors:
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        yield required(field)
    elif quantity.parse(amount) <= 0:
        yield invalid(field, amount, "must be greater than zero")


def _data_source(field: str, source: Document) -> Errors:
    for part in ("name", "kind"):
        if not source.get(part):
            yield required(f"{field}.{part}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        yield invalid(
            field,
            source.get("kind", ""),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        )
    if group:
        yield from named(f"{field}.apiGroup", group, names.check_dns_subdomain(group))
    if source.get("namespace"):
        name = source["namespace"]
        yield from named(f"{field}.namespace", name, names.check_dns_label(name))


def claim_update(new: Document, old: Document) -> Errors:
    """A changed claim: who is bound may ask for more, nothing else changes."""
    yield from claim(new)
    spec, before = dict(new.get("spec") or {}), dict(old.get("spec") or {})
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName", "")
        spec.setdefault("volumeName", "")
    if "storageClassName" not in before:
        before["storageClassName"] = spec.get("storageClassName")
        spec.setdefault("storageClassName", None)
    bound = (new.get("status") or {}).get("phase") == "Bound"
    size, size_before = _size(spec), _size(before)
    if bound:
        for part in (spec, before):
            resources = part.get("resources") or {}
            requests = {
                k: v for k, v in (resources.get("requests") or {}).items() if k != "storage"
            }
            part["resources"] = {**resources, "requests": requests}
            part.pop("volumeAttributesClassName", None)
    if spec != before:
        yield forbidden("spec", _FIXED_SPEC)
    have = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if size < size_before and size <= quantity.parse(have):
        yield forbidden(
            "spec.resources.requests.storage", "field can not be less than status.capacity"
        )
    yield from immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))


def _size(spec: Document) -> Any:
    return quantity.parse(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def persistent_volume(obj: Document) -> Errors:
    """A PersistentVolume."""
    yield from volume_spec("spec", obj.get("spec") or {})


def volume_spec(field: str, spec: Document) -> Errors:
    """What a volume is, in a PersistentVolume or inline in a VolumeAttachment."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{field}.accessModes")
    yield from _access_modes(field, modes)
    yield from _capacity(f"{field}.capacity", spec.get("capacity"))
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from one_of(f"{field}.persistentVolumeReclaimPolicy", policy, _RECLAIM)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        at = f"{field}.nodeAffinity.required"
        if affinity.get("required") is None:
            yield required(at, "must specify required node constraints")
        else:
            yield from selector.node_selector(at, affinity["required"])
    yield from _sources(field, spec)
    if policy == "Recycle" and (spec.get("hostPath") or {}).get("path") == "/":
        yield forbidden(
            f"{field}.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        )
    for part in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(part):
            yield from named(f"{field}.{part}", spec[part], names.check_dns_subdomain(spec[part]))
    yield from one_of(f"{field}.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)


def _capacity(field: str, capacity: dict[str, Any] | None) -> Errors:
    if not capacity:
        yield required(field)
    if set(capacity or ()) != {"storage"}:
        yield unsupported(field, capacity or None, ("storage",))
    for name, amount in (capacity or {}).items():
        if quantity.parse(amount) <= 0:
            yield invalid(f"{field}[{name}]", amount, "must be greater than zero")


def _sources(field: str, spec: Document) -> Errors:
    present = [name for name in spec if name not in _NOT_SOURCES and spec[name] is not None]
    if not present:
        yield required(field, "must specify a volume type")
        return
    for name in present[1:]:
        yield forbidden(f"{field}.{name}", "may not specify more than 1 volume type")
    name = present[0]
    if name == "local":
        if not spec["local"].get("path"):
            yield required(f"{field}.local.path")
        if spec.get("nodeAffinity") is None:
            yield required(f"{field}.nodeAffinity", "Local volume requires node affinity")
    elif name == "csi":
        yield from _csi(f"{field}.csi", spec["csi"])
    else:
        yield from volume.source(f"{field}.{name}", name, spec[name])


def _csi(field: str, source: Document) -> Errors:
    yield from driver_name(f"{field}.driver", source.get("driver", ""))
    if not source.get("volumeHandle"):
        yield required(f"{field}.volumeHandle")


def driver_name(field: str, name: str) -> Errors:
    """The name of a CSI driver, which is also a file name."""
    if not name:
        yield required(field)
        return
    if len(name) > names.LABEL_MAX:
        yield too_long(field, names.LABEL_MAX)
    yield from named(field, name, names.check_dns_subdomain(name.lower()))


def persistent_volume_update(new: Document, old: Document) -> Errors:
    """A changed PersistentVolume is still the same storage."""
    yield from persistent_volume(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if _storage(spec) != _storage(before):
        yield forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        )
    yield from immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))


def _storage(spec: Document) -> Document:
    return {k: v for k, v in spec.items() if k not in _NOT_SOURCES and v is not None}


def storage_class(obj: Document) -> Errors:
    """A StorageClass."""
    provisioner = obj.get("provisioner", "")
    if not provisioner:
        yield required("provisioner")
    else:
        wrong = names.check_qualified_name(provisioner.lower())
        yield from named("provisioner", provisioner.lower(), wrong)
    yield from _parameters(obj.get("parameters") or {})
    yield from one_of("reclaimPolicy", obj.get("reclaimPolicy") or None, ("Delete", "Retain"))
    yield from one_of(
        "volumeBindingMode", obj.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer")
    )


def _parameters(parameters: dict[str, str]) -> Errors:
    if len(parameters) > _PARAMETERS_MAX:
        yield too_long("parameters", _PARAMETERS_MAX)
        return
    if "" in parameters:
        yield invalid("parameters", "", "field can not be empty.")
    if sum(len(k) + len(v) for k, v in parameters.items()) > _PARAMETERS_BYTES:
        yield too_long("parameters", _PARAMETERS_BYTES)


def storage_class_update(new: Document, old: Document) -> Errors:
    """A changed StorageClass makes the same volumes as before."""
    yield from fixed(new, old, ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"))


def fixed(new: Document, old: Document, parts: tuple[str, ...]) -> Errors:
    """Parts that never change; Kubernetes shows no value for them."""
    for part in parts:
        if (new.get(part) or None) != (old.get(part) or None):
            yield invalid(part, None, "field is immutable")


def volume_attributes_class(obj: Document) -> Errors:
    """A VolumeAttributesClass."""
    yield from driver_name("driverName", obj.get("driverName", ""))
    yield from _parameters(obj.get("parameters") or {})
    if not obj.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


def volume_attributes_class_update(new: Document, old: Document) -> Errors:
    """A VolumeAttributesClass never changes what it means."""
    for part in ("driverName", "parameters"):
        yield from immutable(part, new.get(part), old.get(part))


def volume_attachment(obj: Document) -> Errors:
    """A VolumeAttachment."""
    spec = obj.get("spec") or {}
    yield from driver_name("spec.attacher", spec.get("attacher", ""))
    source = spec.get("source") or {}
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    both = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if inline is None and name is None:
        yield required("spec.source", both)
    elif inline is not None and name is not None:
        yield forbidden("spec.source", both)
    elif name == "":
        yield required(
            "spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"
        )
    node = spec.get("nodeName", "")
    yield from named("spec.nodeName", node, names.check_dns_subdomain(node))
    if name:
        yield from named("spec.source.persistentVolumeName", name, names.check_dns_subdomain(name))


def volume_attachment_update(new: Document, old: Document) -> Errors:
    """A VolumeAttachment's status changes, its spec does not."""
    yield from volume_attachment(new)
    yield from fixed(new, old, ("spec",))


def csi_node(obj: Document) -> Errors:
    """A CSINode."""
    seen: set[str] = set()
    for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        field = f"spec.drivers[{index}]"
        name = driver.get("name", "")
        yield from driver_name(f"{field}.name", name)
        node_id = driver.get("nodeID", "")
        if not node_id:
            yield required(f"{field}.nodeID")
        elif len(node_id) > _NODE_ID_MAX:
            detail = f"must be {_NODE_ID_MAX} characters or less"
            yield invalid(f"{field}.nodeID", node_id, detail)
        count = (driver.get("allocatable") or {}).get("count")
        yield from not_negative(f"{field}.allocatable.count", count)
        if name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)
        for key in driver.get("topologyKeys") or ():
            yield from named(field, key, names.check_qualified_name(key))


def csi_driver(obj: Document) -> Errors:
    """A CSIDriver."""
    spec = obj.get("spec") or {}
    yield from one_of(
        "spec.fsGroupPolicy",
        spec.get("fsGroupPolicy"),
        ("File", "None", "ReadWriteOnceWithFSType"),
    )
    seen: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        field = f"spec.tokenRequests[{index}]"
        audience, seconds = request.get("audience", ""), request.get("expirationSeconds")
        if audience in seen:
            yield duplicate(f"{field}.audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < _TOKEN_MIN_S:
            detail = "may not specify a duration less than 10 minutes"
            yield invalid(f"{field}.expirationSeconds", seconds, detail)
        elif seconds is not None and seconds > _TOKEN_MAX_S:
            detail = "may not specify a duration larger than 2^32 seconds"
            yield invalid(f"{field}.expirationSeconds", seconds, detail)
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in ("Persistent", "Ephemeral"):
            yield unsupported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))


def csi_driver_update(new: Document, old: Document) -> Errors:
    """A changed CSIDriver: others rely on how it attaches."""
    yield from csi_driver(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    # The field's name in the message is Kubernetes' own.
    yield from immutable(
        "spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired")
    )
    modes, modes_before = spec.get("volumeLifecycleModes"), before.get("volumeLifecycleModes")
    yield from immutable("spec.volumeLifecycleModes", modes, modes_before)


def csi_storage_capacity(obj: Document) -> Errors:
    """A CSIStorageCapacity."""
    name = obj.get("storageClassName", "")
    yield from named("storageClassName", name, names.check_dns_subdomain(name))
    for part in ("capacity", "maximumVolumeSize"):
        if obj.get(part) is not None and quantity.parse(obj[part]) < 0:
            yield invalid(part, obj[part], "must be greater than or equal to 0")
    yield from selector.label_selector("nodeTopology", obj.get("nodeTopology"))


def csi_storage_capacity_update(new: Document, old: Document) -> Errors:
    """A changed CSIStorageCapacity is about the same nodes and class."""
    for part in ("nodeTopology", "storageClassName"):
        yield from immutable(part, new.get(part), old.get(part))
