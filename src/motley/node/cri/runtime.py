"""The container runtime through CRI: typed calls over one gRPC channel.

Requests are built by the pure modules (`sandboxconfig`, `containerconfig`); answers become the
plain values of `model`. Every call has a deadline, and every failure is one of `cri.errors`.
Invariant: nothing outside `cri/` sees a protobuf answer or a gRPC error.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
import msgspec

from motley.node.cri import convert
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound, RuntimeUnavailable
from motley.node.cri.values import ContainerUsage, ExecResult, Image, Readiness, Version
from motley.node.model import POD_UID, RuntimeContainer, RuntimePod, RuntimeSandbox, State

CALL_S = 30.0
# Starting a sandbox runs CNI plugins; the kubelet allows two minutes as well.
SANDBOX_S = 120.0
PULL_S = 600.0
OOM = "OOMKilled"


class Runtime:
    """RuntimeService and ImageService of one endpoint (`unix:///…`)."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        limit = 64 << 20  # ExecSync may answer with 16 MiB on each stream
        self.channel = grpc.aio.insecure_channel(
            endpoint.replace("unix:///", "unix:/"),
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.default_authority", "localhost"),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
            ],
        )
        # A container that runs or has ended does not change its start or its end: ask once.
        self._seen: dict[str, RuntimeContainer] = {}
        # Nor does a sandbox change its addresses while it is ready.
        self._addressed: dict[str, RuntimeSandbox] = {}

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()

    async def call(
        self, method: str, request: Any, answer: Any, timeout_s: float = CALL_S, **metadata: str
    ) -> Any:
        """One unary call by full method name; errors become `cri.errors`."""
        stub = self.channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        sent = [(k.replace("_", "-"), v) for k, v in metadata.items()]
        try:
            return await stub(request, timeout=timeout_s, metadata=sent)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error

    async def stream(self, method: str, request: Any, answer: Any) -> AsyncIterator[Any]:
        """One call with many answers; errors become `cri.errors`."""
        stub = self.channel.unary_stream(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            async for item in stub(request):
                yield item
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error

    async def _runtime(
        self, name: str, request: Any, answer: Any, timeout_s: float = CALL_S
    ) -> Any:
        return await self.call(f"/runtime.v1.RuntimeService/{name}", request, answer, timeout_s)

    async def _image(self, name: str, request: Any, answer: Any, timeout_s: float = CALL_S) -> Any:
        return await self.call(f"/runtime.v1.ImageService/{name}", request, answer, timeout_s)

    # -- the runtime itself

    async def version(self) -> Version:
        """Name and version of the runtime."""
        answer = await self._runtime("Version", cri.VersionRequest(), cri.VersionResponse)
        return Version(answer.runtime_name, answer.runtime_version, answer.runtime_api_version)

    async def readiness(self) -> Readiness:
        """What the runtime says is missing."""
        answer = await self._runtime("Status", cri.StatusRequest(), cri.StatusResponse)
        missing = {
            c.type: f"{c.reason}: {c.message}" for c in answer.status.conditions if not c.status
        }
        return Readiness(missing.get("RuntimeReady", ""), missing.get("NetworkReady", ""))

    async def sandbox_image(self) -> str:
        """The image of the process that holds a pod's namespaces; empty when not said."""
        answer = await self._runtime("Status", cri.StatusRequest(verbose=True), cri.StatusResponse)
        try:
            return str(msgspec.json.decode(answer.info.get("config", "{}")).get("sandboxImage", ""))
        except (msgspec.DecodeError, AttributeError):
            return ""

    # -- sandboxes

    async def run_sandbox(self, config: Any, handler: str = "") -> str:
        """Make the pod's namespaces and address; returns the sandbox id."""
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
        answer = await self._runtime("RunPodSandbox", request, cri.RunPodSandboxResponse, SANDBOX_S)
        return str(answer.pod_sandbox_id)

    async def sandbox(self, sandbox_id: str) -> RuntimeSandbox:
        """One sandbox with its addresses."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        answer = await self._runtime("PodSandboxStatus", request, cri.PodSandboxStatusResponse)
        return convert.sandbox(answer.status, convert.addresses(answer.status.network))

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """End every process of the sandbox and give back its address."""
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await _ignore_missing(
            self._runtime("StopPodSandbox", request, cri.StopPodSandboxResponse, SANDBOX_S)
        )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Forget a stopped sandbox and its containers."""
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        await _ignore_missing(
            self._runtime("RemovePodSandbox", request, cri.RemovePodSandboxResponse, SANDBOX_S)
        )

    # -- containers

    async def create_container(self, sandbox_id: str, config: Any, sandbox_config: Any) -> str:
        """Make a container ready to start; returns its id."""
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config
        )
        answer = await self._runtime(
            "CreateContainer", request, cri.CreateContainerResponse, SANDBOX_S
        )
        return str(answer.container_id)

    async def start_container(self, container_id: str) -> None:
        """Start its process."""
        request = cri.StartContainerRequest(container_id=container_id)
        await self._runtime("StartContainer", request, cri.StartContainerResponse, SANDBOX_S)

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        """Ask it to end, and kill it when `grace_s` have passed (0: at once)."""
        request = cri.StopContainerRequest(container_id=container_id, timeout=max(0, int(grace_s)))
        await _ignore_missing(
            self._runtime("StopContainer", request, cri.StopContainerResponse, grace_s + SANDBOX_S)
        )

    async def update_container(self, container_id: str, linux: Any) -> None:
        """Change the cgroup values of a running container; what is 0 or empty stays."""
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
        await self._runtime(
            "UpdateContainerResources", request, cri.UpdateContainerResourcesResponse
        )

    async def remove_container(self, container_id: str) -> None:
        """Delete a container that does not run."""
        self._seen.pop(container_id, None)
        request = cri.RemoveContainerRequest(container_id=container_id)
        await _ignore_missing(
            self._runtime("RemoveContainer", request, cri.RemoveContainerResponse)
        )

    async def reopen_log(self, container_id: str) -> None:
        """Make the runtime open the log file anew, after it was renamed."""
        request = cri.ReopenContainerLogRequest(container_id=container_id)
        await self._runtime("ReopenContainerLog", request, cri.ReopenContainerLogResponse)

    async def exec_sync(
        self, container_id: str, command: list[str], timeout_s: float
    ) -> ExecResult:
        """Run a command in the container to its end."""
        request = cri.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=max(1, int(timeout_s))
        )
        # containerd kills the command at `timeout`; the call's own deadline is a safety net.
        answer = await self._runtime("ExecSync", request, cri.ExecSyncResponse, timeout_s + 5.0)
        return ExecResult(answer.exit_code, answer.stdout, answer.stderr)

    async def exec_url(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bool,
        tty: bool,
        stdout: bool = True,
        stderr: bool = True,
    ) -> str:
        """Where to stream a command in the container; a terminal has no stderr of its own."""
        request = cri.ExecRequest(
            container_id=container_id,
            cmd=command,
            stdin=stdin,
            tty=tty,
            stdout=stdout,
            stderr=stderr and not tty,
        )
        return str((await self._runtime("Exec", request, cri.ExecResponse)).url)

    async def attach_url(
        self,
        container_id: str,
        *,
        stdin: bool,
        tty: bool,
        stdout: bool = True,
        stderr: bool = True,
    ) -> str:
        """Where to stream the container's own process; a terminal has no stderr of its own."""
        request = cri.AttachRequest(
            container_id=container_id,
            stdin=stdin,
            tty=tty,
            stdout=stdout,
            stderr=stderr and not tty,
        )
        return str((await self._runtime("Attach", request, cri.AttachResponse)).url)

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str:
        """Where to stream to ports inside the sandbox."""
        request = cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
        return str((await self._runtime("PortForward", request, cri.PortForwardResponse)).url)

    # -- what there is

    async def list_sandboxes(self, uid: str = "") -> list[RuntimeSandbox]:
        """Sandboxes of pods (of one pod), newest first, without addresses."""
        filter_ = cri.PodSandboxFilter(label_selector={POD_UID: uid} if uid else {})
        answer = await self._runtime(
            "ListPodSandbox", cri.ListPodSandboxRequest(filter=filter_), cri.ListPodSandboxResponse
        )
        found = [convert.sandbox(s) for s in answer.items if s.labels.get(POD_UID)]
        if not uid:
            present = {item.id for item in answer.items}
            self._addressed = {k: v for k, v in self._addressed.items() if k in present}
        return sorted(found, key=lambda s: (s.attempt, s.created_at), reverse=True)

    async def list_containers(self, uid: str = "") -> dict[str, list[RuntimeContainer]]:
        """Containers by pod uid, newest first, without start and end: only what a list tells."""
        filter_ = cri.ContainerFilter(label_selector={POD_UID: uid} if uid else {})
        answer = await self._runtime(
            "ListContainers", cri.ListContainersRequest(filter=filter_), cri.ListContainersResponse
        )
        found: dict[str, list[RuntimeContainer]] = {}
        for item in answer.containers:
            if owner := item.labels.get(POD_UID):
                found.setdefault(owner, []).append(convert.container(item, item.pod_sandbox_id))
        for containers in found.values():
            containers.sort(key=convert.age, reverse=True)
        if not uid:  # a whole list also says which ids are gone
            present = {item.id for item in answer.containers}
            self._seen = {k: v for k, v in self._seen.items() if k in present}
        return found

    async def pod(self, uid: str) -> RuntimePod:
        """Everything there is for one pod."""
        sandboxes = await self.list_sandboxes(uid)
        if sandboxes and sandboxes[0].is_ready:
            sandboxes[0] = await self._ready_sandbox(sandboxes[0].id)
        containers = (await self.list_containers(uid)).get(uid, [])
        full = [await self._full(c) for c in containers]
        some = sandboxes[0] if sandboxes else None
        return RuntimePod(
            uid=uid,
            namespace=some.namespace if some else "",
            name=some.name if some else "",
            sandboxes=tuple(sandboxes),
            containers=tuple(sorted(full, key=convert.age, reverse=True)),
        )

    async def _ready_sandbox(self, sandbox_id: str) -> RuntimeSandbox:
        seen = self._addressed.get(sandbox_id)
        if seen is not None:
            return seen
        full = await self.sandbox(sandbox_id)
        if full.is_ready and full.ips:
            self._addressed[sandbox_id] = full
        return full

    async def _full(self, container: RuntimeContainer) -> RuntimeContainer:
        seen = self._seen.get(container.id)
        if seen is not None and seen.state is container.state:
            return seen
        request = cri.ContainerStatusRequest(container_id=container.id)
        try:
            answer = await self._runtime("ContainerStatus", request, cri.ContainerStatusResponse)
        except RuntimeNotFound:
            return container
        full = convert.container(answer.status, container.sandbox_id)
        # "Killed" may yet become "out of memory": the runtime hears of the two separately.
        is_final = full.state is State.EXITED and (full.exit_code != 137 or full.reason == OOM)
        if full.state is State.RUNNING or is_final:
            self._seen[container.id] = full
        return full

    async def container_usage(self) -> dict[str, ContainerUsage]:
        """What every running container has used so far, by container id."""
        request = cri.ListContainerStatsRequest(filter=cri.ContainerStatsFilter())
        answer = await self._runtime("ListContainerStats", request, cri.ListContainerStatsResponse)
        usages = (convert.usage(item) for item in answer.stats)
        return {usage.container_id: usage for usage in usages if usage is not None}

    # -- images

    async def list_images(self) -> list[Image]:
        """Every image in the store."""
        answer = await self._image("ListImages", cri.ListImagesRequest(), cri.ListImagesResponse)
        return [convert.image(i) for i in answer.images]

    async def image_directories(self) -> list[str]:
        """Where images and containers' own layers are kept."""
        answer = await self._image("ImageFsInfo", cri.ImageFsInfoRequest(), cri.ImageFsInfoResponse)
        return [fs.fs_id.mountpoint for fs in answer.image_filesystems if fs.fs_id.mountpoint]

    async def remove_image(self, image_id: str) -> None:
        """Forget an image, whatever names it has; one that is gone is no error."""
        request = cri.RemoveImageRequest(image=cri.ImageSpec(image=image_id))
        await _ignore_missing(self._image("RemoveImage", request, cri.RemoveImageResponse))

    async def image(self, reference: str) -> Image | None:
        """An image by reference, if it is in the store."""
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=reference))
        answer = await self._image("ImageStatus", request, cri.ImageStatusResponse)
        return convert.image(answer.image) if answer.HasField("image") and answer.image.id else None

    async def pull(self, reference: str, auth: Mapping[str, str] | None = None) -> str:
        """Fetch an image; returns its id."""
        request = cri.PullImageRequest(
            image=cri.ImageSpec(image=reference), auth=cri.AuthConfig(**auth) if auth else None
        )
        answer = await self._image("PullImage", request, cri.PullImageResponse, PULL_S)
        return str(answer.image_ref)


async def _ignore_missing(call: Any) -> None:
    """Removing what is not there has succeeded."""
    try:
        await call
    except RuntimeNotFound:
        return


def failure(error: grpc.aio.AioRpcError) -> RuntimeFailure:
    """The error of `cri.errors` for a gRPC status."""
    text = error.details() or error.code().name
    kinds: dict[Any, Callable[[str], RuntimeFailure]] = {
        grpc.StatusCode.NOT_FOUND: RuntimeNotFound,
        grpc.StatusCode.UNAVAILABLE: RuntimeUnavailable,
        grpc.StatusCode.DEADLINE_EXCEEDED: RuntimeUnavailable,
    }
    return kinds.get(error.code(), RuntimeFailure)(text)
