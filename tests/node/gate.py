"""A CRI socket between the agent and containerd that can stop a call at a chosen point.

So a test can kill the agent in exactly one phase of a pod's life: before a call reaches the
runtime, while it is under way, or after it was done and before the agent hears of it.
"""

import asyncio
import threading
from collections import Counter

import grpc.aio

from motley.node.cri import cri_pb2 as cri
from motley.node.cri.runtime import Runtime

_SERVICE = "/runtime.v1.RuntimeService/"
_REQUESTS = {
    "RunPodSandbox": cri.RunPodSandboxRequest,
    "CreateContainer": cri.CreateContainerRequest,
    "StartContainer": cri.StartContainerRequest,
    "StopContainer": cri.StopContainerRequest,
    "ExecSync": cri.ExecSyncRequest,
    "StopPodSandbox": cri.StopPodSandboxRequest,
    "RemovePodSandbox": cri.RemovePodSandboxRequest,
}


class Gate(grpc.GenericRpcHandler):
    """Forwards everything; `stops` says which call of which pod waits, and where.

    {"pod": ("StartContainer", 1, "after")}: the second StartContainer for that pod. A stopped
    call stays stopped until `open`; what is under way when the agent dies is cancelled, as the
    runtime sees it when its client is killed.
    """

    def __init__(self, socket, target, stops):
        self.socket = socket
        self.reached = set()
        self.held = set()
        self._target = target
        self._stops = stops
        self._calls = Counter()
        self._pods = {}  # sandbox and container ids -> pod
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, *_):
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _start(self):
        self._open = asyncio.Event()
        self._runtime = Runtime(f"unix://{self._target}")
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def _end(self):
        self._open.set()
        await self._server.stop(1)
        await self._runtime.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def open(self):
        """From now on nothing is stopped."""
        self._stops = {}
        self._loop.call_soon_threadsafe(self._open.set)

    # -- calls

    def service(self, details):
        method = details.method
        if method.endswith("/Subscribe"):
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        return grpc.unary_unary_rpc_method_handler(self._unary(method))

    def _stream(self, method):
        async def forward(request, context):
            sent = list(context.invocation_metadata())
            async for item in self._runtime.channel.unary_stream(method)(request, metadata=sent):
                yield item

        return forward

    def _unary(self, method):
        name = method.removeprefix(_SERVICE)
        forward = self._runtime.channel.unary_unary(method)

        async def call(request, context):
            if name.endswith("/PullImage"):
                return await self._pull(request)
            pod, where = self._where(name, request)
            if where == "before":
                await self._hold(pod)
            left = context.time_remaining()
            sent = [(k, v) for k, v in context.invocation_metadata() if k.startswith("containerd")]
            answering = forward(request, timeout=left, metadata=sent)
            if where == "during":
                await self._hold(pod)
            try:
                answer = await answering
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
            self._learn(name, request, answer)
            if where == "after":
                await self._hold(pod)
            return answer

        return call

    async def _hold(self, whose):
        """Stop here until `open`, or until the caller is gone."""
        self.reached.add(whose)
        self.held.add(whose)
        try:
            await self._open.wait()
        finally:
            self.held.discard(whose)

    async def _pull(self, request):
        """There is no registry here: what is in the store counts as pulled, after its time."""
        wanted = cri.PullImageRequest.FromString(request).image.image
        if wanted in self._stops:
            await self._hold(wanted)
        found = await self._runtime.image(wanted)
        return cri.PullImageResponse(image_ref=found.id).SerializeToString()

    def _where(self, name, request):
        """Whose call it is, and where it is to stop."""
        if name not in _REQUESTS:
            return "", ""
        made = _REQUESTS[name].FromString(request)
        if name == "RunPodSandbox":
            pod = made.config.metadata.name
        elif name == "CreateContainer":
            pod = made.sandbox_config.metadata.name
        else:
            pod = self._pods.get(getattr(made, "container_id", "") or made.pod_sandbox_id, "")
        number = self._calls[pod, name]
        self._calls[pod, name] += 1
        wanted = self._stops.get(pod)
        if wanted is None or wanted[:2] != (name, number):
            return pod, ""
        return pod, wanted[2]

    def _learn(self, name, request, answer):
        if name == "RunPodSandbox":
            made = cri.RunPodSandboxResponse.FromString(answer)
            asked = cri.RunPodSandboxRequest.FromString(request)
            self._pods[made.pod_sandbox_id] = asked.config.metadata.name
        elif name == "CreateContainer":
            made = cri.CreateContainerResponse.FromString(answer)
            asked = cri.CreateContainerRequest.FromString(request)
            self._pods[made.container_id] = asked.sandbox_config.metadata.name
