"""MemRealUsage and CpuRealUsage: scores by what nodes use, from sources that may fail."""

import asyncio
import itertools
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from motley.api import status
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM, rfc3339
from motley.scheduler import images, profiles
from motley.scheduler.columns import MEMORY_ROW, Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.plugins import measured
from motley.scheduler.plugins.cpu_real_usage import CpuRealUsage
from motley.scheduler.plugins.measured import Measurements, Requested, SourceError
from motley.scheduler.plugins.mem_real_usage import MemRealUsage
from motley.scheduler.plugins.real_usage import RealUsageArgs
from motley.scheduler.podinfo import PodInfos

EXAMPLE = Path(__file__).parents[3] / "examples/realusage/scheduler-config.yaml"
PROMETHEUS = {"prometheusApiAddr": "http://127.0.0.1:9"}


class World:
    """Nodes of 8 Gi, a plugin with a clock of its own, and what was measured."""

    def __init__(self, node, clock, names, cls=MemRealUsage, **args):
        self.nodes = Columns()
        for name in names:
            self.nodes.set_node(node(name))
        self.clock, self.infos = clock, PodInfos()
        self.handle = Handle(self.nodes, clock, images.ImageTable())
        self.plugin = cls(msgspec.convert({**PROMETHEUS, **args}, RealUsageArgs), self.handle)

    def scores(self, pod, feasible=None):
        info = self.infos.of(pod)
        mask = self.nodes.live if feasible is None else np.array(feasible)
        scores = self.plugin.normalize(info, self.plugin.score(info, self.nodes), mask)
        return [float(score) for score in scores]


@pytest.fixture
def world(node, clock):
    return World(node, clock, ["node-01", "node-02", "node-03"])


def take(world, *percent):
    """Believe these figures; None: a node that the source leaves out."""
    names = world.nodes.names
    world.plugin.take({n: p for n, p in zip(names, percent, strict=True) if p is not None})


# -- scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "scores"),
    [
        ([33, 13, 13], [0, 100, 100]),  # the document's own example
        ([33.9, 13.1, 13.8], [0, 100, 100]),  # whole percent
        ([10, 20, 30], [100, 50, 0]),
        ([0, 33, 100], [100, 67, 0]),
        ([14, 13, 13], [90, 100, 100]),  # noise
        ([50, 50, 50], [0, 0, 0]),  # no preference
        ([13, None, 33], [100, 50, 0]),  # unknown is average
        ([None, None, 33], [0, 0, 0]),
        ([None, None, None], [0, 0, 0]),
    ],
)
def test_use_is_turned_round(world, pod, used, scores):
    take(world, *used)
    assert world.scores(pod()) == scores


def test_only_feasible_nodes_are_compared(world, pod):
    take(world, 90, 40, 20)
    assert world.scores(pod(), [False, True, True])[1:] == [0, 100]


def test_before_the_first_answer_no_node_is_preferred(world, pod):
    assert world.scores(pod()) == [0, 0, 0]


def test_old_figures_are_forgotten(world, pod):
    take(world, 33, 13, 13)
    world.clock.time += 40
    assert world.scores(pod()) == [0, 100, 100]
    world.clock.time += 1
    assert world.scores(pod()) == [0, 0, 0]


def test_a_node_that_the_source_leaves_out_keeps_its_figure_for_a_while(world, pod):
    take(world, 33, 13, 13)
    for _ in range(4):
        world.clock.time += 10
        take(world, None, 13, 23)
        assert world.scores(pod())[0] == 0
    world.clock.time += 10
    take(world, None, 13, 23)
    assert world.scores(pod()) == [50, 100, 0]


def test_rows_of_removed_nodes_belong_to_others(world, node, pod):
    take(world, 33, 13, 13)
    world.nodes.remove_node("node-01")
    world.nodes.set_node(node("node-04"))
    assert world.nodes.rows["node-04"] == 0
    assert world.scores(pod()) == [0, 0, 0]  # nothing known about it: as the others, 13


