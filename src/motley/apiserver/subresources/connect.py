"""Connecting to a pod, service or node, as admission sees it: operation CONNECT.

Nothing is written, but somebody may have rules about who opens a terminal in what. The object they
judge is what was asked for, in the form Kubernetes gives it: `PodExecOptions` and its like.
"""

from typing import Any

from motley.api import scheme
from motley.apiserver import answer
from motley.apiserver.admission import Change
from motley.apiserver.core import Core
from motley.apiserver.request import Query, RequestInfo

Document = dict[str, Any]

_STREAMS = ("stdin", "stdout", "stderr", "tty")
_KINDS = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
}


async def admit(core: Core, kind: scheme.Kind, info: RequestInfo) -> None:
    """Ask whoever wants to know; raises ApiError when one of them refuses."""
    namespace = info.namespace if kind.namespaced else ""
    asked = options(kind.plural, info)
    change = Change("connect", kind, namespace, info.name, asked, None, info.subresource)
    async with core.writer.admission.admitted(change) as validate:
        await validate()
    answer.warn(change.warnings)


def options(plural: str, info: RequestInfo) -> Document:
    """What was asked for, as an object."""
    asked: Document = {"kind": _KINDS[plural, info.subresource], "apiVersion": "v1"}
    if info.subresource == "proxy":
        path = "/".join(info.rest)
        return {**asked, **({"path": path} if path else {})}
    if info.subresource == "portforward":
        ports = _ports(info.query)
        return {**asked, **({"ports": ports} if ports else {})}
    asked |= {name: True for name in _STREAMS if name in info.query and info.query.flag(name)}
    if container := info.query.text("container"):
        asked["container"] = container
    if info.subresource == "exec":
        asked["command"] = info.query.get("command") or []
    return asked


def _ports(query: Query) -> list[int]:
    given = ",".join(query.get("ports") or query.get("port") or ())
    return [int(port) for port in given.split(",") if port.isdigit()]
