"""The runtime of a node that is of another architecture than its machine, which emulates it.

The runtime chooses from an image's index by the machine it runs on, and CRI has no way to ask for
another choice. So the choice is made here: the index is read from the registry, and the runtime
pulls the one manifest by its digest. Which manifest a name led to is remembered in a file: a pod
finds its image again without a registry, as on any node.

Invariant: what the node gives to a pod is of the node's architecture, or not there. An image that
only runs on the machine itself would start, and nobody would notice what is wrong.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from motley.lib import atomicfile, journal
from motley.node.cri import convert
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Image
from motley.registry import platforms, references
from motley.registry.credentials import Login
from motley.registry.manifests import Unreadable
from motley.registry.platforms import Platform
from motley.registry.pulling import Unreached
from motley.registry.resolver import Resolver
from motley.registry.settings import Registries

log = journal.get(__name__)


class _Spec(msgspec.Struct):
    architecture: str = ""
    os: str = "linux"
    variant: str = ""


class _Info(msgspec.Struct, rename="camel"):
    image_spec: _Spec = msgspec.field(default_factory=_Spec)


class ForeignRuntime(Runtime):
    """A `Runtime` whose images are those of `here`; `record` keeps which manifest is which name."""

    def __init__(
        self,
        endpoint: str,
        here: Platform,
        record: Path,
        registries: Registries | None = None,
    ) -> None:
        super().__init__(endpoint)
        self._here = here
        self._record = record
        self._registries = registries
        self._pinned = _read(record)

    async def image(self, reference: str) -> Image | None:
        """An image of the node's architecture by reference or id, if it is in the store."""
        found, platform = await self._found(self._pinned.get(reference, reference))
        return found if found is not None and self._runs(platform) else None

    async def pull(self, reference: str, auth: Mapping[str, str] | None = None) -> str:
        """Fetch the image of the node's architecture; returns its id."""
        name = references.parse(reference)
        if name.is_local:
            _, platform = await self._found(reference)
            raise RuntimeFailure(
                f"{reference} is here for {platform} only, and this node runs {self._here}"
                if platform is not None
                else f"{reference} was made on another machine: no registry has it"
            )
        login = Login(**auth) if auth else None
        try:
            async with Resolver(self._registries) as resolver:
                pinned = str(await resolver.pin(name, self._here, login))
        except (Unreached, Unreadable) as error:
            raise RuntimeFailure(str(error)) from error
        pulled = await super().pull(pinned, auth)
        self._remember(reference, pinned)
        log.info("image of this architecture", image=reference, pulled=pinned)
        return pulled

    def _runs(self, platform: Platform | None) -> bool:
        return platform is None or platforms.best([platform], self._here) is not None

    async def _found(self, reference: str) -> tuple[Image | None, Platform | None]:
        """What the store has by a name, and what it runs on as far as the runtime says."""
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=reference), verbose=True)
        answer = await self._image("ImageStatus", request, cri.ImageStatusResponse)
        if not answer.HasField("image") or not answer.image.id:
            return None, None
        try:
            spec = msgspec.json.decode(answer.info.get("info", "{}"), type=_Info).image_spec
        except msgspec.MsgspecError:
            spec = _Spec()  # another runtime's way to say it
        platform = platforms.normal(spec.os, spec.architecture, spec.variant)
        return convert.image(answer.image), platform if spec.architecture else None

    def _remember(self, reference: str, pinned: str) -> None:
        if self._pinned.get(reference) != pinned:
            self._pinned[reference] = pinned
            self._record.parent.mkdir(parents=True, exist_ok=True)
            atomicfile.write(self._record, msgspec.json.encode(self._pinned))


def _read(record: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(record.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("record of pulled images is not readable", file=record, error=error)
        return {}
