"""`motley fake-runtime`: a container runtime that runs nothing."""

from pathlib import Path

import click

from motley.cli import component_options
from motley.lib import journal, tasks
from motley.lib.clock import SYSTEM


@click.command(name="fake-runtime")
@click.option(
    "--socket",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Unix socket to listen on, for the --runtime-endpoint of `motley node`.",
)
@click.option(
    "--stages",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What containers do, as YAML.  [default: they run until they are stopped]",
)
@component_options.log_level
def command(socket: Path, stages: Path | None, log_level: str) -> None:
    """Speak CRI on a socket and simulate containers, for trying and testing a real node agent."""
    from motley.node.fakecri import stages as described
    from motley.node.fakecri.engine import Engine
    from motley.node.fakecri.services import Services
    from motley.node.fakecri.serving import serve

    journal.configure(log_level)
    try:
        chosen = described.parse(stages.read_text() if stages else "")
    except described.StagesError as error:
        raise click.ClickException(f"{stages}: {error}") from None
    engine = Engine(chosen, SYSTEM)
    tasks.run(serve(Services(engine, str(socket.absolute().parent)), socket.absolute()))
