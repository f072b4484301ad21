"""What was used, on disk: a fixed number of series, each two rings of records in a mapped file.

    header │ directory: a key per row │ row 0: 1 h at 10 s, 7 d at 5 min │ row 1: … │ …

A record holds the mean and the highest value of each quantity in its interval. It carries the
number of that interval, and a checksum that begins with the series' key: what is half written, left
over from a round of the ring before, or of a series that had the row before, does not count. So
nothing is ever cleared, and a crash costs at most the sample that was being written; the five
minutes it belonged to are made again from the samples of the last hour.

Invariant: the file never grows beyond its size. When all rows are taken, the series that has been
quiet longest makes room, but none that is still written, unless for one that matters more. A row's
blocks are reserved before it is mapped, so that a full disk is an error that can be handled.
"""

import contextlib
import mmap
import os
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from motley.lib import journal

log = journal.get(__name__)

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

QUANTITIES = ("cpu", "cpuNormalized", "memory", "cpuPodMax", "memoryPodMax", "pods")
DEFAULT_SERIES = 1000  # of 139 KiB each
MOST_SERIES = 100_000
BUSY_S = 300.0  # a series written since then keeps its row: else too many would oust each other


class Level(NamedTuple):
    """One ring of every series: how long its intervals are, and how many it has."""

    step_s: int
    slots: int
    first: int  # of the row's records

    @property
    def span_s(self) -> int:
        """How far back it reaches."""
        return self.step_s * self.slots


FINE = Level(10, 360, 0)
COARSE = Level(300, 2016, 360)
_LEVELS = (FINE, COARSE)
_RECORDS = FINE.slots + COARSE.slots

_N = len(QUANTITIES)
_STAMP, _COUNT, _MEAN, _MAX, _CHECK = 0, 1, slice(2, 2 + _N), slice(2 + _N, 2 + 2 * _N), 2 + 2 * _N
_WIDTH = _CHECK + 1
# Odd, so that no change of a single word can go unseen.
_FACTORS: Words = (np.arange(_CHECK, dtype=np.uint32) * 2 + 1) * np.uint32(0x9E3779B1)
_ROW_BYTES = _RECORDS * _WIDTH * 4

_HEAD = 4096
_MAGIC = b"MOTLEYH1"
_KEY_BYTES = 504
_ENTRY: Any = np.dtype([("check", "<u4"), ("last", "<u4"), ("key", f"S{_KEY_BYTES}")])


class Records(NamedTuple):
    """What a ring has of a series in a time, oldest first."""

    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    means: Floats  # by interval and quantity
    highest: Floats


