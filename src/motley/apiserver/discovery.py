"""What is served, told to clients: the legacy documents and the aggregated ones.

Everything comes from the scheme's table and the dispatch table; nothing is listed twice.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from motley.api import codec, scheme
from motley.apiserver import dispatch, groupdiscovery

Document = dict[str, Any]


def versions(server_address: str) -> Document:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def group_list() -> Document:
    """`/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            *(_group(name) for name in named_groups()),
            *(groupdiscovery.listed(name, list(versions)) for name, versions in _remote.items()),
        ],
    }


_remote: dict[str, dict[str, list[Document]]] = {}


def set_remote(groups: dict[str, dict[str, list[Document]]]) -> None:
    """What other servers serve through this one: their resources by group and version."""
    if groups != _remote:
        _remote.clear()
        _remote.update(groups)
        _aggregated.cache_clear()


def group(name: str) -> Document | None:
    """`/apis/GROUP`."""
    if name in _remote and name not in scheme.groups():
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            **groupdiscovery.listed(name, list(_remote[name])),
        }
    if not name or name not in scheme.groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def named_groups() -> list[str]:
    """The groups below `/apis`."""
    return [name for name in scheme.groups() if name]


def _group(name: str) -> Document:
    return groupdiscovery.listed(name, scheme.groups()[name])


def resource_list(group_name: str, version: str, also: Iterable[Document] = ()) -> Document | None:
    """`/api/v1` and `/apis/GROUP/VERSION`; `also` are resources that no row of the table has."""
    kinds = [k for k in scheme.kinds() if (k.group, k.version) == (group_name, version)]
    if not kinds:
        return None
    resources: list[Document] = list(also)
    for kind in kinds:
        resources.append(_resource(kind))
        resources += [_subresource(kind, name) for name in _served(kind)]
    if kinds[0].definition is None:  # custom resources: in the order they are found
        resources.sort(key=lambda r: str(r["name"]))
    shown: Document = {"kind": "APIResourceList"}
    if group_name:  # Kubernetes leaves apiVersion out for the core group; clients never minded
        shown["apiVersion"] = "v1"
    shown["groupVersion"] = f"{group_name}/{version}" if group_name else version
    shown["resources"] = resources
    return shown


def _served(kind: scheme.Kind) -> list[str]:
    served = sorted(name for name in kind.subresources if dispatch.is_served(name))
    return served if kind.definition is None else served[::-1]  # the status comes first there


def _resource(kind: scheme.Kind) -> Document:
    shown: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        shown["shortNames"] = list(kind.short_names)
    if kind.categories:
        shown["categories"] = list(kind.categories)
    if kind.is_stored:
        shown["storageVersionHash"] = kind.storage_version_hash
    return shown


def _subresource(kind: scheme.Kind, name: str) -> Document:
    found = kind.subresource(name)
    assert found is not None
    shown: Document = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
    }
    if (found.group, found.version) != (kind.group, kind.version):
        shown |= {"group": found.group, "version": found.version}
    return {**shown, "kind": found.kind, "verbs": list(found.verbs)}


def aggregated(*, core: bool, also: Iterable[Document] = ()) -> tuple[bytes, str]:
    """Everything below `/api` (core) or `/apis` in one document, and its ETag."""
    return _aggregated(core, scheme.generation(), codec.encode(list(also)) if also else b"[]")


@lru_cache(maxsize=4)
def _aggregated(core: bool, generation: int, also: bytes) -> tuple[bytes, str]:
    groups = [""] if core else named_groups()
    document: Document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(name) for name in groups],
    }
    if core and (more := codec.decode(also)):
        found = groupdiscovery.aggregated("", {"v1": more})["versions"][0]["resources"]
        document["items"][0]["versions"][0]["resources"] += found
    if not core:
        document["items"] += [groupdiscovery.aggregated(n, v) for n, v in _remote.items()]
    body = codec.encode(document)
    return body, hashlib.sha512(body).hexdigest().upper()


def _aggregated_group(name: str) -> Document:
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "resources": [
                    _aggregated_resource(kind)
                    for kind in sorted(scheme.kinds(), key=lambda k: k.plural)
                    if (kind.group, kind.version) == (name, version)
                ],
                "freshness": "Current",
            }
            for version in scheme.groups()[name]
        ],
    }


def _aggregated_resource(kind: scheme.Kind) -> Document:
    shown: Document = {
        "resource": kind.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        shown["shortNames"] = list(kind.short_names)
    if kind.categories:
        shown["categories"] = list(kind.categories)
    if served := _served(kind):
        shown["subresources"] = [_aggregated_subresource(kind, name) for name in served]
    return shown


def _aggregated_subresource(kind: scheme.Kind, name: str) -> Document:
    found = kind.subresource(name)
    assert found is not None
    same = (found.group, found.version) == (kind.group, kind.version)
    return {
        "subresource": name,
        "responseKind": {
            "group": "" if same else found.group,
            "version": "" if same else found.version,
            "kind": found.kind,
        },
        "verbs": list(found.verbs),
    }


def root_paths(health: Iterable[str]) -> list[str]:
    """What `/` lists; `health` are the paths of the health checks."""
    paths = ["/api", "/api/v1", "/apis", "/apis/"]
    for name, served in scheme.groups().items():
        if name:
            paths.append(f"/apis/{name}")
            paths += [f"/apis/{name}/{version}" for version in served]
    return sorted([*paths, *health, "/metrics", "/openapi/v2", "/openapi/v3", "/version"])
