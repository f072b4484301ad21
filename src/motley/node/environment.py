"""A container's environment, command and arguments.

Pure: ConfigMaps and Secrets are given as a lookup. `$(NAME)` refers to a variable defined
earlier, `$$(NAME)` stands for itself, an unknown name stays as written.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, Protocol

from motley.api import quantity
from motley.api.views.core import ConfigMap, Secret, Service
from motley.api.views.pod import Container, EnvVarSource, Pod, ResourceFieldSelector
from motley.api.views.volume import ClusterTrustBundleProjection

_FIELD_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigError(Exception):
    """The container cannot be made from what the spec refers to; retried until it can."""


class Credential(NamedTuple):
    """A private key and the certificates that go with it, each in PEM."""

    private_key: bytes
    chain: bytes


class Lookup(Protocol):
    """Finds the objects a pod refers to, in its own namespace."""

    def config_map(self, name: str) -> ConfigMap | None:
        """The ConfigMap, or None when it does not exist."""

    def secret(self, name: str) -> Secret | None:
        """The Secret, or None when it does not exist."""

    def token(self, audience: str, lifetime_s: int) -> str | None:
        """A token of the pod's service account, or None when there is none yet."""

    def trust_anchors(self, source: ClusterTrustBundleProjection) -> bytes:
        """The certificates of the bundles meant. Raises ConfigError."""

    def credential(self, volume: str, index: int) -> Credential:
        """The certificate for a source of a volume. Raises ConfigError while there is none."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` where the name is known; `$$` is one `$`."""
    out: list[str] = []
    i = 0
    while i < len(text):
        if text[i] != "$" or i + 1 == len(text):
            out.append(text[i])
            i += 1
        elif text[i + 1] == "$":
            out.append("$")
            i += 2
        elif text[i + 1] == "(" and (end := text.find(")", i + 2)) >= 0:
            name = text[i + 2 : end]
            out.append(variables.get(name, f"$({name})"))
            i = end + 1
        else:
            out.append("$")
            i += 1
    return "".join(out)


def expand_all(texts: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """`expand` over a command or its arguments."""
    return [expand(t, variables) for t in texts]


def resolve(
    pod: Pod,
    container: Container,
    lookup: Lookup,
    services: Mapping[str, str],
    facts: Mapping[str, str],
    allocatable: Mapping[str, int],
) -> dict[str, str]:
    """Every variable of a container.

    `services` are Service variables (weakest), `facts` the status fields of the downward API,
    `allocatable` stands in for limits that are not set. Raises ConfigError.
    """
    values = dict(services)
    for source in container.env_from:
        if source.config_map_ref:
            found = lookup.config_map(source.config_map_ref.name)
            data = dict(found.data) if found else None
            what, optional = f'configmap "{source.config_map_ref.name}"', source.config_map_ref
        elif source.secret_ref:
            secret = lookup.secret(source.secret_ref.name)
            data = _decoded(secret) if secret else None
            what, optional = f'secret "{source.secret_ref.name}"', source.secret_ref
        else:
            continue
        if data is None:
            if optional.optional:
                continue
            raise ConfigError(f"{what} not found")
        for key, value in sorted(data.items()):
            values[source.prefix + key] = value
    for variable in container.env:
        if variable.value_from is None:
            values[variable.name] = expand(variable.value, values)
            continue
        chosen = _value_from(variable.value_from, pod, container, lookup, facts, allocatable)
        if chosen is not None:
            values[variable.name] = chosen
    return values


def _decoded(secret: Secret) -> dict[str, str]:
    return {k: base64.b64decode(v).decode("utf-8", "replace") for k, v in secret.data.items()}


def _value_from(
    source: EnvVarSource,
    pod: Pod,
    container: Container,
    lookup: Lookup,
    facts: Mapping[str, str],
    allocatable: Mapping[str, int],
) -> str | None:
    if ref := source.config_map_key_ref:
        config_map = lookup.config_map(ref.name)
        data = config_map.data if config_map else None
        return _key("configmap", "ConfigMap", ref.name, ref.key, data, optional=ref.optional)
    if ref := source.secret_key_ref:
        secret = lookup.secret(ref.name)
        data = _decoded(secret) if secret else None
        return _key("secret", "Secret", ref.name, ref.key, data, optional=ref.optional)
    if source.field_ref:
        return field_value(pod, source.field_ref.field_path, facts)
    if source.resource_field_ref:
        return resource_value(pod, source.resource_field_ref, container, allocatable)
    return None


def _key(
    resource: str, kind: str, name: str, key: str, data: Mapping[str, str] | None, *, optional: bool
) -> str | None:
    if data is not None and key in data:
        return data[key]
    if optional:
        return None
    if data is None:
        raise ConfigError(f'{resource} "{name}" not found')
    raise ConfigError(f"couldn't find key {key} in {kind} {name}")


def field_value(pod: Pod, path: str, facts: Mapping[str, str]) -> str:
    """A field of the pod itself, as the downward API names it."""
    meta = pod.metadata
    if match := _FIELD_KEY.fullmatch(path):
        table = meta.labels if match[1] == "labels" else meta.annotations
        return table.get(match[2], "")
    simple: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: _lines(meta.labels),
        "metadata.annotations": lambda: _lines(meta.annotations),
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
    }
    if path in simple:
        return simple[path]()
    if path in facts:
        return facts[path]
    raise ConfigError(f"unsupported fieldPath: {path}")


