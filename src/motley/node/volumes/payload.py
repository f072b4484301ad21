"""The files of ConfigMap, Secret, downward API and projected volumes. Pure.

A payload maps relative paths to content and mode; `atomic` writes it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from motley.api.views.core import ConfigMap, Secret
from motley.api.views.pod import (
    DownwardAPIVolumeSource,
    KeyToPath,
    Pod,
    Volume,
)
from motley.node.environment import ConfigError, Lookup, field_value, resource_value


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume."""

    content: bytes
    mode: int
    uid: int | None = None  # who owns it; None: root


Payload = dict[str, File]


def of(
    volume: Volume,
    pod: Pod,
    lookup: Lookup,
    facts: Mapping[str, str],
    allocatable: Mapping[str, int],
) -> Payload | None:
    """The files of a volume, or None if it is of another kind. Raises ConfigError."""
    if volume.config_map is not None:
        source = volume.config_map
        found = _config_map(lookup.config_map(source.name))
        what = f'configmap "{source.name}"'
        return _select(what, found, source.items, source.default_mode, source.optional)
    if volume.secret is not None:
        hidden = volume.secret
        found = _secret(lookup.secret(hidden.secret_name))
        what = f'secret "{hidden.secret_name}"'
        return _select(what, found, hidden.items, hidden.default_mode, hidden.optional)
    if volume.downward_api is not None:
        mode = volume.downward_api.default_mode
        return _downward(volume.downward_api, pod, facts, allocatable, mode)
    if volume.projected is not None:
        mode = volume.projected.default_mode
        files: Payload = {}
        for index, part in enumerate(volume.projected.sources):
            if ref := part.config_map:
                found = _config_map(lookup.config_map(ref.name))
                what = f'configmap "{ref.name}"'
                files |= _select(what, found, ref.items, mode, ref.optional)
            if ref := part.secret:
                found = _secret(lookup.secret(ref.name))
                files |= _select(f'secret "{ref.name}"', found, ref.items, mode, ref.optional)
            if part.downward_api is not None:
                files |= _downward(part.downward_api, pod, facts, allocatable, mode)
            if (wanted := part.service_account_token) is not None:
                token = lookup.token(wanted.audience, wanted.expiration_seconds)
                if token is None:
                    account = pod.spec.service_account_name or "default"
                    raise ConfigError(f'no token of service account "{account}" yet')
                files[_safe(wanted.path)] = _for_one(token.encode(), mode, pod)
            if (bundle := part.cluster_trust_bundle) is not None:
                files[_safe(bundle.path)] = _for_one(lookup.trust_anchors(bundle), mode, pod)
            if (certificate := part.pod_certificate) is not None:
                key, chain = lookup.credential(volume.name, index)
                for path, content in (
                    (certificate.credential_bundle_path, key + chain),
                    (certificate.key_path, key),
                    (certificate.certificate_chain_path, chain),
                ):
                    if path:
                        files[_safe(path)] = _for_one(content, mode, pod)
        return files
    return None


def _for_one(content: bytes, mode: int, pod: Pod) -> File:
    """A file that only the pod's user or group is to read, where the pod says who they are."""
    context = pod.spec.security_context
    user = _user(pod)
    has_group = context is not None and context.fs_group is not None
    return File(content, 0o600 if user is not None or has_group else mode, user)


def _user(pod: Pod) -> int | None:
    """The one user as whom all containers run; None where they differ or do not say."""
    of_pod = pod.spec.security_context
    default = of_pod.run_as_user if of_pod is not None else None
    users = set()
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        own = container.security_context.run_as_user if container.security_context else None
        users.add(own if own is not None else default)
    return users.pop() if len(users) == 1 else None


def _config_map(found: ConfigMap | None) -> dict[str, bytes] | None:
    if found is None:
        return None
    text = {k: v.encode() for k, v in found.data.items()}
    return text | {k: base64.b64decode(v) for k, v in found.binary_data.items()}


def _secret(found: Secret | None) -> dict[str, bytes] | None:
    if found is None:
        return None
    return {k: base64.b64decode(v) for k, v in found.data.items()}


def _select(
    what: str,
    data: Mapping[str, bytes] | None,
    items: Sequence[KeyToPath],
    default_mode: int,
    optional: bool,
) -> Payload:
    if data is None:
        if optional:
            return {}
        raise ConfigError(f"{what} not found")
    if not items:
        return {_safe(k): File(v, default_mode) for k, v in data.items()}
    files: Payload = {}
    for item in items:
        if item.key not in data:
            if optional:
                continue
            raise ConfigError(f"references non-existent config key: {item.key} in {what}")
        mode = item.mode if item.mode is not None else default_mode
        files[_safe(item.path)] = File(data[item.key], mode)
    return files


def _downward(
    source: DownwardAPIVolumeSource,
    pod: Pod,
    facts: Mapping[str, str],
    allocatable: Mapping[str, int],
    default_mode: int,
) -> Payload:
    files: Payload = {}
    for item in source.items:
        if item.field_ref is not None:
            text = field_value(pod, item.field_ref.field_path, facts)
        elif item.resource_field_ref is not None:
            text = resource_value(pod, item.resource_field_ref, None, allocatable)
        else:
            continue
        mode = item.mode if item.mode is not None else default_mode
        files[_safe(item.path)] = File(text.encode(), mode)
    return files


def _safe(path: str) -> str:
    """Refuse a path that would leave the volume or touch the writer's own names."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or path.startswith(".."):
        raise ConfigError(f"invalid path in volume: {path!r}")
    return str(pure)
