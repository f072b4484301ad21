"""Starting a pod's sandbox and containers: the only module that makes things in the runtime.

Each step that fails says so in the worker's notes, with when to try again; nothing is raised but
an unreachable runtime. So the state machine sees one picture, whatever went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from motley.api.status import ApiError
from motley.api.views.pod import Container, Pod
from motley.lib import journal
from motley.node import (
    cgroups,
    containerconfig,
    cpus,
    dnsconfig,
    environment,
    images,
    objects,
    pods,
    resources,
    runtimeclasses,
    sandboxconfig,
)
from motley.node.actions import RunSandbox, StartContainer
from motley.node.checks import Target
from motley.node.containerconfig import Mount
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.values import Image
from motley.node.environment import ConfigError
from motley.node.images import ImageError
from motley.node.model import Notes, RuntimeSandbox, StartFailure, Waiting
from motley.node.runtimeclasses import RuntimeClassError
from motley.node.volumes import claims
from motley.node.volumes.claims import ClaimError
from motley.node.volumes.podvolumes import VolumeError

log = journal.get(__name__)

T = TypeVar("T")
# How soon a failed step is tried again; ConfigMap and Secret changes do not wait for it.
RETRY_S = 10.0
SANDBOX_RETRY_S = 2.0
NETWORK_RETRY_S = 1.0
HOOK_S = 600.0


class Starter:
    """Starts things of one pod; `unless_leaving` cuts a long wait short when the pod must go."""

    def __init__(
        self,
        context: Context,
        notes: Notes,
        unless_leaving: Callable[[Awaitable[Any]], Awaitable[Any]],
    ) -> None:
        self._context = context
        self._notes = notes
        self._unless_leaving = unless_leaving
        self._is_prepared = False

    def _now(self) -> float:
        return self._context.clock.now()

    def _warn(self, pod: Pod, reason: str, message: str) -> None:
        log.warning("pod step failed", pod=pod.key, reason=reason, why=message)
        self._context.recorder.event(pod, "Warning", reason, message)

    # -- the pod as a whole

    def cgroup(self, pod: Pod) -> str:
        """The pod's control group."""
        qos = pod.status.qos_class or resources.qos_class(pod)
        return cgroups.pod_path(self._context.settings.cgroup_root, qos, pod.metadata.uid)

    async def prepare(self, pod: Pod, ips: tuple[str, ...] = ()) -> bool:
        """Volumes and control group; True when both are there."""
        if self._is_prepared:
            return True
        context = self._context
        try:
            claimed = await claims.resolve(context.client, pod, context.settings.name)
            await context.objects.use(pod)
            await asyncio.to_thread(
                context.volumes.setup,
                pod,
                context.objects.lookup(pod.metadata.namespace, pod.metadata.uid),
                context.facts(pod, ips),
                context.resources.allocatable,
                claimed,
            )
        except (ClaimError, VolumeError, ApiError) as error:
            self._warn(pod, "FailedMount", f"MountVolume.SetUp failed for {error}")
            self._notes.sandbox = Waiting("FailedMount", str(error), self._now() + RETRY_S)
            return False
        except TimeoutError:
            message = "timed out waiting for ConfigMaps and Secrets"
            self._warn(pod, "FailedMount", message)
            self._notes.sandbox = Waiting("FailedMount", message, self._now() + RETRY_S)
            return False
        self._ensure_cgroup(pod)
        self._is_prepared = True
        return True

    def _ensure_cgroup(self, pod: Pod) -> None:
        requests, limits = resources.pod_requests(pod), resources.pod_limits(pod)
        self._context.cgroups.ensure_pod(self.cgroup(pod), requests, limits)

    async def adopt(self, pod: Pod, ips: tuple[str, ...]) -> None:
        """Take over a pod that an earlier agent started: follow what it refers to again."""
        if self._is_prepared:
            return
        try:
            await self._context.objects.use(pod)
        except TimeoutError:
            log.warning("ConfigMaps and Secrets not read yet", pod=pod.key)
            return
        await self.refresh(pod, ips)
        self._is_prepared = True

    async def refresh(self, pod: Pod, ips: tuple[str, ...]) -> None:
        """Follow changed ConfigMaps and Secrets in mounted volumes."""
        context = self._context
        await context.objects.renew(pod)
        lookup = context.objects.lookup(pod.metadata.namespace, pod.metadata.uid)
        facts, allocatable = context.facts(pod, ips), context.resources.allocatable
        changed = await asyncio.to_thread(context.volumes.refresh, pod, lookup, facts, allocatable)
        if changed:
            log.info("volume files refreshed", pod=pod.key)

    def forget(self) -> None:
        """Volumes and control group are gone; a next start makes them again."""
        self._is_prepared = False

    # -- sandbox

    def _sandbox_config(self, pod: Pod, attempt: int) -> Any:
        settings = self._context.settings
        resolver = dnsconfig.resolver(
            pod, self._context.host_resolver, settings.cluster_dns, settings.cluster_domain
        )
        return sandboxconfig.build(
            pod,
            attempt=attempt,
            log_root=str(settings.log_root),
            cgroup_parent=self.cgroup(pod),
            resolver=resolver,
        )

    async def run_sandbox(self, pod: Pod, action: RunSandbox) -> None:
        """Make the sandbox, or note why not."""
        if not pod.spec.host_network and not self._context.is_network_ready():
            message = "network is not ready: the node has no pod network yet"
            if self._notes.sandbox is None:
                self._warn(pod, "NetworkNotReady", message)
            retry_at = self._now() + NETWORK_RETRY_S
            self._notes.sandbox = Waiting("NetworkNotReady", message, retry_at)
            return
        if not objects.is_plain(pod) and not await self.prepare(pod):
            return
        config = self._sandbox_config(pod, action.attempt)
        self._ensure_cgroup(pod)
        # What cannot be missing is made while the sandbox is: both take a while.
        async with asyncio.TaskGroup() as group:
            group.create_task(self.prepare(pod))
            error = await self._make_sandbox(pod, config)
        if isinstance(error, RuntimeUnavailable):
            raise error
        if error is not None:
            self._notes.sandbox_tries = action.attempt + 1
            self._warn(pod, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            retry_at = self._now() + SANDBOX_RETRY_S
            self._notes.sandbox = Waiting("FailedCreatePodSandBox", str(error), retry_at)
            return
        self._notes.sandbox = None
        self._notes.sandbox_tries = 0

    async def _make_sandbox(
        self, pod: Pod, config: Any
    ) -> RuntimeFailure | RuntimeClassError | None:
        slots = self._context.sandbox_slots
        try:
            handler = await runtimeclasses.handler(self._context.client, pod)
            if not await self._unless_leaving(slots.acquire()):
                return None
            try:
                await self._context.runtime.run_sandbox(config, handler)
            finally:
                slots.release()
        except (RuntimeFailure, RuntimeClassError) as error:
            return error
        return None

    # -- containers

    async def start_container(
        self, pod: Pod, action: StartContainer, sandbox: RuntimeSandbox, target_id: str = ""
    ) -> None:
        """Pull, create and start one container, or note why not."""
        spec = pods.container(pod, action.name)
        if spec is None:
            return
        try:
            if not await self.prepare(pod, sandbox.ips):
                message = self._notes.sandbox.message if self._notes.sandbox else ""
                self._wait(spec.name, "ContainerCreating", message, RETRY_S)
                return
            image = await self._image(pod, spec)
            if image is None:
                return  # the pod is leaving
            containerconfig.check_non_root(pod, spec, image.uid, image.username)
            config = self._container_config(pod, spec, action, sandbox, image)
            if target_id:
                containerconfig.look_into(config, target_id)
        except ImageError as error:
            self._waits_for_image(pod, spec, error)
            return
        except (ConfigError, VolumeError, OSError) as error:
            self._warn(pod, "Failed", f"Error: {error}")
            self._wait(spec.name, "CreateContainerConfigError", str(error), RETRY_S)
            return
        await self._create_and_start(pod, spec, action, sandbox, config)

    def _wait(self, name: str, reason: str, message: str, retry_s: float) -> None:
        self._notes.waiting[name] = Waiting(reason, message, self._now() + retry_s)

    def _waits_for_image(self, pod: Pod, spec: Container, error: ImageError) -> None:
        event = "BackOff" if error.reason == "ImagePullBackOff" else "Failed"
        self._warn(pod, event, str(error))
        self._notes.waiting[spec.name] = Waiting(error.reason, str(error), error.retry_at)

    async def _image(self, pod: Pod, spec: Container) -> Image | None:
        lookup = self._context.objects.lookup(pod.metadata.namespace)
        secrets, missing = images.pull_secrets(pod, lookup)
        if missing:
            names = ", ".join(missing)
            message = f"Unable to retrieve some image pull secrets ({names}); "
            message += "attempting to pull the image may not succeed."
            self._warn(pod, "FailedToRetrieveImagePullSecret", message)
        ensured = await self._unless_leaving(
            self._context.images.ensure(spec.image, spec.image_pull_policy, secrets)
        )
        if ensured is None:
            return None
        image: Image = ensured[0]
        how = "Successfully pulled image" if ensured[1] else "Container image already present:"
        self._context.recorder.event(pod, "Normal", "Pulled", f'{how} "{spec.image}"')
        return image

    def _container_config(
        self,
        pod: Pod,
        spec: Container,
        action: StartContainer,
        sandbox: RuntimeSandbox,
        image: Image,
    ) -> Any:
        context = self._context
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        variables = environment.resolve(
            pod,
            spec,
            context.objects.lookup(namespace),
            environment.service_variables(
                context.services(), namespace, all_services=pod.spec.enable_service_links
            ),
            context.facts(pod, sandbox.ips),
            context.resources.allocatable,
        )
        mounts = context.volumes.mounts(pod, spec, variables)
        taken = {m.container_path.rstrip("/") for m in mounts}
        message_file = str(context.volumes.message_file(uid, spec.name, action.attempt))
        mounts.append(Mount(spec.termination_message_path, message_file))
        if "/etc/hosts" not in taken:
            domain = context.settings.cluster_domain
            text = dnsconfig.hosts(pod, sandbox.ips, domain, context.host_hosts)
            mounts.append(Mount("/etc/hosts", str(context.volumes.hosts_file(uid, text))))
        memory = context.resources.capacity.get("memory", 0)
        return containerconfig.build(
            pod,
            spec,
            attempt=action.attempt,
            restart_delay_s=action.restart_delay_s,
            image_ref=image.id,
            command=environment.expand_all(spec.command, variables),
            args=environment.expand_all(spec.args, variables),
            variables=variables,
            mounts=mounts,
            limits=resources.container_limits(
                pod, spec, memory, may_lower=context.resources.may_lower_oom_score
            ),
            message_file=message_file,
            cpus=cpus.text(context.cpus.of(pod, spec.name) or ()),
        )

    async def _create_and_start(
        self,
        pod: Pod,
        spec: Container,
        action: StartContainer,
        sandbox: RuntimeSandbox,
        config: Any,
    ) -> None:
        runtime, recorder = self._context.runtime, self._context.recorder
        try:
            container_id = await runtime.create_container(
                sandbox.id, config, self._sandbox_config(pod, sandbox.attempt)
            )
        except RuntimeUnavailable:
            raise
        except RuntimeFailure as error:
            self._warn(pod, "Failed", f"Error: {error}")
            self._wait(spec.name, "CreateContainerError", str(error), RETRY_S)
            return
        recorder.event(pod, "Normal", "Created", f"Created container: {spec.name}")
        self._notes.waiting.pop(spec.name, None)
        try:
            await runtime.start_container(container_id)
        except RuntimeUnavailable:
            raise
        except RuntimeFailure as error:
            self._warn(pod, "Failed", f"Error: {error}")
            self._notes.failed_starts[container_id] = StartFailure(str(error), self._now())
            return
        recorder.event(pod, "Normal", "Started", f"Started container {spec.name}")
        log.info("container started", pod=pod.key, container=spec.name, attempt=action.attempt)
        await self._post_start(pod, spec, container_id, sandbox)

    async def _post_start(
        self, pod: Pod, spec: Container, container_id: str, sandbox: RuntimeSandbox
    ) -> None:
        """Run the hook; a container whose hook fails is killed and so restarted by policy."""
        hook = spec.lifecycle.post_start if spec.lifecycle else None
        if hook is None:
            return
        host = self._context.settings.node_ip
        address = host if pod.spec.host_network else (*sandbox.ips, "")[0]
        target = Target(container_id, spec, address)
        verdict = await self._unless_leaving(self._context.checker.hook(hook, target, HOOK_S))
        if verdict is not None and not verdict.is_good:
            self._warn(pod, "FailedPostStartHook", f"PostStartHook failed: {verdict.output}")
            grace = float(pod.spec.termination_grace_period_seconds)
            await self._context.runtime.stop_container(container_id, grace)
