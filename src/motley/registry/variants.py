"""Which manifest of an image a machine of a platform runs.

Container runtimes choose from an index by the machine they run on. Where a node is to be of another
architecture than its machine, somebody else has to choose, and the runtime then gets the manifest
by its digest. The choice is a runtime's own: the operating system and the architecture must be the
same; of several variants it is the newest the machine is known to run, the oldest where that is not
known.
"""

from motley.registry import manifests, platforms
from motley.registry.manifests import Unreadable
from motley.registry.platforms import Platform
from motley.registry.pulling import Document, Puller

_MOST_PARTS = 16  # of an index whose entries do not say what they are for
_DEPTH = 2  # indexes within the index


async def find(puller: Puller, version: str, here: Platform) -> str:
    """The digest of the manifest for a platform. Raises Unreached, Unreadable."""
    first = await puller.manifest(version)
    found = await _images(puller, first, _DEPTH)
    chosen = platforms.best(found, here)
    if chosen is None:
        names = ", ".join(sorted(map(str, found))) or "nothing"
        raise Unreadable(f"no match for platform {here} in manifest: it is for {names}")
    return found[chosen]


async def _images(puller: Puller, document: Document, depth: int) -> dict[Platform, str]:
    """Platform → digest of every image behind a document; what comes first counts."""
    listed = manifests.entries(document.body)
    if listed is None:
        return {await _platform(puller, document): document.digest}
    found = {one.platform: one.digest for one in reversed(listed) if one.platform is not None}
    silent = [one for one in listed if one.platform is None]
    if len(silent) > _MOST_PARTS or (silent and depth == 0):
        raise Unreadable("an index too deep or too large")
    for one in silent:
        inner = await puller.manifest(one.digest)
        found = {**await _images(puller, inner, depth - 1), **found}
    return found


async def _platform(puller: Puller, document: Document) -> Platform:
    reading = manifests.manifest(document.body)
    for part in reading.parts:
        return manifests.configuration((await puller.configuration(part.digest)).body)
    return reading.platforms[0]
