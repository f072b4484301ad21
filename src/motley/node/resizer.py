"""Gives running containers what was granted, and keeps them on the CPUs that are theirs."""

from collections.abc import Sequence

from motley.api.views.container import ResourceRequirements
from motley.api.views.pod import Pod
from motley.lib import journal
from motley.node import containerconfig, cpus, pods, resizing, resources
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.model import Notes, RuntimeContainer

log = journal.get(__name__)

RETRY_S = 10.0


class Resizer:
    """The running containers of one pod."""

    def __init__(self, context: Context, notes: Notes) -> None:
        self._context = context
        self._notes = notes
        self._cpusets: dict[str, str] = {}
        self._failed_at = float("-inf")

    async def apply(self, pod: Pod, running: Sequence[RuntimeContainer], cgroup: str) -> None:
        """Bring running containers to what the pod was granted. Raises RuntimeUnavailable."""
        notes = self._notes
        present = {c.id for c in running}
        notes.applied = {k: v for k, v in notes.applied.items() if k in present}
        for container in running:
            if container.id not in notes.applied:
                notes.applied[container.id] = _made_with(pod, container)
        await self._keep_cpus(pod, running)
        found = resizing.changes(pod, list(running), notes.applied)
        now = self._context.clock.monotonic()
        if not found or (now - self._failed_at < RETRY_S and notes.resize_error):
            return
        notes.must_restart |= {c.container.id for c in found if c.must_restart}
        in_place = [c for c in found if not c.must_restart]
        if not in_place:
            return
        # Room first, so that no container is ever above its pod, whichever way the sizes go.
        self._context.cgroups.widen_pod(cgroup, pod)
        try:
            for change in in_place:
                await self._update(pod, change)
        except RuntimeUnavailable:
            raise
        except RuntimeFailure as error:
            log.warning("container not resized", pod=pod.key, error=error)
            self._failed_at, notes.resize_error = now, str(error)
            return
        notes.resize_error = ""
        requests, limits = resources.pod_requests(pod), resources.pod_limits(pod)
        self._context.cgroups.ensure_pod(cgroup, requests, limits)
        log.info("pod resized", pod=pod.key, containers=[c.spec.name for c in in_place])
        message = f"Pod resize completed: {', '.join(c.spec.name for c in in_place)}"
        self._context.recorder.event(pod, "Normal", "ResizeCompleted", message)

    async def _update(self, pod: Pod, change: resizing.Change) -> None:
        node = self._context.resources
        limits = resources.container_limits(
            pod,
            change.spec,
            node.capacity.get("memory", 0),
            may_lower=node.may_lower_oom_score,
        )
        await self._context.runtime.update_container(
            change.container.id, containerconfig.linux_resources(limits, is_update=True)
        )
        self._notes.applied[change.container.id] = change.spec.resources

    async def _keep_cpus(self, pod: Pod, running: Sequence[RuntimeContainer]) -> None:
        manager = self._context.cpus
        if not manager.is_static:
            return
        self._cpusets = {k: v for k, v in self._cpusets.items() if k in {c.id for c in running}}
        for container in running:
            allowed = manager.of(pod, container.name)
            wanted = cpus.text(allowed) if allowed is not None else ""
            if not wanted or self._cpusets.get(container.id) == wanted:
                continue
            limits = containerconfig.cpuset(wanted)
            try:
                await self._context.runtime.update_container(container.id, limits)
            except RuntimeUnavailable:
                raise
            except RuntimeFailure as error:  # it may have ended just now
                log.warning("cpuset not set", pod=pod.key, container=container.name, error=error)
                continue
            self._cpusets[container.id] = wanted


def _made_with(pod: Pod, container: RuntimeContainer) -> ResourceRequirements:
    """What a container was made with: its own note of it, or what the pod has."""
    if container.resources is not None:
        return container.resources
    spec = pods.container(pod, container.name)
    return spec.resources if spec is not None else ResourceRequirements()
