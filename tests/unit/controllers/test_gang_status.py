"""What PodGroups and ElasticQuotas say of themselves."""

import pytest

from motley.api.views.pod import Pod
from motley.api.views.scheduling import ElasticQuota, PodGroup
from motley.controllers import elasticquota, podgroup

NOW = 1_800_000_000.0


def pods(text: str) -> list[Pod]:
    """One letter each: w waits, p has a node, r runs, s succeeded, f failed."""
    phases = {"w": "Pending", "p": "Pending", "r": "Running", "s": "Succeeded", "f": "Failed"}
    owner = {"kind": "Job", "name": "j", "uid": "u"}
    return [
        Pod.of(
            {
                "metadata": {"name": f"p{i}", "namespace": "d", "ownerReferences": [owner]},
                "spec": {"nodeName": "" if letter == "w" else "n"},
                "status": {"phase": phases[letter]},
            }
        )
        for i, letter in enumerate(text)
    ]


@pytest.mark.parametrize(
    ("members", "phase"),
    [
        ("", "Pending"),
        ("ww", "Pending"),
        ("www", "PreScheduling"),
        ("wpw", "Scheduling"),
        ("wrr", "Scheduling"),
        ("ppp", "Scheduled"),
        ("prr", "Scheduled"),
        ("rrr", "Running"),
        ("rrs", "Running"),
        ("rss", "Running"),
        ("sss", "Finished"),
        ("sssw", "Finished"),
        ("rrf", "Failed"),
        ("rrrf", "Running"),  # the failed one was replaced
        ("fww", "Scheduling"),
        ("fff", "Failed"),
    ],
)
def test_the_phase_follows_from_the_members(members, phase):
    assert podgroup.phase(3, pods(members)) == phase


def test_the_state_counts_and_remembers_when_it_began():
    group = PodGroup.of({"metadata": {"name": "g"}, "spec": {"minMember": 3}})
    state = podgroup.state(group, pods("wprsf"), NOW)
    assert state == {
        "phase": "Failed",
        "occupiedBy": "d/j",
        "scheduled": 4,
        "running": 1,
        "succeeded": 1,
        "failed": 1,
        "scheduleStartTime": "2027-01-15T08:00:00Z",
    }
    group.status.schedule_start_time = "2026-01-01T00:00:00Z"
    assert podgroup.state(group, [], NOW)["scheduleStartTime"] == "2026-01-01T00:00:00Z"
    group.status.schedule_start_time = None
    assert podgroup.state(group, [], NOW)["scheduleStartTime"] is None


def pod(cpu: str, *, node: str = "n", phase: str = "Running") -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec = {"containers": [container], "nodeName": node, "overhead": {"cpu": "100m"}}
    return Pod.of({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}})


def test_what_is_used_is_what_pods_with_a_node_request():
    quota = ElasticQuota.of({"spec": {"min": {"cpu": 2}, "max": {"cpu": 4, "pods": 10}}})
    counted = [
        pod("900m"),
        pod("500m", phase="Pending"),
        pod("1", node=""),
        pod("1", phase="Succeeded"),
        pod("1", phase="Failed"),
    ]
    found = elasticquota.used(quota, [elasticquota.requests(one) for one in counted])
    assert found == {"cpu": "1600m", "pods": "2"}
    assert elasticquota.used(quota, []) == {"cpu": "0", "pods": "0"}
