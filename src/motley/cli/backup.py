"""`motley backup`: save every object while the cluster runs."""

from pathlib import Path

import click

from motley.cli import printers, store_options


@click.command("backup")
@store_options.options
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def command(root: Path, data_dir: Path | None, file: Path) -> None:
    """Save every object of the cluster to FILE, which must not exist.

    The API server may run, and goes on writing meanwhile: the backup is the state of one moment.
    It is checked before it gets its name. Secrets are in it: keep it as you keep them. Bring it
    back with `motley restore FILE`.
    """
    from motley.store import backup
    from motley.store.contract import StoreError

    store = store_options.find(root, data_dir)
    if not store.exists():
        raise printers.fail(
            f"there is no store at {store}",
            "Name the cluster with --root, or the API server's directory with --data-dir."
            " Objects in etcd are saved with `etcdctl snapshot save`.",
        )
    try:
        made = backup.backup(store, file)
    except (StoreError, OSError) as error:
        raise printers.fail(f"no backup was made: {error}") from None
    click.echo(
        f"{file}: {made.objects} objects at revision {made.revision},"
        f" {file.stat().st_size:,} bytes, checked"
    )
