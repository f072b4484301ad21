"""`tools/replay-scheduler [FILE…]`: how much our scheduler agrees with recordings of the real one.

Without files, every recording that lies beside the checkout, or in $MOTLEY_GOLDEN. The exit code is
1 when less agrees than must, 2 when there is nothing to replay.
"""

import argparse
import sys
from pathlib import Path

from . import recordings
from .replay import replay


def main() -> int:
    """Parse, replay, print."""
    parser = argparse.ArgumentParser(prog="tools/replay-scheduler", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="*.jsonl or *.jsonl.gz")
    parser.add_argument("--differences", type=int, default=10, help="how many to show")
    options = parser.parse_args()
    files = options.files or [
        *recordings.found("scheduler*.jsonl*"),
        *recordings.found("preemption*.jsonl*"),
    ]
    if not files:
        print(f"no recordings in {recordings.directory()}; name some", file=sys.stderr)
        return 2
    has_failed = False
    for file in files:
        agreement = replay(recordings.read(file))
        failures = agreement.failures()
        has_failed |= bool(failures)
        print(f"{file}\n{agreement.table()}")
        for unknown, count in agreement.unknown.items():
            print(f"not understood: {unknown} ({count} times)")
        for difference in agreement.differences[: options.differences]:
            print(f"differs: {difference}")
        for failure in failures:
            print(f"TOO LITTLE AGREES: {failure}")
        print()
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
