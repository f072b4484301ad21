"""Plugins from users' files: found, refused, fenced in, and read anew."""

import asyncio
import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from motley.api.views.core import Node
from motley.lib.clock import SYSTEM
from motley.scheduler import guard, profiles, userplugins
from motley.scheduler.contract import Handle, PluginError
from motley.scheduler.cycle import Cycle
from motley.scheduler.feed import Feed
from motley.scheduler.hosting import Hosting
from motley.scheduler.plugins.registry import PLUGINS
from motley.scheduler.userplugins import PluginSource, SourceError, Sources

HEAD = "from motley.scheduler import contract\nimport numpy as np\n"
PLUGIN = """
class Mine:
    name = "Mine"
    reason = "mine said no"
    Args = contract.NoArgs

    def __init__(self, args, handle):
        self.handle = handle

    def {method}:
        {body}
"""
FILTER = {"method": "filter(self, pod, nodes)"}
SCORE = {"method": "score(self, pod, nodes)"}
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}]}}}]
"""


def write(directory, text, name="mine.py"):
    path = directory / name
    path.write_text(HEAD + text)
    return path


def loaded(directory, text):
    write(directory, text)
    return Sources([PluginSource("mine.py")], base=directory).load(PLUGINS)


def made(directory, *, handle, method, body):
    """An instance as the scheduler makes it."""
    cls = loaded(directory, PLUGIN.format(method=method, body=body))["Mine"]
    return cls(cls.Args(), handle)


def cycle(directory, cluster, **what):
    registry = loaded(directory, PLUGIN.format(**what))
    built = profiles.build(profiles.parse(CONFIG), cluster.handle, registry)
    return Cycle(built["default-scheduler"], cluster.nodes)


def test_a_file_gives_its_plugins_beside_the_built_in_ones(tmp_path):
    registry = loaded(tmp_path, PLUGIN.format(**FILTER, body="return nodes.live"))
    assert set(registry) == {*PLUGINS, "Mine"}
    assert registry["NodeName"] is PLUGINS["NodeName"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with a plugin, which it offers under an entry point."""
    write(tmp_path, PLUGIN.format(**SCORE, body="return None"), "offering.py")
    info = tmp_path / "offering-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1\n")
    points = "[motley.scheduler.plugins]\nMine = offering:Mine\nOther = gone:X\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("offering", None)


@pytest.mark.usefixtures("package")
def test_an_entry_point_names_a_class_of_an_installed_package():
    assert "Mine" in Sources([PluginSource(entry_point="offering:Mine")]).load(PLUGINS)
    with pytest.raises(SourceError, match=r"offering:Yours.*AttributeError"):
        Sources([PluginSource(entry_point="offering:Yours")]).load(PLUGINS)


@pytest.mark.usefixtures("package")
def test_packages_that_offer_plugins_are_loaded_only_when_named():
    assert "Mine" not in Sources([]).load(PLUGINS)
    assert "Mine" in Sources([], named=["Mine", "NodeName"]).load(PLUGINS)
    with pytest.raises(SourceError, match=r"gone:X.*ModuleNotFoundError"):
        Sources([], named=["Other"]).load(PLUGINS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = (", r"mine.py:3: SyntaxError"),
        ("\n\nimport nowhere_at_all", r"mine.py:5: ModuleNotFoundError: .*nowhere_at_all"),
        ("x = 1", "no plugin"),
        (PLUGIN.format(**FILTER, body="pass").replace("Args =", "Arg ="), "class Mine: `Args`"),
        (PLUGIN.format(**FILTER, body="pass").replace("reason", "reasons"), "needs a `reason`"),
        (PLUGIN.format(method="bind(self, pod, node, api)", body="pass"), "must be an `async def`"),
        (PLUGIN.format(**SCORE, body="pass").replace('"Mine"', '"NodeName"'), "is built in"),
        (
            PLUGIN.format(**SCORE, body="pass").replace("Args =", "wakes_on = 'Node'; Args ="),
            "tuple",
        ),
    ],
)
def test_what_cannot_be_loaded_says_where_and_why(tmp_path, text, complaint):
    with pytest.raises(SourceError, match=complaint):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("sources", "complaint"),
    [
        ("[{path: a.py, entryPoint: 'a:b'}]", "either"),
        ("[{}]", "either"),
        ("[{entryPoint: a}]", "package:Class"),
        ("[{file: a.py}]", "file"),
    ],
)
def test_a_source_that_means_nothing_is_refused(sources, complaint):
    with pytest.raises(profiles.ConfigError, match=complaint):
        profiles.parse(CONFIG + f"pluginSources: {sources}")


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ({**FILTER, "body": "1 / 0"}, r'plugin "Mine" failed at Filter: ZeroDivisionError'),
        ({**FILTER, "body": "return nodes.live.tolist()"}, "with list, not with an array"),
        ({**FILTER, "body": "return np.ones(1, bool)"}, r"shape \(1,\), not \(3,\)"),
        ({**FILTER, "body": "return np.ones(3)"}, "float64, not with booleans"),
        ({**SCORE, "body": "return None"}, r"at Score: WrongAnswer"),
        ({**SCORE, "body": "return np.full(3, 101.0)"}, "from 101 to 101, not 0 to 100"),
        ({**SCORE, "body": "return np.full(3, np.nan)"}, "scores from nan"),
        ({"method": "pre_filter(self, pod, nodes)", "body": "return 3"}, "PreFilter"),
        ({"method": "pre_score(self, pod, nodes, feasible)", "body": "return 3"}, "PreScore"),
    ],
)
def test_a_wrong_answer_fails_the_pods_cycle_and_names_the_plugin(
    tmp_path, cluster, node, pod, what, complaint
):
    cluster = cluster(*(node(n) for n in "abc"))
    with pytest.raises(PluginError, match=complaint):
        cycle(tmp_path, cluster, **what).schedule(cluster.info(pod()))


