"""`--compat minik8s`: requests in another system's spelling, read as Kubernetes' own.

Stands before everything else: a path to one of the other system's kinds becomes that of Motley's
kind before anybody asks who may go there, and a body is rewritten before it is read. Every
change is told in a `Warning` header. What is spelled as in Kubernetes passes through untouched.

An object may be named by its UID, as Minik8s names all of them, where none has that name.

The three kinds appear in the core group's discovery, so that `kubectl create -f` finds them: `dns`,
`funcs`, and `slurmjobs` for the kind Job, because `jobs` are and stay Kubernetes' own.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from motley.api import codec, motleyio, scheme, status
from motley.api.conversion import minik8s, minik8s_func
from motley.apiserver import answer, document, negotiate
from motley.apiserver.authn.user import User
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo

Document = dict[str, Any]

MINIK8S = "minik8s"
NAMES = (MINIK8S,)

_ALIASES: dict[str, tuple[str, str, Callable[[Document], list[str]]]] = {
    # resource in the core group -> its kind there, the resource it stands for, how it is read
    "dns": ("DNS", "routes", minik8s.read_dns),
    "slurmjobs": ("Job", "slurmjobs", minik8s.read_job),
    "funcs": ("Func", "functions", minik8s_func.read_func),
}
_BODIES = {"create": True, "update": True, "patch": False}  # verb -> whether bodies are whole
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_READABLE = (
    "application/json",
    "application/yaml",
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "",
)


class Compat:
    """What a server with the switch on does to requests."""

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise ValueError(f"no compatibility with {name!r}: there is {', '.join(NAMES)}")
        self._told = f"--compat {name}"

    def redirected(self, info: RequestInfo) -> RequestInfo:
        """The request that is meant."""
        if (info.group, info.version) != ("", "v1") or info.resource not in _ALIASES:
            return info
        plural = _ALIASES[info.resource][1]
        version = motleyio.VERSION
        return dataclasses.replace(info, group=motleyio.GROUP, version=version, resource=plural)

    async def by_name(
        self, core: Core, kind: scheme.Kind, user: User, info: RequestInfo
    ) -> RequestInfo:
        """The request by the object's name, where it came by its UID."""
        if not _UID.fullmatch(info.name) or info.verb == "create" or not kind.is_stored:
            return info
        cache = await core.caches.fresh(kind)
        if cache.get(kind.key(info.namespace, info.name)) is not None:
            return info
        mark = f'"{info.name}"'.encode()
        for cached in cache.list(kind.prefix(info.namespace)).items:
            value = cached.record.value
            # Owners' UIDs are in the bytes as well, so what is found is read.
            if mark in value and document.decode(value)["metadata"].get("uid") == info.name:
                name = cached.attributes.name
                meant = dataclasses.replace(info, name=name)
                # Who may only see objects of certain names may not see others by their UIDs.
                await core.access.authorizer.authorize(user, meant)
                answer.warn([f'"{info.name}" read as the UID of "{name}" ({self._told})'])
                return meant
        return info

    def read(self, info: RequestInfo, content_type: str, raw: bytes) -> bytes:
        """The body that is meant, in a form that the same Content-Type allows."""
        media_type = negotiate.content_type(content_type)
        if info.verb not in _BODIES or info.subresource or media_type not in _READABLE:
            return raw
        is_pod = info.resource in minik8s.POD_SPECS and info.group != motleyio.GROUP
        if not is_pod and info.group != motleyio.GROUP:
            return raw
        try:
            obj = codec.decode_yaml(raw) if "yaml" in media_type else codec.decode(raw)
        except status.BadRequest:
            return raw  # the one who reads it says what is wrong with it
        if not isinstance(obj, dict):
            return raw
        is_whole = _BODIES[info.verb] or media_type == "application/apply-patch+yaml"
        said = (
            minik8s.read_pods(info.resource, obj, is_whole=is_whole)
            if is_pod
            else _renamed(info.resource, obj)
        )
        if not said:
            return raw
        answer.warn([f"{text} ({self._told})" for text in said])
        return codec.encode(obj)


def _renamed(plural: str, obj: Document) -> list[str]:
    for kind, stands_for, read in _ALIASES.values():
        if stands_for == plural and (obj.get("apiVersion"), obj.get("kind")) == ("v1", kind):
            return read(obj)
    return []


def listed() -> list[Document]:
    """The kinds, as the core group's discovery lists them."""
    found = []
    for resource, (kind, plural, _) in _ALIASES.items():
        row = scheme.resource(motleyio.GROUP, motleyio.VERSION, plural)
        if row is None:  # left out by --runtime-config
            continue
        found.append(
            {
                "name": resource,
                "singularName": resource.removesuffix("s") if resource != "dns" else "dns",
                "namespaced": row.namespaced,
                "kind": kind,
                "verbs": list(row.verbs),
            }
        )
    return found
