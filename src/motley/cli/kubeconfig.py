"""`motley kubeconfig`: the administrator's credentials for kubectl."""

from pathlib import Path

import click

from motley.cli import cluster, printers


@click.command("kubeconfig")
@cluster.root_option
@click.option("--path", "show_path", is_flag=True, help="Print where the file is, not its content.")
def command(root: Path, show_path: bool) -> None:
    """Print the administrator's kubeconfig or its path.

    kubectl uses it with `export KUBECONFIG=$(motley kubeconfig --path)`.
    """
    path = root / "apiserver" / "admin.kubeconfig"
    if not path.exists():
        cluster.require(root)
        raise printers.fail(f"{path} does not exist", "It is made by: motley up")
    try:
        click.echo(path if show_path else path.read_text(), nl=show_path)
    except PermissionError:
        raise printers.fail(f"{path} is readable by root only", "Use sudo.") from None
