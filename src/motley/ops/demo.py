"""`motley demo`: the hello example, applied, waited for, and called through its Service.

Only the API is used, so no kubectl is needed; what it applies is what `kubectl apply` would, so
that both can follow each other.
"""

import asyncio
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

import motley
from motley.api import status
from motley.api.views import apps, base, core, pod
from motley.client import rest
from motley.lib import clock
from motley.ops.failure import Failure

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_VIEWS: dict[str, type[base.Object]] = {
    "ConfigMap": core.ConfigMap,
    "Service": core.Service,
    "Deployment": apps.Deployment,
}
NAMESPACE = "default"
NAME = "hello"
CALLS = 10
ROLLOUT_S = 120.0
FIRST_ANSWER_S = 30.0
EVERY_POD_S = 5.0
POLL_S = 0.05
_CALL_S = 5.0


def manifest() -> Path:
    """The example's file: in the repository we run from, or where a wheel's data is installed."""
    repository = Path(motley.__file__).parents[2]
    places = (repository / "examples", Path(sysconfig.get_path("data"), "share/motley/examples"))
    for place in places:
        path = place / "hello" / "hello.yaml"
        if path.exists():
            return path
    raise Failure(f"the hello example is in none of {', '.join(str(p) for p in places)}")


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def as_applied(document: dict[str, Any]) -> dict[str, Any]:
    """The object with the note `kubectl apply` leaves, so that a later apply knows what was set."""
    metadata = {"namespace": NAMESPACE, **document["metadata"]}
    noted = {**document, "metadata": {**metadata, "annotations": metadata.get("annotations", {})}}
    text = msgspec.json.encode(noted, order="sorted").decode() + "\n"
    annotations = {**noted["metadata"]["annotations"], _APPLIED: text}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


async def apply(client: rest.Client, documents: list[dict[str, Any]]) -> None:
    """Create each object, or bring an existing one to what the manifest says."""
    for document in documents:
        view, name = _VIEWS[document["kind"]], document["metadata"]["name"]
        body = as_applied(document)
        try:
            # Asked first, as kubectl does: a Service that exists holds its port against a create.
            await client.get(view, name, NAMESPACE)
        except status.NotFound:
            await client.create(view, body, NAMESPACE)
        else:
            await client.patch(view, name, NAMESPACE, body, type="strategic")


class Rollout(msgspec.Struct, frozen=True):
    """How far a Deployment is."""

    wanted: int
    ready: int
    is_complete: bool


def rollout(deployment: apps.Deployment) -> Rollout:
    """What `kubectl rollout status` looks at."""
    wanted = deployment.spec.replicas if deployment.spec.replicas is not None else 1
    now = deployment.status
    complete = (
        now.observed_generation >= deployment.metadata.generation
        and now.updated_replicas == now.replicas == now.available_replicas == wanted
    )
    return Rollout(wanted, now.ready_replicas, complete)


async def progress_of_rollout(
    client: rest.Client, source: clock.Clock = clock.SYSTEM
) -> list[Rollout]:
    """Wait for the rollout; every stage it went through. Failure when it takes too long."""
    deadline = source.monotonic() + ROLLOUT_S
    seen: list[Rollout] = []
    while source.monotonic() < deadline:
        stage = rollout(await client.get(apps.Deployment, NAME, NAMESPACE))
        if not seen or stage != seen[-1]:
            seen.append(stage)
        if stage.is_complete:
            return seen
        await source.sleep(POLL_S)
    reasons = "\n".join(await complaints(client, NAMESPACE))
    raise Failure(
        f"{seen[-1].ready} of {seen[-1].wanted} pods are ready after {ROLLOUT_S:.0f} s", reasons
    )


async def complaints(client: rest.Client, namespace: str) -> list[str]:
    """Why containers of a namespace wait, or where to look."""
    found = []
    for one in (await client.list(pod.Pod, namespace=namespace)).items:
        for container in one.status.container_statuses:
            waiting = container.state.waiting
            if waiting is not None:
                found.append(f"{one.key}: {waiting.reason} {waiting.message}".rstrip())
    return found or [f"See: kubectl -n {namespace} describe pods"]


async def call(address: str, port: int) -> str:
    """One HTTP request on a connection of its own; the body."""
    host = f"[{address}]" if ":" in address else address
    async with asyncio.timeout(_CALL_S):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            await writer.drain()
            answer = (await reader.read()).decode(errors="replace")
        finally:
            writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    code = head.split(" ", 2)[1:2]
    if code != ["200"]:
        raise OSError(f"answered {head.splitlines()[0] if head else 'nothing'}")
    return body


async def call_service(
    service: core.Service, pods: int, source: clock.Clock = clock.SYSTEM, count: int = CALLS
) -> Counter[str]:
    """Wait until a Service leads to all its pods, then call it as often as asked; answers per pod.

    A pod that became ready a moment ago reaches the Service's rules a moment later.
    """
    address, port = service.spec.cluster_ip, service.spec.ports[0].port
    begun = source.monotonic()
    seen: set[str] = set()
    failure: Exception | None = None
    while len(seen) < pods:
        waited = source.monotonic() - begun
        if waited > FIRST_ANSWER_S and not seen:
            advice = "See: motley logs proxy"
            raise Failure(f"{address}:{port} does not answer: {failure!r}", advice)
        if waited > EVERY_POD_S and seen:
            break
        try:
            seen.add(_pod(await call(address, port)))
        except (OSError, TimeoutError) as error:
            failure = error
        await source.sleep(POLL_S)
    return Counter([_pod(await call(address, port)) for _ in range(count)])


def _pod(body: str) -> str:
    return body.strip().removeprefix("hello from ")


def rows(pods: list[pod.Pod], answers: Counter[str]) -> Iterator[tuple[str, str, str, int]]:
    """Every pod of the example: name, node, address, answers."""
    for one in sorted(pods, key=lambda p: p.metadata.name):
        name = one.metadata.name
        yield name, one.spec.node_name, one.status.pod_ip, answers.get(name, 0)
