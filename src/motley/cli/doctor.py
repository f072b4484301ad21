"""`motley doctor`: what is wrong with this machine, or its cluster, and how to put it right."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from motley.cli import cluster, printers
from motley.ops import doctor
from motley.ops.config import Config

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@cluster.root_option
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
@click.option("-q", "--quiet", is_flag=True, help="Only what is not ok.")
def command(root: Path, output: str, quiet: bool) -> None:
    """Check the machine and the cluster on it, and say how to put right what is wrong.

    The exit code is 0 when nothing fails, 1 otherwise; warnings do not count.
    """
    from motley.ops import machine

    config = cluster.find(root)
    made = config or Config(root=root)
    findings = doctor.examine(asyncio.run(machine.gather(made, is_made=config is not None)))
    verdict = doctor.worst(findings)
    shown = [one for one in findings if not quiet or one.level != "ok"]
    if output == "table":
        click.echo(_lines(shown))
    else:
        click.echo(printers.document({"verdict": verdict, "findings": shown}, output))
    raise SystemExit(1 if verdict == "fail" else 0)


def _lines(findings: Sequence[doctor.Finding]) -> str:
    lines = []
    for one in findings:
        lines.append(f"{click.style(one.level.ljust(4), fg=_COLOURS[one.level])}  {one.text}")
        if one.fix:
            lines.append(f"      → {one.fix}")
    return "\n".join(lines or ["Nothing to complain of."])
