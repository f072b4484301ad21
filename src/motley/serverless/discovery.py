"""Instances as every router sees them: pods that carry the mark of having their code.

Invariant: a pod that ends, has ended or is gone gets no call from here on.
"""

from typing import Any

from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.serverless import Function
from motley.client.informer import Change, Informer
from motley.lib.clock import Clock
from motley.serverless import objects
from motley.serverless.calls import Calls, concurrency
from motley.serverless.instances import Instance, Table

BY_FUNCTION = "function"


def function_key(pod: Pod) -> Key | None:
    """The function a pod is an instance of."""
    owner = pod.metadata.controller()
    if owner is None or owner.kind != Function.KIND:
        return None
    return Key(pod.metadata.namespace, owner.name)


def by_function(pod: Pod) -> list[str]:
    """For an index of pods."""
    key = function_key(pod)
    return [str(key)] if key else []


def is_live(pod: Pod) -> bool:
    """Is it there, and not about to go?"""
    return not pod.is_terminal and not pod.metadata.deletion_timestamp


class Discovery:
    """Keeps the table of instances true."""

    def __init__(
        self,
        table: Table,
        calls: Calls,
        functions: Informer[Function],
        pods: Informer[Pod],
        key: bytes,
        clock: Clock,
    ) -> None:
        self._table = table
        self._calls = calls
        self._functions = functions
        self._pods = pods
        self._key = key
        self._clock = clock

    def attach(self) -> None:
        """Follow pods and functions from now on."""
        self._functions.add_handler(self._function_changed)
        self._pods.add_handler(self._pod_changed)

    def _function_changed(self, change: Change[Function]) -> None:
        if change.new is None:
            self._table.drop(change.key)
            return
        group = self._table.group(change.key)
        revision = objects.revision(change.new)
        if group.revision != revision:
            group.revision, group.failure = revision, None
        for pod in self._pods.by_index(BY_FUNCTION, str(change.key)):
            self.consider(pod)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is None:
            self._gone(change.object)
            self._calls.suspects.pop(change.key, None)
        else:
            self.consider(change.new)

    def consider(self, pod: Pod) -> None:
        """Take a pod into the table, or out of it."""
        if not is_live(pod):
            self._gone(pod)
            return
        key = function_key(pod)
        if key is None or objects.SERVING not in pod.metadata.labels or not pod.status.pod_ip:
            return
        if self._calls.suspects.get(pod.key, 0.0) > self._clock.monotonic():
            return
        function = self._functions.get(key)
        group = self._table.group(key)
        if function is not None and pod.key not in group.instances:
            group.put(self.instance(function, pod))

    def instance(self, function: Function, pod: Pod) -> Instance:
        """What the table holds of a pod."""
        return Instance(
            pod=pod.key,
            address=pod.status.pod_ip,
            token=objects.instance_token(self._key, pod.key),
            revision=pod.metadata.labels.get(objects.REVISION, ""),
            concurrency=concurrency(function),
            is_single=function.spec.version == "v1",
        )

    def look_again(self) -> None:
        """Those who were not asked for a while get another chance, if they are still there."""
        now = self._clock.monotonic()
        for key, until in list(self._calls.suspects.items()):
            if until <= now:
                del self._calls.suspects[key]
                pod = self._pods.get(key)
                if pod is not None:
                    self.consider(pod)

    def _gone(self, pod: Pod) -> None:
        key = function_key(pod)
        if key is not None and key in self._table.groups:
            self._table.groups[key].gone(pod.key)
        if pod.status.pod_ip:
            self._calls.channels.forget(pod.status.pod_ip)


def starting_reason(pod: Pod) -> str:
    """Why a pod does not run yet, in the words of whoever knows."""
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.message or scheduled.reason
    for container in pod.status.container_statuses:
        waiting: Any = container.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating"):
            return f"{waiting.reason}: {waiting.message}".rstrip(": ")
    return ""
