"""HTTP extenders: their configuration, the wire, and what their answers mean to a pod."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from motley.lib.clock import SYSTEM
from motley.scheduler import profiles
from motley.scheduler.contract import Nomination, PluginError, Reject
from motley.scheduler.cycle import Cycle
from motley.scheduler.extenders import ExtenderConfig, ExtenderError, HttpExtender
from motley.scheduler.opinions import Extenders, Opinion
from motley.scheduler.profiles import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Answers:
    """An extender's web server: answers by verb, and what it was asked."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.status = 200

    async def answer(self, request):
        verb = request.match_info["verb"]
        body = await request.json()
        self.asked.append((verb, body))
        assert request.content_type == "application/json"
        answer = self.answers[verb]
        if callable(answer):
            answer = answer(body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return web.Response(status=self.status, text=json.dumps(answer))


@asynccontextmanager
async def serving(answers):
    app = web.Application()
    app.router.add_post("/{verb}", answers.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


class Api:
    """The one read that asking needs."""

    async def document(self, cls, name, namespace=""):
        return {"metadata": {"name": name, "annotations": {"whole": "yes"}}}


@asynccontextmanager
async def connected(*written):
    """The plugin of these extenders, with its connections open."""
    plugin = Extenders(written)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(plugin.background(Api()))
        try:
            yield plugin
        finally:
            task.cancel()


def _parse(extenders):
    return profiles.parse(HEAD + "extenders:\n- " + extenders)


def test_the_configuration_is_kubernetes_own():
    parsed = _parse(
        "{urlPrefix: 'https://x/s', filterVerb: f, prioritizeVerb: p, preemptVerb: e, bindVerb: b,"
        " weight: 3, enableHTTPS: true, httpTimeout: 2s, nodeCacheCapable: true, ignorable: true,"
        " managedResources: [{name: example.com/gpu, ignoredByScheduler: true}],"
        " tlsConfig: {insecure: true, serverName: x}}"
    ).extenders[0]
    assert (parsed.timeout_s, parsed.weight, parsed.node_cache_capable) == (2.0, 3, True)
    assert parsed.managed_resources[0].ignored_by_scheduler
    assert _parse("{urlPrefix: 'http://x'}").extenders[0].timeout_s == 5.0


@pytest.mark.parametrize(
    ("extenders", "complaint"),
    [
        ("{urlPrefix: 'ftp://x'}", "urlPrefix 'ftp://x'"),
        ("{urlPrefix: 'http://x', prioritizeVerb: p}", "positive weight"),
        ("{urlPrefix: 'http://x', filters: p}", "filters"),
        ("{urlPrefix: 'http://x', httpTimeout: soon}", "soon"),
        ("{urlPrefix: 'http://x', managedResources: [{name: cpu}]}", "'cpu' is no extended"),
        (
            "{urlPrefix: 'http://x', bindVerb: b}\n- {urlPrefix: 'http://y', bindVerb: b}",
            "only one",
        ),
    ],
)
def test_what_means_nothing_is_an_error_that_names_it(extenders, complaint):
    with pytest.raises(ConfigError, match=complaint):
        _parse(extenders)


def test_a_resource_ignored_by_the_scheduler_is_left_to_its_extender(cluster, node, pod):
    cluster = cluster(node("a"))
    extender = (
        "{urlPrefix: 'http://x', managedResources: [{name: e.com/gpu, ignoredByScheduler: %s}]}"
    )
    for ignored, feasible in (("true", ["a"]), ("false", [])):
        built = profiles.build(_parse(extender % ignored), cluster.handle)["default-scheduler"]
        cycle = Cycle(built, cluster.nodes)
        assert cycle.feasible(cluster.info(pod(requests={"e.com/gpu": "1"}))) == feasible


def test_only_pods_with_managed_resources_are_an_extenders_business(cluster, node, pod):
    info = cluster().info
    all_pods = HttpExtender(ExtenderConfig("http://x"))
    some = _parse("{urlPrefix: 'http://x', managedResources: [{name: e.com/gpu}]}").extenders[0]
    assert all_pods.is_interested(info(pod()))
    assert not HttpExtender(some).is_interested(info(pod(requests={"cpu": "1"})))
    assert HttpExtender(some).is_interested(info(pod(requests={"e.com/gpu": "1"})))


async def test_an_extender_is_told_names_or_whole_nodes_and_answers_in_any_case(cluster, pod):
    server = Answers(
        f={"nodenames": ["b"], "failedNodes": {"a": "no licence"}, "Error": ""},
        g={"Nodes": {"items": [{"metadata": {"name": "a"}}]}, "FailedNodes": None},
        p=[{"Host": "a", "Score": 7}, {"host": "b", "score": 2}],
    )
    document = {"metadata": {"name": "p"}}
    async with serving(server) as url, aiohttp.ClientSession() as session:
        names = HttpExtender(ExtenderConfig(url, filter_verb="f", node_cache_capable=True))
        found = await names.filter(session, document, {}, ["a", "b"])
        assert (found.names, found.failed) == (["b"], {"a": "no licence"})
        whole = HttpExtender(ExtenderConfig(url, filter_verb="g", prioritize_verb="p", weight=3))
        nodes = {"a": {"metadata": {"name": "a"}, "status": {"x": 1}}, "b": {}}
        assert (await whole.filter(session, document, nodes, ["a", "b"])).names == ["a"]
        assert await whole.prioritize(session, document, nodes, ["a", "b"]) == {"a": 210, "b": 60}
    assert server.asked[0] == (
        "f",
        {"Pod": document, "Nodes": None, "NodeNames": ["a", "b"]},
    )
    assert server.asked[1][1]["Nodes"]["items"][0]["status"] == {"x": 1}
    assert server.asked[1][1]["NodeNames"] is None


async def _never(_body=None):
    await SYSTEM.sleep(60)


@pytest.mark.parametrize(
    ("answer", "status", "complaint"),
    [
        ({"Error": "out of order"}, 200, "out of order"),
        ({}, 500, "code 500"),
        ([], 200, "no object"),
        ({"NodeNames": ["z"]}, 200, "'z' which is not found"),
        ({"NodeNames": "z"}, 200, "no list"),
        (_never, 200, "no answer within 0.05 s"),
    ],
)
async def test_whatever_an_extender_does_wrong_names_it(answer, status, complaint):
    server = Answers(f=answer)
    server.status = status
    async with serving(server) as url, aiohttp.ClientSession() as session:
        config = ExtenderConfig(url, filter_verb="f", node_cache_capable=True, http_timeout="50ms")
        with pytest.raises(ExtenderError, match=complaint):
            await HttpExtender(config).filter(session, {}, {}, ["a"])


async def test_extenders_filter_one_after_the_other_and_score_together(cluster, node, pod):
    one = Answers(
        f={"NodeNames": ["a", "c"], "FailedAndUnresolvableNodes": {"b": "broken"}},
        p=[{"Host": "a", "Score": 1}, {"Host": "c", "Score": 3}],
    )
    two = Answers(f=lambda body: {"NodeNames": body["NodeNames"]}, p=[{"Host": "a", "Score": 10}])
    info = cluster(*(node(n) for n in "abc")).info(pod())
    verbs = {"filter_verb": "f", "prioritize_verb": "p", "node_cache_capable": True}
    async with (
        serving(one) as first,
        serving(two) as second,
        connected(
            ExtenderConfig(first, weight=1, **verbs), ExtenderConfig(second, weight=2, **verbs)
        ) as plugin,
    ):
        opinion = await plugin.ask(info, ["a", "b", "c"])
    assert opinion.failed == {"b": "broken"}
    assert opinion.unresolvable == {"b"}
    assert opinion.scores == {"a": 10 + 200, "c": 30}
    assert two.asked[0][1]["NodeNames"] == ["a", "c"]
    assert one.asked[0][1]["Pod"]["metadata"]["annotations"] == {"whole": "yes"}


async def test_an_extender_that_fails_fails_the_pod_unless_it_is_ignorable(cluster, pod):
    info = cluster().info(pod())
    gone = "http://127.0.0.1:9"  # the discard port: nobody there
    async with connected(ExtenderConfig(gone, filter_verb="f")) as plugin:
        with pytest.raises(PluginError, match=r'plugin "Extender" failed at Filter.*127.0.0.1:9'):
            await plugin.ask(info, ["a"])
    async with connected(ExtenderConfig(gone, filter_verb="f", ignorable=True)) as plugin:
        assert (await plugin.ask(info, ["a"])).failed == {}


def test_an_opinion_filters_scores_and_explains_in_the_cycle(cluster, node, pod):
    cluster = cluster(*(node(n) for n in "abcd"))
    built = profiles.build(_parse("{urlPrefix: 'http://x', filterVerb: f}"), cluster.handle)
    profile = built["default-scheduler"]
    plugin, cycle = profile.plugins["Extender"], Cycle(profile, cluster.nodes)
    info = cluster.info(pod())
    assert len(cycle.feasible(info)) == 4  # without an opinion it says nothing
    opinion = Opinion(frozenset("abc"), failed={"a": "no licence"}, scores={"c": 500.0})
    plugin.hold(info, opinion)
    assert cycle.schedule(info).node == "c"
    opinion.scores = {"d": 500.0}
    assert cycle.schedule(info).node == "d"  # not asked about: the caller asks again
    opinion.only_asked = True
    assert cycle.schedule(info).node in ("b", "c")
    opinion.failed = {"a": "no licence", "b": "no licence", "c": ""}
    said = cycle.schedule(info).message
    assert "2 no licence" in said
    assert "2 node(s) didn't pass an extender" in said
    opinion.unresolvable = {"a"}
    rejected = np.ones(4, np.bool_)
    assert plugin.hopeless(info, cluster.nodes, rejected).tolist() == [True, False, False, False]


async def test_the_bind_verb_binds_and_an_ignorable_failure_leaves_it_to_the_binder(cluster, pod):
    server = Answers(b={"Error": ""})
    info = cluster().info(pod("p"))
    async with serving(server) as url:
        async with connected(ExtenderConfig(url, bind_verb="b")) as plugin:
            assert await plugin.bind(info, "a", None) is None
        server.answers["b"] = {"Error": "busy"}
        async with connected(ExtenderConfig(url, bind_verb="b", ignorable=True)) as plugin:
            assert (await plugin.bind(info, "a", None)).name == "SKIP"
        async with connected(ExtenderConfig(url, bind_verb="b")) as plugin:
            with pytest.raises(ExtenderError, match="busy"):
                await plugin.bind(info, "a", None)
    sent = {"PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "a"}
    assert server.asked[0] == ("b", sent)


async def test_the_preempt_verb_chooses_among_candidates_and_victims(cluster, node, pod):
    cluster = cluster(node("a", cpu="1"), node("b", cpu="1"))
    cluster.place(pod("low", requests={"cpu": "1"}, priority=1), "a")
    cluster.place(pod("mid", requests={"cpu": "1"}, priority=5), "b")
    wanted = cluster.cycle.schedule(
        cluster.info(pod("high", requests={"cpu": "1"}, priority=9))
    ).nomination
    assert wanted.node == "a"
    server = Answers(
        e={"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "mid"}], "NumPDBViolations": 0}}}
    )
    info = cluster.info(pod("high"))
    async with serving(server) as url:
        config = ExtenderConfig(url, preempt_verb="e", node_cache_capable=True)
        async with connected(config) as plugin:
            answer = await plugin.preempt(info, cluster.nodes, wanted)
            assert isinstance(answer, Nomination)
            assert (answer.node, [v.uid for v in answer.victims]) == ("b", ["mid"])
            server.answers["e"] = {"NodeNameToMetaVictims": {}}
            assert isinstance(await plugin.preempt(info, cluster.nodes, wanted), Reject)
            server.answers["e"] = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "mid"}]}}}
            with pytest.raises(PluginError, match="not found on that node"):
                await plugin.preempt(info, cluster.nodes, wanted)
    given = server.asked[0][1]["NodeNameToMetaVictims"]
    assert given["a"] == {"Pods": [{"UID": "low"}], "NumPDBViolations": 0}
    assert sorted(given) == ["a", "b"]
