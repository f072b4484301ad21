"""`motley apply`: server-side apply of manifests, also of those kubectl itself refuses.

kubectl insists on `metadata.name` before it asks any server; Minik8s' DNS objects do not have it.
With `--compat minik8s` such spellings are rewritten here, so any API server will do.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from motley.api import motleyio, status
from motley.api.conversion import minik8s
from motley.cli import printers
from motley.client import kubeconfig
from motley.client.manifests import Document, documents, view_of
from motley.client.rest import Client

MANAGER = "motley-apply"


@click.command("apply")
@click.option(
    "-f",
    "--filename",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    required=True,
    help="A file with manifests, YAML or JSON; may be given several times.",
)
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="Where none is named."
)
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    help="By default $KUBECONFIG or ~/.kube/config.",
)
@click.option("--compat", type=click.Choice(["minik8s"]), help="Read another system's spellings.")
@click.option("--force", is_flag=True, help="Take over fields that another manager has set.")
def command(
    files: tuple[Path, ...], namespace: str, path: Path | None, compat: str | None, force: bool
) -> None:
    """Create what manifests describe, or bring it to what they say (server-side apply)."""
    motleyio.install()
    try:
        found = [one for file in files for one in documents(file)]
        if compat:
            for one in found:
                for text in minik8s.read(one):
                    click.echo(f"Warning: {text}", err=True)
        asyncio.run(_apply(kubeconfig.load(path), found, namespace, force))
    except (status.ApiError, kubeconfig.ConfigError, OSError, ValueError) as error:
        raise printers.fail(str(error)) from None


async def _apply(
    config: kubeconfig.Config, found: Sequence[Document], namespace: str, force: bool
) -> None:
    async with Client(config) as client:
        for one in found:
            view = view_of(one)
            metadata = one.setdefault("metadata", {})
            if not metadata.get("name"):
                raise ValueError(f"{view.KIND}: metadata.name is missing")
            if view.NAMESPACED:
                metadata.setdefault("namespace", namespace)
            await client.apply(view, one, field_manager=MANAGER, force=force)
            click.echo(f"{view.KIND.lower()}/{metadata['name']} applied")
