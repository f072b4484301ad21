"""The stricter rules: what a pod of the level `restricted` must say about itself."""

from motley.apiserver.admission.podsecurity.rules import (
    Pod,
    Violation,
    added,
    containers_named,
    plural,
    profile,
    quoted,
    seccomp_baseline,
)

_RESTRICTED_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)


def capabilities_restricted(pod: Pod) -> Violation | None:
    """Keeping capabilities, or adding more than one harmless one."""
    if pod.is_windows:
        return None
    keeping = [
        name
        for name, context, _ in pod.containers()
        if "ALL" not in ((context.get("capabilities") or {}).get("drop") or ())
    ]
    details = []
    if keeping:
        details.append(
            f'{containers_named(keeping)} must set securityContext.capabilities.drop=["ALL"]'
        )
    if adding := added(pod, frozenset({"NET_BIND_SERVICE"}), ""):
        details.append(adding.detail)
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def allow_privilege_escalation(pod: Pod) -> Violation | None:
    """Becoming more than the process was started as."""
    if pod.is_windows:
        return None
    bad = [n for n, c, _ in pod.containers() if c.get("allowPrivilegeEscalation") is not False]
    detail = f"{containers_named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail) if bad else None


def restricted_volumes(pod: Pod) -> Violation | None:
    """Volumes other than those the cluster manages."""
    bad: list[str] = []
    types: set[str] = set()
    for volume in pod.spec.get("volumes") or ():
        sources = [key for key in volume if key != "name"]
        if any(source in _RESTRICTED_VOLUMES for source in sources):
            continue
        bad.append(str(volume.get("name")))
        types.add(sources[0] if sources else "unknown")
    if not bad:
        return None
    uses = "uses" if len(bad) == 1 else "use"
    what = plural("restricted volume type", len(types))
    detail = f"{plural('volume', len(bad))} {quoted(bad)} {uses} {what} {quoted(sorted(types))}"
    return Violation("restricted volume types", detail)


def run_as_non_root(pod: Pod) -> Violation | None:
    """Running as root, or not saying that one does not."""
    if pod.has_own_users:
        return None
    whole = pod.context.get("runAsNonRoot")
    setters = ["pod"] if whole is False else []
    said = [(name, context.get("runAsNonRoot")) for name, context, _ in pod.containers()]
    explicit = [name for name, value in said if value is False]
    if explicit:
        setters.append(containers_named(explicit))
    reason = "runAsNonRoot != true"
    if setters:
        detail = f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
        return Violation(reason, detail)
    implicit = [name for name, value in said if value is None and not whole]
    detail = f"pod or {containers_named(implicit)} must set securityContext.runAsNonRoot=true"
    return Violation(reason, detail) if implicit else None


def run_as_user(pod: Pod) -> Violation | None:
    """Naming root by its number."""
    if pod.has_own_users:
        return None
    setters = ["pod"] if pod.context.get("runAsUser") == 0 else []
    explicit = [name for name, context, _ in pod.containers() if context.get("runAsUser") == 0]
    if explicit:
        setters.append(containers_named(explicit))
    detail = f"{' and '.join(setters)} must not set runAsUser=0"
    return Violation("runAsUser=0", detail) if setters else None


def seccomp_restricted(pod: Pod) -> Violation | None:
    """Not turning seccomp on."""
    if pod.is_windows:
        return None
    if found := seccomp_baseline(pod):
        return found
    _, _, implicit = profile(pod, "seccompProfile")
    detail = (
        f"pod or {containers_named(implicit)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"'
    )
    return Violation("seccompProfile", detail) if implicit else None
