"""containerd's own API beside CRI, on the same socket.

Two things CRI 1.6 cannot do: tell what happens as it happens, and run a command whose standard
input can be closed (`echo hi | kubectl exec -i pod -- cat` would wait for ever).
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.any_pb2 import Any as ProtoAny

from motley.node.cri import containerd_pb2 as api
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime

NAMESPACE = "k8s.io"
_PROCESS_TYPE = "types.containerd.io/opencontainers/runtime-spec/1/Process"
_EVENTS = "/containerd.services.events.v1.Events/Subscribe"
_TASKS = "/containerd.services.tasks.v1.Tasks/"
_CHUNK = 32 * 1024


async def events(runtime: Runtime) -> AsyncIterator[tuple[str, str]]:
    """(topic, id) of containers and sandboxes that started, ended or ran out of memory.

    Raises RuntimeUnavailable when the stream breaks; what happened meanwhile must be listed.
    """
    topics = ("/tasks/exit", "/tasks/oom", "/tasks/start")
    filters = [f'namespace=={NAMESPACE},topic=="{topic}"' for topic in topics]
    request = api.SubscribeRequest(filters=filters)
    async for envelope in runtime.stream(_EVENTS, request, api.Envelope):
        event = api.TaskExit.FromString(envelope.event.value)
        # The end of an exec'd process says nothing about the container.
        if envelope.topic != "/tasks/exit" or event.id in ("", event.container_id):
            yield str(envelope.topic), str(event.container_id)


class Process:
    """A command in a running container, with pipes to it. Use as an async context manager.

    Standard streams are FIFOs that the container's shim opens; the files live in `directory`
    for as long as the process does.
    """

    def __init__(
        self,
        runtime: Runtime,
        container_id: str,
        exec_id: str,
        command: list[str],
        directory: Path,
    ) -> None:
        self._runtime = runtime
        self._container_id = container_id
        self._command = command
        self._exec_id = exec_id
        self._directory = directory / self._exec_id
        self._stdin = -1
        self._out = {"stdout": -1, "stderr": -1}
        self._exists = False
        self._has_ended = False

    async def _call(self, method: str, request: Any, answer: Any, timeout_s: float = 30.0) -> Any:
        return await self._runtime.call(
            _TASKS + method, request, answer, timeout_s, containerd_namespace=NAMESPACE
        )

    async def __aenter__(self) -> "Process":
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _start(self) -> None:
        self._directory.mkdir(parents=True, mode=0o700)
        paths = {name: self._directory / name for name in ("stdin", "stdout", "stderr")}
        for path in paths.values():
            os.mkfifo(path, 0o600)
        for name in self._out:
            self._out[name] = os.open(paths[name], os.O_RDONLY | os.O_NONBLOCK)
        # Read-write opens a FIFO without waiting for the other side.
        self._stdin = os.open(paths["stdin"], os.O_RDWR | os.O_NONBLOCK)
        request = api.ExecProcessRequest(
            container_id=self._container_id,
            exec_id=self._exec_id,
            stdin=str(paths["stdin"]),
            stdout=str(paths["stdout"]),
            stderr=str(paths["stderr"]),
            spec=ProtoAny(type_url=_PROCESS_TYPE, value=await self._process_spec()),
        )
        await self._call("Exec", request, api.Nothing)
        self._exists = True
        start = api.StartRequest(container_id=self._container_id, exec_id=self._exec_id)
        await self._call("Start", start, api.StartResponse)
        # From now on the shim reads; a write-only end lets the process see the end of input.
        writer = os.open(paths["stdin"], os.O_WRONLY | os.O_NONBLOCK)
        os.close(self._stdin)
        self._stdin = writer

    async def _process_spec(self) -> bytes:
        """The container's own process description with another command, as CRI's exec does."""
        answer = await self._runtime.call(
            "/containerd.services.containers.v1.Containers/Get",
            api.GetContainerRequest(id=self._container_id),
            api.GetContainerResponse,
            containerd_namespace=NAMESPACE,
        )
        process = msgspec.json.decode(answer.container.spec.value)["process"]
        process["args"] = self._command
        process["terminal"] = False
        process.pop("consoleSize", None)
        return msgspec.json.encode(process)

    async def write(self, data: bytes) -> None:
        """Send to standard input; what a process that closed it does not read is dropped."""
        view = memoryview(data)
        while view and self._stdin >= 0:
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await _ready(self._stdin, write=True)
            except BrokenPipeError:
                return

    async def close_stdin(self) -> None:
        """Let the process see the end of its input."""
        if self._stdin < 0:
            return
        os.close(self._stdin)
        self._stdin = -1
        request = api.CloseIORequest(
            container_id=self._container_id, exec_id=self._exec_id, stdin=True
        )
        await self._call("CloseIO", request, api.Nothing)

    async def read(self, stream: str) -> AsyncIterator[bytes]:
        """What comes from `stdout` or `stderr`, until it ends."""
        descriptor = self._out[stream]
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                await _ready(descriptor, write=False)
                continue
            if not data:
                return
            yield data

    async def wait(self) -> int:
        """The exit code."""
        request = api.WaitRequest(container_id=self._container_id, exec_id=self._exec_id)
        answer = await self._call("Wait", request, api.WaitResponse, 24 * 3600.0)
        self._has_ended = True
        return int(answer.exit_status)

    async def _close(self) -> None:
        for descriptor in (self._stdin, *self._out.values()):
            if descriptor >= 0:
                os.close(descriptor)
        self._stdin, self._out = -1, {"stdout": -1, "stderr": -1}
        ids: dict[str, Any] = {"container_id": self._container_id, "exec_id": self._exec_id}
        try:
            if self._exists and not self._has_ended:
                kill = api.KillRequest(signal=9, **ids)
                await self._call("Kill", kill, api.Nothing, 5.0)
                await self._call("Wait", api.WaitRequest(**ids), api.WaitResponse, 5.0)
            if self._exists:
                request = api.DeleteProcessRequest(**ids)
                await self._call("DeleteProcess", request, api.DeleteResponse, 5.0)
        except RuntimeFailure:
            pass  # the container may be gone, and its processes with it
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


async def _ready(descriptor: int, *, write: bool) -> None:
    """Wait until a descriptor can be read or written."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def fire() -> None:
        if not done.done():
            done.set_result(None)

    if write:
        loop.add_writer(descriptor, fire)
    else:
        loop.add_reader(descriptor, fire)
    try:
        await done
    finally:
        if write:
            loop.remove_writer(descriptor)
        else:
            loop.remove_reader(descriptor)
