"""The harness of every benchmark: same options, same lines, same JSON.

    report = figures.Report.from_arguments(__doc__ or "")
    report.add("store.commit.32", 12_345.6, "commits/s", "32 in flight, fsync per group")
    report.finish()

prints `name value unit [detail]`, one line per figure, as soon as it is known:

    store.commit.32 12346 commits/s [32 in flight, fsync per group]

`--quick` asks for a run of less than a minute (`report.quick`); `--json FILE` also writes the
figures as a list of {name, value, unit, detail}. Names are dotted, lower-case and stable: they are
compared from run to run. A figure that depends on the machine stands beside a raw limit that was
measured in the same run, so that their ratio means something elsewhere.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class Figure(msgspec.Struct):
    """One measured value."""

    name: str
    value: float
    unit: str
    detail: str = ""

    def __str__(self) -> str:
        line = f"{self.name} {_number(self.value)} {self.unit}"
        return f"{line} [{self.detail}]" if self.detail else line


def _number(value: float) -> str:
    """Three or more significant digits, never an exponent."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 4
    return f"{value:.{digits}f}"


@dataclass
class Report:
    """The figures of one run."""

    quick: bool = False
    json: Path | None = None
    figures: list[Figure] = field(default_factory=list)

    @classmethod
    def from_arguments(cls, description: str, arguments: Sequence[str] | None = None) -> "Report":
        """From the command line; the script's docstring is its help."""
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--quick", action="store_true", help="take less than a minute")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
        options = parser.parse_args(arguments)
        return cls(options.quick, options.json)

    def add(self, name: str, value: float, unit: str, detail: str = "") -> None:
        """Note a figure and print its line."""
        figure = Figure(name, float(value), unit, detail)
        self.figures.append(figure)
        print(figure, flush=True)

    def finish(self) -> None:
        """Write the JSON file, if one was asked for."""
        if self.json is not None:
            self.json.write_bytes(msgspec.json.format(msgspec.json.encode(self.figures)) + b"\n")


@dataclass
class Spent:
    """Seconds that a block took: on the wall, and of this process's processors."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def measured() -> Iterator[Spent]:
    """Time a block; CPU time repeats far better than wall time on a shared machine."""
    spent = Spent()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    yield spent
    spent.wall_s = time.perf_counter() - wall_s
    spent.cpu_s = time.process_time() - cpu_s
