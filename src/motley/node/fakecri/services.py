"""CRI's RuntimeService and ImageService over simulated containers: requests in, answers out.

One method for each call the agent makes, by CRI's name. How requests come (`inprocess`, `serving`)
is not known here; a refusal is raised as one of `cri.errors`.
"""

from collections.abc import Mapping
from typing import Any

from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure
from motley.node.fakecri.engine import Container, Engine, Sandbox

NAME = "motley-fake"
_IMAGE_BYTES = 1 << 20


def _nanos(seconds: float) -> int:
    return round(seconds * 1e9)


def _has(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return selector.items() <= dict(labels).items()


class Services:
    """Answers by name: `await services.call("RunPodSandbox", request)`."""

    def __init__(self, engine: Engine, image_directory: str = "/") -> None:
        self.engine = engine
        self._image_directory = image_directory

    def simulates(self, name: str) -> bool:
        """Is there an answer at all?"""
        return hasattr(self, f"_{name}")

    async def call(self, name: str, request: Any) -> Any:
        """One call. Raises an error of `cri.errors`."""
        method = getattr(self, f"_{name}", None)
        if method is None:
            raise RuntimeFailure(f"{name} is not simulated")
        return await method(request)

    # -- the runtime

    async def _Version(self, request: Any) -> Any:
        return cri.VersionResponse(
            version="0.1.0", runtime_name=NAME, runtime_version="1", runtime_api_version="v1"
        )

    async def _Status(self, request: Any) -> Any:
        names = ("RuntimeReady", "NetworkReady")
        conditions = [cri.RuntimeCondition(type=name, status=True) for name in names]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    # -- sandboxes

    async def _RunPodSandbox(self, request: Any) -> Any:
        made = await self.engine.run_sandbox(request.config)
        return cri.RunPodSandboxResponse(pod_sandbox_id=made)

    async def _StopPodSandbox(self, request: Any) -> Any:
        self.engine.stop_sandbox(request.pod_sandbox_id)
        return cri.StopPodSandboxResponse()

    async def _RemovePodSandbox(self, request: Any) -> Any:
        self.engine.remove_sandbox(request.pod_sandbox_id)
        return cri.RemovePodSandboxResponse()

    def _common(self, sandbox: Sandbox) -> dict[str, Any]:
        return {
            "id": sandbox.id,
            "metadata": sandbox.config.metadata,
            "state": cri.SANDBOX_READY if sandbox.is_ready else cri.SANDBOX_NOTREADY,
            "created_at": _nanos(sandbox.created_at),
            "labels": sandbox.config.labels,
            "annotations": sandbox.config.annotations,
        }

    async def _PodSandboxStatus(self, request: Any) -> Any:
        found = self.engine.sandbox(request.pod_sandbox_id)
        network = cri.PodSandboxNetworkStatus(ip=found.address if found.is_ready else "")
        status = cri.PodSandboxStatus(**self._common(found), network=network)
        return cri.PodSandboxStatusResponse(status=status)

    async def _ListPodSandbox(self, request: Any) -> Any:
        chosen = [
            cri.PodSandbox(**self._common(sandbox))
            for sandbox in self.engine.all()
            if _has(sandbox.config.labels, request.filter.label_selector)
        ]
        return cri.ListPodSandboxResponse(items=chosen)

    # -- containers

    async def _CreateContainer(self, request: Any) -> Any:
        made = await self.engine.create(request.pod_sandbox_id, request.config)
        return cri.CreateContainerResponse(container_id=made)

    async def _StartContainer(self, request: Any) -> Any:
        await self.engine.start(request.container_id)
        return cri.StartContainerResponse()

    async def _StopContainer(self, request: Any) -> Any:
        await self.engine.stop(request.container_id, request.timeout)
        return cri.StopContainerResponse()

    async def _RemoveContainer(self, request: Any) -> Any:
        self.engine.remove(request.container_id)
        return cri.RemoveContainerResponse()

    async def _UpdateContainerResources(self, request: Any) -> Any:
        self.engine.container(request.container_id)
        return cri.UpdateContainerResourcesResponse()

    async def _ReopenContainerLog(self, request: Any) -> Any:
        self.engine.reopen_log(self.engine.container(request.container_id))
        return cri.ReopenContainerLogResponse()

    def _described(self, container: Container) -> dict[str, Any]:
        state = cri.CONTAINER_CREATED
        if container.started_at:
            state = cri.CONTAINER_RUNNING if container.is_running else cri.CONTAINER_EXITED
        return {
            "id": container.id,
            "metadata": container.config.metadata,
            "image": container.config.image,
            "image_ref": container.config.image.image,
            "state": state,
            "created_at": _nanos(container.created_at),
            "labels": container.config.labels,
            "annotations": container.config.annotations,
        }

    async def _ListContainers(self, request: Any) -> Any:
        self.engine.settle()
        chosen = [
            cri.Container(**self._described(container), pod_sandbox_id=container.sandbox.id)
            for container in self.engine.containers.values()
            if _has(container.config.labels, request.filter.label_selector)
        ]
        return cri.ListContainersResponse(containers=chosen)

    async def _ContainerStatus(self, request: Any) -> Any:
        container = self.engine.container(request.container_id)
        status = cri.ContainerStatus(
            **self._described(container),
            started_at=_nanos(container.started_at),
            finished_at=_nanos(container.finished_at),
            exit_code=container.exit_code,
            reason=container.reason,
            log_path=str(container.log or ""),
        )
        return cri.ContainerStatusResponse(status=status)

    async def _ExecSync(self, request: Any) -> Any:
        code, output = await self.engine.execute(request.container_id, list(request.cmd))
        return cri.ExecSyncResponse(exit_code=code, stdout=output)

    async def _ListContainerStats(self, request: Any) -> Any:
        return cri.ListContainerStatsResponse()  # nothing runs, so nothing is used

    # -- images

    def _image(self, pair: tuple[str, str]) -> Any:
        return cri.Image(id=pair[1], repo_tags=[pair[0]], size=_IMAGE_BYTES)

    async def _ListImages(self, request: Any) -> Any:
        images = [self._image(pair) for pair in self.engine.images.items()]
        return cri.ListImagesResponse(images=images)

    async def _ImageStatus(self, request: Any) -> Any:
        found = self.engine.image(request.image.image)
        return cri.ImageStatusResponse(image=self._image(found) if found else None)

    async def _PullImage(self, request: Any) -> Any:
        return cri.PullImageResponse(image_ref=await self.engine.pull(request.image.image))

    async def _RemoveImage(self, request: Any) -> Any:
        if found := self.engine.image(request.image.image):
            del self.engine.images[found[0]]
        return cri.RemoveImageResponse()

    async def _ImageFsInfo(self, request: Any) -> Any:
        place = cri.FilesystemIdentifier(mountpoint=self._image_directory)
        nothing = cri.UInt64Value(value=0)  # a kubelet takes it for granted that there is a figure
        used = cri.FilesystemUsage(fs_id=place, used_bytes=nothing, inodes_used=nothing)
        return cri.ImageFsInfoResponse(image_filesystems=[used], container_filesystems=[used])
