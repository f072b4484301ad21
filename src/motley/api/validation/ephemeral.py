"""Rules for ephemeral containers: what they may be, and that they only come and never change."""

from motley.api.validation import container, pod, volume
from motley.api.validation.errors import Document, Errors, forbidden, not_found

_FIELD = "spec.ephemeralContainers"
_MIRROR = "kubernetes.io/config.mirror"
# In the order Kubernetes names them. Nobody waits for these containers, connects to them or
# restarts them, and the node has no resources set aside for them.
_NOT_ALLOWED = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)


def update(new: Document, old: Document) -> Errors:
    """A pod with more ephemeral containers."""
    spec = new.get("spec") or {}
    wanted = spec.get("ephemeralContainers") or []
    yield from pod.pod_spec("spec", spec)
    yield from containers(spec)
    if (old.get("metadata") or {}).get("annotations", {}).get(_MIRROR):
        yield forbidden("", "static pods do not support ephemeral containers")
    by_name = {c.get("name"): c for c in wanted}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        after = by_name.get(before.get("name"))
        if after is None:
            yield forbidden(
                _FIELD, f'existing ephemeral containers "{before["name"]}" may not be removed\n'
            )
        elif after != before:
            changed = sorted(k for k in {*after, *before} if after.get(k) != before.get(k))
            yield forbidden(
                _FIELD,
                f'existing ephemeral containers "{before["name"]}" may not be changed\n'
                f"{', '.join(changed)}",
            )


def containers(spec: Document) -> Errors:
    """The ephemeral containers of a pod, each on its own."""
    given = spec.get("ephemeralContainers") or []
    plain = [{k: v for k, v in c.items() if k not in _NOT_ALLOWED} for c in given]
    usable = volume.usable(spec.get("volumes") or [])
    yield from container.containers(_FIELD, plain, usable, init=False)
    targets = {
        c.get("name") for part in ("containers", "initContainers") for c in spec.get(part) or ()
    }
    for index, one in enumerate(given):
        at = f"{_FIELD}[{index}]"
        target = one.get("targetContainerName")
        if target and target not in targets:
            yield not_found(f"{at}.targetContainerName", target)
        for name in _NOT_ALLOWED:
            if one.get(name):
                yield forbidden(f"{at}.{name}", "cannot be set for an Ephemeral Container")
        for number, mount in enumerate(one.get("volumeMounts") or ()):
            for name in ("subPath", "subPathExpr"):
                if mount.get(name):
                    yield forbidden(
                        f"{at}.volumeMounts[{number}].{name}",
                        "cannot be set for an Ephemeral Container",
                    )
