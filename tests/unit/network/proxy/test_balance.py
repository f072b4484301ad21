"""Turns by weight, hints, and what load balancers are told."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.base import Key
from motley.api.views.core import Endpoint, EndpointSlice, Service
from motley.network.proxy import balance, healthcheck
from motley.network.proxy.endpoints import Surroundings, Target, hinted, speed
from motley.network.proxy.fragments import fragment
from motley.network.proxy.layout import Settings

speeds = st.lists(
    st.fractions(min_value=Fraction(1, 20), max_value=20, max_denominator=1000),
    min_size=1,
    max_size=40,
)


@given(speeds)
def test_shares_fit_a_round_leave_nobody_out_and_are_near_the_weights(weights):
    counts = balance.shares(weights)
    most = max(balance.SLOTS, 4 * len(weights))
    assert sum(counts) <= most
    assert min(counts) >= 1
    for weight, count in zip(weights, counts, strict=True):
        ideal = weight / sum(weights) * sum(counts)
        assert count == 1 or count < ideal + 1


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("2 1 1", [2, 1, 1]), ("3 3 3", [1, 1, 1]), ("1.5 1", [3, 2]), ("1000 1", [63, 1])],
)
def test_simple_ratios_are_exact(weights, expected):
    assert balance.shares([Fraction(w) for w in weights.split()]) == expected


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_a_round_has_every_share_and_spreads_it_out(counts):
    order = balance.turns(counts)
    assert [order.count(i) for i in range(len(counts))] == counts
    for i, count in enumerate(counts):
        half = len(order) // 2
        assert abs(order[:half].count(i) - count / 2) <= 1


def test_a_node_says_how_fast_it_is_by_label_then_by_estimate():
    estimated = {"motley.io/estimated-speed": "1.25"}
    assert speed({"hice.kj": "2.5"}, estimated) == Fraction(5, 2)
    assert speed({"hice.kj": "fast"}, estimated) == Fraction(5, 4)
    assert speed({"hice.kj": "0"}, {}) is None


def weighted(**spec):
    return Service.of(
        {
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "annotations": {"motley.io/endpoint-weights": "speed"},
            },
            "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}], **spec},
        }
    )


PIECE = EndpointSlice.of(
    {
        "metadata": {"name": "web-1", "namespace": "shop"},
        "ports": [{"port": 8080}],
        "endpoints": [
            {"addresses": ["10.244.1.2"], "nodeName": "fast", "conditions": {"ready": True}},
            {"addresses": ["10.244.2.2"], "nodeName": "slow", "conditions": {"ready": True}},
        ],
    }
)


def test_sticky_clients_are_first_given_out_by_weight_too():
    around = Surroundings(speeds={"fast": Fraction(3)})
    made = fragment(weighted(sessionAffinity="ClientIP"), [PIECE], Settings("n"), around)
    (chain,) = (c for name, c in made.chains.items() if name.startswith("svc-"))
    assert chain.rules[-1].startswith("numgen inc mod 4 vmap")
    assert chain.rules[-1].count("10.244.1.2") == 3


def candidates(*hints, ready=True):
    return [
        (
            Target(f"10.244.1.{i}", 80),
            msgspec.convert({"hints": hint, "conditions": {"ready": ready}}, Endpoint),
        )
        for i, hint in enumerate(hints)
    ]


def zone(name):
    return {"forZones": [{"name": name}]}


def node(name):
    return {"forNodes": [{"name": name}], **zone("z")}


@pytest.mark.parametrize(
    ("hints", "chosen"),
    [
        ([zone("east"), zone("west")], [0]),
        ([zone("east"), None], [0, 1]),
        ([zone("north"), zone("west")], [0, 1]),
        ([node("here"), node("there")], [0]),
        ([{**node("there"), **zone("east")}, node("there")], [0]),
    ],
)
def test_hints_count_when_all_have_one_and_one_is_for_us(hints, chosen):
    found = hinted(candidates(*hints), "here", "east")
    assert [t.ip for t, _ in found] == [f"10.244.1.{i}" for i in chosen]


def test_a_node_without_a_zone_and_endpoints_that_end_follow_no_hints():
    assert len(hinted(candidates(zone("east"), zone("")), "here", "")) == 2
    assert len(hinted(candidates(zone("east"), zone("west"), ready=False), "here", "east")) == 2


def test_only_local_load_balancers_are_health_checked():
    balanced = {"type": "LoadBalancer", "healthCheckNodePort": 31000}
    local = weighted(**balanced, externalTrafficPolicy="Local")
    assert healthcheck.check(local, [PIECE], "fast") == healthcheck.Check(31000, 1)
    assert healthcheck.check(local, [PIECE], "other") == healthcheck.Check(31000, 0)
    assert healthcheck.check(weighted(**balanced), [PIECE], "fast") is None
    assert healthcheck.check(None, [], "fast") is None
    assert b"503" in healthcheck.answer(Key("shop", "web"), 1, False).partition(b"\r\n")[0]
