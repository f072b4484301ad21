"""A run of a workflow for people: a tree of its steps, with times and outcomes.

run                                            Succeeded   1.204 s
├─ 1.check                                     Succeeded   0.031 s
└─ 2.both
   ├─ branch 0
   │  └─ 1.pack                                Succeeded   1.002 s
   └─ branch 1
      └─ 1.bill   attempt 2                    Failed      0.410 s   Timeout: …
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.serverless.workflow.engine import RUNNING, Record

_NAME_WIDTH = 44


def lines(
    title: str, phase: str, took_s: float, records: Sequence[Record], now: float
) -> list[str]:
    """The tree; `took_s` is the whole run's time."""
    root: dict[str, Any] = {}
    found = {record.id: record for record in records}
    for id_ in sorted(found, key=_order):
        at = root
        for part in _path(id_):
            at = at.setdefault(part, {})
    return [_line(title, phase, took_s), *_below(root, "", "", found, now)]


def _below(
    tree: Mapping[str, Any], prefix: str, indent: str, found: Mapping[str, Record], now: float
) -> list[str]:
    shown = []
    names = list(tree)
    for place, name in enumerate(names):
        is_last = place == len(names) - 1
        path = f"{prefix}{name}"
        label = f"branch {name}" if name.isdigit() else name
        record = found.get(path)
        if record is None:
            shown.append(f"{indent}{'└─' if is_last else '├─'} {label}")
        else:
            if record.attempt > 1:
                label += f"   attempt {record.attempt}"
            took = (now if record.phase == RUNNING else record.completed) - record.started
            why = f"{record.error}: {record.message}" if record.error else ""
            head = f"{indent}{'└─' if is_last else '├─'} {label}"
            shown.append(_line(head, record.phase, took, why))
        deeper = indent + ("   " if is_last else "│  ")
        shown += _below(tree[name], f"{path}/", deeper, found, now)
    return shown


def _line(head: str, phase: str, took_s: float, why: str = "") -> str:
    return f"{head:<{_NAME_WIDTH}} {phase:<11} {max(took_s, 0.0):.3f} s   {why}".rstrip()


def _path(id_: str) -> list[str]:
    return id_.split("/")


def _order(id_: str) -> list[tuple[int, str]]:
    """Steps in the order they came, not that of their letters."""
    return [(int(part.partition(".")[0]), part) for part in _path(id_)]
