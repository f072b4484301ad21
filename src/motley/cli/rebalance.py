"""`motley rebalance`: which pods should leave hot nodes, and why the others should not.

Works with any Kubernetes that serves `metrics.k8s.io`. Without `--apply` nothing is changed.
"""

import asyncio
from pathlib import Path
from typing import Any

import click

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.batch import Job
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.autoscale.rebalance import Plan, Settings
from motley.cli import printers, rebalance_options
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.controllers import rebalancing, resizing
from motley.controllers.rebalancing import METRICS, Seen
from motley.controllers.topowner import Owner, top
from motley.controllers.workload import ReplicaSet
from motley.lib import clock as clocks


@click.command("rebalance")
@click.option(
    "--dry-run/--apply",
    "is_dry",
    default=True,
    show_default=True,
    help="Only show the plan, or evict the pods it names.",
)
@click.option(
    "--kubeconfig",
    "config",
    type=click.Path(path_type=Path),
    help="By default $KUBECONFIG or ~/.kube/config.",
)
@click.option("-o", "--output", "form", type=click.Choice(printers.FORMATS), default="table")
@rebalance_options.thresholds()
def command(is_dry: bool, config: Path | None, form: str, **given: Any) -> None:
    """Show which pods should move off hot nodes, and why not the others; with --apply, move them.

    Pods are moved by eviction: disruption budgets are respected, their controllers make new ones,
    and the scheduler finds the place.
    """
    settings = rebalance_options.settings(given)
    try:
        plan, outcomes = asyncio.run(_run(config, settings, is_dry))
    except (status.ApiError, kubeconfig.ConfigError, OSError) as error:
        raise printers.fail(str(error)) from None
    shown = document(plan, outcomes)
    if form in ("json", "yaml"):
        click.echo(printers.document(shown, form))
    else:
        click.echo(text(shown, is_dry))


async def _run(
    config: Path | None, settings: Settings, is_dry: bool
) -> tuple[Plan, dict[str, str]]:
    async with Client(kubeconfig.load(config)) as client:
        pods = (await client.list(Pod)).items
        sets = {s.key: s for s in (await client.list(ReplicaSet)).items}
        jobs = {j.key: j for j in (await client.list(Job)).items}
        try:
            node_use = await client.raw("GET", f"{METRICS}/nodes")
            pod_use = await client.raw("GET", f"{METRICS}/pods")
        except status.NotFound:
            raise printers.fail(
                "Metrics API not available", "Install metrics-server, or let Motley collect."
            ) from None
        volumes, images = await rebalancing.more(client)
        seen = Seen(
            (await client.list(Node)).items,
            pods,
            (await client.list(PodDisruptionBudget)).items,
            {name: use for (_, name), use in rebalancing.uses(node_use).items()},
            rebalancing.uses(pod_use),
            volumes,
            images,
        )

        def owner(pod: Pod) -> Owner | None:
            return top(pod, {"ReplicaSet": sets.get, "Job": jobs.get})

        plan = rebalancing.plan(seen, owner, settings, {}, clocks.SYSTEM.now())
        outcomes: dict[str, str] = {}
        known = {pod.key: pod for pod in pods}
        for move in plan.moves if not is_dry else ():
            key = Key(move.pod.namespace, move.pod.name)
            try:
                await resizing.evict(client, known[key])
                outcomes[move.pod.key] = "evicted"
            except status.ApiError as error:
                outcomes[move.pod.key] = f"refused: {error.message}"
        return plan, outcomes


# -- pure -----------------------------------------------------------------------------------


def document(plan: Plan, outcomes: dict[str, str]) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "hotNodes": [{"name": name, "reason": why} for name, why in plan.hot.items()],
        "moves": [
            {
                "pod": move.pod.key,
                "from": move.pod.node,
                "to": move.to,
                "reason": move.reason,
                **({"outcome": outcomes[move.pod.key]} if move.pod.key in outcomes else {}),
            }
            for move in plan.moves
        ],
        "refusals": [
            {"pod": r.pod.key, "node": r.pod.node, "reason": r.reason} for r in plan.refusals
        ],
    }


def text(shown: dict[str, Any], is_dry: bool) -> str:
    """The plan for people."""
    if not shown["hotNodes"]:
        return "No node is hot: nothing to move."
    lines = [f"{n['name']} is hot: {n['reason']}" for n in shown["hotNodes"]]
    if shown["moves"]:
        header = ["MOVE", "FROM", "COULD GO TO", "BECAUSE IT"]
        rows = [[m["pod"], m["from"], m["to"], m["reason"]] for m in shown["moves"]]
        if not is_dry:
            header.append("OUTCOME")
            rows = [[*row, m["outcome"]] for row, m in zip(rows, shown["moves"], strict=True)]
        lines += ["", printers.table(header, rows)]
    if shown["refusals"]:
        rows = [[r["pod"], r["node"], r["reason"]] for r in shown["refusals"]]
        lines += ["", printers.table(["STAYS", "NODE", "BECAUSE"], rows)]
    if is_dry and shown["moves"]:
        lines += ["", "Nothing was changed; --apply evicts these pods."]
    return "\n".join(lines)
