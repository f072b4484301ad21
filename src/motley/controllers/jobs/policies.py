"""A Job's policies: what a failed pod means, and which successes are enough. Pure."""

from typing import NamedTuple

from motley.api.views.base import Condition
from motley.api.views.batch import (
    Job,
    OnExitCodes,
    OnPodCondition,
    PodFailurePolicyRule,
    SuccessPolicyRule,
)
from motley.api.views.pod import ContainerStatus, Pod
from motley.controllers.jobs.indexes import Indexes


class Ruling(NamedTuple):
    """What the failure policy says of one failed pod."""

    action: str = ""  # Count where no rule says otherwise
    message: str = ""  # of a rule that fails the whole Job

    @property
    def counts(self) -> bool:
        """Does the failure count towards the back-off limit?"""
        return self.action != "Ignore"


def rule_on(job: Job, pod: Pod) -> Ruling:
    """The first matching rule of the Job's pod failure policy, for a pod that failed."""
    policy = job.spec.pod_failure_policy
    for index, rule in enumerate(policy.rules if policy else ()):
        why = _match(rule, pod)
        if why:
            text = f"{why} matching {rule.action} rule at index {index}"
            return Ruling(rule.action, text if rule.action == "FailJob" else "")
    return Ruling()


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        container = _exited(pod, rule.on_exit_codes)
        if container is None or container.state.terminated is None:
            return ""
        code = container.state.terminated.exit_code
        return f"Container {container.name} for pod {name} failed with exit code {code}"
    condition = _held(pod, rule.on_pod_conditions)
    return f"Pod {name} has condition {condition.type}" if condition else ""


def _exited(pod: Pod, wanted: OnExitCodes) -> ContainerStatus | None:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((s for s in statuses if _exit_matches(s, wanted)), None)


def _exit_matches(container: ContainerStatus, wanted: OnExitCodes) -> bool:
    end = container.state.terminated
    if end is None or end.exit_code == 0:
        return False
    if wanted.container_name is not None and wanted.container_name != container.name:
        return False
    return (end.exit_code in wanted.values) == (wanted.operator == "In")


def _held(pod: Pod, patterns: list[OnPodCondition]) -> Condition | None:
    wanted = {(p.type, p.status) for p in patterns}
    return next((c for c in pod.status.conditions if (c.type, c.status) in wanted), None)


def success(job: Job, succeeded: Indexes) -> str:
    """Why the succeeded indexes are enough by the Job's success policy, or nothing."""
    policy = job.spec.success_policy
    if policy is None or not succeeded:
        return ""
    for index, rule in enumerate(policy.rules):
        if _is_met(rule, succeeded, job.spec.completions or 0):
            return f"Matched rules at index {index}"
    return ""


def _is_met(rule: SuccessPolicyRule, succeeded: Indexes, completions: int) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and len(succeeded) >= rule.succeeded_count
    required = Indexes.parse(rule.succeeded_indexes, completions)
    if not required:
        return False
    enough = len(required) if rule.succeeded_count is None else rule.succeeded_count
    return required.overlap(succeeded) >= min(enough, len(required))