class Ring:
    """The file; or, without a path, the same in memory."""

    def __init__(
        self,
        path: Path | None = None,
        series: int = DEFAULT_SERIES,
        busy_s: float = BUSY_S,
        matters_less: Callable[[str], bool] = lambda _: False,
    ) -> None:
        if not 1 <= series <= MOST_SERIES:
            raise ValueError(f"{series} series: from 1 to {MOST_SERIES}")
        self._series = series
        self._busy_s, self._matters_less = busy_s, matters_less
        self.refused = 0  # new series that found no room, when there were last any
        self._first_row = _HEAD + -(-series * _ENTRY.itemsize // 4096) * 4096
        self._file = -1
        self._map: Any = None
        if path is None:
            self._directory = np.zeros(series, _ENTRY)
            self._data = np.zeros((series, _RECORDS, _WIDTH), np.uint32)
        else:
            self._open(path)
        self._rows: dict[str, int] = {}
        self.torn = self._check()

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        header = _MAGIC + bytes(f"{self._series} {_RECORDS} {_WIDTH}", "ascii")
        if path.exists() and not _begins(path, header + b"\0"):
            aside = path.with_name(path.name + ".old")
            path.replace(aside)
            log.warning("usage history begins anew", because="another form or size", kept=aside)
        size = self._first_row + self._series * _ROW_BYTES
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(self._file, size)
            os.posix_fallocate(self._file, 0, self._first_row)
            os.pwrite(self._file, header + b"\0", 0)
            self._map = mmap.mmap(self._file, size)
        except OSError:
            os.close(self._file)
            raise
        self._directory = np.frombuffer(self._map, _ENTRY, self._series, _HEAD)
        data = np.frombuffer(self._map, np.uint32, offset=self._first_row)
        self._data = data.reshape(self._series, _RECORDS, _WIDTH)

    def close(self) -> None:
        """Let go of the file."""
        if self._map is None:
            return
        self._map.flush()
        del self._directory, self._data
        with contextlib.suppress(BufferError):  # a reader's view keeps the map a little longer
            self._map.close()
        os.close(self._file)
        self._map = None

    def listed(self) -> list[str]:
        """Every series there is."""
        return list(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def write(self, at: float, samples: Mapping[str, Sequence[float]]) -> None:
        """Take a sample of each of these series, in the order of `QUANTITIES`."""
        moment = int(at)
        taken = {self._rows[key]: key for key in samples if key in self._rows}
        if taken:
            self._directory["last"][list(taken)] = moment
        newcomers = [key for key in samples if key not in self._rows]
        if newcomers:
            taken |= self._settle(newcomers, moment)
        if not taken:
            return
        rows = np.fromiter(taken, np.int64, len(taken))
        seeds = np.array([_seed(key) for key in taken.values()], np.uint32)
        values = np.array([samples[key] for key in taken.values()], np.float32)
        for level in _LEVELS:
            self._take(level, rows, seeds, values, moment)

    def _take(
        self, level: Level, rows: npt.NDArray[np.int64], seeds: Words, values: Floats, moment: int
    ) -> None:
        stamp = moment // level.step_s
        at = level.first + stamp % level.slots
        have = self._data[rows, at]
        begun = (_checksums(have, seeds) == have[:, _CHECK]) & (have[:, _STAMP] == stamp)
        numbers = have.view(np.float32)
        count = np.where(begun, have[:, _COUNT], 0) + 1
        means, highest = numbers[:, _MEAN], numbers[:, _MAX]
        shares = (1.0 / count).astype(np.float32)[:, None]
        numbers[:, _MEAN] = np.where(begun[:, None], means + (values - means) * shares, values)
        numbers[:, _MAX] = np.where(begun[:, None], np.maximum(highest, values), values)
        have[:, _STAMP], have[:, _COUNT] = stamp, count
        have[:, _CHECK] = _checksums(have, seeds)
        self._data[rows, at] = have

    def read(self, key: str, level: Level, start: float, end: float) -> Records:
        """What is known of the intervals that begin in [start, end)."""
        row = self._rows.get(key)
        if row is None:
            return _records(np.zeros((0, _WIDTH), np.uint32), level)
        have = self._data[row, level.first : level.first + level.slots].copy()
        sound = _checksums(have, np.uint32(_seed(key))) == have[:, _CHECK]
        starts = have[:, _STAMP].astype(np.int64) * level.step_s
        chosen = have[sound & (starts >= start) & (starts < end)]
        return _records(chosen[np.argsort(chosen[:, _STAMP], kind="stable")], level)

    def last(self, key: str) -> float:
        """When a series was last written."""
        return float(self._directory["last"][self._rows[key]])

    def _settle(self, newcomers: Sequence[str], moment: int) -> dict[int, str]:
        """Give new series rows: free ones, then those of series that have been quiet. Series that
        matter more also take the rows of those that matter less; others find no room."""
        free = deque(np.flatnonzero(self._directory["check"] == 0).tolist())
        last = self._directory["last"]
        oldest = sorted(self._rows, key=lambda key: int(last[self._rows[key]]))
        # One whose last sample is in the future was written by a clock that has been put right.
        quiet = deque(k for k in oldest if abs(moment - int(last[self._rows[k]])) >= self._busy_s)
        lesser = deque(k for k in oldest if self._matters_less(k))
        taken: dict[int, str] = {}
        refused = 0
        for key in sorted(newcomers, key=self._matters_less):
            name = key.encode()
            if len(name) > _KEY_BYTES:
                refused += 1
                continue
            row = self._reserved(free)
            if row is None:
                row = self._taken_from(quiet)
            if row is None and not self._matters_less(key):
                row = self._taken_from(lesser)
            if row is None:
                refused += 1
                continue
            self._directory["check"][row] = 0  # nobody's, until the new key is whole
            self._directory["key"][row] = name
            last[row] = moment
            self._directory["check"][row] = _seed(key)
            self._rows[key], taken[row] = row, key
        if refused and not self.refused:
            log.warning("more series than the usage history holds", series=self._series)
        self.refused = refused
        return taken

    def _reserved(self, free: deque[int]) -> int | None:
        """An empty row that the disk has room for."""
        if not free:
            return None
        row = free.popleft()
        try:
            if self._map is not None:
                os.posix_fallocate(self._file, self._first_row + row * _ROW_BYTES, _ROW_BYTES)
        except OSError as error:
            log.warning("no room for more usage history", error=str(error))
            free.clear()
            return None
        return row

    def _taken_from(self, keys: deque[str]) -> int | None:
        while keys:
            row = self._rows.pop(keys.popleft(), None)
            if row is not None:
                return row
        return None

    def _check(self) -> int:
        """Find the series; count what is torn, and make again what can be made of the rest."""
        torn = 0
        for row in np.flatnonzero(self._directory["check"]):
            key = bytes(self._directory["key"][row]).decode(errors="replace")
            seed = np.uint32(_seed(key))
            if seed != self._directory["check"][row] or key in self._rows:
                self._directory["check"][row] = 0
                continue
            self._rows[key] = int(row)
            have = self._data[row]
            sound = _checksums(have, seed) == have[:, _CHECK]
            stamps = have[:, _STAMP].astype(np.int64)
            last = int(self.last(key))
            fine = slice(0, FINE.slots)
            recent = np.abs(stamps[fine] * FINE.step_s - last) <= FINE.span_s
            torn += int((recent & ~sound[fine]).sum())
            newest = last // COARSE.step_s
            for stamp in range(newest - FINE.span_s // COARSE.step_s, newest + 1):
                at = COARSE.first + stamp % COARSE.slots
                if not sound[at] or stamps[at] != stamp:
                    torn += self._mend(key, int(row), stamp)
        return torn

    def _mend(self, key: str, row: int, stamp: int) -> bool:
        """Make a record of five minutes again from those of ten seconds, where these are left."""
        start = stamp * COARSE.step_s
        fine = self.read(key, FINE, start, start + COARSE.step_s)
        if not len(fine.counts):
            return False
        made = np.zeros((1, _WIDTH), np.uint32)
        numbers = made.view(np.float32)
        numbers[0, _MEAN] = np.average(fine.means, axis=0, weights=fine.counts)
        numbers[0, _MAX] = fine.highest.max(axis=0)
        made[0, _STAMP], made[0, _COUNT] = stamp, fine.counts.sum()
        made[:, _CHECK] = _checksums(made, np.uint32(_seed(key)))
        self._data[row, COARSE.first + stamp % COARSE.slots] = made[0]
        return True


def _begins(path: Path, header: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(header)) == header


def _seed(key: str) -> int:
    return zlib.crc32(key.encode()) or 1  # never 0: that is a row of nobody


def _checksums(records: Words, seeds: Words | np.uint32) -> Words:
    summed: Words = (records[..., :_CHECK] * _FACTORS).sum(axis=-1, dtype=np.uint32)
    return summed + seeds


def _records(chosen: Words, level: Level) -> Records:
    numbers = chosen.view(np.float32)
    return Records(
        chosen[:, _STAMP].astype(np.int64) * level.step_s,
        chosen[:, _COUNT].astype(np.int64),
        numbers[:, _MEAN],
        numbers[:, _MAX],
    )
