"""Requests in flight, by class of user: who runs, who waits, who is told to come back."""

import asyncio

import pytest

from motley.apiserver import request
from motley.apiserver.authn import User
from motley.apiserver.flowcontrol import FlowControl, Refused, defaults, is_limited
from motley.apiserver.flowcontrol.level import hand
from motley.lib.clock import SYSTEM

EVERYBODY = "system:authenticated"
PODS = request.parse("GET", "/api/v1/namespaces/demo/pods")
LEASE = request.parse("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1")


def user(name, *groups):
    return User(name, (*groups, EVERYBODY))


NODE = user("system:node:n1", "system:nodes")
ACCOUNT = user("system:serviceaccount:demo:robot", "system:serviceaccounts")
SYSTEM_ACCOUNT = user("system:serviceaccount:kube-system:x", "system:serviceaccounts")


@pytest.mark.parametrize(
    ("who", "what", "schema", "level"),
    [
        (user("admin", "system:masters"), PODS, "exempt", "exempt"),
        (User("system:anonymous", ("system:unauthenticated",)), "/readyz/ping", "probes", "exempt"),
        (NODE, LEASE, "system-node-high", "node-high"),
        (NODE, PODS, "system-nodes", "system"),
        (user("system:kube-scheduler"), LEASE, "system-leader-election", "leader-election"),
        (user("system:kube-scheduler"), PODS, "kube-scheduler", "workload-high"),
        (SYSTEM_ACCOUNT, PODS, "kube-system-service-accounts", "workload-high"),
        (ACCOUNT, PODS, "service-accounts", "workload-low"),
        (user("alice"), PODS, "global-default", "global-default"),
        (User("nobody", ()), PODS, "catch-all", "catch-all"),
    ],
)
async def test_every_user_has_a_class(who, what, schema, level):
    info = request.parse("GET", what) if isinstance(what, str) else what

    grant = FlowControl().classify(who, info)

    assert (grant.schema.name, grant.level.name) == (schema, level)


async def test_streams_hold_no_seat():
    assert not is_limited(request.parse("GET", "/api/v1/namespaces/d/pods/p/log"))
    assert not is_limited(request.parse("POST", "/api/v1/namespaces/d/pods/p/exec"))
    assert is_limited(request.parse("GET", "/api/v1/pods", b"watch=true"))


def small(seats, *, queues=2, hand_size=1, length=2, lendable=0):
    """A control with one level for everybody, and one beside it that lends."""
    level = {
        "metadata": {"name": "all", "uid": "level-uid"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 100,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {
                        "queues": queues,
                        "handSize": hand_size,
                        "queueLengthLimit": length,
                    },
                },
            },
        },
    }
    other = {
        "metadata": {"name": "other"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 100,
                "lendablePercent": lendable,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    schema = {
        "metadata": {"name": "all", "uid": "schema-uid"},
        "spec": {
            "priorityLevelConfiguration": {"name": "all"},
            "matchingPrecedence": 5,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [{"kind": "Group", "group": {"name": EVERYBODY}}],
                    "resourceRules": [
                        {
                            "verbs": ["*"],
                            "apiGroups": ["*"],
                            "resources": ["*"],
                            "namespaces": ["*"],
                        }
                    ],
                }
            ],
        },
    }
    control = FlowControl(2 * seats, wait_s=5.0)
    catch_all = {"metadata": {"name": "catch-all"}, "spec": {"type": "Limited", "limited": {}}}
    catch_all["spec"]["limited"]["nominalConcurrencyShares"] = 0
    control.configure([schema], [level, other, catch_all])
    return control


async def test_answers_name_the_schema_and_the_level_by_their_uids():
    grant = small(1).classify(user("alice"), PODS)

    assert dict(grant.headers) == {
        b"x-kubernetes-pf-flowschema-uid": b"schema-uid",
        b"x-kubernetes-pf-prioritylevel-uid": b"level-uid",
    }


async def test_a_seat_that_is_given_back_goes_to_whoever_waits():
    control = small(1)
    grant = control.classify(user("alice"), PODS)
    assert control.enter(grant)
    assert not control.enter(grant)
    waiting = asyncio.ensure_future(control.wait(grant, user("alice"), PODS))
    await SYSTEM.sleep(0)
    assert (grant.level.waiting, waiting.done()) == (1, False)

    control.leave(grant)
    await waiting

    assert (grant.level.executing, grant.level.waiting) == (1, 0)
    control.leave(grant)
    assert grant.level.executing == 0


async def test_flows_take_turns_however_many_one_of_them_has_waiting():
    control = small(1, queues=64, hand_size=1, length=50)
    greedy, modest = user("greedy"), user("modest")
    assert hand("all/all/greedy", 64, 1) != hand("all/all/modest", 64, 1)
    grant = control.classify(greedy, PODS)
    assert control.enter(grant)
    order = []

    async def one(who):
        await control.wait(grant, who, PODS)
        order.append(who.name)
        control.leave(grant)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(one(greedy))
        await SYSTEM.sleep(0)
        group.create_task(one(modest))
        await SYSTEM.sleep(0)
        control.leave(grant)

    assert "modest" in order[:2]
    assert len(order) == 21


async def test_who_finds_seats_and_queues_full_is_refused_and_counted():
    control = small(1, queues=1, hand_size=1, length=1)
    grant = control.classify(user("alice"), PODS)
    control.enter(grant)
    waiting = asyncio.ensure_future(control.wait(grant, user("alice"), PODS))
    await SYSTEM.sleep(0)

    with pytest.raises(Refused) as refused:
        await control.wait(grant, user("alice"), PODS)

    assert refused.value.retry_after_s == 1
    assert grant.level.rejected == {"queue-full": 1}
    control.leave(grant)
    await waiting


