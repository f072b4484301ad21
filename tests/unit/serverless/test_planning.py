"""The pure decisions about functions: plans, pools, chains, objects, keys."""

import hashlib
from pathlib import Path

import pytest

from motley.api.views.base import Key
from motley.api.views.serverless import Function
from motley.serverless import chain, keys, objects, pool, values
from motley.serverless.instances import Instance
from motley.serverless.plan import plan, plan_v1

ROOT = Path(__file__).resolve().parents[3]


def function(name="f", **spec):
    return Function.of(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": "u1"},
            "spec": {"code": "def run(a): return a", **spec},
        }
    )


def instance(name, revision="r", *, in_flight=0, calls=0, idle_since=0.0, draining=False):
    return Instance(
        Key("ns", name),
        "10.0.0.1",
        "t",
        revision,
        4,
        in_flight=in_flight,
        calls=calls,
        idle_since=idle_since,
        is_draining=draining,
    )


def names(found):
    return [key.name for key in found]


class TestPlan:
    def test_missing_instances_are_started_less_those_on_their_way(self):
        assert plan(3, "r", [instance("a")], 1, maximum=10).start == 1

    def test_only_idle_instances_end_and_the_longest_idle_first(self):
        every = [
            instance("busy", in_flight=1),
            instance("recent", idle_since=9.0),
            instance("old", idle_since=1.0),
        ]
        assert names(plan(2, "r", every, 0, maximum=10).delete) == ["old"]
        assert names(plan(0, "r", every, 0, maximum=10).delete) == ["old", "recent"]

    def test_old_code_serves_until_new_code_does(self):
        old = [instance("old", "r0"), instance("old-busy", "r0", in_flight=2)]
        before = plan(1, "r1", old, 0, maximum=10)
        assert (before.start, before.drain, before.delete) == (1, [], [])
        after = plan(1, "r1", [*old, instance("new", "r1")], 0, maximum=10)
        assert names(after.drain) == ["old", "old-busy"]
        assert names(after.delete) == ["old"]

    def test_a_draining_instance_is_deleted_when_its_calls_are_done(self):
        every = [instance("new", "r1"), instance("old", "r0", draining=True)]
        assert names(plan(1, "r1", every, 0, maximum=10).delete) == ["old"]

    def test_v1_gets_a_pod_for_each_waiting_call(self):
        used = instance("used", in_flight=1, calls=1)
        found = plan_v1(3, "r", [used], 1, minimum=0, maximum=10, now=0, idle_s=10)
        assert found.start == 2

    def test_v1_stays_below_its_maximum(self):
        used = [instance(f"u{n}", in_flight=1, calls=1) for n in range(4)]
        assert plan_v1(9, "r", used, 0, minimum=0, maximum=5, now=0, idle_s=10).start == 1

    def test_v1_pods_that_nobody_used_go_after_a_while(self):
        spare = instance("spare", idle_since=0.0)
        early = plan_v1(0, "r", [spare], 0, minimum=0, maximum=5, now=5, idle_s=10)
        assert early.delete == []
        late = plan_v1(0, "r", [spare], 0, minimum=0, maximum=5, now=11, idle_s=10)
        assert names(late.delete) == ["spare"]
        kept = plan_v1(0, "r", [spare], 0, minimum=1, maximum=5, now=11, idle_s=10)
        assert kept.delete == []


class TestPool:
    def test_there_are_warm_pods_where_functions_are_in_use(self):
        demands = {"used": pool.Demand(), "silent": pool.Demand()}
        demands["used"].touched(1000.0)
        assert pool.desired(demands, 1010.0, 2, 20) == {"used": 2, "silent": 0}

    def test_a_burst_gets_more_but_not_without_end(self):
        demand = pool.Demand()
        for n in range(50):
            demand.taken(100.0 + n / 10)
        assert pool.desired({"a": demand}, 106.0, 2, 20) == {"a": 6}
        assert pool.desired({"a": demand}, 200.0, 2, 20) == {"a": 2}

    def test_all_pools_together_have_a_limit(self):
        demands = {name: pool.Demand(active_at=at) for name, at in (("a", 5.0), ("b", 9.0))}
        assert pool.desired(demands, 10.0, 3, 4) == {"b": 3, "a": 1}

    def test_without_a_size_there_is_no_pool(self):
        assert pool.desired({"a": pool.Demand(active_at=1.0)}, 2.0, 0, 20) == {"a": 0}


BRANCHES = {"f": ("left", "right"), "left": ("RETURN", ""), "loop": ("loop", "")}.get


def step(place, name, phase="Succeeded", **more):
    return {"id": f"{place}.{name}", "function": name, "phase": phase, "attempt": 1, **more}