def test_a_right_answer_counts(tmp_path, cluster, node, pod):
    cluster = cluster(*(node(n) for n in "abc"))
    scoring = cycle(tmp_path, cluster, **SCORE, body="return np.array([1, 100, 3])")
    assert scoring.schedule(cluster.info(pod())).node == "b"
    refusing = cycle(tmp_path, cluster, **FILTER, body="return np.zeros(nodes.size, bool)")
    assert "3 mine said no" in refusing.schedule(cluster.info(pod())).message


GUIDE = Path(__file__).parents[3] / "docs/guides/writing-a-plugin.md"
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
# A policy that wants one node and no other, whatever the rules say.
POLICY = """
class Policy:
    name = "Policy"
    reason = "policy said no"
    Args = contract.NoArgs

    def __init__(self, args, handle):
        self.feasible = []

    def score(self, pod, nodes):
        return np.where(np.array(nodes.names) == "wanted", 100.0, 0.0)

    def normalize(self, pod, scores, feasible):
        self.feasible = np.flatnonzero(feasible).tolist()
        return scores
"""


def policies(directory, cluster, text=POLICY):
    """The profiles of the guide's configuration, with the policy in its file."""
    write(directory, text, "policy.py")
    examples = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    [written] = [text for text in examples if "policy-decides" in text]
    configuration = profiles.parse(written)
    registry = Sources(configuration.plugin_sources, base=directory).load(PLUGINS)
    return profiles.build(configuration, cluster.handle, registry)


@pytest.mark.parametrize(
    ("facts", "asks"),
    [
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}),
        ({"unschedulable": True}, {}),
        ({}, {"nodeSelector": {"kubernetes.io/hostname": "other"}}),
        ({"taints": [TAINT]}, {}),
    ],
    ids=["requests", "cordon", "selector", "taint"],
)
def test_a_policy_that_scores_never_places_a_pod_where_a_filter_refused(
    tmp_path, cluster, node, pod, facts, asks
):
    others = [node(n, labels={"kubernetes.io/hostname": "other"}) for n in ("x", "y")]
    world = cluster(node("wanted", **facts), *others)
    built = policies(tmp_path, world)
    chosen = {}
    for name, profile in built.items():
        cycle = Cycle(profile, world.nodes)
        chosen[name] = {cycle.schedule(world.info(pod(f"p{i}", **asks))).node for i in range(4)}
    assert "wanted" not in chosen["policy-advises"] | chosen["policy-chooses"]
    assert built["policy-chooses"].plugins["Policy"].feasible == [1, 2], "it knows what is left"
    if "taints" in facts:
        assert chosen["policy-decides"] == {"x", "y"}, "the one rule that the profile keeps"
    else:
        assert chosen["policy-decides"] == {"wanted"}
    for name in ("x", "y"):
        world.nodes.remove_node(name)
    alone = Cycle(built["policy-chooses"], world.nodes).schedule(world.info(pod("late", **asks)))
    assert alone.node is None, "rather nowhere than against a rule"


def test_a_policy_that_filters_decides_itself_but_only_among_what_the_rules_leave(
    tmp_path, cluster, node, pod
):
    world = cluster(node("wanted", cpu="1"), node("x"), node("y"))
    body = "return np.array(nodes.names) == 'wanted'"
    text = f"{POLICY}\n    def filter(self, pod, nodes):\n        {body}\n"
    built = policies(tmp_path, world, text)

    def decide(profile, cpu):
        return Cycle(built[profile], world.nodes).schedule(world.info(pod(requests={"cpu": cpu})))

    assert decide("policy-advises", "500m").node == "wanted"
    refused = decide("policy-advises", "2")
    assert refused.node is None
    assert "1 Insufficient cpu" in refused.message
    assert "2 policy said no" in refused.message


