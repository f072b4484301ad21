"""LoadAware: thresholds over measured use, percentiles of a window, and free capacity as score."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from motley.cli.prometheus_rules import command
from motley.lib.clock import SYSTEM
from motley.metrics import prometheus_rules
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import SKIP, Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.plugins.cpu_real_usage import CpuRealUsage
from motley.scheduler.plugins.load import DEFAULT_METRICS, LoadMeasured
from motley.scheduler.plugins.load_aware import LoadAware
from motley.scheduler.plugins.mem_real_usage import MemRealUsage
from motley.scheduler.plugins.samples import SLOTS, Samples
from motley.scheduler.podinfo import PodInfos

EXAMPLES = Path(__file__).parents[3] / "examples/realusage"
PROMETHEUS = {"prometheusApiAddr": "http://127.0.0.1:9"}
REQUESTS = {"metrics": {"httpRequests": "node_http_requests_percent"}}


class World:
    """Nodes of 4 cores and 8 Gi, measured in percent."""

    def __init__(self, node, clock, names, **args):
        self.nodes, self.clock, self.infos = Columns(), clock, PodInfos()
        for name in names:
            self.nodes.set_node(node(name))
        handle = Handle(self.nodes, clock, images.ImageTable())
        self.plugin = LoadAware(msgspec.convert({**PROMETHEUS, **args}, LoadAware.Args), handle)

    def take(self, **by_resource):
        for resource, values in by_resource.items():
            known = dict(zip(self.nodes.names, values, strict=True))
            self.plugin.load.take(resource, {n: v for n, v in known.items() if v is not None})

    def allowed(self, pod):
        mask = self.plugin.filter(self.infos.of(pod), self.nodes)
        return "".join(np.array(self.nodes.names)[mask])

    def scores(self, pod):
        info = self.infos.of(pod)
        raw = self.plugin.score(info, self.nodes)
        return self.plugin.normalize(info, raw, self.nodes.live).tolist()

    def place(self, pod, name, **more):
        self.nodes.add_pod(self.infos.of(pod), name, **more)


# -- thresholds -----------------------------------------------------------------------------


def test_nodes_above_a_threshold_take_no_pods(node, pod, clock):
    world = World(node, clock, "abcd")
    world.take(cpu=[64, 65, 66, 10], memory=[10, 95, 10, 96])
    assert world.allowed(pod()) == "ab"
    info = world.infos.of(pod())
    rejected = ~world.plugin.filter(info, world.nodes)
    assert world.plugin.explain(info, world.nodes, rejected) == {
        "node(s) use more than 65% of cpu": 1,
        "node(s) use more than 95% of memory": 1,
    }


def test_a_threshold_of_zero_checks_nothing(node, pod, clock):
    world = World(node, clock, "ab", usageThresholds={"cpu": 0, "memory": 50})
    world.take(cpu=[100, 100], memory=[40, 60])
    assert world.allowed(pod()) == "a"


def test_without_recent_measurements_every_node_passes(node, pod, clock):
    world = World(node, clock, "abc", nodeMetricExpirationSeconds=60)
    assert world.allowed(pod()) == "abc"
    world.take(cpu=[99, 99, None], memory=[1, 1, None])
    assert world.allowed(pod()) == "c"
    clock.time += 61
    assert world.allowed(pod()) == "abc"
    assert world.scores(pod()) == [0, 0, 0]
    assert world.plugin.ages(None) == {}


def test_pods_placed_since_the_measurement_count_for_a_part(node, pod, clock):
    world = World(node, clock, "ab")
    world.take(cpu=[50, 50], memory=[10, 10])
    for i in range(2):
        world.place(pod(f"p{i}", requests={"cpu": "400m"}), "a", assumed=True)
    assert world.allowed(pod()) == "b", "50 % and 85 % of a fifth are 67 %"
    clock.time += 300
    world.take(cpu=[55, 50], memory=[10, 10])
    clock.time += 300
    world.take(cpu=[55, 50], memory=[10, 10])
    assert world.allowed(pod()) == "ab", "what they use is measured now"


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, None),
        ({"priority": 1_000_000}, None),
        ({"priority": 2_000_001_000}, SKIP),
    ],
)
def test_system_critical_pods_run_on_busy_nodes(node, pod, clock, spec, answer):
    world = World(node, clock, "a")
    assert world.plugin.pre_filter(world.infos.of(pod(**spec)), world.nodes) is answer


def test_pods_of_daemons_run_on_busy_nodes(node, pod, clock):
    world = World(node, clock, "a")
    daemon = pod()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
    daemon = msgspec.convert(
        {**msgspec.to_builtins(daemon), "metadata": {"name": "d-1", "ownerReferences": [owner]}},
        type(daemon),
    )
    assert world.plugin.pre_filter(world.infos.of(daemon), world.nodes) is SKIP


# -- windows --------------------------------------------------------------------------------


def test_a_peak_does_not_close_a_node_that_a_percentile_is_taken_of(node, pod, clock):
    aggregated = {
        "usageThresholds": {"cpu": 60},
        "usageAggregationType": "p90",
        "usageAggregatedDuration": "5m",
    }
    world = World(node, clock, "ab", aggregated=aggregated)
    for minute in range(20):
        world.take(cpu=[95 if minute == 19 else 30, 70 if minute % 2 else 20])
        clock.time += 15
    assert world.allowed(pod()) == "a", "one peak of twenty, against every other"
    for _ in range(4):
        world.take(cpu=[95, 20])
        clock.time += 15
    assert world.allowed(pod()) == ""
    for _ in range(20):
        world.take(cpu=[30, 20])
        clock.time += 15
    assert world.allowed(pod()) == "ab"


def test_a_node_that_takes_over_a_row_begins_with_nothing(node, clock):
    nodes = Columns()
    for name in "ab":
        nodes.set_node(node(name))
    samples = Samples(300, "p99")
    samples.take(nodes, np.array([90.0, 10.0]), 0.0)
    nodes.remove_node("a")
    nodes.set_node(node("c"))
    assert nodes.rows["c"] == 0
    found = samples.aggregate(nodes)
    assert np.isnan(found[0])
    assert found[1] == 10


def test_a_long_window_is_kept_in_few_steps_of_which_the_highest_counts(node):
    nodes = Columns()
    nodes.set_node(node("a"))
    samples = Samples(3600, "p50")
    for second in range(0, 7200, 10):
        samples.take(nodes, np.array([80.0 if second % 30 == 0 else 1.0]), float(second))
    assert samples.aggregate(nodes)[0] == 80
    assert samples._ring.shape == (SLOTS, 1)


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=3, max_size=3), max_size=40
    ),
    st.sampled_from(["avg", "p50", "p90", "p95", "p99"]),
)
def test_aggregates_are_those_of_the_plain_lists(rounds, kind):
    nodes = Columns()
    nodes.names, nodes.size = ["a", "b", "c"], 3
    samples = Samples(SLOTS * 10.0, kind)
    for i, values in enumerate(rounds):
        row = np.array([np.nan if v is None else float(v) for v in values])
        samples.take(nodes, row, i * 10.0)
    found = samples.aggregate(nodes)
    for column in range(3):
        known = sorted(v[column] for v in rounds if v[column] is not None)
        if not known:
            assert np.isnan(found[column])
        elif kind == "avg":
            assert found[column] == pytest.approx(sum(known) / len(known))
        else:
            share = int(kind[1:])
            least = next(v for v in known if sum(w <= v for w in known) * 100 >= share * len(known))
            assert found[column] == least


# -- score ----------------------------------------------------------------------------------


def test_the_score_is_what_is_free_with_the_pod_on_it(node, pod, clock):
    world = World(node, clock, "abc", estimatedScalingFactors={"cpu": 50, "memory": 100})
    world.take(cpu=[20, 60, None], memory=[40, 20, None])
    # Half a core of four is 12.5 %, half of that counts; 819.2 Mi of 8 Gi are 10 %.
    asks = pod(requests={"cpu": "500m", "memory": str(int(0.1 * 8 * 2**30))})
    a, b = (100 - 20 - 6.25 + 100 - 40 - 10) / 2, (100 - 60 - 6.25 + 100 - 20 - 10) / 2
    assert world.scores(asks) == [int(a), int(b), int((a + b) / 2)]


def test_weights_say_what_matters(node, pod, clock):
    world = World(node, clock, "ab", resourceWeights={"cpu": 0, "memory": 1})
    world.take(cpu=[0, 90], memory=[50, 20])
    first, second = world.scores(pod())
    assert second > first


def test_a_burst_spreads_over_nodes_that_are_equally_free(node, pod, clock):
    world = World(node, clock, "abc")
    world.take(cpu=[10, 10, 60], memory=[10, 10, 60])
    placed = dict.fromkeys("abc", 0)
    for i in range(12):
        asks = pod(f"p{i}", requests={"cpu": "100m", "memory": "100Mi"})
        best = "abc"[int(np.argmax(world.scores(asks)))]
        world.place(asks, best, assumed=True)
        placed[best] += 1
    assert placed == {"a": 6, "b": 6, "c": 0}


def test_the_score_may_go_by_a_window_too(node, pod, clock):
    aggregated = {"scoreAggregationType": "avg", "scoreAggregatedDuration": "1m"}
    world = World(node, clock, "ab", aggregated=aggregated)
    world.take(cpu=[10, 40], memory=[0, 0])
    clock.time += 30
    world.take(cpu=[90, 40], memory=[0, 0])
    first, second = world.scores(pod())
    assert second > first, "50 % on average against 40 %"
    assert world.allowed(pod()) == "b", "the filter goes by the last measurement"


# -- features besides CPU and memory --------------------------------------------------------


def test_a_node_that_serves_too_many_requests_takes_no_pods(node, pod, clock):
    world = World(node, clock, "abc", **REQUESTS, usageThresholds={"cpu": 65, "httpRequests": 80})
    world.take(cpu=[10, 70, 10], httpRequests=[81, 10, None])
    info = world.infos.of(pod())
    assert world.allowed(pod()) == "c", "nothing is known of its requests"
    assert world.plugin.explain(info, world.nodes, np.ones(3, bool)) == {
        "node(s) use more than 65% of cpu": 1,
        "node(s) use more than 80% of httpRequests": 1,
    }
    assert world.plugin.ages(info) == {"cpu": 0, "httpRequests": 0}


def test_thresholds_of_a_feature_may_go_by_a_window(node, pod, clock):
    aggregated = {"usageThresholds": {"httpRequests": 60}, "usageAggregationType": "avg"}
    world = World(node, clock, "ab", **REQUESTS, aggregated=aggregated)
    for share in (20, 20, 90):
        world.take(httpRequests=[share, 70])
        clock.time += 15
    assert world.allowed(pod()) == "a", "43 % on average against 70 %"


def test_the_score_weighs_a_feature_like_the_others(node, pod, clock):
    weights = {"memory": 1, "httpRequests": 3}
    factors = {"memory": 0}
    world = World(
        node, clock, "abc", **REQUESTS, resourceWeights=weights, estimatedScalingFactors=factors
    )
    world.take(memory=[20, 60, 40], httpRequests=[80, 20, None])
    # The third is as free of requests as the others are on average, and no better.
    assert world.scores(pod()) == [(80 + 3 * 20) / 4, (40 + 3 * 80) / 4, int((60 + 3 * 50) / 4)]
    clock.time += 181
    world.take(memory=[20, 60, 40])
    assert world.scores(pod()) == [80, 40, 60], "nobody counts requests any more"


def test_a_burst_spreads_by_what_pods_serve_on_average_and_closes_no_node(node, pod, clock):
    args = {"resourceWeights": {"httpRequests": 1}, "usageThresholds": {"httpRequests": 35}}
    world = World(node, clock, "abc", **REQUESTS, **args)
    for i, name in enumerate("aabbccc"):
        placed_long_ago = pod(f"old{i}")
        placed_long_ago.status.start_time = "1970-01-01T00:00:00Z"
        world.place(placed_long_ago, name)
    world.take(httpRequests=[10, 12, 34])  # 56 % by seven pods: 8 % each
    placed = dict.fromkeys("abc", 0)
    for i in range(6):
        asks = pod(f"p{i}")
        best = "abc"[int(np.argmax(world.scores(asks)))]
        world.place(asks, best, assumed=True)
        placed[best] += 1
    assert placed == {"a": 3, "b": 3, "c": 0}
    assert world.allowed(pod()) == "abc", "36 % of one is only guessed, not held against it"
    for _ in range(2):
        clock.time += 300
        world.take(httpRequests=[20, 12, 34])
    assert world.scores(pod()) == [80, 88, 66], "what they serve is measured now"


async def test_features_are_asked_of_the_prometheus_by_their_series(node, monkeypatch):
    asked = {}

    async def poll(who, metrics, *_, **__):
        asked.update(metrics)

    monkeypatch.setattr("motley.scheduler.plugins.polling.poll", poll)
    await World(node, SYSTEM, "a", **REQUESTS).plugin.background(None)
    assert asked == {**DEFAULT_METRICS, "httpRequests": "node_http_requests_percent"}


# -- with and without the filter by requests ------------------------------------------------


@pytest.mark.parametrize(
    ("example", "labels", "chosen"),
    [
        ("load-aware-config.yaml", {}, None),
        ("by-use-alone-config.yaml", {}, "promised"),
        ("overcommit-config.yaml", {}, "busy"),
        ("overcommit-config.yaml", {"motley.io/overcommit-cpu": "2"}, "promised"),
    ],
)
def test_a_profile_says_whether_requests_count_beside_use(
    cluster, node, pod, example, labels, chosen
):
    world = cluster(node("promised", labels=labels), node("busy", labels=labels))
    text = (EXAMPLES / example).read_text()
    [profile] = profiles.build(profiles.parse(text), world.handle).values()
    world.place(pod("idle", requests={"cpu": "3"}), "promised")
    world.place(pod("eager", requests={"cpu": "1"}), "busy")
    load = next(plugin.load for plugin in profile.plugins.values() if hasattr(plugin, "load"))
    unit = 1 if "prometheusApiAddr" in text else 40  # percent of four cores, or millicores
    load.take("cpu", {"promised": 5 * unit, "busy": 97 * unit})
    # Three of four cores are promised and idle there; here one is promised and all work.
    decision = Cycle(profile, world.nodes).schedule(world.info(pod(requests={"cpu": "2"})))
    assert decision.node == chosen
    if chosen is None:
        assert "1 Insufficient cpu" in decision.message
        assert "1 node(s) use more than 65% of cpu" in decision.message


# -- waking, arguments ----------------------------------------------------------------------


def test_new_measurements_wake_pods_that_fit_now(node, pod, clock):
    world = World(node, clock, "a")
    happened = []

    class Feed:
        @staticmethod
        def happened(event):
            happened.append(event)

    world.plugin.follow(Feed)
    world.take(cpu=[90])
    info = world.infos.of(pod())
    assert happened == [LoadMeasured()]
    assert not world.plugin.may_help(info, happened[0])
    clock.time += 10
    world.take(cpu=[20])
    assert world.plugin.may_help(info, happened[1])
    clock.time += 4
    assert world.plugin.ages(info) == {"cpu": 4}


async def test_both_resources_are_fetched_from_the_clusters_own_metrics(node, pod):
    class Client:
        asked = 0

        async def raw(self, method, path):
            self.asked += 1
            usage = {"cpu": "3800m", "memory": "1Gi"}
            return {"items": [{"metadata": {"name": "a"}, "usage": usage}]}

    world = World(node, SYSTEM, "ab", prometheusApiAddr="")
    client = Client()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        polling = group.create_task(world.plugin.background(client))
        while client.asked < 2 or len(world.plugin.ages(None)) < 2:
            await SYSTEM.sleep(0.005)
        polling.cancel()
    assert world.allowed(pod()) == "b"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"usageThresholds": {"disk": 5}}, "usageThresholds: 'disk' is not cpu or memory, nor"),
        ({"resourceWeights": {"disk": 5}}, "resourceWeights: 'disk' is not cpu or memory, nor"),
        (
            {"aggregated": {"usageThresholds": {"disk": 5}}},
            "aggregated.usageThresholds: 'disk' is not cpu or memory, nor named in metrics",
        ),
        (
            {**PROMETHEUS, **REQUESTS, "usageThresholds": {"httpRequests": 101}},
            "usageThresholds: httpRequests must be 0 to 100",
        ),
        (
            {**PROMETHEUS, **REQUESTS, "estimatedScalingFactors": {"httpRequests": 50}},
            "estimatedScalingFactors: 'httpRequests' is not cpu or memory",
        ),
        (REQUESTS, "'httpRequests' can only be had from a Prometheus, and no prometheusApiAddr"),
        ({**PROMETHEUS, "metrics": {"httpRequests": ""}}, "metrics must have names"),
        ({"usageThresholds": {"cpu": 101}}, "usageThresholds: cpu must be 0 to 100"),
        ({"resourceWeights": {"cpu": 0}}, "resourceWeights"),
        ({"aggregated": {"usageAggregationType": "p42"}}, "p42"),
        ({"aggregated": {"usageAggregatedDuration": "soon"}}, "soon"),
        ({"aggregated": {"usageAggregatedDuration": "48h"}}, "1s to 24h"),
        ({"nodeMetricExpirationSeconds": 5}, "nodeMetricExpirationSeconds"),
        ({"prometheusApiAddr": "10.0.0.1:9090"}, "must be a URL"),
        ({"thresholds": {}}, "thresholds"),
    ],
)
def test_arguments_are_checked(args, complaint):
    text = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "s",
                "plugins": {"multiPoint": {"enabled": [{"name": "LoadAware"}]}},
                "pluginConfig": [{"name": "LoadAware", "args": args}],
            }
        ],
    }
    configuration = profiles.parse(msgspec.json.encode(text).decode())
    with pytest.raises(profiles.ConfigError, match=complaint):
        profiles.build(
            configuration,
            Handle(Columns(), SYSTEM, images.ImageTable()),
            {**profiles.PLUGINS, "LoadAware": LoadAware},
        )


# -- what a Prometheus is to record ---------------------------------------------------------


def test_the_rules_record_what_the_plugins_ask_for():
    [group] = prometheus_rules.rules()["groups"]
    recorded = {rule["record"]: rule["expr"] for rule in group["rules"]}
    asked = {MemRealUsage.metric, CpuRealUsage.metric, *DEFAULT_METRICS.values()}
    assert set(recorded) == asked
    assert recorded[MemRealUsage.metric] == "avg_over_time(node_mem_usage[5m:1m])"
    assert 'mode="idle"' in recorded["node_cpu_usage"], "all that is not idle, not user time alone"


def test_requests_are_recorded_as_a_share_of_what_a_node_can_serve():
    options = ["--http-requests-metric", "web_requests_total", "--rate", "2m"]
    runner = CliRunner()
    done = runner.invoke(command, [*options, "--http-requests-per-node-max", "250"])
    [group] = yaml.safe_load(done.output)["groups"]
    assert group["rules"][-1] == {
        "record": "node_http_requests_percent",
        "expr": 'sum by (node) (rate(web_requests_total{node!=""}[2m])) * 100 / 250'
        " or node_cpu_usage * 0",
    }
    assert group["rules"][:-1] == prometheus_rules.rules(rate="2m")["groups"][0]["rules"]
    for wrong, words in (
        (options, "go together"),
        (["--http-requests-per-node-max", "5"], "go together"),
        ([*options, "--http-requests-per-node-max", "0"], "0.0 is not in the range"),
        (["--http-requests-metric", "a-b"], "'a-b' is no name of a metric"),
    ):
        refused = runner.invoke(command, wrong)
        assert refused.exit_code == 2
        assert words in refused.output


def test_the_rules_are_written_to_a_file_or_as_an_object(tmp_path):
    runner, target = CliRunner(), tmp_path / "rules.yml"
    done = runner.invoke(command, ["-o", str(target), "--window", "3m", "--step", "30s"])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(target.read_text()) == prometheus_rules.rules(window="3m", step="30s")
    shown = yaml.safe_load(runner.invoke(command, ["--operator"]).output)
    assert (shown["kind"], shown["spec"]) == ("PrometheusRule", prometheus_rules.rules())
    wrong = runner.invoke(command, ["--window", "long"])
    assert wrong.exit_code == 2
    assert "'long' is no duration" in wrong.output
    nowhere = runner.invoke(command, ["-o", str(tmp_path / "none/rules.yml")])
    assert nowhere.exit_code == 1
