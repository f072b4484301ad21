"""OpenAPI: the schemas of what is served, for kubectl's explain, validation and patches.

Documents are large (the core group's is over a megabyte) and asked for rarely: each is built when
somebody asks, kept compressed and plain, and named by a hash in the index, so that clients may
keep it for ever. The hash is of what the document is made from, so the index builds none of them.
"""

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any, NamedTuple

from motley import __version__
from motley.api import codec, schema, scheme
from motley.api.structural import openapi as structural
from motley.apiserver import answer, dispatch, negotiate
from motley.apiserver.answer import Answer
from motley.apiserver.protobuf import openapi as protobuf
from motley.apiserver.request import RequestInfo

Document = dict[str, Any]

_V3_REFS = "#/components/schemas/"
_V2_REFS = "#/definitions/"
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
_FOREVER = "public, immutable"


class Built(NamedTuple):
    """A document, ready to be sent."""

    plain: bytes
    compressed: bytes
    tag: str
    media_type: str = answer.JSON


def handle(info: RequestInfo, headers: Mapping[str, str]) -> Answer:
    """Answer below `/openapi`."""
    parts = info.path.strip("/").split("/")
    if parts[1:] == ["v2"]:
        form = _form(headers.get("accept", ""))
        if form is None:
            return Answer(b"", 406, "", {"vary": "Accept"})
        return _send(swagger(form), headers)
    if parts[1:] == ["v3"] and not info.path.endswith("/"):
        return Answer(codec.encode(index()), 200, answer.TEXT)
    if len(parts) > 2 and parts[1] == "v3":
        found = _group_version("/".join(parts[2:]))
        if found is not None:
            return _send(document(*found), headers, forever=bool(info.query.text("hash")))
    return Answer(b"", 404, "")


def _send(built: Built, headers: Mapping[str, str], *, forever: bool = False) -> Answer:
    shown = {"etag": f'"{built.tag}"', "vary": "Accept"}
    if forever:
        shown["cache-control"] = _FOREVER
    if headers.get("if-none-match", "").strip('"') == built.tag:
        return Answer(b"", 304, built.media_type, shown)
    if "gzip" in headers.get("accept-encoding", ""):
        shown["content-encoding"] = "gzip"
        return Answer(built.compressed, 200, built.media_type, shown)
    return Answer(built.plain, 200, built.media_type, shown)


def _form(accept: str) -> str | None:
    """The form of the version 2 document a client wants; None when it is not to be had."""
    for media_type in negotiate.media_types(accept):
        if media_type in ("", "*/*", "application/*", answer.JSON):
            return answer.JSON
        if media_type in protobuf.ACCEPTED:
            return protobuf.MEDIA_TYPE
    return None


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _group_versions() -> Iterator[tuple[str, str]]:
    for group, versions in scheme.groups().items():
        for version in versions:
            yield group, version


def _group_version(path: str) -> tuple[str, str] | None:
    return next((gv for gv in _group_versions() if _path(*gv) == path), None)


def index() -> Document:
    """`/openapi/v3`: where each group-version's document is."""
    return {
        "paths": {
            _path(*gv): {"serverRelativeURL": f"/openapi/v3/{_path(*gv)}?hash={_fingerprint(*gv)}"}
            for gv in _group_versions()
        }
    }


def _fingerprint(group: str, version: str) -> str:
    return _hashed(group, version, scheme.generation())


@lru_cache(maxsize=512)
def _hashed(group: str, version: str, generation: int) -> str:
    kinds = [repr(k) for k in _kinds(group, version)]
    source = [__version__, metadata.version("kubernetes-validate"), *kinds]
    source += [
        codec.encode(kind.definition.schema).decode()
        for kind in _kinds(group, version)
        if kind.definition is not None
    ]
    return hashlib.sha256("\n".join(source).encode()).hexdigest().upper()


def _kinds(group: str, version: str) -> list[scheme.Kind]:
    return [k for k in scheme.kinds() if (k.group, k.version) == (group, version)]


def document(group: str, version: str) -> Built:
    """`/openapi/v3/…`: the paths and schemas of one group-version."""
    return _document(group, version, _fingerprint(group, version))


