"""Rules for pods and pod templates, and for what may change in a pod once it exists."""

from typing import Any

from motley.api import codec, names
from motley.api.validation import container, meta, resources, scheduling, security, volume
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    invalid,
    ip_address,
    named,
    one_of,
    required,
    unsupported,
)
from motley.lib.memo import Memo

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_DEADLINE_MAX = 2**31 - 1
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


# A pod that a node was given in a file and shows to the API.
_MIRROR = "kubernetes.io/config.mirror"


def create(obj: Document) -> Errors:
    """A new pod."""
    spec = obj.get("spec") or {}
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    for key, profile in annotations.items():
        if key.startswith(security.APPARMOR):
            yield from security.apparmor(f"metadata.annotations[{key}]", profile)
    mirrored = annotations.get(_MIRROR)
    if mirrored is not None and not spec.get("nodeName"):
        problem = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(f"metadata.annotations[{_MIRROR}]", mirrored, problem)
    yield from _sound_spec(spec)
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")


# Specs with nothing wrong. Pods of one template have the same, and most updates of a pod leave it.
_sound = Memo[bool](8 * 2**20)


def _sound_spec(spec: Document) -> Errors:
    """As `pod_spec` of a pod's own spec, but only once for those that are equal and sound."""
    looks = codec.encode(spec)
    if _sound.get(looks):
        return
    wrong = list(pod_spec("spec", spec))
    if not wrong:
        _sound.put(looks, True)
    yield from wrong


def template(field: str, given: Document) -> Errors:
    """The template of a workload."""
    metadata = given.get("metadata") or {}
    yield from meta.labels(f"{field}.labels", metadata.get("labels"))
    yield from meta.annotations(f"{field}.annotations", metadata.get("annotations"))
    spec = given.get("spec") or {}
    yield from pod_spec(f"{field}.spec", spec)
    if spec.get("ephemeralContainers"):
        yield forbidden(
            f"{field}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"
        )


def pod_spec(field: str, spec: Document) -> Errors:
    """What a pod is to be."""
    given = spec.get("volumes") or []
    yield from volume.volumes(f"{field}.volumes", given)
    usable = volume.usable(given)
    containers, inits = spec.get("containers") or [], spec.get("initContainers") or []
    if not containers:
        yield required(f"{field}.containers")
    yield from container.containers(f"{field}.containers", containers, usable, init=False)
    yield from container.containers(f"{field}.initContainers", inits, usable, init=True)
    yield from _unique_names(field, spec)
    yield from _host_ports(field, spec)
    yield from resources.requirements(f"{field}.resources", spec.get("resources"))
    yield from one_of(f"{field}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    yield from _dns(field, spec)
    yield from meta.labels(f"{field}.nodeSelector", spec.get("nodeSelector"))
    yield from security.pod_context(f"{field}.securityContext", spec.get("securityContext"))
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield required(f"{field}.imagePullSecrets[{index}].name")
    yield from scheduling.affinity(f"{field}.affinity", spec.get("affinity"))
    yield from _identity(field, spec)
    yield from scheduling.tolerations(f"{field}.tolerations", spec.get("tolerations"))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_address(f"{field}.hostAliases[{index}].ip", alias.get("ip", ""))
        for at, name in enumerate(alias.get("hostnames") or ()):
            yield from named(
                f"{field}.hostAliases[{index}].hostnames[{at}]",
                name,
                names.check_dns_subdomain(name),
            )
    yield from scheduling.spread(
        f"{field}.topologySpreadConstraints", spec.get("topologySpreadConstraints")
    )
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        yield from named(
            f"{field}.schedulingGates[{index}]", name, names.check_qualified_name(name)
        )
        if name in seen:
            yield duplicate(f"{field}.schedulingGates[{index}]", name)
        seen.add(name)


def _identity(field: str, spec: Document) -> Errors:
    for name in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(name):
            yield from named(f"{field}.{name}", spec[name], names.check_dns_subdomain(spec[name]))
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from named(f"{field}.{name}", spec[name], names.check_dns_label(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _DEADLINE_MAX:
        yield invalid(
            f"{field}.activeDeadlineSeconds",
            deadline,
            f"must be between 1 and {_DEADLINE_MAX}, inclusive",
        )
    system = (spec.get("os") or {}).get("name")
    if system and system not in ("linux", "windows"):
        yield unsupported(f"{field}.os", system, ("linux", "windows"))
    if system == "windows":
        yield from security.not_on_windows(field, spec)


def _unique_names(field: str, spec: Document) -> Errors:
    seen: set[str] = set()
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, given in enumerate(spec.get(part) or ()):
            name = given.get("name", "")
            if name and name in seen:
                yield duplicate(f"{field}.{part}[{index}].name", name)
            seen.add(name)


def _host_ports(field: str, spec: Document) -> Errors:
    on_host = bool(spec.get("hostNetwork"))
    seen: set[str] = set()
    for index, given in enumerate(spec.get("containers") or ()):
        for at, port in enumerate(given.get("ports") or ()):
            number = port.get("hostPort")
            path = f"{field}.containers[{index}].ports[{at}].hostPort"
            if on_host and number and number != port.get("containerPort"):
                yield invalid(path, number, "must match `containerPort` when `hostNetwork` is true")
            if not number:
                continue
            taken = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{number}"
            if taken in seen:
                yield duplicate(path, taken)
            seen.add(taken)


def _dns(field: str, spec: Document) -> Errors:
    policy, config = spec.get("dnsPolicy"), spec.get("dnsConfig")
    yield from one_of(f"{field}.dnsPolicy", policy, _DNS_POLICIES)
    if policy != "None":
        return
    if config is None:
        yield required(f"{field}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    elif not config.get("nameservers"):
        yield required(
            f"{field}.dnsConfig.nameservers",
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        )


def update(new: Document, old: Document) -> Errors:
    """A changed pod: almost nothing of its spec may change."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    yield from _sound_spec(spec)
    if spec == before:
        return
    for part in ("containers", "initContainers"):
        if len(spec.get(part) or ()) != len(before.get(part) or ()):
            yield forbidden(f"spec.{part}", "pod updates may not add or remove containers")
            return
    yield from _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    yield from _only_added(spec.get("tolerations") or [], before.get("tolerations") or [])
    if _fixed(spec, before) != _fixed(before, before):
        yield forbidden("spec", _MAY_CHANGE)


def _deadline(new: int | None, old: int | None) -> Errors:
    if old is not None and new is None:
        yield invalid(
            "spec.activeDeadlineSeconds",
            new,
            "must not update from a positive integer to nil value",
        )
    elif old is not None and new is not None and new > old:
        yield invalid(
            "spec.activeDeadlineSeconds", new, "must be less than or equal to previous value"
        )


def _only_added(new: list[Any], old: list[Any]) -> Errors:
    def identity(toleration: Document) -> Document:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    if any(identity(o) not in [identity(n) for n in new] for o in old):
        yield forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )


def _fixed(spec: Document, before: Document) -> Document:
    """The spec without what may change (and was checked on its own)."""
    found = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations")}
    for part in ("containers", "initContainers"):
        if found.get(part):
            found[part] = [{k: v for k, v in c.items() if k != "image"} for c in found[part]]
    if before.get("terminationGracePeriodSeconds", 0) < 0:
        found.pop("terminationGracePeriodSeconds", None)
    if before.get("schedulingGates"):  # a gated pod may lose gates and gain node selection
        for part in ("schedulingGates", "nodeSelector", "affinity"):
            found.pop(part, None)
    return found
