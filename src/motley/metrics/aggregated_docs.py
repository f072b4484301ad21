"""What an aggregated API server says of itself: discovery and OpenAPI, old and new. Pure.

kube-apiserver asks for the aggregated document first; for the plain ones it asks as a user without
groups. Both are there, so that any version of it lists the resources.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from motley.api import codec
from motley.apiserver import answer, groupdiscovery
from motley.apiserver.answer import Answer
from motley.apiserver.extension import Extension

Document = dict[str, Any]

_WANTED = "as=apigroupdiscoverylist"
_INFO = {"title": "Motley", "version": "v1"}


def document(path: str, headers: Mapping[str, str], groups: Sequence[Extension]) -> Answer | None:
    """What is at a path that is not a group's own; None: nothing."""
    versions = _versions(groups)
    match path.strip("/").split("/"):
        case ["apis"]:
            return _apis(headers, versions)
        case ["apis", name] if name in versions:
            listed = groupdiscovery.listed(name, list(versions[name]))
            return answer.of({"kind": "APIGroup", "apiVersion": "v1", **listed})
        case ["openapi", "v2"]:
            return answer.of({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}})
        case ["openapi", "v3"]:
            places = [f"apis/{one.group}/{one.version}" for one in groups]
            leads = {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}
            return answer.of({"paths": leads})
        case ["openapi", "v3", "apis", name, version] if version in versions.get(name, {}):
            return answer.of({"openapi": "3.0.0", "info": _INFO, "paths": {}})
    return None


def _versions(groups: Sequence[Extension]) -> dict[str, dict[str, list[Document]]]:
    found: dict[str, dict[str, list[Document]]] = {}
    for one in groups:
        found.setdefault(one.group, {})[one.version] = list(one.resources)
    return found


def _apis(headers: Mapping[str, str], versions: dict[str, dict[str, list[Document]]]) -> Answer:
    accept = headers.get("accept", "").lower().replace(" ", "")
    if not any(_WANTED in one and ";v=v2;" in f"{one};" for one in accept.split(",")):
        listed = [groupdiscovery.listed(name, list(found)) for name, found in versions.items()]
        return answer.of({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
    body = codec.encode(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [groupdiscovery.aggregated(name, found) for name, found in versions.items()],
        }
    )
    tag = hashlib.sha256(body).hexdigest().upper()
    shown = {"etag": f'"{tag}"', "vary": "Accept"}
    if headers.get("if-none-match", "").strip('"') == tag:
        return Answer(b"", 304, groupdiscovery.AGGREGATED, shown)
    return Answer(body, 200, groupdiscovery.AGGREGATED, shown)
