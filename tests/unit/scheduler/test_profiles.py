"""KubeSchedulerConfiguration files, good and bad."""

import msgspec
import numpy as np
import pytest

from motley.lib import durations
from motley.scheduler import contract, events, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.images import ImageTable
from motley.scheduler.plugins.registry import PLUGINS
from motley.scheduler.profiles import ConfigError

HEAD = """
apiVersion: kubescheduler.config.k8s.io/{version}
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: ./scheduler.conf}}
"""

ARCHITECTURE = (
    HEAD.format(version="v1beta1")
    + """
profiles:
  - schedulerName: mixed-scheduler
    plugins:
      preFilter: {enabled: [{name: Hicev1}]}
      filter: {enabled: [{name: Hicev1}]}
      bind:
        enabled: [{name: Hicev1}]
        disabled: [{name: DefaultBinder}]
"""
)

SPEED = (
    HEAD.format(version="v1beta1")
    + """
profiles:
  - schedulerName: mixed-scheduler
    plugins:
      preFilter: {enabled: [{name: Hicev1}]}
      filter:
        enabled: [{name: Hicev1}, {name: Hicev2}]
        disabled: [{name: NodeResourcesFit}]
      score:
        enabled: [{name: Hicev2}]
        disabled:
          - name: NodeResourcesLeastAllocated
          - name: NodeResourcesBalancedAllocation
          - name: NodeResourcesMostAllocated
          - name: RequestedToCapacityRatio
      bind:
        enabled: [{name: Hicev2}]
        disabled: [{name: DefaultBinder}]
"""
)

LOAD = (
    HEAD.format(version="v1")
    + """
profiles:
  - schedulerName: load-scheduler
    plugins:
      score:
        enabled: [{name: MemRealUsage}]
        disabled: [{name: "*"}]
    pluginConfig:
      - name: MemRealUsage
        args:
          prometheusApiAddr: http://127.0.0.1:9090
          queryMetricTimeSeconds: 10
          queryMetricIntervalSeconds: 10
"""
)


class UsageArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    prometheus_api_addr: str = ""
    query_metric_time_seconds: int = 10
    query_metric_interval_seconds: int = 10


class MemRealUsage:
    name = "MemRealUsage"
    Args = UsageArgs

    def __init__(self, args, handle):
        self.args = args

    def score(self, pod, nodes):
        return np.zeros(nodes.size)


class Hicev2:
    name = "Hicev2"
    reason = "slow"
    wakes_on: events.Events = ()
    Args = contract.NoArgs

    def __init__(self, args, handle): ...

    def filter(self, pod, nodes):
        return np.ones(nodes.size, np.bool_)

    def score(self, pod, nodes):
        return np.zeros(nodes.size)

    async def bind(self, pod, node, api):
        return None


REGISTRY = {**PLUGINS, "Hicev2": Hicev2, "MemRealUsage": MemRealUsage}


def _build(text, registry=REGISTRY):
    from motley.lib.clock import SYSTEM

    return profiles.build(profiles.parse(text), Handle(Columns(), SYSTEM, ImageTable()), registry)


def _names(plugins):
    return [p[0].name if isinstance(p, tuple) else p.name for p in plugins]


def _one(plugins_yaml, registry=REGISTRY):
    text = HEAD.format(version="v1") + f"profiles: [{{plugins: {plugins_yaml}}}]"
    return _build(text, registry)["default-scheduler"]


def test_without_a_file_the_default_profile_is_kubernetes_order_and_weights():
    profile = _build(HEAD.format(version="v1"))["default-scheduler"]
    assert _names(profile.filter) == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "Hicev1",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    assert {p.name: w for p, w in profile.score} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert _names(profile.bind) == ["DefaultBinder"]
    assert _names(profile.pre_bind) == ["Hicev1", "VolumeBinding"]


