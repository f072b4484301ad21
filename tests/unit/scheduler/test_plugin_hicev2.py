"""Hicev2: CPU by the speed of nodes, from the documents' examples to the sums that must hold."""

from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motley.api import qos, quantity, status
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import events, images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle, PluginError
from motley.scheduler.cycle import Cycle
from motley.scheduler.plugins import speed
from motley.scheduler.plugins.hicev2 import TOO_SLOW, Hicev2, Hicev2Args
from motley.scheduler.podinfo import CPU_AS_WRITTEN, PodInfos

EXAMPLES = Path(__file__).parents[3] / "examples/kubehice"


def make_plugin(world, **args):
    return Hicev2(msgspec.convert(args, Hicev2Args), world.handle)


def measured(name="p", requests="100m", limits="200m", kb=None, memory=True, **spec):
    """A pod with one container, as the documents write it."""
    resources = {"requests": {"cpu": requests}, "limits": {"cpu": limits}}
    resources = {part: amounts for part, amounts in resources.items() if amounts["cpu"]}
    if memory:
        resources.setdefault("requests", {})["memory"] = "128Mi"
        resources.setdefault("limits", {})["memory"] = "256Mi"
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {"hice.kb": kb} if kb is not None else {},
            },
            "spec": {
                "containers": [{"name": "c", "image": "app:1", "resources": resources}],
                "schedulerName": "kubehice-scheduler",
                **spec,
            },
        }
    )


@pytest.fixture
def world(cluster, node):
    return cluster(
        node("reference", labels={"hice.kj": "1.0"}),
        node("slow", labels={"hice.kj": "0.5"}),
        node("fast", labels={"hice.kj": "1.2"}),
        node("unlabelled"),
    )


class Api:
    """Notes what is written, and does it to the pod."""

    def __init__(self):
        self.calls = []
        self.error = None

    async def bind(self, pod, node):
        self.calls.append(("bind", node))

    async def patch_pod(self, pod, body):
        self.calls.append(("patch", body))

    async def resize_pod(self, pod, body):
        if self.error:
            raise self.error
        self.calls.append(("resize", body))


# -- CPU = request × kb / kj ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "limit", "kb", "kj", "expected"),
    [
        ("100m", "200m", None, "0.5", ("200m", "400m")),  # the document's first example
        ("100m", "100m", "0.8", "1.0", ("80m", "80m")),  # its second; 125m there is a slip
        ("100m", "100m", "0.8", "0.8", ("100m", "100m")),
        ("1", "2", "1.2", "0.8", ("1500m", "3")),
        ("100m", "200m", "1", "0.3", ("334m", "667m")),  # never less than asked for
        ("1m", "2m", "1", "10", ("1m", "2m")),  # never nothing, and still different
        ("100m", None, None, "0.5", ("200m", None)),  # no limit is made up
        (None, None, None, "0.5", (None, None)),
        ("0", "100m", None, "0.5", ("0", "200m")),
    ],
)
def test_cpu_is_scaled_and_whole_and_memory_is_not(request_, limit, kb, kj, expected):
    pod = measured(requests=request_, limits=limit, kb=kb)
    plan = speed.plan(pod)
    factor = plan.factor(Fraction(kj))
    rewritten = plan.rewrites(pod, factor).get("containers", [{"resources": None}])
    resources = rewritten[0]["resources"] or {
        "requests": {"cpu": request_},
        "limits": {"cpu": limit},
    }

    assert tuple(resources.get(part, {}).get("cpu") for part in ("requests", "limits")) == expected
    assert plan.requests(factor)["memory"] == 128 * 1024**2


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0.8", Fraction(4, 5)), (".5", Fraction(1, 2)), ("2.", 2), ("0", None)]
    + [(t, None) for t in ("", "0.0", "-1", "fast", "nan", "inf", "1e3", "1_000", "0x1", "١")],
)
def test_a_speed_is_a_positive_decimal(text, value):
    assert speed.speed(text) == value


containers = st.fixed_dictionaries(
    {},
    optional={
        "requests": st.integers(0, 5000),
        "extra": st.integers(0, 3000),
    },
)
speeds = st.integers(1, 5000).map(lambda n: Fraction(n, 1000))


