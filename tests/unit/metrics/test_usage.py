"""From what an agent writes to what pods and nodes use."""

import pytest

from motley.api.views.pod import Pod
from motley.metrics import exposition, scripted
from motley.metrics.exposition import ContainerKey, Point, Scrape
from motley.metrics.usage import Pair, Usage, Use, paired, use
from motley.node import stats
from motley.node.summary import ContainerSample, PodSample
from motley.node.usage import Cpu, GroupUsage, Memory

WEB = ContainerKey("ns", "web", "c")
STAT = "cpu  100 10 50 9000 70 5 5 30 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\n"


def test_what_the_agent_writes_can_be_read():
    used = GroupUsage(Cpu(100.5, 12.25), Memory(working_set=4096))
    pod = Pod.of({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}})
    sample = PodSample(pod, used, [ContainerSample("c", 50.0, used)])
    node = stats.Machine(101.0, 7.5, 1 << 20)

    text = stats.exposition([sample], node)

    assert (
        'container_cpu_usage_seconds_total{container="c",namespace="ns",pod="web"} 12.25 100500'
        in (text.splitlines())
    )
    assert exposition.parse(text, 0.0) == Scrape(
        Point(101.0, 7.5, 1 << 20), {WEB: Point(100.5, 12.25, 4096, 50.0)}
    )


def test_the_machine_is_read_from_proc():
    assert stats.busy_ticks(STAT) == 200
    assert stats.working_set_bytes(MEMINFO) == 500 * 1024
    assert stats.machine(1.0).cpu_s > 0


def test_text_that_is_no_exposition_is_refused():
    with pytest.raises(ValueError, match="not a line of metrics"):
        exposition.parse("<html>", 0.0)


def test_a_rate_is_the_difference_of_two_points():
    pair = paired(paired(None, Point(100.0, 10.0, 5)), Point(115.0, 14.5, 7))
    assert use(pair) == Use(115.0, 15.0, 300_000_000, 7)


def test_a_young_container_is_measured_from_its_start():
    assert use(Pair(None, Point(100.0, 5.0, 1, started_at=80.0))).cpu_nano == 250_000_000
    assert use(Pair(None, Point(100.0, 5.0, 1, started_at=95.0))) is None
    assert use(Pair(None, Point(100.0, 5.0, 1, started_at=0.0))) is None
    assert use(Pair(None, Point(4000.0, 5.0, 1, started_at=80.0))) is None


def test_a_counter_that_went_back_began_anew():
    pair = paired(Pair(Point(85.0, 9.0, 1), Point(100.0, 10.0, 1)), Point(115.0, 1.0, 1))
    assert use(pair) is None


def test_the_same_moment_again_changes_nothing():
    pair = Pair(Point(85.0, 9.0, 1), Point(100.0, 10.0, 1))
    assert paired(pair, Point(100.0, 10.0, 1)) == pair


def test_measuring_begins_anew_when_the_clock_was_put_back():
    pair = Pair(Point(4000.0, 9.0, 1), Point(4015.0, 10.0, 1))
    assert paired(pair, Point(430.0, 11.0, 1)) == Pair(None, Point(430.0, 11.0, 1))
    assert paired(pair, Point(4010.0, 10.0, 1)) == pair  # an answer that was overtaken


def test_a_pod_is_shown_when_all_its_containers_are_known():
    other = WEB._replace(container="d")
    usage = Usage(keep_s=30.0)
    usage.take("n", Scrape(None, {WEB: Point(100.0, 1.0, 1)}))
    usage.take("n", Scrape(None, {WEB: Point(115.0, 2.0, 1), other: Point(115.0, 1.0, 1)}))
    assert usage.pods(116.0) == {}
    usage.take("n", Scrape(None, {WEB: Point(130.0, 3.0, 1), other: Point(130.0, 2.0, 1)}))
    assert set(usage.pods(131.0)["ns", "web"].containers) == {"c", "d"}
    assert usage.pods(200.0) == {}, "an agent that fell silent is not believed for ever"
    usage.keep_only([])
    assert usage.pods(131.0) == {}


def test_a_pod_of_a_fake_node_says_what_it_uses():
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "annotations": {"fake.motley.io/usage": "cpu=500m, memory=10Mi"},
        },
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": "Running"},
    }
    found = scripted.usage(pod, 7.0, 15.0)
    assert found == {
        ContainerKey("ns", "p", name): Use(7.0, 15.0, 250_000_000, 5 << 20) for name in "ab"
    }
    assert scripted.total(found.values(), 7.0, 15.0) == Use(7.0, 15.0, 500_000_000, 10 << 20)
    pod["metadata"]["annotations"]["fake.motley.io/usage"] = "gpu=1"
    with pytest.raises(ValueError, match="is not cpu=QUANTITY"):
        scripted.usage(pod, 7.0, 15.0)
    pod["status"]["phase"] = "Pending"
    assert scripted.usage(pod, 7.0, 15.0) == {}
