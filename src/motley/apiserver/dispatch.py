"""Which handler serves a request on a resource: the table of verbs and subresources.

Discovery advertises exactly the subresources that are in this table.
"""

from collections.abc import Awaitable, Callable

from motley.api import scheme
from motley.apiserver import answer, batchbinding, components, negotiate, requestbatch, reviews
from motley.apiserver.answer import Answer, Stream
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.apiserver.subresources import (
    binding,
    eviction,
    finalize,
    log,
    proxy,
    scale,
    stream,
    token,
)
from motley.apiserver.verbs import create, delete, deletecollection, get, patch, update, watch
from motley.apiserver.verbs import list as list_verb
from motley.apiserver.verbs.call import Call

Handler = Callable[[Core, Call], Awaitable[Answer | Stream]]

_VERBS: dict[str, Handler] = {
    "get": get.handle,
    "list": list_verb.handle,
    "watch": watch.handle,
    "create": create.handle,
    "update": update.handle,
    "patch": patch.handle,
    "delete": delete.handle,
    "deletecollection": deletecollection.handle,
}
_ON_COLLECTIONS = frozenset({"list", "watch", "create", "deletecollection"})
_ON_ONE_NAMESPACE = frozenset({"create", "deletecollection"})

_SUBRESOURCES: dict[str, dict[str, Handler]] = {
    "status": {"get": get.handle, "update": update.handle, "patch": patch.handle},
    "scale": {"get": scale.get, "update": scale.put, "patch": scale.patch_scale},
    "approval": {"get": get.handle, "update": update.handle, "patch": patch.handle},
    "ephemeralcontainers": {"get": get.handle, "update": update.handle, "patch": patch.handle},
    "resize": {"get": get.handle, "update": update.handle, "patch": patch.handle},
    "finalize": {"update": finalize.put},
    "binding": {"create": binding.create},
    "eviction": {"create": eviction.create},
    "log": {"get": log.get},
    "token": {"create": token.create},
    "proxy": dict.fromkeys(
        ("get", "create", "update", "patch", "delete", "head", "options"), proxy.handle
    ),
    # These arrive as WebSockets; a plain request is told so.
    "exec": {"get": stream.plain, "create": stream.plain},
    "attach": {"get": stream.plain, "create": stream.plain},
    "portforward": {"get": stream.plain, "create": stream.plain},
}


_DEPRECATED = {
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "endpoints"): (
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    ),
}


def deprecation(kind: scheme.Kind) -> str:
    """What every answer about a kind that is on its way out says."""
    if kind.definition is not None:
        return kind.definition.warning
    return _DEPRECATED.get((kind.group, kind.plural), "")


def is_served(subresource: str) -> bool:
    """Whether a subresource of the scheme has a handler here."""
    return subresource in _SUBRESOURCES


# Subresources that only act, or are a part of an object: Kubernetes has no rows for them.
_WITHOUT_TABLE = frozenset(
    {"approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "token"}
)


# What is behind a connection reads the header itself.
_CONNECTIONS = frozenset({"attach", "exec", "portforward", "proxy"})


def wanted(kind: scheme.Kind, info: RequestInfo, accept: str) -> negotiate.Wanted:
    """The form to answer in; 406 when it cannot be had.

    What is asked and not kept (a review) can be had as no table either.
    """
    if info.subresource in _CONNECTIONS:
        return negotiate.Wanted()
    if info.subresource:
        has_table = info.subresource not in _WITHOUT_TABLE
    else:
        has_table = kind.is_stored or info.verb != "create"
    return negotiate.accept(accept, has_table=has_table)


def handler(kind: scheme.Kind, info: RequestInfo) -> Handler:
    """The handler, or 404 and 405 as Kubernetes tells them apart."""
    if info.subresource:
        return _subresource_handler(info)
    verb = info.verb
    if kind.kind == "Binding" and verb == "create" and not info.name:
        return binding.create_unnamed
    if kind.kind == batchbinding.KIND and verb == "create" and not info.name:
        return batchbinding.create
    if kind.kind == requestbatch.KIND and verb == "create" and not info.name:
        return requestbatch.create
    review = reviews.HANDLERS.get((kind.group, kind.plural))
    if review is not None and verb == "create" and not info.name:
        return review
    if (kind.group, kind.plural) == ("", "componentstatuses") and verb in ("get", "list"):
        return components.get if info.name else components.listed
    if not kind.is_stored and info.name and "get" not in kind.verbs:
        raise answer.unknown_resource()  # what is only created has no names
    if verb not in kind.verbs or verb not in _VERBS or not kind.is_stored:
        raise answer.method_not_allowed()
    if info.name and verb in _ON_COLLECTIONS and verb != "watch":
        raise answer.method_not_allowed()
    if not info.name and verb not in _ON_COLLECTIONS:
        raise answer.method_not_allowed()
    if kind.namespaced and not info.namespace and verb in _ON_ONE_NAMESPACE:
        raise answer.method_not_allowed()
    return _VERBS[verb]


def _subresource_handler(info: RequestInfo) -> Handler:
    handlers = _SUBRESOURCES.get(info.subresource)
    if handlers is None or (info.rest and info.subresource != "proxy"):
        raise answer.unknown_resource()
    found = handlers.get(info.verb)
    if found is None:
        raise answer.method_not_allowed()
    return found
