"""`motley func`: functions for people, from an empty folder to a call's result.

Functions are objects like others (`kubectl get functions`); what this adds is the way there from
files, and the call. Calls go to the router that the Function's status names, with the credentials
of the kubeconfig.
"""

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from motley.api import status
from motley.api.views.base import Object
from motley.api.views.pod import Pod
from motley.api.views.serverless import Function, Invocation
from motley.cli import printers
from motley.client import kubeconfig
from motley.client.rest import Client, resource_path
from motley.lib import clock
from motley.serverless import packing

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
MANAGER = "motley-func"
FUNCTION_LABEL = "motley.io/function"
_POLL_S = 0.2
_NO_KIND = (
    "The server does not know functions. A cluster that is not Motley's learns them by:\n"
    "    kubectl apply -f deploy/crds"
)
_NO_ROUTER = (
    "Nobody serves functions there: is the component `functions` running?\n"
    "    motley status, or on another cluster: motley functions --help"
)


@click.group("func")
def command() -> None:
    """Write, deploy and call functions.

    \b
        motley func new hello
        motley func deploy hello
        motley func call hello Anna
    """


def cluster_options(function: F) -> F:
    """The options by which a command finds its cluster and its namespace."""
    for option in (
        click.option("-n", "--namespace", help="By default the kubeconfig's."),
        click.option(
            "--kubeconfig",
            "config",
            type=click.Path(path_type=Path),
            help="By default $KUBECONFIG or ~/.kube/config.",
        ),
    ):
        function = option(function)
    return function


def output_option(function: F) -> F:
    """`-o`, as kubectl has it."""
    option = click.option(
        "-o", "--output", "form", type=click.Choice(printers.FORMATS), default="table"
    )
    return option(function)


def in_cluster(
    path: Path | None,
    namespace: str | None,
    act: Callable[[Client, kubeconfig.Config, str], Coroutine[Any, Any, T]],
) -> T:
    """Do it with a client; what goes wrong is said as a person can use it."""

    async def run() -> T:
        config = kubeconfig.load(path)
        async with Client(config, user_agent="motley-func") as client:
            return await act(client, config, namespace or config.namespace)

    try:
        return asyncio.run(run())
    except status.ServiceUnavailable as error:
        raise printers.fail(str(error), _NO_ROUTER if "route" in str(error) else "") from None
    except (status.ApiError, kubeconfig.ConfigError, OSError) as error:
        is_unknown = isinstance(error, status.NotFound) and "requested resource" in str(error)
        raise printers.fail(str(error), _NO_KIND if is_unknown else "") from None


