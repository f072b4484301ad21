"""The Node object: registering, reporting, and the Lease that says the agent lives.

A Lease is renewed every ten seconds; the status itself is written only when it changes or the API
has another, and every five minutes. A name belongs to one configuration: a second agent with the
same name and another address or directory is refused, before it takes pods away from the first.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

from motley.api import quantity
from motley.api import status as api_status
from motley.api.views.core import Lease, Node
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock, rfc3339, rfc3339_micro
from motley.node import machine
from motley.node.context import NodeResources, Settings
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Image, Version

log = journal.get(__name__)

CONFIG_ANNOTATION = "motley.io/node-config"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_S = 40
RENEW_S = 10.0
STATUS_S = 10.0
REPEAT_STATUS_S = 300.0
MAX_IMAGES = 50
KUBELET_VERSION = "v1.37.0+motley"


class RefusedError(Exception):
    """This agent must not run under this name; the message says what to do."""


def config_hash(settings: Settings) -> str:
    """Identifies an agent's configuration: where it is and where it keeps its pods."""
    text = f"{settings.node_ip} {settings.root.resolve()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def labels(settings: Settings, about: machine.Machine) -> dict[str, str]:
    """The labels every node has."""
    return {
        "kubernetes.io/arch": about.architecture,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": settings.name,
        "beta.kubernetes.io/arch": about.architecture,
        "beta.kubernetes.io/os": "linux",
        **settings.node_labels,
    }


