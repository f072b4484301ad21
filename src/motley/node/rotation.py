"""When a certificate is renewed: well before its end, and not all nodes' at once.

The moment is drawn between 70 and 90 % of the certificate's life, as the kubelet's is, so that the
nodes of a cluster that was made in one minute do not come back in one minute. Failing to renew is
no reason to stop: the certificate in use is still good, and there is time to ask again.

Invariant: time is measured by the clock that certificates are judged by, and looked at again now
and then, because that clock may be set.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

EARLIEST, LATEST = 0.7, 0.9  # shares of a life
LOOK_S = 600.0
_RETRY_S, _RETRY_CAP_S = 5.0, 900.0


class RenewalError(Exception):
    """There is no new certificate yet; the message says why."""


@dataclass(frozen=True)
class Validity:
    """From when to when a certificate is good, in seconds of the epoch."""

    begins: float
    ends: float


def renew_at(validity: Validity, draw: float) -> float:
    """When to renew, for a draw from [0, 1)."""
    return validity.begins + (validity.ends - validity.begins) * (
        EARLIEST + (LATEST - EARLIEST) * draw
    )


async def keep(
    validity: Validity | None,
    renew: Callable[[], Awaitable[Validity]],
    *,
    what: str,
    clock: Clock = SYSTEM,
    rng: Random | None = None,
) -> None:
    """Renew again and again, until cancelled; at once where there is no certificate yet.

    `renew` raises RenewalError when it failed, and is called again after a while.
    """
    draws = rng or Random()
    backoff = Backoff(base_s=_RETRY_S, cap_s=_RETRY_CAP_S, rng=draws)
    while True:
        if validity is not None:
            due = renew_at(validity, draws.random())
            while (left_s := due - clock.now()) > 0:
                await clock.sleep(min(left_s, LOOK_S))
        try:
            validity = await renew()
        except RenewalError as error:
            left = f"{validity.ends - clock.now():.0f} s" if validity else "none"
            log.warning("certificate not renewed", what=what, error=error, valid_for=left)
            await clock.sleep(backoff.next())
            continue
        backoff.reset()
        log.info("certificate renewed", what=what, lasts_s=round(validity.ends - clock.now()))
