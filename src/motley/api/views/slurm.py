"""Work for Slurm clusters, as the bridge reads it."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Condition, Object, View

PENDING, RUNNING = "Pending", "Running"
COMPLETED, FAILED, CANCELLED = "Completed", "Failed", "Cancelled"
FINISHED = frozenset({COMPLETED, FAILED, CANCELLED})
FINALIZER = "motley.io/slurm"
CANCEL = "motley.io/cancel"  # annotation: stop the job, keep the object


class KeyRef(View):
    """Files of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""


class JobInput(View):
    """Something the job finds in its folder."""

    name: str = ""
    path: str = ""
    content: str | None = None
    config_map: KeyRef | None = None
    secret: KeyRef | None = None
    cluster_path: str = ""


class Mail(View):
    """Who wants to hear of the job."""

    type: str = "all"
    user: str = ""
    via: str = "Slurm"


class Dependency(View):
    """Another job that comes first."""

    job: str = ""
    type: str = "afterok"


class SlurmJobSpec(View):
    """What to run."""

    cluster: str = "default"
    files: dict[str, str] = {}
    source_path: str = ""
    inputs: list[JobInput] = []
    script: str = ""
    build: str = ""
    build_on: str = "Login"
    compiler: str = ""
    compiler_flags: list[str] | None = None
    command: str = ""
    args: list[str] = []
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: int = 1
    num_tasks_per_node: int = 1
    cpus_per_task: int = 1
    gpu_resources: int = 0
    gpu_type: str = ""
    memory: str = ""
    time_limit: str = ""
    array: str = ""
    dependencies: list[Dependency] = []
    environment: dict[str, str] = {}
    modules: list[str] = []
    outputs: list[str] = []
    result_file_name: str = ""
    result_file_path: str = ""
    mail: Mail | None = None
    retries: int = 0
    ttl_seconds_after_finished: int | None = None


class ResultFile(View):
    """A file brought back."""

    name: str = ""
    bytes: int = 0
    sha256: str = ""


class SlurmJobStatus(View):
    """How it fares."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    attempt: int = 0
    job_id: str = msgspec.field(name="jobID", default="")
    state: str = ""
    exit_code: int | None = None
    node: str = ""
    directory: str = ""
    tasks: dict[str, int] = {}
    output: str = ""
    error: str = ""
    results: list[ResultFile] = []
    result_path: str = ""
    mailed: list[str] = []
    submit_time: str | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[Condition] = []


class SlurmJob(Object):
    """A batch job on a Slurm cluster."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "SlurmJob"
    PLURAL: ClassVar[str] = "slurmjobs"

    spec: SlurmJobSpec = msgspec.field(default_factory=SlurmJobSpec)
    status: SlurmJobStatus = msgspec.field(default_factory=SlurmJobStatus)

    @property
    def result_name(self) -> str:
        """What its output files are called, without their ends."""
        return self.spec.result_file_name or self.metadata.name

    @property
    def is_finished(self) -> bool:
        """Has it ended for good?"""
        return self.status.phase in FINISHED

    @property
    def is_cancelled(self) -> bool:
        """Has somebody asked for its end?"""
        return self.metadata.annotations.get(CANCEL, "").lower() == "true"

    def has(self, condition: str) -> bool:
        """Is the condition True?"""
        return any(c.type == condition and c.status == "True" for c in self.status.conditions)


class SecretRef(View):
    """A Secret of any namespace."""

    namespace: str = ""
    name: str = ""


class JumpHost(View):
    """A host to go through."""

    host: str = ""
    port: int = 22
    user: str = ""
    host_keys: list[str] = []
    credentials_secret: SecretRef | None = None


class Smtp(View):
    """A mail server."""

    host: str = ""
    port: int = 25
    sender: str = msgspec.field(name="from", default="")
    security: str = "StartTLS"
    credentials_secret: SecretRef | None = None


class Limits(View):
    """What one may ask of the cluster; 0 and empty are no limit."""

    max_jobs: int = 0
    max_gpus: int = 0
    max_nodes: int = 0
    max_time: str = ""
    partitions: list[str] = []


class VirtualNode(View):
    """The cluster as a Node."""

    name: str = ""
    runtime: str = "Auto"
    pods: int = 110
    labels: dict[str, str] = {}


class SlurmClusterSpec(View):
    """How to reach a cluster, and its ways."""

    hosts: list[str] = []
    port: int = 22
    user: str = ""
    credentials_secret: SecretRef = msgspec.field(default_factory=SecretRef)
    host_keys: list[str] = []
    jump_host: JumpHost | None = None
    work_directory: str = "motley"
    default_partition: str = "dgx2"
    mail_domain: str = ""
    script_template: str = ""
    setup: str = ""
    poll_seconds: int = 5
    limits: Limits = msgspec.field(default_factory=Limits)
    smtp: Smtp | None = None
    virtual_node: VirtualNode | None = None


class SlurmClusterStatus(View):
    """What the bridge found there."""

    host: str = ""
    version: str = ""
    runtime: str = ""
    partitions: list[str] = []
    jobs: int = 0
    conditions: list[Condition] = []


class SlurmCluster(Object):
    """A Slurm cluster."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "SlurmCluster"
    PLURAL: ClassVar[str] = "slurmclusters"
    NAMESPACED: ClassVar[bool] = False

    spec: SlurmClusterSpec = msgspec.field(default_factory=SlurmClusterSpec)
    status: SlurmClusterStatus = msgspec.field(default_factory=SlurmClusterStatus)