# Condition → (reason, message) under pressure, and without.
_PRESSURES = {
    "MemoryPressure": (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}


def conditions(
    before: Node | None, not_ready: str, now: float, pressures: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The node's conditions; an empty `not_ready` means Ready."""
    wanted = [
        (kind, "True", *under) if kind in pressures else (kind, "False", *without)
        for kind, (under, without) in _PRESSURES.items()
    ]
    wanted.append(
        ("Ready", "False", "KubeletNotReady", not_ready)
        if not_ready
        else ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    )
    found = []
    for kind, value, reason, message in wanted:
        known = before.status.condition(kind) if before is not None else None
        since = rfc3339(now)
        if known is not None and known.status == value and known.last_transition_time:
            since = known.last_transition_time
        found.append(
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": rfc3339(now),
                "lastTransitionTime": since,
            }
        )
    return found


class Registration:
    """One agent's Node and Lease."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        settings: Settings,
        about: machine.Machine,
        resources: NodeResources,
        version: Version,
        clock: Clock,
        not_ready: Callable[[], str],
        pressures: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._settings = settings
        self._about = about
        self.resources = resources
        self._version = version
        self._clock = clock
        self._not_ready = not_ready
        self._pressures = pressures
        self._node: Node | None = None
        self._written: dict[str, Any] = {}
        self._written_at = float("-inf")

    async def register(self) -> Node:
        """Make or adopt the Node. Raises RefusedError when the name is another agent's."""
        settings = self._settings
        wanted = {
            "labels": labels(settings, self._about),
            "annotations": {CONFIG_ANNOTATION: config_hash(settings), **settings.node_annotations},
        }
        try:
            node = await self._client.get(Node, settings.name)
        except api_status.NotFound:
            spec = {"taints": list(settings.register_taints)} if settings.register_taints else {}
            body = {"metadata": {"name": settings.name, **wanted}, "spec": spec}
            try:
                node = await self._client.create(Node, body)
                log.info("node registered", node=settings.name)
            except api_status.AlreadyExists:
                node = await self._client.get(Node, settings.name)
        known = node.metadata.annotations.get(CONFIG_ANNOTATION, "")
        if known and known != config_hash(settings):
            raise RefusedError(
                f'node "{settings.name}" is registered with another configuration '
                f"(address {node.internal_ip or 'unknown'}): use another --name, or remove the "
                f"old one with `kubectl delete node {settings.name}`"
            )
        self._node = await self._client.patch(Node, settings.name, "", {"metadata": wanted})
        return self._node

    @property
    def is_ready(self) -> bool:
        """Does the API say that the node is Ready?"""
        return self._node is not None and self._node.is_ready

    def update(self, node: Node | None) -> None:
        """The Node as the API has it now; None when somebody deleted it."""
        self._node = node

    async def _images(self) -> list[dict[str, Any]]:
        def names(image: Image) -> list[str]:
            return [*image.digests, *image.tags]

        try:
            found = await self._runtime.list_images()
        except RuntimeFailure:
            return list(self._written.get("images", []))
        largest = sorted(found, key=lambda i: i.size_bytes, reverse=True)[:MAX_IMAGES]
        return [{"names": names(i), "sizeBytes": i.size_bytes} for i in largest if names(i)]

    async def status(self) -> dict[str, Any]:
        """The Node's status now."""
        settings, about = self._settings, self._about
        return {
            "capacity": machine.quantities(self.resources.capacity),
            "allocatable": {
                **added_by_hand(self._node),
                **machine.quantities(self.resources.allocatable),
            },
            "addresses": [
                {"type": "InternalIP", "address": settings.node_ip},
                {"type": "Hostname", "address": settings.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.port}},
            "nodeInfo": {
                "architecture": about.architecture,
                "bootID": about.boot_id,
                "containerRuntimeVersion": f"{self._version.name}://{self._version.version}",
                "kernelVersion": about.kernel,
                "kubeProxyVersion": "",
                "kubeletVersion": KUBELET_VERSION,
                "machineID": about.machine_id,
                "operatingSystem": "linux",
                "osImage": about.os_image,
                "systemUUID": about.system_uuid,
            },
            "images": await self._images(),
            "conditions": conditions(
                self._node, self._not_ready(), self._clock.now(), self._pressures()
            ),
        }

    async def report(self) -> None:
        """Write the status if it changed or is old; register again if the Node is gone."""
        status = await self.status()
        now = self._clock.monotonic()
        is_old = now - self._written_at >= REPEAT_STATUS_S
        if not is_old and _still(status) == _still(self._written) and self._agrees(status):
            return
        try:
            self._node = await self._client.patch(
                Node,
                self._settings.name,
                "",
                {"status": status},
                type="strategic",
                subresource="status",
            )
        except api_status.NotFound:
            log.warning("the Node object is gone, registering again", node=self._settings.name)
            await self.register()
            await self.report()
            return
        if not is_old and _ready(status) != _ready(self._written):
            log.info("node condition changed", ready=_ready(status), why=self._not_ready())
        self._written, self._written_at = status, now

    def _agrees(self, status: dict[str, Any]) -> bool:
        """Has nobody (the node lifecycle controller) written another opinion meanwhile?

        Other figures are written over as well, as a kubelet does: who raises them on their way in
        (`webhook`) raises them again, and who has gone must not leave them."""
        if self._node is None:
            return False
        said = self._node.status
        known = said.condition("Ready")
        if known is None or known.status != _ready(status):
            return False
        stored = {"capacity": said.capacity, "allocatable": said.allocatable}
        return _figures(stored, status) == _figures(status, status)

    async def renew_lease(self) -> None:
        """Say that the agent lives."""
        name = self._settings.name
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": rfc3339_micro(self._clock.now()),
        }
        try:
            await self._client.patch(Lease, name, LEASE_NAMESPACE, {"spec": spec})
        except api_status.NotFound:
            owner = self._node
            meta: dict[str, Any] = {"name": name, "namespace": LEASE_NAMESPACE}
            if owner is not None and owner.metadata.uid:
                meta["ownerReferences"] = [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": name,
                        "uid": owner.metadata.uid,
                    }
                ]
            await self._client.create(Lease, {"metadata": meta, "spec": spec})


def added_by_hand(node: Node | None) -> dict[str, str | int | float | None]:
    """What somebody added to the Node's capacity (dongles, licences) is there to be had."""
    if node is None:
        return {}
    gone = {name: None for name in node.status.allocatable if "/" in name}
    return {**gone, **{name: q for name, q in node.status.capacity.items() if "/" in name}}


def _figures(said: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Fraction | None]:
    """Of what an agent counts itself, how much a status says there is and may be had."""
    found: dict[str, Fraction | None] = {}
    for part in ("capacity", "allocatable"):
        for name in ours[part]:
            if "/" not in name:
                amount = said[part].get(name)
                found[f"{part} {name}"] = None if amount is None else quantity.parse(amount)
    return found


def _still(status: dict[str, Any]) -> dict[str, Any]:
    """A status without its heartbeats, to compare."""
    quiet = [
        {k: v for k, v in c.items() if k not in ("lastHeartbeatTime", "lastTransitionTime")}
        for c in status.get("conditions", ())
    ]
    return {**status, "conditions": quiet}


def _ready(status: dict[str, Any]) -> str:
    return next((c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")