@given(
    st.lists(st.none() | st.floats(0, 100, allow_nan=False), min_size=1, max_size=30),
    st.data(),
)
def test_scores_are_whole_between_0_and_100_and_follow_use(used, data):
    scores = np.array([np.nan if u is None else np.floor(u) for u in used])
    feasible = np.array([data.draw(st.booleans()) for _ in used])
    if not feasible.any():
        return
    plugin = MemRealUsage(RealUsageArgs(), Handle(Columns(), SYSTEM, images.ImageTable()))
    plugin._nodes = None  # only the log asks for names
    info = PodInfos().of(Pod.of({"metadata": {"name": "p"}}))
    info.state["MemRealUsage"] = np.zeros(len(used))
    found = plugin.normalize(info, scores, feasible)[feasible]
    assert (found == np.floor(found)).all()
    assert ((found >= 0) & (found <= 100)).all()
    use = scores[feasible]
    known = np.isfinite(use)
    order = np.argsort(use[known], kind="stable")
    assert (np.diff(found[known][order]) <= 0).all()


def test_ages_are_known_until_nothing_recent_is(world, pod):
    info = world.infos.of(pod())
    assert world.plugin.ages(info) == {}
    take(world, 33, 13, 13)
    world.clock.time += 7
    assert world.plugin.ages(info) == {"memory": 7}
    world.clock.time += 3600
    assert world.plugin.ages(info) == {}


def test_original_and_adjusted_scores_of_every_node_are_logged(world, pod, caplog):
    caplog.set_level("DEBUG", "motley.scheduler.plugins.real_usage")
    take(world, 33, 13, 13)
    world.scores(pod())
    (line,) = [r for r in caplog.records if r.message == "nodes scored by use"]
    assert str(line.fields["scores"]) == "node-01:33→0,node-02:13→100,node-03:13→100"


# -- bursts ---------------------------------------------------------------------------------


def test_a_burst_does_not_go_to_one_node(node, pod, clock):
    world = World(node, clock, ["busy", "idlest", "idle"])
    take(world, 33, 12, 13)
    configuration = profiles.parse(EXAMPLE.read_text())
    profile = profiles.build(configuration, world.handle)["mem-real-usage-scheduler"]
    profile.score[:] = [(world.plugin, 1)]
    cycle, counts = Cycle(profile, world.nodes), dict.fromkeys(world.nodes.names, 0)
    for i in range(30):
        info = world.infos.of(pod(f"p{i}", requests={"cpu": "50m", "memory": "100Mi"}))
        chosen = cycle.schedule(info).node
        counts[chosen] += 1
        world.nodes.add_pod(info, chosen, assumed=True)
        if i % 10 == 9:  # five-minute averages hardly move meanwhile
            world.clock.time += 10
            take(world, 33, 12, 13)
    assert counts["busy"] == 0
    assert abs(counts["idlest"] - counts["idle"]) <= 2


WALL = 1_800_000_000.0


def started(pod, at):
    pod.status.start_time = rfc3339(at)
    return pod


def test_pods_count_until_the_average_shows_them(node, pod, clock):
    world = World(node, clock, ["a"])
    requested = Requested(window_s=300)
    old = world.infos.of(started(pod("old", requests={"memory": "1Gi"}), 0.0))
    world.nodes.add_pod(old, "a")
    requested.snapshot(world.nodes, MEMORY_ROW, 0.0, WALL)
    assert requested.unseen(world.nodes, MEMORY_ROW).tolist() == [0]  # measured long ago
    world.nodes.add_pod(world.infos.of(pod("new", requests={"memory": "3Gi"})), "a")
    seen = []
    for now in range(10, 321, 10):
        requested.snapshot(world.nodes, MEMORY_ROW, float(now), WALL + now)
        seen.append(requested.unseen(world.nodes, MEMORY_ROW)[0] / 1024**3)
    assert seen[0] == 3
    assert seen[15] == pytest.approx(1.5)
    assert seen[-1] == pytest.approx(0, abs=1e-6)
    assert all(a >= b for a, b in itertools.pairwise(seen))
    assert len(requested._snapshots) <= 32