def test_what_must_not_fail_has_an_answer_to_fall_back_on(tmp_path, cluster, node, pod):
    cluster = cluster(node("a"))
    info = cluster.info(pod(priority=3))
    told = []
    cluster.handle.notices.listener = lambda *said: told.append(said)
    broken = {"handle": cluster.handle, "body": "raise OSError('oh')"}
    gate = made(tmp_path, method="pre_enqueue(self, pod)", **broken)
    assert "failed at PreEnqueue" in gate.pre_enqueue(info).reason
    assert told[0][1] == "PluginFailed"
    order = made(tmp_path, method="sort_key(self, pod, queued_at)", **broken)
    assert order.sort_key(info, 1.0) < order.sort_key(cluster.info(pod(priority=2)), 1.0)
    rejected = np.ones(1, np.bool_)
    for method, args, answer in (
        ("may_help(self, pod, event)", (info, None), True),
        ("unreserve(self, pod, node)", (info, "a"), None),
        ("explain(self, pod, nodes, rejected)", (info, None, rejected), {"mine said no": 1}),
    ):
        point = "filter(self, pod, nodes): return nodes.live\n\n    def " + method
        plugin = made(tmp_path, method=point, **broken)
        assert getattr(plugin, method.partition("(")[0])(*args) == answer


def test_a_slow_plugin_is_named_in_the_log_but_not_every_time(tmp_path, cluster, clock, caplog):
    handle = Handle(cluster().nodes, clock, cluster().handle.images)
    body = "self.handle.clock.time += 0.5; return np.zeros(nodes.size)"
    plugin = made(tmp_path, handle=handle, **SCORE, body=body)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            plugin.score(None, handle.nodes)
    said = [r for r in caplog.records if "plugin is slow" in r.getMessage()]
    assert len(said) == 1
    assert guard.SLOW_S < 0.5


async def test_files_are_read_anew_and_a_broken_one_changes_nothing(tmp_path):
    path = write(tmp_path, PLUGIN.format(**FILTER, body="return nodes.live"))
    sources = Sources([PluginSource("mine.py")], base=tmp_path)
    taken, refused = [], []
    first = sources.load(PLUGINS)["Mine"]
    modules = len([name for name in sys.modules if name.startswith("motley_plugin_")])

    async def take(registry):
        taken.append(registry["Mine"])
        if len(taken) == 2:
            raise profiles.ConfigError("not like that")

    async def until(condition):
        async with asyncio.timeout(10):
            while not condition():
                await SYSTEM.sleep(0.001)

    class Quick:
        now, monotonic = SYSTEM.now, SYSTEM.monotonic

        async def sleep(self, seconds):
            await SYSTEM.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        following = userplugins.follow(sources, PLUGINS, take, refused.append, clock=Quick())
        task = group.create_task(following)
        write(tmp_path, PLUGIN.format(**FILTER, body="return ~nodes.live"))
        await until(lambda: len(taken) == 1)
        path.write_text("def broken(")
        await until(lambda: len(refused) == 1)
        write(tmp_path, PLUGIN.format(**FILTER, body="return nodes.live & True"))
        await until(lambda: len(refused) == 2)
        task.cancel()
    assert taken[0] is not first
    assert len([name for name in sys.modules if name.startswith("motley_plugin_")]) == modules
    assert "mine.py:1: SyntaxError" in refused[0]
    assert refused[1] == "not like that"


def test_unchanged_plugins_stay_with_what_they_know(tmp_path, cluster):
    handle = cluster().handle
    text = PLUGIN.format(**FILTER, body="return nodes.live")
    before = profiles.build(profiles.parse(CONFIG), handle, loaded(tmp_path, text))
    after = profiles.build(profiles.parse(CONFIG), handle, loaded(tmp_path, text), before)
    old, new = (p["default-scheduler"].plugins for p in (before, after))
    assert new["NodeResourcesFit"] is old["NodeResourcesFit"]
    assert new["Mine"] is not old["Mine"]


class Follower:
    """A plugin with handlers and a task."""

    name = "Follower"
    is_guarded = True

    def __init__(self):
        self.seen, self.works, self.first = [], 0, None

    def follow(self, feed):
        self.first = feed.once("book")
        feed.informer(Node).add_handler(lambda change: self.seen.append(change.key.name))

    async def background(self, client):
        self.works += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.works -= 1


async def test_a_plugin_that_goes_takes_its_handlers_and_its_task_with_it(node):
    feed = Feed(None, lambda event: None)
    informer = feed.informer(Node)
    informer._cache.synced.set()

    async def run():
        await asyncio.Event().wait()

    informer.run = run
    hosting, old, new = Hosting(None, feed), Follower(), Follower()
    hosting.adopt(old)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(hosting.run())
        while not old.works:
            await SYSTEM.sleep(0)
        informer._cache._put(("", "a"), node("a"))
        hosting.adopt(new)
        hosting.release(old)
        while old.works or not new.works:
            await SYSTEM.sleep(0)
        informer._cache._put(("", "b"), node("b"))
        task.cancel()
    assert old.seen == ["a"]
    assert new.seen == ["a", "b"]  # all there was, then what came
    assert (old.first, new.first) == (True, False)
    late = Follower()
    hosting.adopt(late)
    assert late.first  # the claim went with its owner
