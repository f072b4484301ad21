"""`motley top`: what nodes and pods use, also in units of one common speed.

A core of a slow node does less. With `--normalized` CPU is counted in cores of speed 1: use times
the node's `hice.kj`, or its estimated speed where nobody has set that label. So the figures of
unlike machines can be compared and added up. `--history` shows how it came to be.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from motley.api import overcommit, quantity, speeds, status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.cli import printers, top_history
from motley.client import kubeconfig
from motley.client.rest import Client

F = TypeVar("F", bound=Callable[..., Any])
Document = dict[str, Any]

_METRICS = "/apis/metrics.k8s.io/v1beta1"
_UNKNOWN = "<unknown>"


class Use(NamedTuple):
    """CPU in thousandths of a core, memory in bytes."""

    cpu: float
    memory: int


def _options(function: F) -> F:
    for option in (
        click.option(
            "--kubeconfig",
            "config",
            type=click.Path(path_type=Path),
            help="By default $KUBECONFIG or ~/.kube/config.",
        ),
        click.option(
            "-o", "--output", "form", type=click.Choice(printers.FORMATS), default="table"
        ),
        click.option("-l", "--selector", default="", help="Only what has these labels."),
        click.option("--sort-by", type=click.Choice(["name", "cpu", "memory"]), default="name"),
        click.option("--normalized", is_flag=True, help="Count CPU in cores of speed 1."),
        click.option(
            "--history",
            "back",
            is_flag=False,
            flag_value="1h",
            metavar="[TIME]",
            help="Show the past instead, 1h or as far back as said (up to 7d).",
        ),
    ):
        function = option(function)
    return function


@click.group("top")
def command() -> None:
    """Show what nodes and pods use; CPU also in cores of one common speed."""


@command.command("nodes")
@_options
def nodes(
    normalized: bool,
    sort_by: str,
    selector: str,
    form: str,
    config: Path | None,
    back: str | None,
) -> None:
    """Use of nodes, with the share of what is allocatable."""
    if back:
        _past(config, "nodes", "", back, form, normalized, sort_by, selector)
        return

    async def read(client: Client) -> tuple[list[Node], list[Document]]:
        listed = await client.list(Node, label_selector=selector)
        return listed.items, await _items(client, f"{_METRICS}/nodes", selector)

    found, items = _with_client(config, read)
    uses = {item["metadata"]["name"]: use([item]) for item in items}
    rows = []
    for node in found:
        used = uses.get(node.metadata.name)
        factor = speed(node) if normalized else 1.0
        rows.append(node_row(node, used, factor))
    _print(_sorted(rows, sort_by), form, normalized)


@command.command("pods")
@_options
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-A", "--all-namespaces", is_flag=True)
def pods(
    namespace: str,
    all_namespaces: bool,
    normalized: bool,
    sort_by: str,
    selector: str,
    form: str,
    config: Path | None,
    back: str | None,
) -> None:
    """Use of pods, each on its node."""
    where = "" if all_namespaces else namespace
    if back:
        _past(config, "pods", where, back, form, normalized, sort_by, selector)
        return

    async def read(client: Client) -> tuple[list[Pod], list[Node], list[Document]]:
        listed = await client.list(Pod, namespace=where, label_selector=selector)
        path = f"{_METRICS}/namespaces/{where}/pods" if where else f"{_METRICS}/pods"
        return listed.items, (await client.list(Node)).items, await _items(client, path, selector)

    found, known, items = _with_client(config, read)
    speeds = {node.metadata.name: speed(node) for node in known}
    uses = {
        (i["metadata"].get("namespace", ""), i["metadata"]["name"]): use(i.get("containers") or ())
        for i in items
    }
    rows = []
    for pod in found:
        used = uses.get((pod.metadata.namespace, pod.metadata.name))
        if used is None:
            continue  # kubectl, too, shows only what was measured
        factor = speeds.get(pod.spec.node_name, 1.0) if normalized else 1.0
        rows.append(pod_row(pod, used, factor, all_namespaces))
    _print(_sorted(rows, sort_by), form, normalized)


@command.command("workloads")
@_options
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-A", "--all-namespaces", is_flag=True)
@click.option(
    "--forecast",
    "horizon",
    metavar="TIME",
    help="Also say how much CPU is expected within this time, and how wrong that has been.",
)
def workloads(
    namespace: str,
    all_namespaces: bool,
    normalized: bool,
    sort_by: str,
    selector: str,
    form: str,
    config: Path | None,
    back: str | None,
    horizon: str | None,
) -> None:
    """The past hour (or --history TIME) of Deployments and other workloads."""
    where = "" if all_namespaces else namespace
    _past(config, "workloads", where, back or "1h", form, normalized, sort_by, selector, horizon)


def _past(
    config: Path | None,
    resource: str,
    namespace: str,
    back: str,
    form: str,
    normalized: bool,
    sort_by: str,
    selector: str,
    horizon: str | None = None,
) -> None:
    if selector:
        raise click.UsageError("the past is kept without labels: -l does not go with it")

    async def read(client: Client) -> list[Document]:
        found = await top_history.read(client, resource, namespace, back)
        is_shared = resource != "nodes" and not namespace
        rows = [top_history.row(item, normalized, is_shared) for item in found]
        if horizon is not None:
            # As autoscalers do: a week in steps of five minutes, or else the last hour.
            week = await top_history.read(client, resource, namespace, "7d", "5m")
            hour = await top_history.read(client, resource, namespace, "1h", "30s")
            for row, item in zip(rows, found, strict=True):
                row["forecast"] = top_history.expected(item, (week, hour), horizon)
        return rows

    try:
        rows = _with_client(config, read)
    except ValueError as error:
        raise printers.fail(str(error)) from None
    if sort_by != "name":
        rows.sort(key=lambda row: -max((v for v in row[sort_by] if v is not None), default=0.0))
    if form in ("json", "yaml"):
        click.echo(printers.document(rows, form))
    elif not rows:
        click.echo("No resources found", err=True)
    else:
        click.echo(top_history.text(rows, horizon is not None))


# -- pure -----------------------------------------------------------------------------------


def use(parts: Iterable[Document]) -> Use:
    """The sum of what parts use."""
    amounts = [part.get("usage") or {} for part in parts]
    cpu = sum(quantity.quantity(amount.get("cpu", "0")).nano for amount in amounts)
    memory = sum(quantity.to_int(amount.get("memory", "0")) for amount in amounts)
    return Use(cpu / 1_000_000, memory)


def speed(node: Node) -> float:
    """What a person says, else what was estimated, else 1."""
    return speeds.of_node(node.metadata.labels, node.metadata.annotations)


def node_row(node: Node, used: Use | None, factor: float) -> Document:
    """One node; shares are of what it has itself, so speed does not change them."""
    row: Document = {"name": node.metadata.name, "speed": factor}
    if used is None:
        return row
    allocatable = overcommit.reported_by(node)
    row |= _figures(used, factor)
    for name, amount, whole in (
        ("cpuPercent", used.cpu, quantity.cpu_milli(allocatable.get("cpu", "0"))),
        ("memoryPercent", used.memory, quantity.to_int(allocatable.get("memory", "0"))),
    ):
        row[name] = int(100 * amount / whole) if whole else None
    return row


def pod_row(pod: Pod, used: Use, factor: float, with_namespace: bool) -> Document:
    """One pod."""
    head = {"namespace": pod.metadata.namespace} if with_namespace else {}
    name = {"name": pod.metadata.name, "node": pod.spec.node_name, "speed": factor}
    return {**head, **name, **_figures(used, factor)}


def _figures(used: Use, factor: float) -> Document:
    return {"cpuMilli": round(used.cpu * factor), "memoryMi": used.memory >> 20}


def _sorted(rows: list[Document], by: str) -> list[Document]:
    if by == "name":
        return sorted(rows, key=lambda row: (row.get("namespace", ""), row["name"]))
    figure = {"cpu": "cpuMilli", "memory": "memoryMi"}[by]
    return sorted(rows, key=lambda row: -row.get(figure, -1))


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "namespace": ("NAMESPACE", str),
    "name": ("NAME", str),
    "node": ("NODE", str),
    "speed": ("SPEED", lambda v: f"{v:.3g}"),
    "cpuMilli": ("CPU(cores)", lambda v: f"{v}m"),
    "cpuPercent": ("CPU(%)", lambda v: f"{v}%"),
    "memoryMi": ("MEMORY(bytes)", lambda v: f"{v}Mi"),
    "memoryPercent": ("MEMORY(%)", lambda v: f"{v}%"),
}


def _print(rows: list[Document], form: str, normalized: bool) -> None:
    if form in ("json", "yaml"):
        click.echo(printers.document(rows, form))
        return
    if not rows:
        click.echo("No resources found", err=True)
        return
    hidden = set() if form == "wide" else {"node"}
    hidden |= set() if normalized or form == "wide" else {"speed"}
    present = {name for row in rows for name in row}
    shown = [name for name in _COLUMNS if name in present and name not in hidden]
    header = [_COLUMNS[name][0] for name in shown]
    if normalized:
        header = ["CPU(normalized)" if text == "CPU(cores)" else text for text in header]
    cells = [[_cell(row, name) for name in shown] for row in rows]
    click.echo(printers.table(header, cells))


def _cell(row: Document, name: str) -> str:
    value = row.get(name)
    return _UNKNOWN if value is None else _COLUMNS[name][1](value)


# -- reading --------------------------------------------------------------------------------


async def _items(client: Client, path: str, selector: str) -> list[Document]:
    params = {"labelSelector": selector} if selector else {}
    try:
        answer = await client.raw("GET", path, params=params)
    except status.NotFound:
        raise printers.fail(
            "Metrics API not available",
            "motley apiserver serves it with --metrics-every-s; elsewhere install metrics-server.",
        ) from None
    items: list[Document] = answer.get("items") or []
    return items


def _with_client(config: Path | None, work: Callable[[Client], Any]) -> Any:
    async def run() -> Any:
        async with Client(kubeconfig.load(config)) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except (status.ApiError, kubeconfig.ConfigError, OSError) as error:
        raise printers.fail(str(error)) from None