@lru_cache(maxsize=128)
def _document(group: str, version: str, tag: str) -> Built:
    kinds = _kinds(group, version)
    shown = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"motley-{__version__}"},
        "paths": dict(_paths(kinds, v3=True)),
        "components": {"schemas": _definitions(kinds, _V3_REFS)},
    }
    return _built(shown, tag)


def swagger(media_type: str = answer.JSON) -> Built:
    """`/openapi/v2`: everything in one document, for older clients, as JSON or protobuf."""
    tags = "".join(_fingerprint(*gv) for gv in _group_versions())
    tag = hashlib.sha256(tags.encode()).hexdigest().upper()
    if media_type == answer.JSON:
        return _swagger(tag)
    return _swagger_protobuf(tag)


@lru_cache(maxsize=1)
def _swagger_protobuf(tag: str) -> Built:
    body = protobuf.encode(codec.decode(_swagger(tag).plain))
    compressed = gzip.compress(body, compresslevel=6, mtime=0)
    return Built(body, compressed, f"{tag}P", protobuf.MEDIA_TYPE)


@lru_cache(maxsize=1)
def _swagger(tag: str) -> Built:
    kinds = scheme.kinds()
    shown = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": f"motley-{__version__}"},
        "paths": dict(_paths(kinds, v3=False)),
        "definitions": _definitions(kinds, _V2_REFS),
    }
    return _built(shown, tag)


def _built(shown: Document, tag: str) -> Built:
    plain = codec.encode(shown)
    return Built(plain, gzip.compress(plain, compresslevel=6, mtime=0), tag)


def _definitions(kinds: Sequence[scheme.Kind], refs: str) -> Document:
    """The schemas of the kinds and of everything they refer to."""
    marks: dict[str, list[Document]] = {}
    custom: dict[str, scheme.Kind] = {}
    for kind in kinds:
        if kind.definition is not None:
            custom[_definition(kind)] = kind
        mark = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        marks.setdefault(_definition(kind), []).append(mark)
    found: Document = {}
    pending = [*marks, *{_taken(kind, name) for kind in kinds for name in kind.subresources}]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        if name in custom:
            found[name] = structural.published(custom[name], refs)
        else:
            found[name] = schema.openapi(name, refs)
        if name in marks:
            found[name]["x-kubernetes-group-version-kind"] = marks[name]
        pending += _references(found[name], refs)
    return dict(sorted(found.items()))


def _definition(kind: scheme.Kind) -> str:
    if kind.definition is not None:
        return structural.definition_name(kind)
    name = schema.definition_name(kind.api_version, kind.kind)
    if name is None and kind.stored_as is not None:  # an old version, described no more
        name = schema.definition_name(kind.storage.api_version, kind.kind)
    if name is None:
        raise schema.UnknownKindError(str(kind))
    return name


def _taken(kind: scheme.Kind, subresource: str) -> str:
    """The definition of what a subresource takes: the object itself, or a Scale, a Binding, …"""
    found = kind.subresource(subresource) if subresource else None
    if found is not None and found.kind != kind.kind:
        group, version = found.group or "", found.version or ""
        other = schema.definition_name(f"{group}/{version}" if group else version, found.kind)
        if other is not None:
            return other
    return _definition(kind)


def _references(value: Any, refs: str) -> Iterator[str]:
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(refs)
        for inner in value.values():
            yield from _references(inner, refs)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner, refs)


def _paths(kinds: Iterable[scheme.Kind], *, v3: bool) -> Iterator[tuple[str, Document]]:
    for kind in kinds:
        root = f"/{_path(kind.group, kind.version)}"
        if kind.namespaced:
            yield f"{root}/{kind.plural}", _path_item(kind, ("list",), "", (), v3)
            root = f"{root}/namespaces/{{namespace}}"
        outer = ("namespace",) if kind.namespaced else ()
        collection = tuple(v for v in ("list", "create", "deletecollection") if v in kind.verbs)
        item = f"{root}/{kind.plural}/{{name}}"
        yield f"{root}/{kind.plural}", _path_item(kind, collection, "", outer, v3)
        single = ("get", "update", "patch", "delete")
        yield item, _path_item(kind, single, "", (*outer, "name"), v3)
        for name in sorted(kind.subresources):
            found = kind.subresource(name)
            if found is not None and dispatch.is_served(name):
                verbs = tuple(found.verbs)
                yield f"{item}/{name}", _path_item(kind, verbs, name, (*outer, "name"), v3)


