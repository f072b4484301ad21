"""Where daemons start and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.workloads import DaemonSet
from motley.controllers import daemonpod, daemons, nodefit
from motley.controllers.failedpods import FailedPods
from motley.controllers.nodefit import Fit
from motley.lib import clock as clocks

NOW = 1_000_000.0
RUN, STAY, LEAVE = Fit(run=True, keep=True), Fit(run=False, keep=True), Fit(run=False, keep=False)


def node(name="n", labels=None, taints=()):
    return Node.of({"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints}})


def taint(key, effect="NoSchedule"):
    return {"key": key, "effect": effect}


def template(**spec):
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [], **spec}}


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "on", "fit"),
    [
        ({}, node(), RUN),
        ({"nodeName": "other"}, node(), LEAVE),
        ({"nodeName": "n"}, node(), RUN),
        ({"nodeSelector": {"a": "1"}}, node(), LEAVE),
        ({"nodeSelector": {"a": "1"}}, node(labels={"a": "1"}), RUN),
        ({"affinity": affinity({})}, node(), LEAVE),
        (
            {"affinity": affinity({"matchExpressions": [expression("a", "Gt", "4")]})},
            node(labels={"a": "5"}),
            RUN,
        ),
        (
            {"affinity": affinity({"matchExpressions": [expression("a", "DoesNotExist")]})},
            node(labels={"a": "5"}),
            LEAVE,
        ),
        (
            {"affinity": affinity({"matchFields": [expression("metadata.name", "In", "n")]})},
            node(),
            RUN,
        ),
        (
            {
                "affinity": affinity(
                    {"matchExpressions": [expression("a", "In", "1")]},
                    {"matchExpressions": [expression("b", "Exists")]},
                )
            },
            node(labels={"b": ""}),
            RUN,
        ),
        ({}, node(taints=[taint("x")]), STAY),
        ({}, node(taints=[taint("x", "NoExecute")]), LEAVE),
        ({}, node(taints=[taint("x", "PreferNoSchedule")]), RUN),
        ({"tolerations": [{"operator": "Exists"}]}, node(taints=[taint("x", "NoExecute")]), RUN),
        ({}, node(taints=[taint("node.kubernetes.io/unreachable", "NoExecute")]), RUN),
        ({}, node(taints=[taint("node.kubernetes.io/unschedulable")]), RUN),
        ({}, node(taints=[taint("node.kubernetes.io/network-unavailable")]), STAY),
        (
            {"hostNetwork": True},
            node(taints=[taint("node.kubernetes.io/network-unavailable")]),
            RUN,
        ),
    ],
)
def test_name_labels_and_taints_decide_where_a_daemon_runs(spec, on, fit):
    rules = nodefit.Rules.of(daemonpod.tolerant(template(**spec)))
    assert rules.fit(on) == fit


def daemon_set(surge=0, unavailable=1, strategy="RollingUpdate", **spec):
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    body = {"updateStrategy": {"type": strategy, "rollingUpdate": rolling}, **spec}
    meta = {"name": "agent", "namespace": "ns", "uid": "ds", "generation": 1}
    return DaemonSet.of({"metadata": meta, "spec": {"template": template(), **body}})


def test_a_daemon_is_bound_by_the_name_of_its_node():
    given_terms = affinity({"matchExpressions": [expression("a", "Exists")]})
    ds = daemon_set(template=template(affinity=given_terms))
    body = daemonpod.document(ds, "n1", "hash")
    terms = affinity({"matchFields": [expression("metadata.name", "In", "n1")]})
    assert body["spec"]["affinity"] == terms
    assert body["metadata"]["labels"] == {"app": "a", "controller-revision-hash": "hash"}
    assert daemonpod.node_of(Pod.of(body)) == "n1"
    assert ds.spec.template["spec"]["affinity"] == given_terms


def test_a_limited_toleration_becomes_an_unlimited_one():
    limited = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    limited |= {"effect": "NoExecute", "tolerationSeconds": 5}
    found = daemonpod.tolerant(template(tolerations=[limited]))["spec"]["tolerations"]
    assert [t for t in found if "tolerationSeconds" in t] == []


def pod(name, on, state="ready", revision="new", *, bound=True):
    meta = {"name": name, "namespace": "ns", "uid": name}
    meta["labels"] = {"controller-revision-hash": revision}
    meta["creationTimestamp"] = clocks.rfc3339(len(name))
    phase = state if state in ("Pending", "Failed", "Succeeded") else "Running"
    if state == "going":
        meta["deletionTimestamp"] = clocks.rfc3339(NOW)
    ready = "True" if state == "ready" else "False"
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": clocks.rfc3339(0)}]
    terms = affinity({"matchFields": [expression("metadata.name", "In", on)]})
    spec = {"affinity": terms, "nodeName": on if bound else ""}
    return Pod.of(
        {"metadata": meta, "spec": spec, "status": {"phase": phase, "conditions": conditions}}
    )


def view(ds, fits, pods):
    return daemons.View(ds, fits, daemons.by_node(pods), frozenset({"new"}), NOW)


def names(pods):
    return sorted(p.metadata.name for p in pods)


@pytest.mark.parametrize(
    ("fit", "pods", "create", "delete"),
    [
        (RUN, [], ["n"], []),
        (STAY, [], [], []),
        (LEAVE, [], [], []),
        (RUN, [pod("a", "n")], [], []),
        (STAY, [pod("a", "n")], [], []),
        (LEAVE, [pod("a", "n"), pod("b", "n", "going")], [], ["a"]),
        (RUN, [pod("a", "n", "going")], [], []),
        (RUN, [pod("a", "n", "Failed")], [], ["a"]),
        (RUN, [pod("a", "n", "Succeeded")], [], ["a"]),
        (RUN, [pod("a", "n", bound=False), pod("bb", "n")], [], ["a"]),
        (RUN, [pod("a", "n"), pod("x", "gone", bound=False)], [], ["x"]),
        (RUN, [pod("a", "n"), pod("x", "gone")], [], []),
    ],
)
def test_a_node_has_one_daemon_or_none(fit, pods, create, delete):
    plan = daemons.manage(view(daemon_set(), {"n": fit}, pods), lambda _: True)
    assert (plan.create, names(plan.delete)) == (create, delete)


def test_a_daemon_that_failed_a_moment_ago_waits():
    seen = view(daemon_set(), {"n": RUN}, [pod("a", "n", "Failed")])
    assert daemons.manage(seen, lambda _: False) == daemons.Plan()


def test_failures_on_a_node_double_the_wait():
    failures = FailedPods()
    assert failures.wait_s("k", 0.0) == 0
    waits = []
    now = 0.0
    for _ in range(12):
        failures.note("k", now)
        waits.append(failures.wait_s("k", now))
        now += waits[-1]
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == 900
    failures.note("k", now + 5000)
    assert failures.wait_s("k", now + 5000) == 1


@pytest.mark.parametrize(
    ("unavailable", "states", "deleted"),
    [
        (1, ["ready", "ready", "ready", "ready"], 1),
        (2, ["ready", "ready", "ready", "ready"], 2),
        ("50%", ["ready", "ready", "ready", "ready"], 2),
        ("26%", ["ready", "ready", "ready", "ready"], 2),
        (1, ["unready", "ready", "ready", "ready"], 1),
        (1, ["unready", "unready", "ready", "ready"], 2),
        (1, ["going", "ready", "ready", "ready"], 0),
    ],
)
def test_old_daemons_go_within_max_unavailable(unavailable, states, deleted):
    pods = [pod(f"p{i}", f"n{i}", s, "old") for i, s in enumerate(states)]
    seen = view(
        daemon_set(unavailable=unavailable), dict.fromkeys((f"n{i}" for i in range(4)), RUN), pods
    )
    assert len(daemons.roll(seen).delete) == deleted


def test_with_surge_the_new_daemon_starts_first():
    fits = dict.fromkeys(("n0", "n1", "n2"), RUN)
    olds = [pod(f"old{i}", f"n{i}", "ready", "old") for i in range(3)]
    ds = daemon_set(surge=1, unavailable=0)
    begun = daemons.roll(view(ds, fits, olds))
    assert (begun.create, begun.delete) == (["n0"], [])
    waiting = daemons.roll(view(ds, fits, [*olds, pod("new0", "n0", "unready")]))
    assert (waiting.create, waiting.delete) == ([], [])
    done = daemons.roll(view(ds, fits, [*olds, pod("new0", "n0")]))
    assert (done.create, names(done.delete)) == (["n1"], ["old0"])
    down = [pod("old0", "n0", "unready", "old"), *olds[1:]]
    assert daemons.roll(view(ds, fits, down)).create == ["n0", "n1"]


def test_the_status_counts_nodes():
    fits = {"a": RUN, "b": RUN, "c": STAY, "d": LEAVE, "e": RUN}
    pods = [pod("pa", "a"), pod("pb", "b", "unready", "old"), pod("pc", "c")]
    status = daemons.status(view(daemon_set(), fits, pods), None)
    assert status.desired_number_scheduled == 3
    assert status.current_number_scheduled == 2
    assert status.number_misscheduled == 1
    assert (status.number_ready, status.number_available) == (1, 1)
    assert (status.updated_number_scheduled, status.number_unavailable) == (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "woken"),
    [
        (None, node(), True),
        (None, node(taints=[taint("x", "NoExecute")]), False),
        (node(), None, True),
        (node(), node(labels={"x": "y"}), False),
        (node(), node(taints=[taint("x")]), True),
        (node(taints=[taint("node.kubernetes.io/disk-pressure")]), node(), False),
    ],
)
def test_a_nodes_change_wakes_only_whom_it_concerns(before, after, woken):
    rules = nodefit.Rules.of(daemonpod.tolerant(template()))
    assert daemons.wakes(before, after, rules.fit) is woken


STATES = st.sampled_from(["ready", "unready", "Pending", "going"])


@st.composite
def situations(draw):
    nodes = [f"n{i}" for i in range(draw(st.integers(0, 6)))]
    fits = {n: draw(st.sampled_from([RUN, RUN, STAY, LEAVE])) for n in nodes}
    pods = []
    for i in range(draw(st.integers(0, 8)) if nodes else 0):
        revision = draw(st.sampled_from(["old", "new"]))
        pods.append(pod(f"p{i}", draw(st.sampled_from(nodes)), draw(STATES), revision))
    ds = daemon_set(surge=draw(st.integers(0, 2)), unavailable=draw(st.integers(0, 2)))
    return view(ds, fits, pods)


@given(situations())
def test_no_step_takes_more_daemons_down_than_allowed(seen):
    first = daemons.manage(seen, lambda _: True)
    assert all(seen.fits[n].run for n in first.create)
    limits = daemons.bounds(seen)
    if not limits.surge:
        assert all(not seen.pods.get(n) for n in first.create)
    if first.create or first.delete:
        return
    plan = daemons.roll(seen)
    assert all(not seen.is_updated(p) for p in plan.delete)
    serving = {
        n for n, pods in seen.pods.items() if any(seen.is_available(p) for p in seen.living(n))
    }
    gone = {p.metadata.uid for p in plan.delete}
    after = {
        n
        for n in serving
        if any(seen.is_available(p) and p.metadata.uid not in gone for p in seen.living(n))
    }
    wanted = {n for n, fit in seen.fits.items() if fit.run}
    if limits.surge:
        assert serving & wanted == after & wanted
        assert all(len(seen.living(n)) == 1 for n in plan.create)
    else:
        lost = serving - after
        down = {n for n in wanted | set(seen.pods) if n not in serving}
        assert not lost or len(lost) + len(down) <= limits.unavailable
