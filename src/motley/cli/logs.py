"""`motley logs`: what a component, or every component, has written."""

import asyncio
import os
from pathlib import Path

import click

from motley.cli import cluster, printers
from motley.lib import clock
from motley.ops.cluster import tail

_POLL_S = 0.3


class Follower:
    """One file, read as it grows; cut files are read from their new beginning."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._offset = path.stat().st_size
        self._rest = b""

    def new_lines(self) -> list[str]:
        """Whole lines that came since the last call."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                data = self._rest + file.read()
                self._offset = file.tell()
        except FileNotFoundError:
            return []
        *lines, self._rest = data.split(b"\n")
        return [f"{self._prefix}{line.decode(errors='replace')}" for line in lines]


@click.command("logs")
@click.argument("component", required=False)
@cluster.root_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", type=click.IntRange(0), default=50, show_default=True)
def command(component: str | None, root: Path, follow: bool, lines: int) -> None:
    """Show a component's log, or the end of every component's."""
    present = _present(root)
    if not present:
        cluster.require(root)
        raise printers.fail(f"no component has written a log in {root / 'logs'}")
    if component is not None and component not in present:
        raise printers.fail(f"no log of {component!r}", f"There are: {', '.join(present)}")
    chosen = [component] if component else list(present)
    width = max(len(name) for name in chosen)
    followers = []
    for name in chosen:
        path = present[name]
        prefix = "" if component else f"{name.ljust(width)} | "
        followers.append(Follower(path, prefix))
        for line in tail(path, lines) if lines else []:
            click.echo(f"{prefix}{line}")
    if follow:
        asyncio.run(_follow(followers))


def _present(root: Path) -> dict[str, Path]:
    """Logs by component; those of further nodes on this machine as NODE/COMPONENT."""
    own = {path.stem: path for path in sorted((root / "logs").glob("*.log"))}
    others = sorted(root.glob("nodes/*/logs/*.log"))
    return own | {f"{path.parts[-3]}/{path.stem}": path for path in others}


async def _follow(followers: list[Follower]) -> None:
    while True:
        for follower in followers:
            for line in follower.new_lines():
                click.echo(line)
        await clock.SYSTEM.sleep(_POLL_S)
