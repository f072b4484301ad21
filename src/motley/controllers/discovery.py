"""What kinds the server has, and metadata-only views of any of them.

Garbage collection and namespace deletion must reach kinds nobody wrote a view for, so they ask
discovery and read just the metadata.
"""

from typing import Any, NamedTuple

import msgspec

from motley.api import status
from motley.api.views.base import Object
from motley.client.rest import Client
from motley.lib import journal

log = journal.get(__name__)

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Resource(NamedTuple):
    """A kind as discovery lists it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def group(self) -> str:
        """API group, empty for core."""
        return self.api_version.rpartition("/")[0]

    def can(self, *verbs: str) -> bool:
        """Are all these verbs served?"""
        return self.verbs.issuperset(verbs)


_views: dict[tuple[str, str, str, bool], type[Object]] = {}


def view(resource: Resource) -> type[Object]:
    """A view class with the metadata only; the same class every time for one kind."""
    identity = (resource.api_version, resource.kind, resource.plural, resource.namespaced)
    if identity not in _views:
        made = msgspec.defstruct(
            f"{resource.kind}Metadata",
            [],
            bases=(Object,),
            namespace={
                "API_VERSION": resource.api_version,
                "KIND": resource.kind,
                "PLURAL": resource.plural,
                "NAMESPACED": resource.namespaced,
            },
        )
        assert issubclass(made, Object)
        _views[identity] = made
    return _views[identity]


class Discovered(NamedTuple):
    """The kinds found, and the group versions that could not be asked."""

    resources: list[Resource]
    failed: list[str]


async def discover(client: Client) -> Discovered:
    """All kinds, each in its preferred version."""
    resources: dict[tuple[str, str], Resource] = {}
    failed: list[str] = []
    for path in ("/api", "/apis"):
        answer = await client.raw("GET", path, accept=f"{_AGGREGATED}, application/json")
        if answer.get("kind") == "APIGroupDiscoveryList":
            _read_aggregated(answer, resources, failed)
        else:
            await _ask_each(client, answer, resources, failed)
    return Discovered(list(resources.values()), failed)


def _read_aggregated(
    answer: dict[str, Any], resources: dict[tuple[str, str], Resource], failed: list[str]
) -> None:
    """Everything in one answer; the versions of a group stand in the order of preference."""
    for group in answer.get("items") or ():
        name = group["metadata"].get("name", "")
        for version in group.get("versions") or ():
            group_version = f"{name}/{version['version']}" if name else version["version"]
            if version.get("freshness") == "Stale":
                log.warning("discovery is stale", group_version=group_version)
                failed.append(group_version)
            for entry in version.get("resources") or ():
                found = Resource(
                    group_version,
                    (entry.get("responseKind") or {}).get("kind", ""),
                    entry["resource"],
                    entry.get("scope") == "Namespaced",
                    frozenset(entry.get("verbs") or ()),
                )
                if found.kind:  # else only its subresources are served
                    resources.setdefault((name, found.plural), found)


async def _ask_each(
    client: Client,
    answer: dict[str, Any],
    resources: dict[tuple[str, str], Resource],
    failed: list[str],
) -> None:
    """As servers before 1.27 want it: one request for each version of each group."""
    versions: list[str] = list(answer.get("versions") or ())  # the core group's
    for group in answer.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("groupVersion")
        served = [v["groupVersion"] for v in group.get("versions") or ()]
        versions += [v for v in [preferred, *served] if v and v not in versions]
    for version in versions:
        path = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        try:
            listing = await client.raw("GET", path)
        except status.ApiError as error:
            log.warning("discovery failed", group_version=version, error=error.message)
            failed.append(version)
            continue
        for entry in listing.get("resources") or ():
            found = _resource(version, entry)
            if found is not None:  # the first version of a group that has the kind wins
                resources.setdefault((found.group, found.plural), found)


def _resource(version: str, entry: dict[str, Any]) -> Resource | None:
    if "/" in entry["name"]:
        return None
    return Resource(
        version, entry["kind"], entry["name"], entry["namespaced"], frozenset(entry["verbs"])
    )