class TestChain:
    @pytest.mark.parametrize(
        ("check", "left", "right", "expected"),
        [
            (True, "a", "b", ("left", "a")),
            (False, "a", "b", ("right", "b")),
            (None, "a", "b", ("left", "a")),
            (None, "", "b", ("right", "b")),
            (True, "RETURN", "b", ("left", "RETURN")),
            (True, "", "b", ("left", "RETURN")),
            (False, "a", "", ("right", "RETURN")),
        ],
    )
    def test_check_decides_the_branch(self, check, left, right, expected):
        assert chain.branch(check, left, right) == expected

    def test_the_first_step_gets_the_argument(self):
        (start,) = chain.decide("f", "x", [], BRANCHES, 10).start
        assert (start.id, start.function, start.input) == ("1.f", "f", "x")

    def test_the_next_step_gets_what_the_one_before_gave(self):
        done = [step(1, "f", output="y", check=False)]
        (start,) = chain.decide("f", "x", done, BRANCHES, 10).start
        assert (start.id, start.input) == ("2.right", "y")

    def test_return_ends_with_the_result(self):
        done = [step(1, "f", output="y", check=True), step(2, "left", output="z", check=True)]
        decision = chain.decide("f", "x", done, BRANCHES, 10)
        assert (decision.done, decision.result) == (True, "z")

    def test_a_running_step_is_gone_on_with(self):
        running = [step(1, "f", "Running")]
        assert chain.decide("f", "x", running, BRANCHES, 10).live == {"1.f"}

    def test_a_failed_step_fails_the_chain(self):
        failed = [step(1, "f", "Failed", error="Timeout", message="too long")]
        assert chain.decide("f", "x", failed, BRANCHES, 10).failure == ("Timeout", "too long")

    def test_a_loop_has_a_limit(self):
        done = [step(n, "loop", output="y") for n in range(1, 4)]
        assert chain.decide("loop", "x", done, BRANCHES, 4).start[0].id == "4.loop"
        assert chain.decide("loop", "x", done, BRANCHES, 3).failure.error == "StepLimitExceeded"


class TestObjects:
    def test_a_pod_can_do_little_and_may_use_little(self):
        body = objects.pod(function(), "p", "token", "cm")
        spec, container = body["spec"], body["spec"]["containers"][0]
        assert spec["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"] == {"cpu": "1", "memory": "256Mi"}

    def test_a_pod_does_not_hold_the_token_that_opens_it(self):
        body = objects.pod(function(), "p", "secret-token", "cm")
        assert "secret-token" not in str(body)
        assert hashlib.sha256(b"secret-token").hexdigest() in str(body)

    def test_requests_never_exceed_limits(self):
        found = objects.resources(function(resources={"limits": {"memory": "32Mi"}}))
        assert found["requests"]["memory"] == "32Mi"

    @pytest.mark.parametrize(
        ("change", "differs"),
        [
            ({"code": "x"}, True),
            ({"env": [{"name": "A", "value": "b"}]}, True),
            ({"concurrency": 9}, True),
            ({"maxInstances": 99}, False),
            ({"left": "other"}, False),
        ],
    )
    def test_only_what_an_instance_is_made_of_makes_another_revision(self, change, differs):
        base = objects.revision(function())
        assert (objects.revision(function(**change)) != base) is differs

    def test_functions_with_other_resources_do_not_share_warm_pods(self):
        small = objects.pool_class(function())
        assert objects.pool_class(function(code="other")) == small
        assert objects.pool_class(function(resources={"limits": {"cpu": "2"}})) != small

    def test_tenants_do_not_share_layers(self):
        mine = function(preRun="x")
        theirs = function(preRun="x")
        theirs.metadata.namespace = "other"
        assert objects.layer_key(mine) != objects.layer_key(theirs)
        assert objects.layer_key(function()) == ""

    def test_a_pooled_pod_belongs_to_nobody_until_it_is_adopted(self):
        body = objects.pod(function(), "p", "t", "cm", pooled=True)
        assert "ownerReferences" not in body["metadata"]
        patch = objects.adoption(function(), "7")["metadata"]
        assert patch["resourceVersion"] == "7"
        assert patch["labels"][objects.POOLED] is None
        assert patch["ownerReferences"][0]["uid"] == "u1"

    def test_long_names_become_labels(self):
        one, two = objects.label("x" * 80), objects.label("x" * 81)
        assert len(one) <= 63
        assert one != two


class TestKeys:
    def test_a_calls_token_opens_its_namespace_for_its_time(self):
        token = keys.call_token(b"k", "ns", 100.0)
        assert keys.namespace_of(b"k", token, 99.0) == "ns"
        assert keys.namespace_of(b"k", token, 101.0) is None
        assert keys.namespace_of(b"other", token, 99.0) is None

    @pytest.mark.parametrize("token", ["", "x", "x.y", "é.ü", "W10=.W10="])
    def test_what_is_no_token_opens_nothing(self, token):
        assert keys.namespace_of(b"k", token, 0.0) is None


@pytest.mark.parametrize("value", ["text", {"a": [1, None]}, 3, None, {"base64": "AAE="}])
def test_values_survive_the_way_to_an_instance_and_back(value):
    assert values.from_wire(*values.to_wire(value)) == value
