"""Triggers: which moments are due, which function a path means, what an Invocation is called."""

import pytest

from motley.api.views.base import ObjectMeta
from motley.api.views.trigger import HTTPSource, Trigger, TriggerSpec
from motley.controllers import cron
from motley.serverless.triggers import firing
from motley.serverless.triggers.routes import Routes, Target

MINUTES = cron.read("*/5 * * * *")


def test_the_latest_missed_moment_is_made_up_for_once():
    assert firing.moment(MINUTES, last=0.0, now=299.0, deadline_s=600) == (None, 300)
    assert firing.moment(MINUTES, last=0.0, now=300.0, deadline_s=600) == (300, 600)
    assert firing.moment(MINUTES, last=0.0, now=950.0, deadline_s=600) == (900, 1200)
    assert firing.moment(MINUTES, last=900.0, now=950.0, deadline_s=600) == (None, 1200)


def test_a_moment_that_is_too_old_is_let_go():
    assert firing.moment(MINUTES, last=0.0, now=895.0, deadline_s=100) == (None, 900)


def test_years_of_missed_moments_do_not_take_years():
    year = 365 * 86400.0
    found = firing.moment(cron.read("* * * * *"), last=0.0, now=year, deadline_s=10 * year)
    assert found.due is not None


def trigger(name="t", uid="u", **spec):
    return Trigger(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid, creation_timestamp=f"2026-{name}"),
        spec=TriggerSpec(**spec),
    )


def test_an_invocation_is_called_after_what_it_is_of_so_that_it_is_made_once():
    one = firing.invocation(trigger(function="f"), "300", firing.tick(300))
    assert one == firing.invocation(trigger(function="f"), "300", firing.tick(300))
    assert one["spec"] == {"function": "f", "arg": {"time": "1970-01-01T00:05:00Z"}}
    other = firing.invocation(trigger(function="f"), "600", None)
    recreated = firing.invocation(trigger(function="f", uid="v"), "300", None)
    names = {body["metadata"]["name"] for body in (one, other, recreated)}
    assert len(names) == 3


def test_an_argument_of_ones_own_takes_the_place_of_the_event():
    body = firing.invocation(trigger(workflow="w", arg={"a": 1}), "x", {"time": "now"})
    assert body["spec"] == {"workflow": "w", "arg": {"a": 1}}


def http(name, host, path, function, **more):
    return trigger(name, http=HTTPSource(host=host, path=path), function=function, **more)


ROUTES = Routes(
    [
        http("a", "", "/", "any"),
        http("b", "shop.example", "/", "shop"),
        http("c", "shop.example", "/cart", "cart"),
        http("d", "", "/cart/long", "long"),
        http("e", "shop.example", "/cart", "younger"),
        http("f", "shop.example", "/cart/off", "off", suspend=True),
    ]
)


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("shop.example:8443", "/cart/1", Target("ns", "cart", "/1")),
        ("SHOP.example.", "/cart", Target("ns", "cart", "/")),
        ("shop.example", "/carts", Target("ns", "shop", "/carts")),
        ("shop.example", "/cart/off", Target("ns", "cart", "/off")),
        ("other.example", "/cart/long/x", Target("ns", "long", "/x")),
        ("[::1]:80", "/", Target("ns", "any", "/")),
    ],
)
def test_the_host_counts_first_then_the_longest_path_then_who_was_there_before(
    host, path, expected
):
    assert ROUTES.find(host, path) == expected


def test_where_no_trigger_fits_there_is_no_function():
    assert Routes([http("a", "x", "/a", "f")]).find("x", "/b") is None