def _pod_of(drawn, memory):
    body = []
    for i, one in enumerate(drawn):
        resources = {}
        if "requests" in one:
            resources["requests"] = {"cpu": f"{one['requests']}m"}
            if "extra" in one:
                resources["limits"] = {"cpu": f"{one['requests'] + one['extra']}m"}
        if memory:
            for part in ("requests", "limits"):
                resources.setdefault(part, {})["memory"] = "1Gi"
        body.append({"name": f"c{i}", "image": "x", "resources": resources})
    return {"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": body}}


@given(st.lists(containers, min_size=1, max_size=4), st.booleans(), speeds, speeds)
def test_scaling_keeps_the_qos_class_and_the_order_of_request_and_limit(drawn, memory, kb, kj):
    document = _pod_of(drawn, memory)
    plan = speed.plan(Pod.of(document))
    factor = kb / kj
    before = qos.qos_class(document)
    for container in plan.rewrites(Pod.of(document), factor).get("containers", []):
        index = int(container["name"][1:])
        resources = document["spec"]["containers"][index]["resources"]
        for part, amounts in container["resources"].items():
            was = quantity.cpu_milli(resources[part]["cpu"])
            now = quantity.cpu_milli(amounts["cpu"])
            assert 0 <= now - was * factor < 2
            resources[part]["cpu"] = amounts["cpu"]
        if len(resources.get("limits", {})) == 2:
            cpu = [quantity.cpu_milli(resources[part]["cpu"]) for part in ("requests", "limits")]
            assert cpu[0] <= cpu[1]

    assert qos.qos_class(document) == before
    scaled = speed.plan(Pod.of(document))
    # What is counted is what is written.
    assert scaled.requests(speed.ONE).get("cpu", 0) == plan.requests(factor).get("cpu", 0)


def test_what_kubernetes_cannot_resize_is_left_as_written():
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    inits = [
        {"name": "i", "resources": {"requests": {"cpu": "900m"}}},
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
    ]
    pod = Pod.of({"spec": {"containers": containers, "initContainers": inits}})
    plan = speed.plan(pod)
    assert plan.rewrites(pod, Fraction(2)) == {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}],
        "initContainers": [{"name": "s", "resources": {"requests": {"cpu": "100m"}}}],
    }
    assert plan.requests(Fraction(2))["cpu"] == 900  # the init container is still the hungriest
    assert plan.requests(Fraction(4))["cpu"] == 900
    assert plan.requests(Fraction(8))["cpu"] == 1200
    whole = {"resources": {"requests": {"cpu": "1"}}}
    pod = Pod.of({"spec": {"containers": containers, **whole}})
    assert speed.plan(pod).rewrites(pod, Fraction(2)) == {}
    pod = Pod.of({"spec": {"containers": containers, "os": {"name": "windows"}}})
    assert speed.plan(pod).rewrites(pod, Fraction(2)) == {}, "no server resizes such pods"
    assert speed.plan(pod).requests(Fraction(2))["cpu"] == 100


@given(st.lists(st.integers(200, 2000), min_size=2, max_size=6), st.integers(50, 900))
def test_replicas_under_even_load_are_full_together_only_when_scaled(milli_speeds, milli):
    """A Service gives every replica the same work; a core of speed kj does kj of it at a time."""
    speeds = [Fraction(one, 1000) for one in milli_speeds]
    plan = speed.plan(measured(requests=f"{milli}m", limits=f"{milli}m"))
    given = [plan.asks["c"].times(plan.factor(kj)).limits for kj in speeds]
    capacity = [cpu * kj for cpu, kj in zip(given, speeds, strict=True)]
    unscaled = [milli * kj for kj in speeds]
    # The slowest caps the Service at its own capacity times the number of replicas. Scaled,
    # they differ by no more than the rounding to a millicore of the fastest.
    assert max(capacity) - min(capacity) <= max(speeds)
    assert min(capacity) >= milli
    assert max(unscaled) / min(unscaled) == max(speeds) / min(speeds)


