"""One pod, through the API and by bare CRI calls on the same containerd, for other benchmarks."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import clock
from motley.node.cri import containerd
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.runtime import Runtime
from motley.ops import config as configs
from motley.ops import images

IMAGE = images.BUSYBOX.reference
COMMAND = ["sleep", "100000"]
# Answered by the API, bound as a watch shows it, pause started, container started, Ready.
STAGES = ("created", "bound", "sandbox", "container", "ready")


class Bare(NamedTuple):
    """A pod made by bare calls."""

    spent_ms: float
    sandbox: str


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": IMAGE, "command": COMMAND}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def started(runtime: Runtime) -> AsyncIterator[list[float]]:
    """When containers were started meanwhile, as containerd tells."""
    times: list[float] = []

    async def follow() -> None:
        async for topic, _ in containerd.events(runtime):
            if topic == "/tasks/start":
                times.append(time.perf_counter())

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await clock.SYSTEM.sleep(0.05)  # subscribed
        yield times
        following.cancel()


async def through_the_api(client: Client, runtime: Runtime, name: str) -> dict[str, float]:
    """Milliseconds from the create request to each of STAGES."""
    async with started(runtime) as starts:
        begun = time.perf_counter()
        made = await client.create(Pod, pod(name), "default")
        times = {"created": time.perf_counter()}
        watch = client.watch(
            Pod,
            namespace="default",
            resource_version=made.metadata.resource_version,
            field_selector=f"metadata.name={name}",
        )
        async for event in watch:
            if event.object is None:
                continue
            if event.object.spec.node_name:
                times.setdefault("bound", time.perf_counter())
            if event.object.is_ready:
                times["ready"] = time.perf_counter()
                break
        await clock.SYSTEM.sleep(0.05)  # what the runtime tells comes on its own way
        times |= dict(zip(("sandbox", "container"), starts, strict=False))
    await client.delete(Pod, name, "default")
    # The next measurement must not share the machine with this pod's end.
    while await runtime.list_sandboxes(made.metadata.uid):
        await clock.SYSTEM.sleep(0.05)
    return {stage: (at - begun) * 1000 for stage, at in times.items()}


async def bare(runtime: Runtime, config: configs.Config, name: str, *, keep: bool = False) -> Bare:
    """RunPodSandbox, CreateContainer and StartContainer on the same containerd."""
    sandbox_config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="bare", attempt=0),
        log_directory=str(config.root / "bench-logs"),
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"{config.cgroup_root}/bare-{name}"),
    )
    container = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="c", attempt=0),
        image=cri.ImageSpec(image=IMAGE),
        command=COMMAND,
        log_path="c.log",
        linux=cri.LinuxContainerConfig(),
    )
    container.linux.security_context.namespace_options.pid = cri.CONTAINER
    begun = time.perf_counter()
    sandbox = await runtime.run_sandbox(sandbox_config)
    container_id = await runtime.create_container(sandbox, container, sandbox_config)
    await runtime.start_container(container_id)
    spent = (time.perf_counter() - begun) * 1000
    if not keep:
        await runtime.stop_container(container_id, 0)
        await runtime.stop_sandbox(sandbox)
        await runtime.remove_sandbox(sandbox)
    return Bare(spent, sandbox)
