"""The Kubernetes API as typed calls.

Answers are decoded straight into views, failures come back as the `ApiError` the server raised.
One client per component: its connections are kept and shared.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from motley.api import status
from motley.api.views.base import Object
from motley.client import decoding
from motley.client.decoding import Frame, Listing, WatchEvent, decoder
from motley.client.kubeconfig import Config
from motley.client.transport import Transport
from motley.lib.clock import SYSTEM, Clock

__all__ = ["Client", "Listing", "WatchEvent", "resource_path"]

T = TypeVar("T", bound=Object)

CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
_LIST_TIMEOUT_S = 120.0  # tens of thousands of objects
# client-go asks for 5 to 10 minutes, drawn per watch so that reconnects spread.
_WATCH_MIN_S, _WATCH_MAX_S = 300, 600


def resource_path(
    cls: type[Object], namespace: str = "", name: str = "", subresource: str = ""
) -> str:
    """The URL path of a collection, an object or its subresource."""
    version = cls.API_VERSION
    parts = ["/apis/" + version if "/" in version else "/api/" + version]
    if cls.NAMESPACED and namespace:
        parts += ["namespaces", namespace]
    parts.append(cls.PLURAL)
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)


class Client:
    """An async context manager over one server; see the module's docstring for its promises."""

    def __init__(
        self,
        config: Config,
        *,
        user_agent: str = "motley",
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self.config = config
        self._rng = rng or Random()
        self._transport = Transport(config, user_agent, clock, self._rng)
        self._call = self._transport.call

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    def recertify(self, config: Config) -> None:
        """Be the same user with another certificate, from the next connection on."""
        self.config = config
        self._transport.recertify(config)

    async def get(self, cls: type[T], name: str, namespace: str = "") -> T:
        """One object. Raises NotFound."""
        body = await self._call("GET", resource_path(cls, namespace, name))
        return _decode(cls, body)

    async def list(
        self,
        cls: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
    ) -> Listing[T]:
        """The objects of a kind, at most `limit` of them, with the revision they are of."""
        params = _selection(label_selector, field_selector)
        if limit:
            params["limit"] = str(limit)
        if continue_token:
            params["continue"] = continue_token
        body = await self._call(
            "GET", resource_path(cls, namespace), params=params, timeout_s=_LIST_TIMEOUT_S
        )
        return decoding.listing(cls, body)

    async def create(self, cls: type[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Create an object; `namespace` may also be in its metadata. Raises AlreadyExists."""
        namespace = namespace or body.get("metadata", {}).get("namespace", "")
        document = {"apiVersion": cls.API_VERSION, "kind": cls.KIND, **body}
        answer = await self._call("POST", resource_path(cls, namespace), body=document)
        return _decode(cls, answer)

    async def update(self, cls: type[T], body: Mapping[str, Any], *, subresource: str = "") -> T:
        """Replace a whole object (PUT). Raises Conflict when its resourceVersion is stale."""
        meta = body["metadata"]
        document = {"apiVersion": cls.API_VERSION, "kind": cls.KIND, **body}
        path = resource_path(cls, meta.get("namespace", ""), meta["name"], subresource)
        return _decode(cls, await self._call("PUT", path, body=document))

    async def patch(
        self,
        cls: type[T],
        name: str,
        namespace: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        type: Literal["merge", "strategic", "json"] = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object; a resourceVersion in the patch makes it conditional."""
        answer = await self._call(
            "PATCH",
            resource_path(cls, namespace, name, subresource),
            body=body,
            content_type=CONTENT_TYPES[type],
        )
        return _decode(cls, answer)

    async def apply(
        self,
        cls: type[T],
        body: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> T:
        """Server-side apply: make the object have exactly these fields of ours.

        Raises Conflict when another manager owns one of them, unless forced.
        """
        meta = body["metadata"]
        document = {"apiVersion": cls.API_VERSION, "kind": cls.KIND, **body}
        params = {"fieldManager": field_manager, **({"force": "true"} if force else {})}
        answer = await self._call(
            "PATCH",
            resource_path(cls, meta.get("namespace", ""), meta["name"], subresource),
            body=document,
            params=params,
            content_type="application/apply-patch+yaml",
        )
        return _decode(cls, answer)

    async def delete(
        self,
        cls: type[Object],
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object; `uid` and `resource_version` are preconditions (else Conflict)."""
        options = delete_options(grace_period_s, propagation, uid, resource_version)
        await self._call("DELETE", resource_path(cls, namespace, name), body=options)

    async def create_subresource(
        self,
        cls: type[Object],
        name: str,
        namespace: str,
        subresource: str,
        body: Mapping[str, Any],
    ) -> dict[str, Any]:
        """POST to a subresource: `pods/binding`, `pods/eviction`, `serviceaccounts/token`."""
        path = resource_path(cls, namespace, name, subresource)
        document: dict[str, Any] = _json(await self._call("POST", path, body=body))
        return document

    async def document(self, cls: type[Object], name: str, namespace: str = "") -> dict[str, Any]:
        """The whole object as a plain dict, for read-modify-PUT."""
        document: dict[str, Any] = _json(
            await self._call("GET", resource_path(cls, namespace, name))
        )
        return document

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Any call: JSON answers are decoded, others come back as text.

        A body that is no JSON comes as `msgspec.Raw`.
        """
        data = await self._call(
            method,
            path,
            body=body,
            params=params,
            content_type=content_type,
            accept=accept,
            headers=headers,
        )
        try:
            return _json(data)
        except msgspec.DecodeError:
            return data.decode()

    async def watch(
        self,
        cls: type[T],
        *,
        namespace: str = "",
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after a revision, until the server ends the watch. Raises Gone, and
        ServiceUnavailable when the connection breaks.

        With `initial_events` all objects come first, as ADDED, then a bookmark that
        `ends_initial_events`: a list without the server holding it in memory as a whole.
        """
        params = _selection(label_selector, field_selector)
        params["resourceVersion"] = resource_version
        if initial_events:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if bookmarks:
            params["allowWatchBookmarks"] = "true"
        async with aclosing(self._watch(resource_path(cls, namespace), params)) as lines:
            async for line in lines:
                yield _watch_event(cls, line)

    async def watch_documents(
        self,
        cls: type[Object],
        *,
        namespace: str = "",
        resource_version: str,
        label_selector: str = "",
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """As `watch`, but whole objects, for those who pass them on: the event's type, and it."""
        params = {
            **_selection(label_selector, ""),
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
        }
        async with aclosing(self._watch(resource_path(cls, namespace), params)) as lines:
            async for line in lines:
                _watch_event(Object, line)  # an error of the server's is raised
                event = _json(line)
                yield event["type"], event["object"]

    def _watch(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        lasts_s = self._rng.randint(_WATCH_MIN_S, _WATCH_MAX_S)
        asked = {**params, "watch": "true", "timeoutSeconds": str(lasts_s)}
        return self._transport.lines(path, asked, lasts_s + 30.0)


def delete_options(
    grace_period_s: int | None = None,
    propagation: str | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
) -> dict[str, Any]:
    """The body of a DELETE."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation is not None:
        options["propagationPolicy"] = propagation
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if any(preconditions.values()):
        options["preconditions"] = {k: v for k, v in preconditions.items() if v}
    return options


def _watch_event(cls: type[T], line: bytes) -> WatchEvent[T]:
    event = decoding.watch_event(cls, line)
    if event.type == "ERROR":
        raise status.from_status(msgspec.json.decode(line, type=Frame).object or {})
    return event


def _selection(label_selector: str, field_selector: str) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in pairs.items() if value}


def _decode(cls: type[T], body: bytes) -> T:
    view: T = decoder(cls)(body)
    return view


def _json(body: bytes) -> Any:
    return msgspec.json.decode(body) if body else {}
