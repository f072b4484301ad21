"""Rules for the security contexts of pods and containers."""

import re
from typing import Any

from motley.api.validation.errors import Document, Errors, forbidden, invalid, one_of, required

_ID_MAX = 2**31 - 1
_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
# The internal field names that Kubernetes shows when it refuses a whole security context.
_SHOWN = (
    "Capabilities",
    "Privileged",
    "SELinuxOptions",
    "WindowsOptions",
    "RunAsUser",
    "RunAsGroup",
    "RunAsNonRoot",
    "ReadOnlyRootFilesystem",
    "AllowPrivilegeEscalation",
    "ProcMount",
    "SeccompProfile",
    "AppArmorProfile",
)


APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LINUX_ONLY = (
    "appArmorProfile",
    "seLinuxOptions",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "shareProcessNamespace",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seccompProfile",
)


def apparmor(field: str, profile: str) -> Errors:
    """A profile as old clients name it: in an annotation."""
    known = profile in ("", "runtime/default", "unconfined") or profile.startswith("localhost/")
    if not known:
        yield invalid(field, profile, f'invalid AppArmor profile name: "{profile}"')


def not_on_windows(field: str, spec: Document) -> Errors:
    """What makes no sense on Windows."""
    detail = "cannot be set for a windows pod"
    context = spec.get("securityContext") or {}
    for name in _LINUX_ONLY:
        if context.get(name) is not None:
            yield forbidden(f"{field}.securityContext.{name}", detail)
    for name in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(name):
            yield forbidden(f"{field}.{name}", detail)


def pod_context(field: str, context: Document | None) -> Errors:
    """The security context of a pod."""
    if context is None:
        return
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        yield from _id(f"{field}.{name}", context.get(name))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id(f"{field}.supplementalGroups[{index}]", group)
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        name = sysctl.get("name", "")
        if not name:
            yield required(f"{field}.sysctls[{index}].name")
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            yield invalid(
                f"{field}.sysctls[{index}].name",
                name,
                f"must have at most 253 characters and match regex ^{_SYSCTL}$",
            )
    yield from one_of(
        f"{field}.fsGroupChangePolicy",
        context.get("fsGroupChangePolicy"),
        ("Always", "OnRootMismatch"),
    )
    yield from _seccomp(f"{field}.seccompProfile", context.get("seccompProfile"))


def container_context(field: str, context: Document | None) -> Errors:
    """The security context of a container."""
    if context is None:
        return
    for name in ("runAsUser", "runAsGroup"):
        yield from _id(f"{field}.{name}", context.get(name))
    yield from _seccomp(f"{field}.seccompProfile", context.get("seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        shown = {name: context.get(name[0].lower() + name[1:]) for name in _SHOWN}
        yield invalid(
            field,
            shown,
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        )


def _id(field: str, value: Any) -> Errors:
    if value is not None and not 0 <= value <= _ID_MAX:
        yield invalid(field, value, f"must be between 0 and {_ID_MAX}, inclusive")


def _seccomp(field: str, profile: Document | None) -> Errors:
    if profile is None:
        return
    kind = profile.get("type")
    if not kind:
        yield required(f"{field}.type", "type is required when seccompProfile is set")
        return
    yield from one_of(f"{field}.type", kind, _SECCOMP)
    if kind == "Localhost" and not profile.get("localhostProfile"):
        yield required(f"{field}.localhostProfile", "must be set when seccomp type is Localhost")
    elif kind != "Localhost" and profile.get("localhostProfile") is not None:
        yield invalid(
            f"{field}.localhostProfile",
            profile["localhostProfile"],
            "can only be set when seccomp type is Localhost",
        )
