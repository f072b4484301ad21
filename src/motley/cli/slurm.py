"""`motley slurm`: GPU and other batch jobs on Slurm clusters, and the bridge that runs them."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.api import status
from motley.api.conversion import minik8s
from motley.api.views.core import ConfigMap
from motley.api.views.slurm import CANCEL, COMPLETED, SlurmCluster, SlurmJob
from motley.cli import printers, slurm_bridge
from motley.client import kubeconfig
from motley.client.manifests import documents
from motley.client.rest import Client, resource_path
from motley.lib import clock as clocks

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Document = dict[str, Any]

_LOG, _RESULTS, _START = "slurm-log", "slurm-results", "motley.io/start."


def _options(function: F) -> F:
    function = click.option(
        "--kubeconfig",
        "config",
        type=click.Path(path_type=Path),
        help="By default $KUBECONFIG or ~/.kube/config.",
    )(function)
    return click.option("-n", "--namespace", default="default", show_default=True)(function)


def _form(*forms: str) -> Callable[[F], F]:
    return click.option("-o", "--output", "form", type=click.Choice(forms), default=forms[0])


@click.group("slurm")
def command() -> None:
    """Run jobs on Slurm clusters: write CUDA, submit YAML, get results.

    `submit` brings a job's files along, `logs -f` shows what it prints while it runs, `results`
    fetches what it has written. `bridge` is the component that does the work.
    """


command.add_command(slurm_bridge.bridge)


def _with_client(config: Path | None, act: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(kubeconfig.load(config), user_agent="motley-slurm") as client:
            return await act(client)

    try:
        return asyncio.run(run())
    except (status.ApiError, kubeconfig.ConfigError, OSError, ValueError) as error:
        raise printers.fail(str(error)) from None


@command.command("submit")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--wait", is_flag=True, help="Wait for the end, and fetch the results.")
@_form("name", "json", "yaml")
@_options
def submit(
    files: tuple[Path, ...], wait: bool, form: str, namespace: str, config: Path | None
) -> None:
    """Submit the SlurmJobs of manifests, with the files they name on this machine.

    Minik8s' kind Job with cuFilePath is read too.
    """
    wholes = [_whole(one, file.parent) for file in files for one in documents(file)]

    async def act(client: Client) -> list[Document]:
        return [await _create(client, whole, namespace) for whole in wholes]

    made = _with_client(config, act)
    for one in made:
        if form == "name":
            click.echo(f"slurmjob.motley.io/{one['metadata']['name']} created")
        else:
            click.echo(printers.document(one, form))
    if wait:
        ended = [_awaited(one, config) for one in made]
        if any(job.status.phase != COMPLETED for job in ended):
            raise SystemExit(1)


def _whole(document: Document, beside: Path) -> Any:
    from motley.slurm import authoring

    for text in minik8s.read(document):
        click.echo(f"Warning: {text}", err=True)
    if document.get("kind") != "SlurmJob":
        raise printers.fail(
            f"{document.get('kind')} is no SlurmJob", "Other kinds go by `kubectl apply`."
        )
    try:
        whole = authoring.embed(document, beside)
    except (OSError, ValueError) as error:
        raise printers.fail(str(error)) from None
    for note in whole.notes:
        click.echo(f"Warning: {note}", err=True)
    return whole


async def _create(client: Client, whole: Any, namespace: str) -> Document:
    from motley.slurm import authoring

    meta = whole.job["metadata"]
    namespace = meta.setdefault("namespace", namespace)
    name = f"{meta['name']}-{authoring.SOURCES}"
    if whole.binary:  # before the job, which would wait for it
        body = {"metadata": {"name": name}, "binaryData": whole.binary}
        await client.create(ConfigMap, body, namespace)
    created: Document = await client.raw("POST", resource_path(SlurmJob, namespace), body=whole.job)
    if whole.binary:
        job = SlurmJob.of(created)
        owner = {"apiVersion": job.API_VERSION, "kind": job.KIND, "name": job.metadata.name}
        owner["uid"] = job.metadata.uid
        change = {"metadata": {"ownerReferences": [owner]}}
        await client.patch(ConfigMap, name, namespace, change)
    return created


def _awaited(document: Document, config: Path | None) -> SlurmJob:
    meta = document["metadata"]

    async def act(client: Client) -> SlurmJob:
        while True:
            job = await client.get(SlurmJob, meta["name"], meta["namespace"])
            is_fetched = job.has("Downloaded") or not job.status.job_id
            if job.is_finished and is_fetched:
                return job
            await clocks.SYSTEM.sleep(0.3)

    job = _with_client(config, act)
    click.echo(f"{job.metadata.name}: {job.status.phase} ({job.status.message})")
    wanted = job.spec.result_file_path
    if job.status.results and wanted:
        target = Path(wanted) if Path(wanted).is_dir() else Path.cwd()
        for path in _with_client(config, lambda client: _fetch(client, job, target)):
            click.echo(f"  {path}")
    return job


@command.command("list")
@click.option("-A", "--all-namespaces", is_flag=True)
@_form(*printers.FORMATS)
@_options
def listed(all_namespaces: bool, form: str, namespace: str, config: Path | None) -> None:
    """Show jobs."""

    async def act(client: Client) -> list[Document]:
        path = resource_path(SlurmJob, "" if all_namespaces else namespace)
        items: list[Document] = (await client.raw("GET", path)).get("items") or []
        return items

    items = _with_client(config, act)
    if form in ("json", "yaml"):
        click.echo(printers.document(items, form))
        return
    rows = [_row(SlurmJob.of(one), form == "wide", all_namespaces) for one in items]
    header = ["NAMESPACE"] if all_namespaces else []
    header += ["NAME", "CLUSTER", "JOB", "PHASE", "REASON", "AGE"]
    header += ["NODE", "EXIT", "STARTED", "ENDED"] if form == "wide" else []
    click.echo(printers.table(header, rows) if rows else "No jobs found.")


def _row(job: SlurmJob, wide: bool, with_namespace: bool) -> list[object]:
    meta, state = job.metadata, job.status
    created = clocks.parse_rfc3339(meta.creation_timestamp or "1970-01-01T00:00:00Z")
    row: list[object] = [meta.namespace] if with_namespace else []
    row += [meta.name, job.spec.cluster, state.job_id or "-", state.phase or "-"]
    row += [state.reason or "-", printers.age(clocks.SYSTEM.now() - created)]
    if wide:
        code = "-" if state.exit_code is None else state.exit_code
        row += [state.node or "-", code, state.start_time or "-", state.completion_time or "-"]
    return row


@command.command("script")
@click.argument("name")
@_options
def script(name: str, namespace: str, config: Path | None) -> None:
    """Show the batch script of a job, as Slurm gets it."""

    async def act(client: Client) -> str:
        from motley.slurm import localpaths, script

        job = await client.get(SlurmJob, name, namespace)
        cluster = await client.get(SlurmCluster, job.spec.cluster)
        sources = list(job.spec.files)
        if job.spec.source_path:
            sources.append(localpaths.name_of(job.spec.source_path))
        return script.render(job, cluster, attempt=max(1, job.status.attempt), sources=sources)

    click.echo(_with_client(config, act), nl=False)


@command.command("logs")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--file", "wanted", help="Only this one: NAME.out, NAME.err, NAME_3.out …")
@_options
def logs(name: str, follow: bool, wanted: str | None, namespace: str, config: Path | None) -> None:
    """Show what a job prints, while it runs and after its end."""

    async def act(client: Client) -> None:
        job = await client.get(SlurmJob, name, namespace)
        shown: dict[str, int] = {}
        _show(await _log_of(client, job), shown, wanted)
        while follow and not job.is_finished:
            await clocks.SYSTEM.sleep(0.3)
            job = await client.get(SlurmJob, name, namespace)
            _show(await _log_of(client, job), shown, wanted)

    _with_client(config, act)


async def _log_of(client: Client, job: SlurmJob) -> ConfigMap | None:
    try:
        return await client.get(ConfigMap, f"{job.metadata.name}-{_LOG}", job.metadata.namespace)
    except status.NotFound:
        return None


def _show(found: ConfigMap | None, shown: dict[str, int], wanted: str | None) -> None:
    """Print what has not been shown yet; `shown` counts bytes of each file."""
    data = found.data if found is not None else {}
    for file, text in sorted(data.items()):
        if wanted not in (None, file):
            continue
        assert found is not None
        start = int(found.metadata.annotations.get(_START + file, "0"))
        raw = text.encode()
        fresh = raw[max(0, shown.get(file, 0) - start) :]
        shown[file] = start + len(raw)
        click.echo(fresh.decode(errors="replace"), nl=False, err=file.endswith(".err"))


@command.command("cancel")
@click.argument("names", nargs=-1, required=True)
@_options
def cancel(names: tuple[str, ...], namespace: str, config: Path | None) -> None:
    """Stop jobs; their objects and what they have written stay."""

    async def act(client: Client) -> None:
        for name in names:
            change = {"metadata": {"annotations": {CANCEL: "true"}}}
            await client.patch(SlurmJob, name, namespace, change)
            click.echo(f"slurmjob.motley.io/{name} is being cancelled")

    _with_client(config, act)


@command.command("results")
@click.argument("name")
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    help="Where to put them; this folder by default.",
)
@_form("table", "json", "yaml")
@_options
def results(name: str, directory: Path, form: str, namespace: str, config: Path | None) -> None:
    """Fetch the files a job has written."""

    async def act(client: Client) -> tuple[SlurmJob, list[Path]]:
        job = await client.get(SlurmJob, name, namespace)
        if not job.status.results:
            raise ValueError(f"SlurmJob {name} has no results yet: it is {job.status.phase}")
        return job, await _fetch(client, job, directory)

    job, paths = _with_client(config, act)
    if form != "table":
        click.echo(printers.document(job.status.results, form))
        return
    rows = [(f.name, f.bytes, f.sha256[:12]) for f in job.status.results]
    click.echo(printers.table(["FILE", "BYTES", "SHA256"], rows))
    here = {str(path.relative_to(directory)) for path in paths}
    for file in job.status.results:
        if file.name not in here:
            click.echo(f"{file.name} is too large to be here; it is in {job.status.result_path}")


async def _fetch(client: Client, job: SlurmJob, target: Path) -> list[Path]:
    from motley.slurm import resultkeys
    from motley.slurm.script import is_inside

    name = f"{job.metadata.name}-{_RESULTS}"
    found = await client.get(ConfigMap, name, job.metadata.namespace)
    written = []
    for file in job.status.results:
        key = resultkeys.key_of(file.name)
        if key in found.binary_data and is_inside(file.name):
            place = target / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(base64.b64decode(found.binary_data[key]))
            written.append(place)
    return written