def test_pods_that_left_are_not_taken_off_what_was_measured(node, pod, clock):
    world = World(node, clock, ["a"])
    world.nodes.add_pod(world.infos.of(pod("p", requests={"memory": "1Gi"})), "a")
    requested = Requested(window_s=300)
    requested.snapshot(world.nodes, MEMORY_ROW, 0.0, WALL)
    world.nodes.remove_pod("p")
    assert requested.unseen(world.nodes, MEMORY_ROW).tolist() == [0]


@pytest.mark.parametrize(
    ("ago_s", "unseen"), [(None, 0.8), (0.0, 1.0), (30.0, 0.9), (150.0, 0.5), (301.0, 0.0)]
)
def test_a_scheduler_that_takes_over_knows_what_was_placed_a_moment_ago(
    node, pod, clock, ago_s, unseen
):
    world = World(node, clock, ["a", "b"])
    taken = pod("p", requests={"memory": "1Gi"})
    taken.metadata.creation_timestamp = rfc3339(WALL - 60)
    if ago_s is not None:
        started(taken, WALL - ago_s)
    world.nodes.add_pod(world.infos.of(taken), "b")
    requested = Requested(window_s=300)
    requested.snapshot(world.nodes, MEMORY_ROW, 7.0, WALL)
    assert requested.unseen(world.nodes, MEMORY_ROW).tolist() == [0, unseen * 1024**3]


# -- sources --------------------------------------------------------------------------------


