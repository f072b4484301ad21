"""What containers that ran out of memory teach, once."""

import pytest

from motley.api import recommendation
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.autoscale import vpa
from motley.autoscale.past import Past
from motley.autoscale.vpa import Settings
from motley.controllers.resizing import Ooms
from motley.lib.clock import rfc3339

NOW = 1_700_000_000.0
MIB = float(1 << 20)
KEY = Key("d", "web")
SETTINGS = Settings()


def pod(limit_mib, *, at=NOW, request_mib=None, uid="u", state="lastState", reason="OOMKilled"):
    ended = {"terminated": {"reason": reason, "finishedAt": rfc3339(at), "exitCode": 137}}
    memory = {
        "requests": {"memory": f"{request_mib or limit_mib}Mi"},
        "limits": {"memory": f"{limit_mib}Mi"},
    }
    return Pod.of(
        {
            "metadata": {"name": "p", "uid": uid},
            "spec": {"containers": [{"name": "c", "resources": memory}]},
            "status": {"containerStatuses": [{"name": "c", state: ended}]},
        }
    )


def needed(ooms, pods, now=NOW, recommended=()):
    found = ooms.look(KEY, pods, recommended, now)
    return [round(one.needed / MIB) for one in found.get("c", ())]


def a_past(memory):
    steps = 288
    return Past(
        NOW - steps * 300.0,
        300.0,
        [0.1] * steps,
        [0.1] * steps,
        [memory] * steps,
        [0.1] * steps,
        [memory] * steps,
        [1.0] * steps,
    )


def test_one_end_for_lack_of_memory_raises_the_memory_once():
    ooms, past, size = Ooms(NOW - 60, SETTINGS), a_past(400 * MIB), 512
    sizes = []
    for look in range(10):
        running = pod(size)  # its status tells of the end for as long as it lives
        listed = ooms.look(KEY, [running], (), NOW + 60 * look).get("c", ())
        made = vpa.recommend(past, past, NOW, SETTINGS, listed)
        if made.lower.memory > size * MIB:  # resized in place
            size = int(recommendation.written({"memory": made.target.memory})["memory"][:-2])
        sizes.append(size)
    assert sizes == [707] * 10, "512 MiB and a fifth, and the margin"


def test_an_end_after_that_raises_it_again():
    ooms = Ooms(NOW - 60, SETTINGS)
    assert needed(ooms, [pod(512)]) == [614]
    assert needed(ooms, [pod(707)]) == [614]
    assert needed(ooms, [pod(707, at=NOW + 600)], NOW + 660) == [614, 848]


def test_what_a_pod_taught_outlives_it_for_a_week():
    ooms = Ooms(NOW - 60, SETTINGS)
    assert needed(ooms, [pod(512)]) == [614]
    assert needed(ooms, [], NOW + 6 * 86400) == [614]
    assert needed(ooms, [], NOW + 8 * 86400) == []


def test_after_a_restart_what_was_answered_is_not_answered_again():
    again = Ooms(NOW + 600, SETTINGS)
    assert needed(again, [pod(707)], NOW + 660, recommended={"c"}) == [round(707 / 1.15)]
    first = Ooms(NOW + 600, SETTINGS)
    assert needed(first, [pod(512)], NOW + 660) == [614], "nobody has answered it yet"


def test_a_container_that_ends_all_the_time_leaves_a_bounded_memory():
    ooms = Ooms(NOW - 60, SETTINGS)
    for index in range(1200):
        ooms.look(KEY, [pod(512, at=NOW + index, uid=str(index))], (), NOW + index)
    assert len(needed(ooms, [], NOW + 1200)) == 1000
    ooms.forget(KEY)
    assert needed(ooms, [], NOW + 1200) == []


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(512, state="state"), [614]),
        (pod(512, reason="Error"), []),
        (pod(512, request_mib=100), [614]),
    ],
)
def test_what_counts_is_the_limit_of_a_container_that_was_killed(one, expected):
    assert needed(Ooms(NOW - 60, SETTINGS), [one]) == expected