async def test_who_waits_too_long_is_refused_and_leaves_the_queue():
    control = small(1)
    control._wait_s = 0.01
    grant = control.classify(user("alice"), PODS)
    control.enter(grant)

    with pytest.raises(Refused):
        await control.wait(grant, user("alice"), PODS)

    assert (grant.level.waiting, grant.level.rejected) == (0, {"time-out": 1})


async def test_a_client_that_goes_away_while_it_waits_leaves_no_seat_taken():
    control = small(1)
    grant = control.classify(user("alice"), PODS)
    control.enter(grant)
    waiting = asyncio.ensure_future(control.wait(grant, user("alice"), PODS))
    await SYSTEM.sleep(0)

    control.leave(grant)  # the seat is handed over, and in the same moment the client is gone
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (grant.level.executing, grant.level.waiting) == (0, 0)


async def test_idle_seats_are_lent_and_their_owner_never_waits_for_them():
    control = small(2, lendable=50)
    grant = control.classify(user("alice"), PODS)
    lender = control.levels["other"]
    assert (grant.level.seats, lender.seats) == (2, 2)

    assert [control.enter(grant) for _ in range(4)] == [True, True, True, False]

    lender.executing = 1
    assert lender.executing < lender.seats


async def test_new_configuration_counts_at_once_and_the_mandatory_one_always():
    control = small(1)
    assert control.classify(user("alice"), PODS).schema.name == "all"

    control.configure([], [])

    assert control.classify(user("alice"), PODS).schema.name == "catch-all"
    assert control.classify(user("root", "system:masters"), PODS).schema.name == "exempt"


async def test_a_flow_is_dealt_the_same_few_queues_every_time():
    assert hand("schema/alice", 64, 6) == hand("schema/alice", 64, 6)
    assert len(set(hand("schema/alice", 64, 6))) == 6
    assert all(0 <= number < 64 for number in hand("schema/alice", 64, 6))
    hands = {frozenset(hand(f"schema/u{n}", 64, 6)) for n in range(100)}
    assert len(hands) == 100


SCHEMAS = f"/apis/{defaults.GROUP}/v1/flowschemas"
LEVELS = f"/apis/{defaults.GROUP}/v1/prioritylevelconfigurations"


async def settled(check):
    """Wait, a moment at most, until something the server does by itself has happened."""
    async with asyncio.timeout(20):
        while not (found := await check()):
            await SYSTEM.sleep(0.01)
    return found


async def test_the_default_objects_are_there_and_not_dangling(api):
    listed = (await api.get(SCHEMAS)).json["items"]
    levels = (await api.get(LEVELS)).json["items"]

    assert {one["metadata"]["name"] for one in levels} == {
        *("exempt", "catch-all", "system", "node-high", "leader-election"),
        *("workload-high", "workload-low", "global-default"),
    }
    assert len(listed) == 11

    async def told():
        one = (await api.get(f"{SCHEMAS}/exempt")).json
        return (one.get("status") or {}).get("conditions")

    (condition,) = await settled(told)
    assert (condition["type"], condition["status"]) == ("Dangling", "False")


async def test_a_stored_schema_decides_from_the_next_request_on(api):
    before = await api.get("/api/v1/namespaces/demo/pods", token="scheduler")
    schema = {
        "metadata": {"name": "mine"},
        "spec": {
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": 50,
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "system:kube-scheduler"}}],
                    "resourceRules": [
                        {
                            "verbs": ["*"],
                            "apiGroups": ["*"],
                            "resources": ["*"],
                            "namespaces": ["*"],
                        }
                    ],
                }
            ],
        },
    }
    made = await api.create(SCHEMAS, schema)
    assert made.code == 201

    async def moved():
        reply = await api.get("/api/v1/namespaces/demo/pods", token="scheduler")
        return reply.headers["x-kubernetes-pf-flowschema-uid"] == made.json["metadata"]["uid"]

    await settled(moved)
    assert before.headers["x-kubernetes-pf-flowschema-uid"] != made.json["metadata"]["uid"]
    await api.delete(f"{SCHEMAS}/mine")


async def test_a_schema_of_a_level_that_does_not_exist_is_told_so(api):
    spec = {"priorityLevelConfiguration": {"name": "nosuch"}, "matchingPrecedence": 60}
    assert (await api.create(SCHEMAS, {"metadata": {"name": "lost"}, "spec": spec})).code == 201

    async def told():
        one = (await api.get(f"{SCHEMAS}/lost")).json
        return (one.get("status") or {}).get("conditions")

    (condition,) = await settled(told)
    assert (condition["status"], condition["reason"]) == ("True", "NotFound")


async def test_a_full_class_is_told_to_come_back_and_others_are_served(api):
    level = api.app.flow.levels["global-default"]
    catch_all = api.app.flow.levels["catch-all"]
    level.seats = catch_all.seats = 0
    level.limits = catch_all.limits  # refuses at once
    for lender in api.app.flow.levels.values():
        lender.seats = 0

    refused = await api.get("/api/v1/namespaces/demo/pods", token="proxy")

    assert (refused.code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json["reason"] == "TooManyRequests"
    assert (await api.get("/api/v1/namespaces/demo/pods")).code == 200
    numbers = (await api.get("/metrics")).body.decode()
    wanted = 'apiserver_flowcontrol_rejected_requests_total{priority_level="global-default"'
    assert wanted in numbers


async def test_watches_hold_no_seat_once_they_have_begun(api):
    url = "/api/v1/namespaces/demo/pods?watch=true"
    async with api.watch(url, token="proxy"), api.watch(url, token="proxy"):
        assert all(level.executing == 0 for level in api.app.flow.levels.values())