@command.command("new")
@click.argument("folder", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Make a folder with a function that works, to be changed."""
    name = packing.named_after(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise printers.fail(f"{folder} is not empty", "Choose another name.")
    for file, text in packing.new(name).items():
        (folder / file).write_text(text)
        click.echo(f"wrote {folder / file}")
    click.echo(f"next: motley func deploy {folder}")


@command.command("deploy")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", default="", help="Its name; by default that of the file or folder.")
@click.option("--wait/--no-wait", default=True, help="Wait until it can be called.")
@cluster_options
def deploy(
    paths: tuple[Path, ...], name: str, wait: bool, namespace: str | None, config: Path | None
) -> None:
    """Create a function, or bring it to what the files say.

    PATH is a Python file, a folder with main.py in it, an archive, a manifest, or an .env file as
    the Minik8s document has it.
    """
    try:
        found = [one for path in paths for one in packing.functions(path, name)]
    except packing.CannotPack as error:
        raise printers.fail(str(error)) from None

    async def act(client: Client, _: kubeconfig.Config, where: str) -> None:
        for one in found:
            one["metadata"].setdefault("namespace", where)
            function = await client.apply(Function, one, field_manager=MANAGER, force=True)
            if wait:
                function = await _observed(client, function)
            said = f": {function.status.message}" if function.status.message else ""
            click.echo(f"function/{function.metadata.name} deployed{said}")

    in_cluster(config, namespace, act)


async def _observed(client: Client, function: Function, source: clock.Clock = clock.SYSTEM) -> Any:
    """The function once its controller has seen this version of it."""
    deadline = source.monotonic() + 30.0
    meta = function.metadata
    while function.status.observed_generation < meta.generation:
        if source.monotonic() > deadline:
            raise printers.fail(f"function {meta.name} is stored, but nobody serves it", _NO_ROUTER)
        await source.sleep(_POLL_S)
        function = await client.get(Function, meta.name, meta.namespace)
    return function


@command.command("list")
@output_option
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True)
def list_(form: str, namespace: str | None, config: Path | None, all_namespaces: bool) -> None:
    """The functions and their instances."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> list[Function]:
        listed = await client.list(Function, namespace="" if all_namespaces else where)
        return list(listed.items)

    found = in_cluster(config, namespace, act)
    if form in ("json", "yaml"):
        click.echo(printers.document(found, form))
        return
    header = ["NAMESPACE"] * all_namespaces + ["NAME", "VERSION", "INSTANCES", "URL"]
    header += ["LEFT", "RIGHT", "MESSAGE"] * (form == "wide")
    rows = [
        [one.metadata.namespace] * all_namespaces
        + [one.metadata.name, one.spec.version, str(one.status.instances), one.status.url]
        + [one.spec.left, one.spec.right, one.status.message] * (form == "wide")
        for one in found
    ]
    click.echo(printers.table(header, rows))


@command.command("call")
@click.argument("name")
@click.argument("argument", required=False)
@click.option("--async", "later", is_flag=True, help="Print the id at once, do not wait.")
@click.option("--key", default="", help="An idempotency key: the same key is the same call.")
@cluster_options
def call(
    name: str,
    argument: str | None,
    later: bool,
    key: str,
    namespace: str | None,
    config: Path | None,
) -> None:
    """Call a function and print what it gives back.

    ARGUMENT is text or JSON; `@FILE` takes it from a file, `-` from standard input. A call that
    takes long prints its id instead; `motley func result ID` waits for it.
    """
    data = _argument(argument)

    async def act(client: Client, settings: kubeconfig.Config, where: str) -> Any:
        function = await client.get(Function, name, where)
        return await called(settings, function.status.url, data, later=later, key=key)

    _print(in_cluster(config, namespace, act))


async def called(
    settings: kubeconfig.Config, url: str, data: bytes, *, later: bool = False, key: str = ""
) -> Any:
    """The router's answer to a call."""
    if not url:
        raise status.ServiceUnavailable("no router has said where to call it")
    parts = urlsplit(url)
    base = dataclasses.replace(settings, server=f"{parts.scheme}://{parts.netloc}", further=())
    headers = {
        name: value
        for name, value in {
            "Prefer": "respond-async" if later else "",
            "Idempotency-Key": key,
        }.items()
        if value
    }
    kind = "application/json" if _is_json(data) else "text/plain; charset=utf-8"
    async with Client(base, user_agent="motley-func") as router:
        answer = await router.raw(
            "POST", parts.path, body=msgspec.Raw(data), content_type=kind, headers=headers
        )
    if isinstance(answer, dict) and "/invocations/" in str(answer.get("url")):
        return answer["id"]
    return answer


def _is_json(data: bytes) -> bool:
    """A record or a list is meant as such; a plain word, or a number, as the text it is."""
    try:
        return isinstance(msgspec.json.decode(data), dict | list)
    except msgspec.DecodeError:
        return False


def _argument(word: str | None) -> bytes:
    if word == "-":
        return sys.stdin.buffer.read()
    if word and word.startswith("@"):
        try:
            return Path(word[1:]).read_bytes()
        except OSError as error:
            raise printers.fail(str(error)) from None
    return (word or "").encode()


def _print(value: Any) -> None:
    click.echo(value if isinstance(value, str) else msgspec.json.encode(value).decode())


@command.command("result")
@click.argument("id")
@click.option("--wait/--no-wait", default=True, help="Wait until there is one.")
@output_option
@cluster_options
def result(id: str, wait: bool, form: str, namespace: str | None, config: Path | None) -> None:
    """What a call has given back, by its id."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> Invocation:
        found = await client.get(Invocation, id, where)
        while wait and not found.is_finished:
            await clock.SYSTEM.sleep(_POLL_S)
            found = await client.get(Invocation, id, where)
        return found

    found = in_cluster(config, namespace, act)
    if form in ("json", "yaml"):
        click.echo(printers.document(found, form))
    else:
        print_result(found)


def print_result(found: Invocation) -> None:
    """The result, or why there is none; the exit code tells a failure from an open end."""
    if found.status.phase == "Succeeded":
        _print(found.status.result)
    elif found.is_finished:
        raise printers.fail(f"{found.status.phase}: {found.status.message or found.status.error}")
    else:
        click.echo(found.status.phase or "Pending", err=True)
        raise SystemExit(2)


@command.command("cancel")
@click.argument("id")
@cluster_options
def cancel(id: str, namespace: str | None, config: Path | None) -> None:
    """Stop a call, by its id."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> None:
        await client.patch(Invocation, id, where, {"spec": {"cancel": True}})

    in_cluster(config, namespace, act)
    click.echo(f"invocation/{id} is being cancelled")


@command.command("logs")
@click.argument("name")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True)
@cluster_options
def logs(name: str, tail: int, namespace: str | None, config: Path | None) -> None:
    """What a function's instances have printed."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> list[tuple[str, str]]:
        await client.get(Function, name, where)
        pods = await client.list(Pod, namespace=where, label_selector=f"{FUNCTION_LABEL}={name}")
        found = []
        for pod in pods.items:
            path = resource_path(Pod, where, pod.metadata.name, "log")
            text = await client.raw("GET", path, params={"tailLines": str(tail)}, accept="*/*")
            found.append((pod.metadata.name, str(text)))
        return found

    found = in_cluster(config, namespace, act)
    if not found:
        click.echo(f"function {name} has no instance now", err=True)
    for pod, text in found:
        for line in text.splitlines():
            click.echo(f"{pod}  {line}" if len(found) > 1 else line)


@command.command("rm")
@click.argument("names", nargs=-1, required=True)
@cluster_options
def rm(names: tuple[str, ...], namespace: str | None, config: Path | None) -> None:
    """Delete functions; calls that run are ended first."""
    in_cluster(config, namespace, lambda client, _, where: _delete(client, Function, names, where))


async def _delete(client: Client, view: type[Object], names: tuple[str, ...], where: str) -> None:
    for name in names:
        await client.delete(view, name, where)
        click.echo(f"{view.KIND.lower()}/{name} deleted")
