"""How fast this machine's cores are, by a small fixed piece of work.

Less than half a second when the agent starts, on one thread: interpreting, compressing, sorting,
which is what services do; nothing with special instructions, which would make a machine look better
than its programs run.
CPU time counts, not time on the wall, and of several rounds the best: neighbours only add.

Speed 1 is a core of an AMD EPYC server. Ratios between machines are what matters; replicas under
load tell them more exactly later on.
"""

import time
import zlib
from collections.abc import Callable
from random import Random

ANNOTATION = "motley.io/measured-speed"
REFERENCE_S = 0.035  # CPU time of one round at speed 1
_ROUNDS = 7


def work() -> int:
    """One round; always the same, and its result used so that nothing can be left out."""
    rng = Random(20260101)
    total = 0
    for number in range(200_000):  # interpreting
        total = (total * 31 + number) & 0xFFFFFFFF
    words = [rng.randrange(1 << 30) for _ in range(20_000)]
    words.sort()
    text = b"".join(word.to_bytes(4, "big") for word in words)
    return total ^ zlib.crc32(zlib.compress(text, 6))


def measure(
    cpu_time: Callable[[], float] = time.thread_time,
    run: Callable[[], int] = work,
    rounds: int = _ROUNDS,
) -> float:
    """The speed of one core. Takes a third of a second of CPU at speed 1."""
    best = float("inf")
    for _ in range(rounds):
        begun = cpu_time()
        run()
        best = min(best, cpu_time() - begun)
    return REFERENCE_S / max(best, 1e-6)


if __name__ == "__main__":  # by the Python of another architecture, which takes longer
    print(f"{measure(rounds=2):.4f}")
