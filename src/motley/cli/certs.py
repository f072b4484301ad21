"""`motley certs`: what certificates there are, new ones, and a new authority."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from motley.cli import printers, store_options
from motley.lib import clock
from motley.ops import config as configs

if TYPE_CHECKING:
    from motley.apiserver.rotation import Listed
    from motley.ops.authority import Authority
    from motley.ops.config import Config

T = TypeVar("T")


@click.group("certs")
def command() -> None:
    """Look at the cluster's certificates, renew them, change the authority that signs them."""


def _open(root: Path, data_dir: Path | None) -> "Authority":
    from motley.ops.authority import Authority

    return _do(lambda: Authority(root, data_dir))


def _joined(root: Path, data_dir: Path | None) -> "Config | None":
    """The machine, when it has joined a cluster elsewhere."""
    config = _do(lambda: configs.load(root)) if data_dir is None else None
    return config if config is not None and config.is_joined else None


def _listed(root: Path, data_dir: Path | None) -> "list[Listed]":
    if (joined := _joined(root, data_dir)) is not None:
        from motley.ops import joinedcertificates

        return joinedcertificates.listed(joined)
    return _open(root, data_dir).listed()


def _do(work: Callable[[], T]) -> T:
    from motley.ops.failure import Failure

    try:
        return work()
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None
    except OSError as error:
        raise printers.fail(str(error)) from None


@command.command("list")
@store_options.options
@click.option("-o", "--output", type=click.Choice(printers.FORMATS), default="table")
def list_command(root: Path, data_dir: Path | None, output: str) -> None:
    """List certificates and when they end."""
    found = _listed(root, data_dir)
    now = clock.SYSTEM.now()
    if output in ("json", "yaml"):
        click.echo(printers.document([_document(one, now) for one in found], output))
        return
    header = ["CERTIFICATE", "EXPIRES", "RESIDUAL TIME", "AUTHORITY"]
    header += ["SUBJECT", "NAMES", "FILE"] if output == "wide" else []
    rows = []
    for one in found:
        left = one.residual_s(now)
        residual = printers.age(left) if left > 0 else "expired"
        row: list[Any] = [one.name, clock.rfc3339(one.expires.timestamp()), residual]
        row.append("-" if one.is_authority else one.authority)
        rows.append(
            row + ([one.subject, ",".join(one.names) or "-", one.file] if output == "wide" else [])
        )
    click.echo(printers.table(header, rows))


def _document(one: "Listed", now: float) -> dict[str, Any]:
    return {
        "name": one.name,
        "file": one.file,
        "subject": one.subject,
        "authority": one.authority,
        "isAuthority": one.is_authority,
        "expires": clock.rfc3339(one.expires.timestamp()),
        "residualSeconds": int(one.residual_s(now)),
        "names": list(one.names),
    }


@command.command("renew")
@store_options.options
@click.argument("names", nargs=-1, metavar="[NAME]...")
def renew_command(root: Path, data_dir: Path | None, names: tuple[str, ...]) -> None:
    """Make certificates again, for another year: those named, or all but the authorities'.

    The API server takes its own over within seconds; the others count when their component starts
    again (`motley up --restart`). A machine that has joined asks the cluster for them.
    """
    if (joined := _joined(root, data_dir)) is not None:
        from motley.ops import joinedcertificates

        machine = joined
        for name in _do(lambda: asyncio.run(joinedcertificates.renew(machine, names))):
            click.echo(f"{name} renewed")
        click.echo("Components use theirs after: motley join --restart")
        return
    authority = _open(root, data_dir)
    for name in _do(lambda: authority.renew(names)):
        click.echo(f"{name} renewed")
    if authority.is_cluster:
        click.echo("Components use theirs after: motley up --restart")


@command.command("rotate-ca")
@store_options.options
@click.option("--finish", is_flag=True, help="Second step: trust the new authority alone.")
def rotate_command(root: Path, data_dir: Path | None, finish: bool) -> None:
    """Change the authority that signs all other certificates, in two steps.

    First without options: a new authority signs from now on, and both are trusted. Everything old
    goes on working. Then bring everybody up to date, as the output says, and run it with --finish:
    what the old authority had signed is refused from then on. The API server takes both steps over
    while it runs.
    """
    authority = _open(root, data_dir)
    if finish:
        _do(authority.finish)
        click.echo("The new authority alone is trusted; certificates of the old one are refused.")
        click.echo("Kubeconfigs made before the first step no longer work.")
        return
    _do(authority.begin)
    click.echo("A new authority signs from now on; both are trusted.")
    click.echo("Before the second step:")
    if authority.is_cluster:
        click.echo("  motley up --restart            # components use their new kubeconfigs")
    click.echo("  give everybody a new kubeconfig # admin.kubeconfig is new already")
    click.echo("Then: motley certs rotate-ca --finish")
