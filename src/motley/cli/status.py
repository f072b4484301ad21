"""`motley status`: the components of the local cluster, and whether it is well."""

import asyncio
from pathlib import Path
from typing import Any

import click

from motley.cli import cluster, printers
from motley.lib import clock
from motley.ops.overview import Overview, overview


@click.command("status")
@cluster.root_option
@click.option(
    "-o", "--output", type=click.Choice(printers.FORMATS), default="table", help="How to print."
)
def command(root: Path, output: str) -> None:
    """Show the cluster's components.

    The exit code is 0 when all of them run and 1 otherwise.
    """
    config = cluster.find(root)
    if config is None:
        seen = Overview(root=str(root))
    else:
        seen = asyncio.run(overview(config))
    if output in ("json", "yaml"):
        click.echo(printers.document(seen, output))
    else:
        click.echo(_table(seen, wide=output == "wide"))
    raise SystemExit(0 if seen.is_running else 1)


def _table(seen: Overview, *, wide: bool) -> str:
    if not seen.components:
        return f"No cluster runs in {seen.root}. Start one: motley up"
    header = ["COMPONENT", "STATE", "PID", "RESTARTS", "AGE", "MEMORY"]
    header += ["REASON", "LOG"] if wide else []
    now = clock.SYSTEM.now()
    rows = []
    for one in seen.components:
        since = printers.age(now - clock.parse_rfc3339(one.since)) if one.since else "-"
        row: list[Any] = [one.name, one.state, one.pid or "-", one.restarts, since]
        row.append(printers.size(one.rss_bytes))
        rows.append(row + ([one.reason or "-", one.log] if wide else []))
    lines = [printers.table(header, rows), ""]
    for one in seen.components:
        if one.last_lines:
            lines.append(f"{one.name} keeps failing ({one.last_end or one.reason}). Its log ends:")
            lines += [f"  {line}" for line in one.last_lines]
            lines += [f"All of it: {one.log}", ""]
    if seen.supervisor.state != "running":
        lines.append("The supervisor does not run: nothing is restarted. Repair: motley up")
    elif seen.unsupervised:
        where = ", ".join(seen.unsupervised)
        lines.append(f"No supervisor runs on {where}: nothing is restarted. Repair: motley up")
    info = seen.cluster
    if seen.joined:
        lines.append(f"A node of the cluster at {seen.joined}")
    elif info is None:
        lines.append("The API server does not answer.")
    else:
        lines.append(
            f"API {info.server} {info.version}, {info.nodes_ready} of {info.nodes} nodes Ready, "
            f"{info.pods_ready} of {info.pods} pods Ready"
        )
    return "\n".join(lines)
