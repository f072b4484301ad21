"""`motley demo`: deploy the hello example and call it through its Service."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import click

from motley.api import status
from motley.api.views import core, pod
from motley.cli import cluster, printers
from motley.lib import clock
from motley.ops import demo
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.progress import Progress
from motley.ops.up import administrator


@click.command("demo")
@cluster.root_option
def command(root: Path) -> None:
    """Deploy the hello example and call it through its Service.

    Three pods of a small Python web server; ten calls show which of them answered.
    """
    config = cluster.require(root)
    progress = Progress()
    try:
        asyncio.run(_demo(config, progress))
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
    except (status.ApiError, OSError) as error:
        raise printers.fail(f"the API server: {error}", "Is it up? motley status") from None


async def _demo(config: Config, progress: Progress) -> None:
    path = demo.manifest()
    async with administrator(config, clock.SYSTEM) as client:
        with progress.step(f"apply {path.parent.name}/{path.name}"):
            await demo.apply(client, demo.documents(path))
        with progress.step("rollout of deployment/hello"):
            stages = await demo.progress_of_rollout(client)
        if len(stages) > 1:
            counts = dict.fromkeys(stage.ready for stage in stages)
            progress.say(f"pods ready: {' → '.join(str(n) for n in counts)}")
        service = await client.get(core.Service, demo.NAME, demo.NAMESPACE)
        with progress.step(f"{demo.CALLS} calls of http://{service.spec.cluster_ip}"):
            answers = await demo.call_service(service, stages[-1].wanted)
        listed = await client.list(
            pod.Pod, namespace=demo.NAMESPACE, label_selector=f"app={demo.NAME}"
        )
    rows = list(demo.rows(listed.items, answers))
    click.echo("\n" + printers.table(("POD", "NODE", "ADDRESS", "ANSWERS"), rows))
    click.echo(f"\n{_next(config, service)}")


def _next(config: Config, service: core.Service) -> str:
    port = service.spec.ports[0]
    kubectl, motley = _as_typed("kubectl"), _as_typed("motley")
    lines = [
        "Try next:",
        f"  export KUBECONFIG={config.admin_kubeconfig}",
        f"  {kubectl} get pods -o wide",
        f"  {kubectl} scale deployment/hello --replicas=5",
        f"  curl http://{service.spec.cluster_ip}",
    ]
    if port.node_port:
        lines.append(f"  curl http://{config.node_ip}:{port.node_port}")
    return "\n".join([*lines, f"  {motley} status"])


def _as_typed(program: str) -> str:
    """What a person's shell finds: a name in the usual places, a path for what a checkout keeps."""
    beside = Path(sys.executable).with_name(program)
    found = shutil.which(program) or (str(beside) if beside.exists() else program)
    usual = os.get_exec_path({"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin"})
    return program if str(Path(found).parent) in usual else found
