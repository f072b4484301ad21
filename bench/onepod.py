"""One pod, through the API and by bare CRI calls on the same containerd, for other benchmarks."""

import time
from typing import Any

from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import clock
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.runtime import Runtime
from motley.ops import config as configs
from motley.ops import images

IMAGE = images.BUSYBOX.reference
COMMAND = ["sleep", "100000"]


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": IMAGE, "command": COMMAND}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def through_the_api(client: Client, runtime: Runtime, name: str) -> float:
    """Milliseconds from the create request to the Ready condition, seen by a watch."""
    begun = time.perf_counter()
    made = await client.create(Pod, pod(name), "default")
    selector, version = f"metadata.name={name}", made.metadata.resource_version
    watch = client.watch(
        Pod, namespace="default", resource_version=version, field_selector=selector
    )
    spent = 0.0
    async for event in watch:
        if event.object is not None and event.object.is_ready:
            spent = (time.perf_counter() - begun) * 1000
            break
    await client.delete(Pod, name, "default")
    # The next measurement must not share the machine with this pod's end.
    while await runtime.list_sandboxes(made.metadata.uid):
        await clock.SYSTEM.sleep(0.05)
    return spent


async def bare(runtime: Runtime, config: configs.Config, name: str) -> float:
    """Milliseconds of RunPodSandbox, CreateContainer and StartContainer on the same containerd."""
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
    await runtime.stop_container(container_id, 0)
    await runtime.stop_sandbox(sandbox)
    await runtime.remove_sandbox(sandbox)
    return spent
