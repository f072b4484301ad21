"""`motley leave`: this machine stops being a node, and nothing of it is left here.

Emptying the node first is the node's own right (it may cordon itself and evict its pods), so it
needs nobody's credentials. Deleting the Node object is not, as in Kubernetes: a node that could
delete itself could come back without the taints it was given. An administrator's kubeconfig does
it, or the administrator.

Invariant: the machine is given up last: as long as pods are being moved, they run.
"""

from collections.abc import Iterable
from pathlib import Path

from motley.api import status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.ops.config import Config
from motley.ops.down import GRACE_S, down
from motley.ops.failure import Failure
from motley.ops.progress import Progress

DRAIN_S = 120.0
_POLL_S = 0.25
_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")


def to_move(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that a drain waits for: not those that come back at once, nor those that ended."""
    return [
        pod
        for pod in pods
        if _MIRROR not in pod.metadata.annotations
        and pod.status.phase not in _ENDED
        and not any(o.controller and o.kind == "DaemonSet" for o in pod.metadata.owner_references)
    ]


async def drain(
    client: Client, node: str, progress: Progress, timeout_s: float, source: clock.Clock
) -> None:
    """Let no new pod come and ask those that are here to go. Raises Failure when some do not."""
    await client.patch(Node, node, "", {"spec": {"unschedulable": True}})
    deadline = source.monotonic() + timeout_s
    said: set[str] = set()
    while True:
        found = await client.list(Pod, field_selector=f"spec.nodeName={node}")
        left = to_move(found.items)
        if not left:
            return
        held = ""
        for pod in left:
            if pod.metadata.deletion_timestamp is None:
                held = await _evict(client, pod) or held
        if held and held not in said:
            said.add(held)
            progress.say(held)
        if source.monotonic() > deadline:
            names = ", ".join(sorted(f"{p.metadata.namespace}/{p.metadata.name}" for p in left))
            raise Failure(
                f"after {timeout_s:.0f} s pods are still here: {names}",
                "Nothing was stopped, but no new pod comes here "
                f"(kubectl uncordon {node} undoes that).\n"
                "Wait longer with --drain-timeout, or leave without --drain.",
            )
        await source.sleep(_POLL_S)


async def _evict(client: Client, pod: Pod) -> str:
    """Ask for a pod's eviction; what stands against it, if something does."""
    meta = pod.metadata
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
    }
    try:
        await client.create_subresource(Pod, meta.name, meta.namespace, "eviction", body)
    except status.NotFound:
        return ""  # it is gone
    except (status.TooManyRequests, status.Conflict) as error:
        return f"{meta.namespace}/{meta.name} waits: {error.message}"
    return ""


async def leave(
    config: Config,
    progress: Progress,
    *,
    is_drained: bool = False,
    drain_s: float = DRAIN_S,
    grace_s: int = GRACE_S,
    admin: Path | None = None,
    source: clock.Clock = clock.SYSTEM,
) -> bool:
    """Give up this machine's node; whether its Node object was deleted, too.

    `admin`: a kubeconfig that may delete it.
    """
    if not config.is_joined:
        raise Failure(
            f"{config.root} holds a cluster of its own, not a node of another",
            f"Stop it with: motley down --root {config.root}",
        )
    administrator = _administrator(admin)
    if is_drained:
        with progress.step(f"drain {config.node_name}"):
            async with _client(config.node_kubeconfig, source) as client:
                try:
                    await drain(client, config.node_name, progress, drain_s, source)
                except status.ApiError as error:
                    raise Failure(
                        f"the node cannot be drained: {error.message}",
                        "Leave without --drain when the cluster is gone.",
                    ) from None
    await down(config, progress, grace_s=grace_s, delete_data=True, source=source)
    if administrator is None:
        return False
    with progress.step(f"delete node {config.node_name}"):
        async with Client(administrator, user_agent="motley-ops", clock=source) as client:
            try:
                await client.delete(Node, config.node_name)
            except status.NotFound:
                progress.say("it was deleted already")
            except status.ApiError as error:
                raise Failure(
                    f"the Node object stays: {error.message}",
                    f"On the control plane: kubectl delete node {config.node_name}",
                ) from None
    return True


def _administrator(admin: Path | None) -> kubeconfig.Config | None:
    """Read before anything is stopped: a wrong path must not leave half the work."""
    if admin is None:
        return None
    try:
        return kubeconfig.load(admin)
    except kubeconfig.ConfigError as error:
        raise Failure(str(error)) from None


def _client(path: Path, source: clock.Clock) -> Client:
    try:
        config = kubeconfig.load(path)
    except kubeconfig.ConfigError as error:
        raise Failure(str(error), "Leave without --drain.") from None
    return Client(config, user_agent="motley-ops", clock=source)
