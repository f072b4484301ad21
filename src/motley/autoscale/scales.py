"""Finding and changing the scale of any object that has one.

An autoscaler names its target by group and kind; discovery says which resource that is and in
which versions it is served, so that custom resources are scaled like Deployments.
"""

from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.autoscaling import CrossVersionObjectReference
from motley.autoscale.calculator import MetricError
from motley.autoscale.hpa import Scale
from motley.client.rest import Client
from motley.lib.clock import SYSTEM, Clock

Document = dict[str, Any]

_FRESH_S = 30.0  # kube-controller-manager forgets its mappings as often
_ATTEMPTS = 5


class NoScale(Exception):
    """The target has no scale that could be read; the message says why."""


class Mapping(NamedTuple):
    """A resource in one version."""

    path: str
    plural: str
    group: str


class Mapper:
    """From kinds to resources, remembered for a while."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, list[Mapping]]] = {}

    async def mappings(self, group: str, kind: str) -> list[Mapping]:
        """Every version of a kind, preferred first; none when it is not served."""
        now = self._clock.monotonic()
        found = self._known.get((group, kind))
        if found is not None and now - found[0] < _FRESH_S:
            return found[1]
        made = await self._discover(group, kind)
        if made:  # what is missing may be about to come: ask again
            self._known[group, kind] = (now, made)
        return made

    async def _discover(self, group: str, kind: str) -> list[Mapping]:
        roots = ["/api/v1"]
        if group:
            try:
                answer = await self._client.raw("GET", f"/apis/{group}")
            except status.NotFound:
                return []
            preferred = (answer.get("preferredVersion") or {}).get("version", "")
            served = [v["version"] for v in answer.get("versions") or ()]
            ordered = sorted(served, key=lambda v: v != preferred)
            roots = [f"/apis/{group}/{version}" for version in ordered]
        found: list[Mapping] = []
        for root in roots:
            listing = await self._client.raw("GET", root)
            found += [
                Mapping(root, entry["name"], group)
                for entry in listing.get("resources") or ()
                if entry["kind"] == kind and "/" not in entry["name"]
            ]
        return found

    async def resource(self, reference: CrossVersionObjectReference) -> str:
        """`plural.group` of an object, as the custom metrics API wants it. Raises MetricError."""
        group = reference.api_version.rpartition("/")[0]
        try:
            found = await self.mappings(group, reference.kind)
        except status.ApiError as error:
            raise MetricError(error.message) from None
        if not found:
            raise MetricError(_no_match(group, reference.kind))
        return f"{found[0].plural}.{group}" if group else found[0].plural


def _no_match(group: str, kind: str) -> str:
    return f'no matches for kind "{kind}" in group "{group}"'


class Found(NamedTuple):
    """A scale, and where it is."""

    path: str
    document: Document

    @property
    def scale(self) -> Scale:
        """The numbers in it."""
        spec, state = self.document.get("spec") or {}, self.document.get("status") or {}
        return Scale(
            int(spec.get("replicas") or 0),
            int(state.get("replicas") or 0),
            str(state.get("selector") or ""),
        )


class Scales:
    """Reads and writes scales."""

    def __init__(self, client: Client, mapper: Mapper) -> None:
        self._client = client
        self._mapper = mapper

    async def get(self, reference: CrossVersionObjectReference, namespace: str) -> Found:
        """The target's scale, in the first version that has it. Raises NoScale."""
        group = reference.api_version.rpartition("/")[0]
        if reference.api_version.count("/") > 1:
            raise NoScale(f"unexpected GroupVersion string: {reference.api_version}")
        try:
            mappings = await self._mapper.mappings(group, reference.kind)
        except status.ApiError as error:
            raise NoScale(error.message) from None
        if not mappings:
            raise NoScale(_no_match(group, reference.kind))
        first = ""
        for mapping in mappings:
            path = f"{mapping.path}/namespaces/{namespace}/{mapping.plural}/{reference.name}/scale"
            try:
                return Found(path, await self._client.raw("GET", path))
            except status.ApiError as error:
                first = first or error.message
        raise NoScale(first)

    async def set(self, found: Found, replicas: int) -> None:
        """Change the number of pods; a conflict is read again and retried. Raises ApiError."""
        document = found.document
        for attempt in range(_ATTEMPTS):
            body = {**document, "spec": {**(document.get("spec") or {}), "replicas": replicas}}
            try:
                await self._client.raw("PUT", found.path, body=body)
            except status.Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                document = await self._client.raw("GET", found.path)
            else:
                return
