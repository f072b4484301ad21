"""The file: `KubeSchedulerConfiguration`, versions v1beta1 to v1, read and checked for its form.

Whatever it says that means nothing here is an error that names it, never silently ignored. What
plugins it stands for is decided by `profiles`.
"""

from typing import Any

import msgspec
import yaml

from motley.lib import durations
from motley.scheduler import extenders, legacy
from motley.scheduler.extenders import ExtenderConfig
from motley.scheduler.userplugins import PluginSource

GROUP = "kubescheduler.config.k8s.io"
VERSIONS = ("v1beta1", "v1beta2", "v1beta3", "v1")
DEFAULT_SCHEDULER = "default-scheduler"


class ConfigError(ValueError):
    """The configuration file is wrong; the message says what and where."""


class WrittenPlugin(msgspec.Struct, forbid_unknown_fields=True):
    """A plugin by name."""

    name: str
    weight: int = 0

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError(f"weight of plugin {self.name!r} is negative")


class WrittenPlugins(msgspec.Struct, forbid_unknown_fields=True):
    """What is different from the default at one extension point."""

    enabled: list[WrittenPlugin] = msgspec.field(default_factory=list)
    disabled: list[WrittenPlugin] = msgspec.field(default_factory=list)


class WrittenArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of a plugin, not looked at yet."""

    name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class WrittenProfile(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """One `schedulerName`."""

    scheduler_name: str = DEFAULT_SCHEDULER
    plugins: dict[str, WrittenPlugins] = msgspec.field(default_factory=dict)
    plugin_config: list[WrittenArguments] = msgspec.field(default_factory=list)
    percentage_of_nodes_to_score: int | None = None  # accepted; every node is scored


class LeaderElection(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Whether several schedulers stand by for each other, and under which Lease."""

    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    # Not kube-scheduler's own: beside it, each would wait for the other to end.
    resource_name: str = "motley-scheduler"
    resource_namespace: str = "kube-system"

    def __post_init__(self) -> None:
        for text in (self.lease_duration, self.renew_deadline, self.retry_period):
            durations.seconds(text)


class ClientConnection(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """How to reach the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = 0


class Configuration(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The file as it is written."""

    api_version: str = f"{GROUP}/v1"
    kind: str = "KubeSchedulerConfiguration"
    parallelism: int = 16  # accepted; columns need no workers
    leader_election: LeaderElection = msgspec.field(default_factory=LeaderElection)
    client_connection: ClientConnection = msgspec.field(default_factory=ClientConnection)
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    delay_cache_until_active: bool = False
    profiles: list[WrittenProfile] = msgspec.field(default_factory=list)
    extenders: list[ExtenderConfig] = msgspec.field(default_factory=list)
    plugin_sources: list[PluginSource] = msgspec.field(default_factory=list)  # Motley's own field

    def __post_init__(self) -> None:
        extenders.validate(self.extenders)
        if self.parallelism <= 0:
            raise ValueError("parallelism must be greater than 0")
        if self.pod_initial_backoff_seconds <= 0:
            raise ValueError("podInitialBackoffSeconds must be greater than 0")
        if not 0 <= (self.percentage_of_nodes_to_score or 0) <= 100:
            raise ValueError("percentageOfNodesToScore is not between 0 and 100")
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            raise ValueError("podMaxBackoffSeconds must not be less than podInitialBackoffSeconds")

    @property
    def named(self) -> frozenset[str]:
        """Every plugin that a profile mentions."""
        return frozenset(
            plugin.name
            for profile in self.profiles
            for plugins in profile.plugins.values()
            for plugin in plugins.enabled
        ) | {config.name for profile in self.profiles for config in profile.plugin_config}


def parse(text: str) -> Configuration:
    """Read a configuration file. Raises ConfigError."""
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as e:
        raise ConfigError(f"not YAML: {e}") from e
    if not isinstance(document, dict):
        raise ConfigError("the file holds no KubeSchedulerConfiguration")
    if document.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigError(f"kind is {document.get('kind')!r}, not 'KubeSchedulerConfiguration'")
    group, _, version = str(document.get("apiVersion")).partition("/")
    if group != GROUP or version not in VERSIONS:
        known = ", ".join(f"{GROUP}/{v}" for v in VERSIONS)
        raise ConfigError(f"apiVersion is {document.get('apiVersion')!r}, not one of {known}")
    try:
        configuration = msgspec.convert(_stated(document), Configuration)
    except msgspec.ValidationError as e:
        raise ConfigError(str(e)) from e
    written = msgspec.to_builtins(configuration.profiles)
    configuration.profiles = msgspec.convert(legacy.modernized(written), list[WrittenProfile])
    return configuration


def _stated(value: Any) -> Any:
    """Without nulls: as in Kubernetes, a null is a field left out."""
    if isinstance(value, dict):
        return {name: _stated(member) for name, member in value.items() if member is not None}
    return [_stated(item) for item in value] if isinstance(value, list) else value
