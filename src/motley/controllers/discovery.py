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
    groups = await client.raw("GET", "/apis")
    versions = ["v1"]
    for group in groups.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("groupVersion")
        served = [v["groupVersion"] for v in group.get("versions") or ()]
        versions += [v for v in [preferred, *served] if v and v not in versions]
    resources: dict[tuple[str, str], Resource] = {}
    failed: list[str] = []
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
    return Discovered(list(resources.values()), failed)


def _resource(version: str, entry: dict[str, Any]) -> Resource | None:
    if "/" in entry["name"]:
        return None
    return Resource(
        version, entry["kind"], entry["name"], entry["namespaced"], frozenset(entry["verbs"])
    )