def test_the_architecture_configuration_replaces_the_binder():
    profile = _build(ARCHITECTURE)["mixed-scheduler"]
    assert _names(profile.bind) == ["Hicev1"]
    assert _names(profile.filter)[0] == "Hicev1"
    assert "NodeResourcesFit" in _names(profile.filter)
    assert profiles.parse(ARCHITECTURE).leader_election.leader_elect is False
    assert profiles.parse(ARCHITECTURE).client_connection.kubeconfig == "./scheduler.conf"


def test_the_speed_configuration_may_disable_scorers_that_no_longer_exist():
    profile = _build(SPEED)["mixed-scheduler"]
    assert "NodeResourcesFit" not in _names(profile.filter)
    assert "NodeResourcesBalancedAllocation" not in _names(profile.score)
    assert "NodeResourcesFit" not in _names(profile.score)
    assert _names(profile.score)[-1] == "Hicev2"
    assert _names(profile.bind) == ["Hicev2"]


def test_the_load_configuration_keeps_one_scorer_and_all_filters():
    profile = _build(LOAD)["load-scheduler"]
    assert _names(profile.score) == ["MemRealUsage"]
    assert "NodeResourcesFit" in _names(profile.filter)
    args = profile.plugins["MemRealUsage"].args
    assert (args.prometheus_api_addr, args.query_metric_time_seconds) == (
        "http://127.0.0.1:9090",
        10,
    )


@pytest.mark.parametrize("version", profiles.VERSIONS)
def test_every_version_is_read(version):
    assert "default-scheduler" in _build(HEAD.format(version=version))


def test_multi_point_enables_and_disables_everywhere():
    profile = _one("{multiPoint: {disabled: [{name: TaintToleration}], enabled: [{name: Hicev2}]}}")
    assert "TaintToleration" not in _names(profile.filter) + _names(profile.score)
    assert "Hicev2" in _names(profile.filter)
    assert "Hicev2" in _names(profile.score)


def test_a_weight_at_a_point_overrides_and_a_plugin_enabled_again_goes_first():
    profile = _one("{score: {enabled: [{name: ImageLocality, weight: 7}]}}")
    assert {p.name: w for p, w in profile.score}["ImageLocality"] == 7
    assert _names(profile.score)[0] == "ImageLocality"
    assert len(profile.score) == 8


def test_disabling_everything_and_enabling_one_leaves_one():
    profile = _one("{filter: {disabled: [{name: '*'}], enabled: [{name: NodeName}]}}")
    assert _names(profile.filter) == ["NodeName"]
    assert _names(profile.score) != []


def test_profiles_are_taken_by_scheduler_name():
    text = HEAD.format(version="v1") + "profiles: [{schedulerName: a}, {schedulerName: b}]"
    assert sorted(_build(text)) == ["a", "b"]


