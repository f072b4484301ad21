"""Which of a cluster's API servers to ask next: one after the other, and not those that failed.

All servers over one store are one API, so any of them will do. A server that cannot be reached is
left out at once, for a time that doubles with every further failure; then one request tries it
again, and when it is answered the server counts as before.

Pure: whoever talks tells what came of it. Invariant: there is always an answer to "which one"; when
all have failed it is the one whose turn to be tried comes first.
"""

from collections.abc import Sequence
from random import Random

import msgspec

from motley.lib.backoff import Backoff
from motley.lib.clock import Clock

# A restart takes a second; one that is gone for good costs a refused connection now and then.
_BASE_S, _CAP_S = 0.5, 15.0
_TRIAL_S = 2.0  # as long as a connection may take


class _Server(msgspec.Struct):
    url: str
    backoff: Backoff
    out_until: float = float("-inf")
    is_tried: bool = False  # one request finds out whether it is back


class Endpoints:
    """The servers of one cluster, as one client has found them."""

    def __init__(self, servers: Sequence[str], clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._servers: list[_Server] = []
        self._next = 0
        self.replace(servers)

    def __len__(self) -> int:
        return len(self._servers)

    def replace(self, servers: Sequence[str]) -> None:
        """Ask these from now on; what is known of those that stay is kept."""
        known = {server.url: server for server in self._servers}
        self._servers = [known.get(url) or self._new(url) for url in dict.fromkeys(servers)]
        # Many components read the same list: they begin at different places in it.
        self._next = self._rng.randrange(len(self._servers)) if len(self._servers) > 1 else 0

    def _new(self, url: str) -> _Server:
        return _Server(url, Backoff(base_s=_BASE_S, cap_s=_CAP_S, rng=self._rng))

    def choose(self, avoid: str = "") -> str:
        """The server to ask now; `avoid`: the one just asked in vain, if there is another."""
        if len(self._servers) == 1:
            return self._servers[0].url
        now = self._clock.monotonic()
        turn = self._servers[self._next :] + self._servers[: self._next]
        others = [server for server in turn if server.url != avoid]
        good = [server for server in others if server.out_until <= now]
        chosen = good[0] if good else min(others, key=lambda server: server.out_until)
        self._next = (self._servers.index(chosen) + 1) % len(self._servers)
        if chosen.backoff.attempt:
            # Somebody has to find out; everybody else keeps away until it has.
            chosen.is_tried, chosen.out_until = True, now + _TRIAL_S
        return chosen.url

    @property
    def has_other(self) -> bool:
        """Is there a server that has not failed lately?"""
        now = self._clock.monotonic()
        return len(self._servers) > 1 and any(s.out_until <= now for s in self._servers)

    def failed(self, url: str) -> None:
        """A server could not be reached, or did not answer."""
        server = self._find(url)
        if server is None:
            return
        now = self._clock.monotonic()
        if server.is_tried or server.out_until <= now:  # requests that failed together are one
            server.is_tried, server.out_until = False, now + server.backoff.next()

    def answered(self, url: str) -> None:
        """A server has answered, whatever it said."""
        server = self._find(url)
        if server is not None and server.backoff.attempt:
            server.backoff.reset()
            server.is_tried, server.out_until = False, float("-inf")

    def _find(self, url: str) -> _Server | None:
        if len(self._servers) == 1:
            return None  # there is nothing to choose
        return next((server for server in self._servers if server.url == url), None)
