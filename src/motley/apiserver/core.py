"""What the handlers share: the store, the caches, the writer, and the streams that are open."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from motley.apiserver.agents import Agents
from motley.apiserver.authz import Access
from motley.apiserver.caches import Caches
from motley.apiserver.writer import Writer
from motley.lib.clock import Clock
from motley.store.contract import Store


@dataclass
class Core:
    """The server without its sockets."""

    store: Store
    caches: Caches
    writer: Writer
    agents: Agents
    clock: Clock
    rng: Random
    access: Access
    # Watches and followed logs in progress; cancelling one ends it cleanly for its client.
    streams: set[asyncio.Task[None]] = field(default_factory=set)
    stopping: bool = False

    def end_streams(self) -> None:
        """End every stream, so that clients come back to another server or after a restart."""
        self.stopping = True
        self.renew_streams()

    def renew_streams(self) -> None:
        """End every stream cleanly; clients begin theirs again at once."""
        for stream in list(self.streams):
            stream.cancel()
