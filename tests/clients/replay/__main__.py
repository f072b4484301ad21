"""`tools/replay`: replays recorded scenarios and prints how much agrees."""

import asyncio
import tempfile
from pathlib import Path

import click
import msgspec

from motley.lib.clock import SYSTEM

from . import report, scenario, server
from .replay import replay
from .runner import Options, Result
from .transport import Target

_REPO = Path(__file__).resolve().parents[3]


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of recorded *.jsonl files; the repository's own small ones by default.",
)
@click.option("--area", "areas", multiple=True, help="Only this area (repeatable).")
@click.option("--scenario", "names", multiple=True, help="Only this scenario (repeatable).")
@click.option("--server", "url", help="A running server; by default one is started.")
@click.option("--ca", type=click.Path(path_type=Path, exists=True), help="Its CA certificate.")
@click.option("--admin-token", default="admintoken", show_default=True)
@click.option("--alice-token", default="alicetoken", show_default=True)
@click.option("--store", default="sqlite", show_default=True, help="Of the server started.")
@click.option("--diff", "diffs", multiple=True, help="Show the differences of a scenario or step.")
@click.option("--causes", default=0, help="Show this many causes of differences.")
@click.option("--json", "document", type=click.Path(path_type=Path), help="Write everything there.")
@click.option("--patience", "patience_s", type=float, help="Seconds of retryUntil.")
def main(
    data: Path | None,
    areas: tuple[str, ...],
    names: tuple[str, ...],
    url: str | None,
    ca: Path | None,
    admin_token: str,
    alice_token: str,
    store: str,
    diffs: tuple[str, ...],
    causes: int,
    document: Path | None,
    patience_s: float | None,
) -> None:
    """Replay recorded API scenarios and print, per area, how many answers agree."""
    names = (*names, *(name.partition("#")[0] for name in diffs))
    chosen = scenario.chosen(scenario.load_all(data or default_data()), areas, names)
    begun = SYSTEM.monotonic()
    if url is not None:
        tokens = {"admin": admin_token, "alice": alice_token, "bad": "nosuchtoken"}
        target = Target(url, ca.read_bytes() if ca else None, tokens)
        options = Options(patience_s=patience_s or 20.0)
        results = asyncio.run(replay(target, chosen, options))
    else:
        results = _on_a_server_of_our_own(chosen, store, patience_s or 3.0)
    for one in diffs:
        click.echo(report.diff(results, one))
    if causes:
        click.echo(report.ranking(results, causes))
    if document is not None:
        document.write_bytes(msgspec.json.format(msgspec.json.encode(report.document(results))))
    click.echo(report.table(results))
    click.echo(f"{SYSTEM.monotonic() - begun:.1f} s")


def _on_a_server_of_our_own(
    chosen: list[scenario.Scenario], store: str, patience_s: float
) -> list[Result]:
    # Admission reads what was written: nothing has to catch up.
    options = Options(patience_s=patience_s, pauses=False)
    with (
        tempfile.TemporaryDirectory(prefix="motley-replay-") as directory,
        server.running(Path(directory), store=store) as target,
    ):
        return asyncio.run(replay(target, chosen, options))


def default_data() -> Path:
    """The full recording where it lies beside the repository, else the small cases in it."""
    recorded = _REPO.parent / "shared" / "golden" / "api"
    return recorded if recorded.is_dir() else _REPO / "tests" / "data" / "replay"


if __name__ == "__main__":
    main()