# -- filter ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "kb", "allowed"),
    [
        ("100m", None, ["fast", "reference", "slow", "unlabelled"]),
        ("500m", None, ["fast", "reference", "slow", "unlabelled"]),  # one core exactly
        ("501m", None, ["fast", "reference", "unlabelled"]),
        ("1500m", None, ["fast", "reference", "unlabelled"]),
        ("1", "1.2", ["fast"]),  # whole cores need a machine as fast
        ("999m", "1.2", ["fast"]),
        ("4", None, ["fast", "reference", "unlabelled"]),
        ("4500m", "1.2", ["fast"] * 0),
        ("4500m", "0.5", ["fast", "reference", "unlabelled"]),  # 2250m, and on the slow one 4500m
    ],
)
def test_a_node_must_have_room_and_not_be_too_slow(world, requests, kb, allowed):
    assert world.allowed(make_plugin(world), measured(requests=requests, kb=kb)) == allowed


def test_reasons_are_told_apart(world):
    plugin = make_plugin(world)
    world.place(measured("there", requests="3", limits=None), "reference")
    info = world.info(measured(requests="1500m", limits=None))
    rejected = ~plugin.filter(info, world.nodes)
    assert plugin.explain(info, world.nodes, rejected) == {TOO_SLOW: 1, "Insufficient cpu": 1}
    assert TOO_SLOW == "node(s)'s performace is too low"
    hopeless = plugin.hopeless(info, world.nodes, rejected)
    assert [world.nodes.names[row] for row in np.flatnonzero(hopeless)] == ["slow"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"memory": "6Gi"}, ["big", "gpu"]),
        ({"example.com/gpu": "1"}, ["gpu"]),
        ({"ephemeral-storage": "1Gi"}, []),
        ({"cpu": "1"}, ["big", "gpu"]),
    ],
)
def test_it_checks_all_that_node_resources_fit_would(cluster, node, pod, spec, allowed):
    world = cluster(
        node("big"), node("gpu", example_com__gpu="1"), node("small", memory="1Gi", cpu="500m")
    )
    world.nodes.set_node(node("crowded", pods="0"))
    assert world.allowed(make_plugin(world), pod(requests=spec)) == allowed


def test_a_change_of_a_label_acts_at_once(world, node):
    plugin = make_plugin(world)
    heavy = measured(requests="900m")
    assert "slow" not in world.allowed(plugin, heavy)
    faster = node("slow", labels={"hice.kj": "0.95"})
    assert world.nodes.set_node(faster).labels
    assert "slow" in world.allowed(plugin, heavy)
    assert events.NodeLabelsChanged in plugin.wakes_on
    assert plugin.may_help(world.info(heavy), events.NodeLabelsChanged(faster))


# -- score ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "limits", "kb", "scores"),
    [
        # level 0: as fast as the reference, or nothing asked for, or nothing said
        ("100m", "200m", None, [100, 100, 100, 100]),
        (None, None, "1.0", [100, 100, 100, 100]),
        # level 1: request and limit stay within their cores, 51 + 49·kj/kb
        ("100m", "200m", "1.0", [100, 75, 100, 100]),
        ("100m", "200m", "1.2", [91, 71, 100, 91]),
        # level 2: the limit does not, 1 + 49·kj/kb
        ("100m", "600m", "1.0", [100, 25, 100, 100]),
        # level 3: too slow
        ("600m", "600m", "1.0", [100, 0, 100, 100]),
    ],
)
def test_score_levels(world, requests, limits, kb, scores):
    pod = measured(requests=requests, limits=limits, kb=kb)
    assert list(world.scores(make_plugin(world), pod).values()) == scores


# -- labels that are wrong ------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "-0.5", "quick", "nan"])
def test_a_wrong_label_counts_as_one_and_is_told(cluster, node, value):
    world = cluster(node("odd", cpu="1", labels={"hice.kj": value}))
    told = []
    world.handle.notices.listener = lambda about, *words: told.append((about, *words))
    plugin = make_plugin(world)
    pod = measured(requests="1", kb=value)

    assert world.allowed(plugin, pod) == ["odd"]
    assert world.scores(plugin, pod) == {"odd": 100}
    assert [(a.KIND, a.metadata.name, reason) for a, reason, _ in told] == [
        ("Node", "odd", "InvalidSpeed"),
        ("Pod", "p", "InvalidSpeed"),
    ]
    assert f'hice.kj="{value}"' in told[0][2]
    world.nodes.set_node(node("other"))
    world.allowed(plugin, measured(requests="1"))
    assert len(told) == 2  # a node is told once
    for _ in range(3):  # a pod that waits is looked at whenever something happens
        world.allowed(plugin, pod)
    assert len(told) == 2
    world.nodes.remove_node("odd")
    world.nodes.set_node(node("odder", cpu="1", labels={"hice.kj": value}))
    world.allowed(plugin, pod)
    assert [a.metadata.name for a, *_ in told[2:]] == ["odder"]