def vector(*series):
    result = [{"metric": metric, "value": [1.5, value]} for metric, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_series_without_a_node_and_values_that_are_none_are_left_out():
    answer = vector(
        ({"node": "a", "job": "x"}, "33.5"),
        ({"instance": "10.0.0.1"}, "99"),
        ({"node": "b"}, "NaN"),
        ({"node": "c"}, "+Inf"),
        ({"node": "d"}, "10"),
        ({"node": "d"}, "20"),
    )
    assert measured.parse(msgspec.json.encode(answer)) == {"a": 33.5, "d": 20.0}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b'{"status": "error", "error": "query timed out"}',
        b'{"status": "success", "data": {"result": [{"metric": {"node": "a"}, "value": [1, 2]}]}}',
        b'{"status":"success","data":{"result":[{"metric":{"node":"a"},"value":[1,"x"]}]}}',
        b'{"status":"success","more":' + b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_an_error(body):
    with pytest.raises(SourceError):
        measured.parse(body)


@asynccontextmanager
async def prometheus(handler):
    """A scripted server in Prometheus' place; its address."""
    app = web.Application()
    app.router.add_get("/api/v1/query", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        await web.SockSite(runner, listening).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            await runner.cleanup()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await SYSTEM.sleep(0.005)


class HastyClock:
    """Sleeps are short, and noted; the time goes on by what was asked for."""

    def __init__(self):
        self.slept, self.time = [], 0.0

    def now(self):
        return self.time

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds
        await SYSTEM.sleep(0.001)


@pytest.mark.parametrize(
    ("cls", "metric"),
    [(MemRealUsage, "node_mem_usage_avg_5m"), (CpuRealUsage, "node_cpu_usage_avg_5m")],
)
async def test_prometheus_is_asked_in_the_background(node, pod, cls, metric):
    asked = []

    async def answer(request):
        asked.append(dict(request.query))
        return web.json_response(
            vector(({"node": "a"}, "33"), ({"node": "b"}, "13"), ({"node": "c"}, "13"))
        )

    async with prometheus(answer) as address, asyncio.TaskGroup() as group:
        world = World(node, HastyClock(), "abc", cls, prometheusApiAddr=address + "/")
        polling = group.create_task(world.plugin.background(None))
        await until(lambda: len(asked) > 2)
        scores = world.scores(pod())
        polling.cancel()
    assert scores == [0, 100, 100]
    assert asked[0] == {"query": metric, "timeout": "10s"}
    assert set(world.clock.slept) == {10}


async def test_a_failing_prometheus_is_asked_less_and_less_and_believed_again(node, pod):
    asked = 0

    async def answer(request):
        nonlocal asked
        asked += 1
        if asked <= 2:
            return web.Response(status=503, text="not ready")
        if asked == 3:
            return web.Response(text="<html>")
        return web.json_response(vector(({"node": "a"}, "50"), ({"node": "b"}, "20")))

    async with prometheus(answer) as address, asyncio.TaskGroup() as group:
        world = World(node, HastyClock(), "ab", prometheusApiAddr=address)
        polling = group.create_task(world.plugin.background(None))
        await until(lambda: asked > 4)
        scores = world.scores(pod())
        polling.cancel()
    assert scores == [0, 100]
    first, second, third, *rest = world.clock.slept
    assert 5 <= first <= 10
    assert 10 <= second <= 20
    assert 20 <= third <= 40
    assert set(rest) == {10}


async def test_an_answer_that_does_not_come_is_not_waited_for(node):
    async def answer(request):
        await SYSTEM.sleep(30)
        return web.json_response(vector())

    async with prometheus(answer) as address, asyncio.TaskGroup() as group:
        clock = HastyClock()
        world = World(node, clock, "ab", prometheusApiAddr=address, queryMetricTimeSeconds=1)
        polling = group.create_task(world.plugin.background(None))
        await until(lambda: clock.slept)
        polling.cancel()


@pytest.mark.parametrize("host", ["prometheus..svc:9090", "user:secret@x:99999"])
async def test_a_name_that_is_none_is_an_error_that_tells_no_secret(host):
    async with aiohttp.ClientSession() as session:
        source = measured.Prometheus(session, f"http://{host}", "m", 1.0)
        with pytest.raises(SourceError) as raised:
            await source.fetch()
    assert "secret" not in str(raised.value)


def refused(asked):
    return web.Response(status=503, text="not ready")


def of_others(asked):
    return web.json_response(vector(({"node": "10.0.0.1:9100"}, "50")))


def in_between(asked):
    good = asked in (1, 9)
    return web.json_response(vector(({"node": "a"}, "50"))) if good else refused(asked)


@pytest.mark.parametrize(
    ("answers", "times", "why"),
    [
        (refused, 1, "not an answer of Prometheus"),
        (of_others, 1, "the answer has 1 nodes, none of which is in this cluster"),
        (in_between, 2, "not an answer of Prometheus"),
    ],
)
async def test_an_event_tells_once_that_nothing_measured_counts(node, answers, times, why):
    asked, told = 0, []

    async def answer(request):
        nonlocal asked
        asked += 1
        return answers(asked)

    async with prometheus(answer) as address, asyncio.TaskGroup() as group:
        clock = HastyClock()
        world = World(node, clock, "ab", prometheusApiAddr=address)
        world.handle.notices.listener = lambda *said: told.append((clock.time, *said))
        polling = group.create_task(world.plugin.background(None))
        await until(lambda: asked > 14 or clock.time > 1500)
        polling.cancel()
    assert len(told) == times
    at, about, reason, message = told[0]
    assert at > 40, "until then the last figures count"
    assert (about, reason) == (None, "MeasurementsMissing")
    assert message.startswith("MemRealUsage: no measurements of memory for ")
    assert why in message


class FakeClient:
    def __init__(self, *answers):
        self.answers, self.paths = list(answers), []

    async def raw(self, method, path):
        self.paths.append((method, path))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("cls", "scores"), [(MemRealUsage, [0, 100, 50]), (CpuRealUsage, [100, 0, 50])]
)
async def test_without_a_prometheus_the_clusters_own_metrics_are_asked_for(node, pod, cls, scores):
    usage = {"a": ("400m", "4Gi"), "b": ("2", "2147483648")}  # of 4 cores and 8 Gi
    items = [
        {"metadata": {"name": name}, "usage": {"cpu": cpu, "memory": memory}}
        for name, (cpu, memory) in usage.items()
    ]
    client = FakeClient(status.ServiceUnavailable("no metrics yet"), {"items": items})
    world = World(node, HastyClock(), "abc", cls, prometheusApiAddr="")
    async with asyncio.TaskGroup() as group:
        polling = group.create_task(world.plugin.background(client))
        await until(lambda: len(client.paths) > 2)
        found = world.scores(pod())
        polling.cancel()
    assert found == scores
    assert client.paths[0] == ("GET", "/apis/metrics.k8s.io/v1beta1/nodes")


HUGE = {"metadata": {"name": "a"}, "usage": {"cpu": "999999999999999999e300"}}


@pytest.mark.parametrize("items", [[{}], [HUGE], 1])
async def test_a_list_that_is_none_is_an_error(items):
    with pytest.raises(SourceError):
        await measured.ResourceMetrics(FakeClient({"items": items}), "cpu").fetch()


def test_a_column_is_made_once_per_answer(node, clock):
    world = World(node, clock, "ab")
    figures = Measurements(stale_s=40)
    figures.take({"a": 1.0}, 0.0)
    first = figures.percent(world.nodes, MEMORY_ROW, 0.0)
    assert figures.percent(world.nodes, MEMORY_ROW, 39.0) is first
    world.nodes.set_node(node("a", images={"an-image": 1}))
    assert figures.percent(world.nodes, MEMORY_ROW, 39.0) is first, "whatever else nodes change"
    figures.take({"a": 2.0}, 39.0)
    assert figures.percent(world.nodes, MEMORY_ROW, 39.0)[0] == 2


def test_amounts_are_shares_of_what_a_node_has_now(node, clock):
    world = World(node, clock, "ab")
    figures = Measurements(stale_s=40, is_percent=False)
    figures.take({"a": 1024.0**3}, 0.0)
    assert figures.percent(world.nodes, MEMORY_ROW, 0.0)[0] == 12.5
    world.nodes.set_node(node("a", memory="2Gi"))
    assert figures.percent(world.nodes, MEMORY_ROW, 0.0)[0] == 50
    world.nodes.remove_node("a")
    world.nodes.set_node(node("c"))
    assert np.isnan(figures.percent(world.nodes, MEMORY_ROW, 0.0)).all()


# -- arguments ------------------------------------------------------------------------------


def test_the_documents_configuration_loads():
    handle = Handle(Columns(), SYSTEM, images.ImageTable())
    profile = profiles.build(profiles.parse(EXAMPLE.read_text()), handle)[
        "mem-real-usage-scheduler"
    ]
    assert [plugin.name for plugin, _ in profile.score] == ["MemRealUsage"]
    assert "NodeResourcesFit" in [plugin.name for plugin in profile.filter]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"prometheusApiAddr": "10.96.0.102:9090"}, "must be a URL"),
        ({"queryMetricTimeSeconds": 0}, "queryMetricTimeSeconds"),
        ({"queryMetricIntervalSeconds": -1}, "queryMetricIntervalSeconds"),
        ({"queryMetricIntervalSeconds": "10"}, "queryMetricIntervalSeconds"),
        ({"address": "http://x"}, "address"),
    ],
)
def test_arguments_are_checked(args, complaint):
    text = EXAMPLE.read_text()
    configuration = profiles.parse(text)
    configuration.profiles[0].plugin_config[0].args.update(args)
    with pytest.raises(profiles.ConfigError, match=complaint):
        profiles.build(configuration, Handle(Columns(), SYSTEM, images.ImageTable()))
