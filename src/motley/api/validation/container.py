"""Rules for containers: names, images, ports, environment, mounts, probes and hooks."""

from collections.abc import Collection
from typing import Any

from motley.api import names
from motley.api.validation import resources, security
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    invalid,
    named,
    not_found,
    not_negative,
    one_of,
    port_number,
    required,
    unsupported,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELD_PATHS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels",
        "metadata.annotations",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)


def containers(field: str, given: list[Any], volumes: Collection[str], *, init: bool) -> Errors:
    """A list of containers; `volumes` are the names they may mount."""
    for index, container in enumerate(given):
        at = f"{field}[{index}]"
        yield from _container(at, container, volumes)
        is_sidecar = container.get("restartPolicy") == "Always"
        if init and not is_sidecar:
            for name in ("lifecycle", *_PROBES):
                if container.get(name) is not None:
                    yield forbidden(
                        f"{at}.{name}",
                        "may not be set for init containers without restartPolicy=Always",
                    )


def _container(field: str, container: Document, volumes: Collection[str]) -> Errors:
    name = container.get("name", "")
    if not name:
        yield required(f"{field}.name")
    else:
        yield from named(f"{field}.name", name, names.check_dns_label(name))
    image = container.get("image", "")
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid(f"{field}.image", image, "must not have leading or trailing whitespace")
    yield from _lifecycle(f"{field}.lifecycle", container.get("lifecycle"))
    for probe in _PROBES:
        if container.get(probe) is not None:
            yield from _probe(f"{field}.{probe}", container[probe], probe)
    yield from _ports(f"{field}.ports", container.get("ports") or [])
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(f"{field}.env[{index}]", variable)
    for index, source in enumerate(container.get("envFrom") or ()):
        yield from _imported(f"{field}.envFrom[{index}]", source)
    yield from _mounts(f"{field}.volumeMounts", container.get("volumeMounts") or [], volumes)
    yield from one_of(f"{field}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    yield from resources.requirements(f"{field}.resources", container.get("resources"))
    yield from one_of(
        f"{field}.terminationMessagePolicy",
        container.get("terminationMessagePolicy"),
        ("File", "FallbackToLogsOnError"),
    )
    yield from security.container_context(
        f"{field}.securityContext", container.get("securityContext")
    )


def _ports(field: str, ports: list[Any]) -> Errors:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{field}[{index}]"
        name = port.get("name")
        if name:
            if wrong := names.check_port_name(name):
                yield from named(f"{at}.name", name, wrong)
            elif name in seen:
                yield duplicate(f"{at}.name", name)
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            yield required(f"{at}.containerPort")
        else:
            yield from port_number(f"{at}.containerPort", number)
        if port.get("hostPort"):
            yield from port_number(f"{at}.hostPort", port["hostPort"])
        protocol = port.get("protocol")
        if not protocol:
            yield required(f"{at}.protocol")
        else:
            yield from one_of(f"{at}.protocol", protocol, PROTOCOLS)


def _variable(field: str, variable: Document) -> Errors:
    name = variable.get("name", "")
    if not name:
        yield required(f"{field}.name")
    else:
        yield from named(f"{field}.name", name, names.check_env_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    at = f"{field}.valueFrom"
    given = [k for k in source if k.endswith("Ref")]
    if not given:
        yield invalid(
            at,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
            "`secretKeyRef` or `fileKeyRef`",
        )
    if variable.get("value"):
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")
    if (reference := source.get("fieldRef")) is not None:
        yield from field_reference(f"{at}.fieldRef", reference)
    if (reference := source.get("resourceFieldRef")) is not None and not reference.get("resource"):
        yield required(f"{at}.resourceFieldRef.resource")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(kind)) is not None:
            if not reference.get("key"):
                yield required(f"{at}.{kind}.key")
            else:
                yield from named(
                    f"{at}.{kind}.key", reference["key"], names.check_config_key(reference["key"])
                )


def field_reference(field: str, reference: Document, *, extra: Collection[str] = ()) -> Errors:
    """A field of the pod that is handed to the container."""
    path = reference.get("fieldPath", "")
    if not path:
        yield required(f"{field}.fieldPath")
        return
    base = path.partition("[")[0]
    if base not in _FIELD_PATHS and base not in extra:
        yield invalid(
            f"{field}.fieldPath",
            path,
            f"error converting fieldPath: field label not supported: {path}",
        )


def _imported(field: str, source: Document) -> Errors:
    if prefix := source.get("prefix"):
        yield from named(f"{field}.prefix", prefix, names.check_env_name(prefix))
    given = [k for k in ("configMapRef", "secretRef") if source.get(k) is not None]
    for kind in given:
        if not source[kind].get("name"):
            yield required(f"{field}.{kind}.name")
    if not given:
        yield invalid(field, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield invalid(field, "", "may not have more than one field specified at a time")


def _mounts(field: str, mounts: list[Any], volumes: Collection[str]) -> Errors:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{field}[{index}]"
        name = mount.get("name", "")
        if not name:
            yield required(f"{at}.name")
        if name not in volumes:
            yield not_found(f"{at}.name", name)
        path = mount.get("mountPath", "")
        if not path:
            yield required(f"{at}.mountPath")
        if path in seen:
            yield invalid(f"{at}.mountPath", path, "must be unique")
        seen.add(path)
        for part in ("subPath", "subPathExpr"):
            if mount.get(part):
                yield from relative_path(f"{field}.{part}", mount[part])
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield invalid(
                f"{field}.subPathExpr",
                mount["subPathExpr"],
                "subPathExpr and subPath are mutually exclusive",
            )


def relative_path(field: str, path: str) -> Errors:
    """A path that stays below where it starts."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _probe(field: str, probe: Document, name: str) -> Errors:
    yield from _handler(field, probe)
    for part in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold"):
        yield from not_negative(f"{field}.{part}", probe.get(part))
    yield from not_negative(f"{field}.failureThreshold", probe.get("failureThreshold"))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        if name == "readinessProbe":
            yield invalid(
                f"{field}.terminationGracePeriodSeconds",
                grace,
                "must not be set for readinessProbes",
            )
        elif grace <= 0:
            yield invalid(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    successes = probe.get("successThreshold", 1)
    if name != "readinessProbe" and successes > 1:
        yield invalid(f"{field}.successThreshold", successes, "must be 1")


def _lifecycle(field: str, lifecycle: Document | None) -> Errors:
    for hook in ("postStart", "preStop"):
        if (handler := (lifecycle or {}).get(hook)) is not None:
            yield from _handler(f"{field}.{hook}", handler)


def _handler(field: str, handler: Document) -> Errors:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        yield required(field, "must specify a handler type")
        return
    for name in given[1:]:
        yield forbidden(f"{field}.{name}", "may not specify more than 1 handler type")
    name, action = given[0], handler[given[0]]
    at = f"{field}.{name}"
    if name == "exec" and not action.get("command"):
        yield required(f"{at}.command")
    if name == "httpGet":
        if not action.get("path"):
            yield required(f"{at}.path")
        yield from port_or_name(f"{at}.port", action.get("port", 0))
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            yield unsupported(f"{at}.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
    if name == "tcpSocket":
        yield from port_or_name(f"{at}.port", action.get("port", 0))
    if name == "grpc":
        yield from port_number(f"{at}.port", action.get("port", 0))


def port_or_name(field: str, value: Any) -> Errors:
    """A port by number or by the name a container gave it."""
    if isinstance(value, str):
        yield from named(field, value, names.check_port_name(value))
    else:
        yield from port_number(field, value)
