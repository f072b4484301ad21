"""`motley workflow`: run workflows, and see a run step by step."""

from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from motley.api.views.serverless import Invocation
from motley.cli import func, printers
from motley.cli.func import cluster_options, in_cluster, output_option
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.serverless.workflow import program, tree
from motley.serverless.workflow.engine import Record

_POLL_S = 0.3


@click.group("workflow")
def command() -> None:
    """Check and run workflows, and see what each step does.

    \b
        kubectl apply -f workflow.yaml
        motley workflow run order '{"item": 7}'
        motley workflow show ID
    """


@command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Say what is wrong with the workflows of a file, before they are applied."""
    found = 0
    try:
        for one in yaml.safe_load_all(file.read_text()):
            if isinstance(one, dict) and one.get("kind") == "Workflow":
                found += 1
                name = one.get("metadata", {}).get("name", "?")
                said = program.problems(program.read(one.get("spec", {})))
                if said:
                    raise printers.fail("\n".join(f"workflow/{name}: {text}" for text in said))
                click.echo(f"workflow/{name}: nothing is wrong with it")
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise printers.fail(f"{file}: {error}") from None
    if not found:
        raise printers.fail(f"{file}: there is no Workflow in it")


@command.command("run")
@click.argument("name")
@click.argument("argument", required=False)
@click.option("--wait/--no-wait", default=True, help="Wait for the result, or print the id.")
@cluster_options
def run(
    name: str, argument: str | None, wait: bool, namespace: str | None, config: Path | None
) -> None:
    """Start a run of a workflow; ARGUMENT is JSON, or text."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> Invocation:
        body: dict[str, Any] = {
            "metadata": {"generateName": f"{name}-", "namespace": where},
            "spec": {"workflow": name},
        }
        if argument is not None:
            body["spec"]["arg"] = _value(argument)
        made = await client.create(Invocation, body, where)
        return await _finished(client, made) if wait else made

    found = in_cluster(config, namespace, act)
    if not wait:
        click.echo(found.metadata.name)
        return
    click.echo(f"invocation/{found.metadata.name}", err=True)
    func.print_result(found)


@command.command("list")
@output_option
@cluster_options
def list_(form: str, namespace: str | None, config: Path | None) -> None:
    """The runs there are."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> list[Invocation]:
        listed = await client.list(Invocation, namespace=where)
        return [one for one in listed.items if one.spec.workflow]

    found = in_cluster(config, namespace, act)
    if form in ("json", "yaml"):
        click.echo(printers.document(found, form))
        return
    rows = [
        [
            one.metadata.name,
            one.spec.workflow,
            one.status.phase or "Pending",
            len(one.status.steps),
            *([one.status.message] * (form == "wide")),
        ]
        for one in found
    ]
    header = ["ID", "WORKFLOW", "PHASE", "STEPS", *(["MESSAGE"] * (form == "wide"))]
    click.echo(printers.table(header, rows))


@command.command("show")
@click.argument("id")
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever something happens.")
@output_option
@cluster_options
def show(id: str, watch: bool, form: str, namespace: str | None, config: Path | None) -> None:
    """A run as a tree of its steps, with times and outcomes."""

    async def act(client: Client, _: kubeconfig.Config, where: str) -> None:
        shown = ""
        while True:
            found = await client.get(Invocation, id, where)
            text = (
                printers.document(found, form)
                if form in ("json", "yaml")
                else "\n".join(shown_tree(found, clock.SYSTEM.now()))
            )
            if text != shown:
                click.echo(text)
                shown = text
            if not watch or found.is_finished:
                return
            await clock.SYSTEM.sleep(_POLL_S)

    in_cluster(config, namespace, act)


def shown_tree(found: Invocation, now: float) -> list[str]:
    """The tree of a run, and its result below."""
    said = found.status
    begun = _seconds(said.start_time) or now
    took = (_seconds(said.completion_time) or now) - begun
    title = f"{found.spec.workflow or found.spec.function} {found.metadata.name}"
    records = [record(step) for step in said.steps]
    lines = tree.lines(title, said.phase or "Pending", took, records, now)
    if said.phase == "Succeeded":
        return [*lines, f"result: {msgspec.json.encode(said.result).decode()}"]
    return [*lines, f"{said.phase}: {said.message}"] if said.message else lines


def record(step: dict[str, Any]) -> Record:
    """A step as the Invocation's status has it."""
    return Record(
        id=str(step.get("id", "")),
        phase=step.get("phase", ""),
        attempt=step.get("attempt", 1),
        error=step.get("error", ""),
        message=step.get("message", ""),
        started=_seconds(step.get("startTime")),
        completed=_seconds(step.get("completionTime")),
    )


def _seconds(stamp: str | None) -> float:
    return clock.parse_rfc3339(stamp) if stamp else 0.0


async def _finished(client: Client, found: Invocation) -> Invocation:
    meta = found.metadata
    while not found.is_finished:
        await clock.SYSTEM.sleep(_POLL_S)
        found = await client.get(Invocation, meta.name, meta.namespace)
    return found


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