def _lines(table: Mapping[str, str]) -> str:
    quoted = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in table.items()}
    return "\n".join(f'{k}="{v}"' for k, v in sorted(quoted.items()))


def resource_value(
    pod: Pod,
    ref: ResourceFieldSelector,
    container: Container | None,
    allocatable: Mapping[str, int],
) -> str:
    """A request or limit in units of `divisor`, rounded up."""
    if ref.container_name:
        everyone = [*pod.spec.containers, *pod.spec.init_containers]
        container = next((c for c in everyone if c.name == ref.container_name), None)
    if container is None:
        raise ConfigError(f"container {ref.container_name} not found")
    side, _, name = ref.resource.partition(".")
    requests, limits = container.resources.requests, container.resources.limits
    table = limits if side == "limits" else requests
    exact: Fraction
    if name in table:
        exact = Fraction(_exact(table[name]))
    elif side == "requests" and name in limits:
        exact = Fraction(_exact(limits[name]))
    elif side == "limits" and name in allocatable:
        exact = Fraction(allocatable[name], 1000 if name == "cpu" else 1)
    else:
        exact = Fraction(0)
    divisor = Fraction(_exact(ref.divisor)) or Fraction(1)
    return str(-(-exact // divisor))


def _exact(value: str | int | float) -> Decimal | Fraction:
    parsed: Decimal | Fraction = quantity.parse(value)
    return parsed


def service_variables(
    services: Iterable[Service], namespace: str, *, all_services: bool
) -> dict[str, str]:
    """Docker-style variables for Services, `kubernetes` always among them.

    DNS is the better way; old programs and every in-cluster client library read these.
    """
    chosen: dict[str, Service] = {}
    for service in services:
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        is_master = service.key == ("default", "kubernetes")
        if is_master:
            chosen.setdefault("kubernetes", service)
        if all_services and service.metadata.namespace == namespace:
            chosen[service.metadata.name] = service
    out: dict[str, str] = {}
    for name, service in sorted(chosen.items()):
        prefix = name.upper().replace("-", "_")
        address = service.spec.cluster_ip
        first = service.spec.ports[0]
        out[f"{prefix}_SERVICE_HOST"] = address
        out[f"{prefix}_SERVICE_PORT"] = str(first.port)
        for port in service.spec.ports:
            if port.name:
                suffix = port.name.upper().replace("-", "_")
                out[f"{prefix}_SERVICE_PORT_{suffix}"] = str(port.port)
        out[f"{prefix}_PORT"] = f"{first.protocol.lower()}://{address}:{first.port}"
        for port in service.spec.ports:
            base = f"{prefix}_PORT_{port.port}_{port.protocol}"
            out[base] = f"{port.protocol.lower()}://{address}:{port.port}"
            out[f"{base}_PROTO"] = port.protocol.lower()
            out[f"{base}_PORT"] = str(port.port)
            out[f"{base}_ADDR"] = address
    return out
