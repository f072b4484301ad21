"""`motley units`: let systemd start the cluster's components on this machine."""

import shutil
from pathlib import Path

import click
import msgspec

from motley.cli import cluster, printers
from motley.ops import units


@click.command("units")
@cluster.root_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory to write the units to, such as /etc/systemd/system.",
)
@click.option(
    "--prepare", is_flag=True, help="What the first unit runs before its component; not for people."
)
def command(root: Path, output: Path | None, prepare: bool) -> None:
    """Write systemd units for the components of the cluster that `up` or `join` made here.

    Stop the cluster first (`motley down`): systemd then starts the same components, also after a
    start of the machine.
    """
    from motley.ops import certificates, components, containerd, spawning
    from motley.ops.up import forget_last_boot

    config = cluster.require(root)
    files = components.layout(config)
    if prepare:
        config.run.mkdir(parents=True, exist_ok=True)
        forget_last_boot(config)
        containerd.prepare(files)
        return
    if output is None:
        raise click.UsageError("--output DIR says where the units go")
    specs = (
        components.joined(config)
        if config.is_joined
        else components.specs(config, certificates.located(config))
    )
    environment = spawning.environment(config.root, "")
    path = environment["PATH"]
    found = [
        msgspec.structs.replace(
            spec,
            command=(
                shutil.which(spec.command[0], path=path) or spec.command[0],
                *spec.command[1:],
            ),
        )
        for spec in specs
    ]
    made = units.units(
        found,
        root=config.root,
        environment=environment,
        prepare=spawning.motley("units", "--prepare", "--root", str(config.root)),
        writable=[components.HOSTS_FILE] if config.hosts else [],
    )
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (output / name).write_text(text)
    except OSError as error:
        raise printers.fail(f"{output}: {error.strerror}") from None
    click.echo(f"{len(made)} units in {output}. Next:")
    click.echo(f"  motley down --root {config.root}")
    click.echo(f"  systemctl daemon-reload && systemctl enable --now {units.TARGET}")
