"""`motley token`: by which another machine may join the cluster, and for how long."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from motley.cli import cluster, printers
from motley.lib import clock, durations

if TYPE_CHECKING:
    from motley.client.rest import Client
    from motley.ops.config import Config
    from motley.ops.tokens import Token

T = TypeVar("T")


@click.group("token")
def command() -> None:
    """Make, list and delete the tokens by which machines join."""


def _ttl(ctx: click.Context, param: click.Parameter, value: str) -> float:
    if value == "0":
        return 0.0
    try:
        return durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _ask(root: Path, work: "Callable[[Client, Config], Awaitable[T]]") -> T:
    return cluster.as_administrator(root, work, "Tokens are made where the control plane is.")


@command.command("create")
@cluster.root_option
@click.argument("token", required=False, default="")
@click.option(
    "--ttl",
    "ttl_s",
    callback=_ttl,
    default="24h",
    show_default=True,
    help="How long it is good, such as 30m; 0: for ever.",
)
@click.option("--description", default="", help="For people.")
@click.option(
    "--print-join-command", is_flag=True, help="Print what to run on the machine that is to join."
)
@click.option("-o", "--output", type=click.Choice(printers.FORMATS), default="table")
def create_command(
    root: Path, token: str, ttl_s: float, description: str, print_join_command: bool, output: str
) -> None:
    """Make a token; TOKEN chooses one such as abcdef.0123456789abcdef.

    Also publishes what a new node must know to recognise the cluster.
    """
    from motley.ops import tokens

    async def work(client: "Client", config: "Config") -> "tuple[Token, str]":
        ca = client.config.ca or b""
        await tokens.publish(client, config, ca)
        made = await tokens.create(client, token=token, ttl_s=ttl_s, description=description)
        return made, tokens.join_command(config, made, ca)

    made, join_command = _ask(root, work)
    if output in ("json", "yaml"):
        shown = {**_document(made), "joinCommand": join_command}
        click.echo(printers.document(shown, output))
    else:
        click.echo(join_command if print_join_command else made.token)


@command.command("list")
@cluster.root_option
@click.option("-o", "--output", type=click.Choice(printers.FORMATS), default="table")
def list_command(root: Path, output: str) -> None:
    """List tokens and how long they are good."""
    from motley.ops import tokens

    found = _ask(root, lambda client, _config: tokens.listed(client))
    if output in ("json", "yaml"):
        click.echo(printers.document([_document(one) for one in found], output))
        return
    header = ["TOKEN", "TTL", "EXPIRES", "DESCRIPTION"]
    header += ["USAGES", "EXTRA GROUPS"] if output == "wide" else []
    now = clock.SYSTEM.now()
    rows = []
    for one in found:
        left = one.left_s(now)
        shown = "forever" if left is None else printers.age(left) if left > 0 else "expired"
        row: list[Any] = [one.token, shown, one.expires or "never", one.description or "-"]
        extra = [",".join(one.usages) or "-", ",".join(one.groups) or "-"]
        rows.append(row + (extra if output == "wide" else []))
    click.echo(printers.table(header, rows))


@command.command("delete")
@cluster.root_option
@click.argument("names", nargs=-1, required=True, metavar="ID...")
def delete_command(root: Path, names: tuple[str, ...]) -> None:
    """Delete tokens, named by their first half or whole. Nodes that have joined stay."""
    from motley.ops import tokens

    async def work(client: "Client", _config: "Config") -> None:
        for name in names:
            click.echo(f"token {await tokens.delete(client, name)} deleted")

    _ask(root, work)


def _document(one: "Token") -> dict[str, Any]:
    return {
        "id": one.id,
        "token": one.token,
        "expires": one.expires or None,
        "description": one.description,
        "usages": list(one.usages),
        "groups": list(one.groups),
    }