def test_only_new_speeds_are_reckoned_with(cluster, node, monkeypatch):
    world = cluster(*(node(f"n{i}", labels={"hice.kj": f"0.{i}"}) for i in range(1, 9)))
    plugin, pod = make_plugin(world), measured(requests="100m", limits="200m")
    reckoned = []
    on = speed.Plan.on

    def noted(self, kj):
        reckoned.append(str(kj))
        return on(self, kj)

    monkeypatch.setattr(speed.Plan, "on", noted)
    world.allowed(plugin, pod)
    assert len(reckoned) == 8
    world.nodes.set_node(node("n1", labels={"hice.kj": "0.1"}, images={"an-image": 1}))
    world.nodes.set_node(node("n9", labels={"hice.kj": "0.8"}))
    assert "n9" in world.allowed(plugin, pod)
    assert len(reckoned) == 8, "other changes of nodes cost nothing"
    world.nodes.set_node(node("n9", labels={"hice.kj": "0.01"}))
    assert "n9" not in world.allowed(plugin, pod)
    assert reckoned[8:] == ["1/100"]


# -- sums -----------------------------------------------------------------------------------


pods = st.lists(
    st.tuples(
        st.integers(1, 2500),
        st.sampled_from([None, "0.5", "0.8", "1.0", "1.25"]),
        st.sampled_from(["mine", "mine", "foreign", "gone"]),
    ),
    max_size=40,
)


@given(pods, st.lists(st.sampled_from(["0.3", "0.5", "0.8", "1", "1.2", ""]), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # they make, only
def test_scaled_requests_never_exceed_what_is_allocatable(cluster, node, drawn, kjs):
    nodes = [
        node(f"n{i}", cpu="3", labels={"hice.kj": kj} if kj else {}) for i, kj in enumerate(kjs)
    ]
    world = cluster(*nodes)
    plugin = make_plugin(world)
    confirmed = {}
    for i, (milli, kb, kind) in enumerate(drawn):
        pod = measured(f"p{i}", requests=f"{milli}m", limits=None, kb=kb)
        info = world.info(pod)
        rows = np.flatnonzero(plugin.filter(info, world.nodes))
        if not len(rows):
            continue
        name = world.nodes.names[rows[i % len(rows)]]
        placed = plugin.placed_as(info, name) if kind != "foreign" else info
        if kind == "foreign" and (world.nodes.requested[0, world.nodes.rows[name]] + milli > 3000):
            continue
        world.nodes.add_pod(placed, name, assumed=True)
        if kind == "gone":
            world.nodes.remove_pod(info.uid)
        else:
            confirmed[i] = (pod, name, placed.requests["cpu"])
        assert (world.nodes.requested[0] <= 3000).all()
    # The API shows them as they were written at binding: counted once, in the node's units.
    before = world.nodes.requested[0].copy()
    for pod, name, cpu in confirmed.values():
        document = msgspec.to_builtins(pod)
        document["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{cpu}m"
        document["spec"]["nodeName"] = name
        world.nodes.add_pod(world.info(Pod.of(document)), name)
    assert world.nodes.requested[0].tolist() == before.tolist()
    for pod, *_ in confirmed.values():
        world.nodes.remove_pod(pod.metadata.uid)
    assert not world.nodes.requested[0].any()


# -- binding --------------------------------------------------------------------------------


async def test_the_pod_is_bound_with_what_was_counted(world, node):
    plugin, api = make_plugin(world), Api()
    info = world.info(measured())
    world.nodes.add_pod(plugin.placed_as(info, "slow"), "slow", assumed=True)
    assert world.nodes.requested[0, world.nodes.rows["slow"]] == 200
    assert world.nodes.nonzero[0, world.nodes.rows["slow"]] == 200
    world.nodes.set_node(node("slow", labels={"hice.kj": "0.1"}))  # too late for this one
    assert await plugin.bind(info, "slow", api) is None

    assert api.calls == [
        (
            "patch",
            {"metadata": {"annotations": {CPU_AS_WRITTEN: '{"c":{"requests":100,"limits":200}}'}}},
        ),
        (
            "resize",
            {
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "400m"}},
                        }
                    ]
                }
            },
        ),
        ("bind", "slow"),
    ]


