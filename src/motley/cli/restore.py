"""`motley restore`: bring back the objects of a backup."""

from pathlib import Path

import click

from motley.cli import printers, store_options


@click.command("restore")
@store_options.options
@click.option(
    "--force", is_flag=True, help="Move the store that is there aside (it is kept) and go on."
)
@click.option("--check", is_flag=True, help="Only check that FILE is whole; change nothing.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def command(root: Path, data_dir: Path | None, force: bool, check: bool, file: Path) -> None:
    """Make FILE, written by `motley backup`, the cluster's objects.

    The API server must be stopped (`motley down`). FILE is read whole and checked first. A store
    that is already there is refused, or moved aside with --force; nothing is overwritten.
    Versions go on far above those of the backup, so every client lists again.
    """
    from motley.store import backup
    from motley.store.contract import Locked, StoreError

    store = store_options.find(root, data_dir)
    try:
        if check:
            found = backup.verify(file)
            click.echo(
                f"{file} is whole: {found.objects} objects at revision {found.revision},"
                f" taken {found.taken}"
            )
            return
        done = backup.restore(file, store, force=force)
    except Locked as error:
        raise printers.fail(
            f"nothing was changed: {error}", "Stop the API server first: motley down"
        ) from None
    except (StoreError, OSError) as error:
        raise printers.fail(f"nothing was restored: {error}") from None
    for path in done.aside:
        click.echo(f"kept {path}")
    click.echo(
        f"{store}: {done.manifest.objects} objects as of {done.manifest.taken},"
        f" going on after revision {done.revision}"
    )
