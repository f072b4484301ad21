"""The past and the near future of what is used, as lines of small bars.

Read from `history.motley.io`; a forecast is made here, by the code that autoscalers use.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from motley.api import status
from motley.cli import printers
from motley.client.rest import Client
from motley.metrics.history_times import duration_s

Document = dict[str, Any]
Line = list[float | None]

PATH = "/apis/history.motley.io/v1"
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 30


async def read(
    client: Client, resource: str, namespace: str, back: str, step: str = ""
) -> list[Document]:
    """The past of every node, pod or workload, in as many steps as a line has bars."""
    where = f"/namespaces/{namespace}" if namespace else ""
    step = step or str(max(10, int(duration_s(back) / _WIDTH)))
    try:
        answer = await client.raw(
            "GET", f"{PATH}{where}/{resource}", params={"from": f"-{back}", "step": step}
        )
    except status.NotFound:
        raise printers.fail(
            "No usage history here",
            "motley apiserver keeps it with --metrics-every-s and --history-series; elsewhere"
            " deploy/history does.",
        ) from None
    items: list[Document] = answer.get("items") or []
    return items


def whole(item: Document, quantity: str) -> Line:
    """A quantity of all containers together."""
    lines: list[Line] = [part[quantity] for part in item["series"]]
    return [
        None if all(v is None for v in step) else sum(v for v in step if v is not None)
        for step in zip(*lines, strict=True)
    ]


def row(item: Document, normalized: bool, with_namespace: bool) -> Document:
    """One line of the table, and its figures for programs."""
    cpu = whole(item, "cpuNormalized" if normalized else "cpu")
    memory = whole(item, "memory")
    metadata = item["metadata"]
    kind = item.get("workloadKind", "")
    name = f"{kind.lower()}/{metadata['name']}" if kind else metadata["name"]
    head = {"namespace": metadata.get("namespace", "")} if with_namespace else {}
    return {
        **head,
        "name": name,
        "from": item["from"],
        "stepSeconds": item["stepSeconds"],
        "cpu": cpu,
        "memory": memory,
    }


def bars(line: Sequence[float | None]) -> str:
    """A value as high as its share of the highest; a gap where nothing is known."""
    top = max((v for v in line if v is not None), default=0.0)
    return "".join(
        " " if v is None else _BARS[min(7, int(8 * v / top))] if top else _BARS[0] for v in line
    )


def expected(item: Document, pasts: Iterable[list[Document]], horizon: str) -> Document:
    """What is expected of the CPU of a workload, by the first of several lists of pasts that tells
    enough. They were read one after another, and a workload may be in one alone."""
    for listed in pasts:
        known = next((one for one in listed if _key(one) == _key(item)), None)
        made = forecast(known, horizon) if known is not None else None
        if made is not None:
            return made
    return {"problem": "too little history"}


def _key(item: Document) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), item.get("workloadKind", ""), metadata["name"]


def forecast(item: Document, horizon: str) -> Document | None:
    """The same by one past, in steps of a forecast's own; None: too little is known."""
    from motley.autoscale import forecast as forecasts

    line, step_s = whole(item, "cpu")[:-1], float(item["stepSeconds"])
    made = forecasts.forecast(line, step_s, duration_s(horizon) + step_s)
    if made is None:
        return None
    return {"cpu": made.peak, "model": made.model, "seasonS": made.season_s, "error": made.error}


def text(rows: Iterable[Document], with_forecast: bool) -> str:
    """The table."""
    listed = list(rows)
    header = ["NAME", "CPU", "NOW", "MAX", "MEMORY", "NOW", "MAX"]
    if listed and "namespace" in listed[0]:
        header.insert(0, "NAMESPACE")
    if with_forecast:
        header += ["EXPECTED CPU", "ERROR", "BY"]
    cells = []
    for one in listed:
        cpu = [v for v in one["cpu"] if v is not None] or [0.0]
        memory = [v for v in one["memory"] if v is not None] or [0.0]
        shown = [one["namespace"]] if "namespace" in one else []
        shown += [one["name"], bars(one["cpu"]), _milli(cpu[-1]), _milli(max(cpu))]
        shown += [bars(one["memory"]), _mebi(memory[-1]), _mebi(max(memory))]
        if with_forecast:
            shown += _expected(one["forecast"])
        cells.append(shown)
    return printers.table(header, cells)


def _expected(made: Document) -> list[str]:
    if "problem" in made:
        return ["-", "-", made["problem"]]
    season = f", season {made['seasonS'] / 3600:.3g}h" if made["seasonS"] else ""
    return [_milli(made["cpu"]), f"{made['error']:.0%}", made["model"] + season]


def _milli(cores: float) -> str:
    return f"{round(cores * 1000)}m"


def _mebi(amount: float) -> str:
    return f"{int(amount) >> 20}Mi"