async def test_where_nothing_changes_nothing_is_written(world, pod):
    plugin, api = make_plugin(world), Api()
    await plugin.bind(world.info(measured()), "reference", api)
    await plugin.bind(world.info(pod()), "slow", api)
    assert api.calls == [("bind", "reference"), ("bind", "slow")]


async def test_a_second_attempt_does_not_scale_what_is_scaled_already(world):
    plugin, api = make_plugin(world), Api()
    half_way = msgspec.to_builtins(measured())
    asks = '{"c":{"requests":100,"limits":200}}'
    half_way["metadata"]["annotations"] = {CPU_AS_WRITTEN: asks}
    resources = half_way["spec"]["containers"][0]["resources"]
    resources["requests"]["cpu"], resources["limits"]["cpu"] = "200m", "400m"
    again = world.info(Pod.of(half_way))

    assert plugin.placed_as(again, "slow").requests["cpu"] == 200
    await plugin.bind(again, "slow", api)
    assert api.calls == [("bind", "slow")]
    assert plugin.placed_as(again, "reference").requests["cpu"] == 100
    await plugin.bind(again, "reference", api)
    resized = api.calls[1][1]["spec"]["containers"][0]["resources"]
    assert resized == {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}


@pytest.mark.parametrize(
    "text",
    ["nonsense", '{"c":{"requests":-5,"limits":5}}', '{"c":{"requests":5}}', '{"c":1}', "[]"],
)
def test_an_annotation_of_somebody_else_is_not_believed(text):
    document = msgspec.to_builtins(measured())
    document["metadata"]["annotations"] = {CPU_AS_WRITTEN: text}
    assert speed.plan(Pod.of(document)).asks == {"c": speed.Ask(100, 200)}


async def test_a_server_without_resize_does_not_make_the_pod_look_gone(world):
    plugin, api = make_plugin(world), Api()
    api.error = status.NotFound("the server could not find the requested resource")
    with pytest.raises(PluginError, match="Hicev2"):
        await plugin.bind(world.info(measured()), "slow", api)


# -- the documents' configuration -----------------------------------------------------------


async def test_image_and_cpu_are_rewritten_in_one_bind_of_the_documents_profile(node):
    nodes = Columns()
    for name, arch, kj in (("node1", "amd64", "1.0"), ("node2", "arm64", "0.8")):
        nodes.set_node(node(name, labels={"kubernetes.io/arch": arch, "hice.kj": kj}))
    handle = Handle(nodes, SYSTEM, images.load(EXAMPLES / "images.yaml"))
    configuration = profiles.parse((EXAMPLES / "scheduler-configv2.yml").read_text())
    profile = profiles.build(configuration, handle)["kubehice-scheduler"]
    cycle, infos, api = Cycle(profile, nodes), PodInfos(), Api()
    bound = {}
    for name in ("a", "b"):
        pod = measured(name, "100m", "100m", kb="0.8", memory=False)
        pod.spec.containers[0].image = "local-registry:5000/test-nginx:latest"
        info = infos.of(pod)
        decision = cycle.schedule(info)
        (counting,) = profile.counts_by_node
        nodes.add_pod(counting.placed_as(info, decision.node), decision.node, assumed=True)
        api.calls.clear()
        for plugin in profile.pre_bind:
            if plugin.name == "Hicev1":
                await plugin.pre_bind(info, decision.node, api)
        await profile.bind[0].bind(info, decision.node, api)
        bound[decision.node] = list(api.calls)

    assert sorted(bound) == ["node1", "node2"]
    fast, same = bound["node1"], bound["node2"]
    assert [kind for kind, _ in fast] == ["patch", "patch", "resize", "bind"]
    assert fast[0][1]["spec"]["containers"][0]["image"].endswith("latest-amd64")
    resized = fast[2][1]["spec"]["containers"][0]["resources"]
    assert resized == {"requests": {"cpu": "80m"}, "limits": {"cpu": "80m"}}
    assert [kind for kind, _ in same] == ["patch", "bind"]
    assert nodes.requested[0].tolist() == [80, 100]