def _config(profile):
    return HEAD.format(version="v1") + f"profiles: [{profile}]"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (_config("{plugins: {filter: {enabled: [{name: Nonsense}]}}}"), "'Nonsense'"),
        (_config("{plugins: {filter: {disabled: [{name: Nonsense}]}}}"), "'Nonsense'"),
        (_config("{plugins: {score: {enabled: [{name: NodePreferAvoidPods}]}}}"), "not available"),
        (_config("{plugins: {filter: {enabled: [{name: ImageLocality}]}}}"), "does not serve"),
        (_config("{plugins: {filters: {disabled: [{name: '*'}]}}}"), "'filters'"),
        (HEAD.format(version="v1") + "parallelism: 0", "parallelism"),
        (HEAD.format(version="v1") + "podInitialBackoffSeconds: 0", "podInitialBackoffSeconds"),
        (HEAD.format(version="v1") + "podInitialBackoffSeconds: 11", "podMaxBackoffSeconds"),
        (HEAD.format(version="v1") + "percentageOfNodesToScore: 101", "percentageOfNodesToScore"),
        (_config("{plugins: {filter: {enable: []}}}"), "enable"),
        (_config("{pluginConfig: [{name: Nonsense}]}"), "'Nonsense'"),
        (_config("{pluginConfig: [{name: NodePorts, args: {a: 1}}]}"), r"'NodePorts'.*`a`"),
        (
            _config("{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: 3}}]}"),
            "NodeResourcesFit",
        ),
        (
            _config("{pluginConfig: [{name: Hicev1, args: {imagesFile: /does/not/exist}}]}"),
            "/does/not/exist",
        ),
        (_config("{plugins: {bind: {disabled: [{name: '*'}]}}}"), "bind plugin"),
        (_config("{plugins: {queueSort: {disabled: [{name: '*'}]}}}"), "queueSort"),
        (_config("{schedulerName: a}, {schedulerName: a}"), "'a' is there twice"),
        (HEAD.format(version="v2"), "kubescheduler.config.k8s.io/v2"),
        (HEAD.format(version="v1") + "nonsense: 1", "nonsense"),
        (HEAD.format(version="v1") + "extenders: [{url: 'http://x'}]", "extenders"),
        ("kind: Pod", "'Pod'"),
        ("[", "not YAML"),
        ("", "no KubeSchedulerConfiguration"),
    ],
)
def test_whatever_means_nothing_is_an_error_that_names_it(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        _build(text)


def test_the_weight_must_not_be_negative():
    with pytest.raises(ConfigError, match="ImageLocality"):
        _one("{score: {enabled: [{name: ImageLocality, weight: -1}]}}")


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400)]
)
def test_durations_are_read_as_go_writes_them(text, seconds):
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "s", "1x", "1s and more"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="no duration"):
        durations.seconds(text)


# What kube-scheduler itself writes with --write-config-to, less dynamic resources.
WRITTEN_OUT = """
apiVersion: kubescheduler.config.k8s.io/{version}
kind: KubeSchedulerConfiguration
clientConnection: {{acceptContentTypes: "", burst: 100, contentType: a/b, kubeconfig: "", qps: 5}}
enableContentionProfiling: true
enableProfiling: true
leaderElection: {{leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, resourceLock: leases,
  resourceName: kube-scheduler, resourceNamespace: kube-system, retryPeriod: 2s}}
parallelism: 16
percentageOfNodesToScore: null
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - {{name: DefaultPreemption, args: {{kind: DefaultPreemptionArgs,
      apiVersion: kubescheduler.config.k8s.io/v1, minCandidateNodesAbsolute: 100,
      minCandidateNodesPercentage: 10}}}}
  - {{name: InterPodAffinity, args: {{hardPodAffinityWeight: 1,
      ignorePreferredTermsOfExistingPods: false}}}}
  - {{name: NodeAffinity, args: {{kind: NodeAffinityArgs}}}}
  - {{name: NodeResourcesBalancedAllocation, args: {{resources: [{{name: cpu, weight: 1}}]}}}}
  - {{name: NodeResourcesFit, args: {{scoringStrategy: {{type: LeastAllocated,
      resources: [{{name: cpu, weight: 1}}, {{name: memory, weight: 1}}]}}}}}}
  - {{name: PodTopologySpread, args: {{defaultingType: System}}}}
  - {{name: VolumeBinding, args: {{bindTimeoutSeconds: 600,
      shape: [{{score: 10, utilization: 0}}, {{score: 0, utilization: 100}}]}}}}
  plugins:
    bind: {{}}
    filter: {{}}
    placementGenerate: {{}}
    multiPoint:
      enabled:
      - {{name: PrioritySort, weight: 0}}
      - {{name: TaintToleration, weight: 3}}
      - {{name: DefaultBinder, weight: 0}}
"""


@pytest.mark.parametrize("version", profiles.VERSIONS)
def test_what_kube_scheduler_writes_out_is_read(version):
    profile = _build(WRITTEN_OUT.format(version=version), PLUGINS)["default-scheduler"]
    assert {p.name: w for p, w in profile.score}["TaintToleration"] == 3