def _path_item(
    kind: scheme.Kind,
    verbs: tuple[str, ...],
    subresource: str,
    placeholders: tuple[str, ...],
    v3: bool,
) -> Document:
    item: Document = {_METHODS[verb]: _operation(kind, verb, subresource, v3) for verb in verbs}
    item["parameters"] = [_parameter(name, "path", v3) for name in placeholders]
    return item


def _operation(kind: scheme.Kind, verb: str, subresource: str, v3: bool) -> Document:
    found = kind.subresource(subresource) if subresource else None
    mark = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    if found is not None:
        mark = {"group": found.group or "", "kind": found.kind, "version": found.version or ""}
    operation: Document = {
        "operationId": _operation_id(kind, verb, subresource),
        "parameters": [_parameter(name, "query", v3) for name in _QUERIES.get(verb, ())],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        "tags": [f"{kind.group.split('.')[0] or 'core'}_{kind.version}"],
        "x-kubernetes-action": "post" if verb == "create" else verb.replace("update", "put"),
        "x-kubernetes-group-version-kind": mark,
    }
    if verb in ("create", "update", "patch"):
        _add_body(operation, kind, verb, subresource, v3)
    return operation


def _add_body(
    operation: Document, kind: scheme.Kind, verb: str, subresource: str, v3: bool
) -> None:
    name = _taken(kind, subresource)
    types = _patches(kind) if verb == "patch" else ("application/json", "application/yaml")
    if not v3:
        body = {"type": "object"} if verb == "patch" else {"$ref": f"{_V2_REFS}{name}"}
        operation["consumes"] = list(types)
        operation["parameters"].append(
            {"name": "body", "in": "body", "required": True, "schema": body}
        )
        return
    shape = {"type": "object"} if verb == "patch" else {"$ref": f"{_V3_REFS}{name}"}
    operation["requestBody"] = {
        "required": True,
        "content": {media_type: {"schema": shape} for media_type in types},
    }


def _patches(kind: scheme.Kind) -> tuple[str, ...]:
    """The patches a kind takes; kubectl chooses among them."""
    if kind.definition is None:
        return _PATCHES
    return tuple(p for p in _PATCHES if "strategic" not in p)


def _operation_id(kind: scheme.Kind, verb: str, subresource: str) -> str:
    group = "".join(part.capitalize() for part in (kind.group.split(".")[0] or "core").split("-"))
    scope = "Namespaced" if kind.namespaced else ""
    action = {"get": "read", "update": "replace"}.get(verb, verb)
    return f"{action}{group}{kind.version.capitalize()}{scope}{kind.kind}{subresource.capitalize()}"


_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_SELECT = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion")
_QUERIES = {
    "create": _WRITE,
    "update": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
    "deletecollection": ("dryRun", "gracePeriodSeconds", "propagationPolicy", *_SELECT),
    "list": (
        *_SELECT,
        "resourceVersionMatch",
        "timeoutSeconds",
        "watch",
        "allowWatchBookmarks",
        "sendInitialEvents",
    ),
}
_INTEGERS = frozenset({"limit", "timeoutSeconds", "gracePeriodSeconds"})
_BOOLEANS = frozenset({"force", "watch", "allowWatchBookmarks", "sendInitialEvents"})


def _parameter(name: str, place: str, v3: bool) -> Document:
    kind = "integer" if name in _INTEGERS else "boolean" if name in _BOOLEANS else "string"
    parameter: Document = {"name": name, "in": place}
    if place == "path":
        parameter["required"] = True
    if v3:
        parameter["schema"] = {"type": kind, "uniqueItems": True}
    else:
        parameter |= {"type": kind, "uniqueItems": True}
    return parameter
