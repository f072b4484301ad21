"""Job and CronJob. Their templates stay plain documents: the controllers copy them whole."""

from typing import Any, ClassVar

import msgspec

from motley.api.views.base import Condition, LabelSelector, Object, ObjectReference, View


class OnExitCodes(View):
    """Matches a container that ended with, or not with, one of these codes."""

    container_name: str | None = None
    operator: str = ""
    values: list[int] = []


class OnPodCondition(View):
    """Matches a pod that has this condition."""

    type: str = ""
    status: str = "True"


class PodFailurePolicyRule(View):
    """What to do with a failed pod that matches."""

    action: str = ""
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: list[OnPodCondition] = []


class PodFailurePolicy(View):
    """The first rule that matches decides."""

    rules: list[PodFailurePolicyRule] = []


class SuccessPolicyRule(View):
    """Which indexes, or how many of them, are enough."""

    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(View):
    """Any rule that is met ends the Job well."""

    rules: list[SuccessPolicyRule] = []


class JobSpec(View):
    """What to run, how often, and when to give up."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    pod_replacement_policy: str = ""
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class UncountedTerminatedPods(View):
    """Pods that ended and are not in the counters yet, by uid."""

    succeeded: list[str] = []
    failed: list[str] = []


class JobStatus(View):
    """How far it is."""

    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    conditions: list[Condition] = []


class Job(Object):
    """Pods that run to their end."""

    API_VERSION: ClassVar[str] = "batch/v1"
    KIND: ClassVar[str] = "Job"
    PLURAL: ClassVar[str] = "jobs"

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    def ended(self) -> Condition | None:
        """The condition Complete or Failed that says it is over, if it is."""
        return next(
            (
                c
                for c in self.status.conditions
                if c.type in ("Complete", "Failed") and c.status == "True"
            ),
            None,
        )

    @property
    def is_indexed(self) -> bool:
        """Does each completion have a number of its own?"""
        return self.spec.completion_mode == "Indexed"


class JobTemplate(View):
    """A Job to be, as a CronJob makes it."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class CronJobSpec(View):
    """Which Job, when, and what if the last one still runs."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    job_template: JobTemplate = msgspec.field(default_factory=JobTemplate)


class CronJobStatus(View):
    """What runs now and when it last did."""

    active: list[ObjectReference] = []
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Object):
    """Jobs by the clock."""

    API_VERSION: ClassVar[str] = "batch/v1"
    KIND: ClassVar[str] = "CronJob"
    PLURAL: ClassVar[str] = "cronjobs"

    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
    status: CronJobStatus = msgspec.field(default_factory=CronJobStatus)
