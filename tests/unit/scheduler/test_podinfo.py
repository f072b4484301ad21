"""What a pod asks for, computed once."""

import pytest

from motley.api.views.pod import ContainerPort, Pod
from motley.scheduler.podinfo import PodInfos, normalized_image, pod_requests


def _pod(containers, init=(), overhead=None, resources=None) -> Pod:
    def container(index, wanted):
        name, policy, requests = f"c{index}", "", wanted
        if isinstance(wanted, tuple):
            policy, requests = wanted
        return {
            "name": name,
            "image": "i",
            "resources": {"requests": requests},
            "restartPolicy": policy,
        }

    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "containers": [container(i, c) for i, c in enumerate(containers)],
                "initContainers": [container(i, c) for i, c in enumerate(init)],
                "overhead": overhead or {},
                **({"resources": {"requests": resources}} if resources else {}),
            },
        }
    )


def test_containers_add_up():
    assert pod_requests(_pod([{"cpu": "250m", "memory": "1Gi"}, {"cpu": "1"}])) == {
        "cpu": 1250,
        "memory": 1 << 30,
    }


def test_the_largest_init_container_counts_when_it_needs_more_than_the_rest():
    pod = _pod([{"cpu": "100m", "memory": "1Gi"}], init=[{"cpu": "2"}, {"cpu": "1"}])
    assert pod_requests(pod) == {"cpu": 2000, "memory": 1 << 30}


def test_a_sidecar_adds_to_containers_and_to_the_init_containers_after_it():
    sidecar = ("Always", {"cpu": "500m"})
    before = _pod([{"cpu": "1"}], init=[{"cpu": "2"}, sidecar])
    after = _pod([{"cpu": "1"}], init=[sidecar, {"cpu": "2"}])
    assert pod_requests(before) == {"cpu": 2000}
    assert pod_requests(after) == {"cpu": 2500}


def test_overhead_comes_on_top_and_pod_level_requests_replace():
    pod = _pod([{"cpu": "1"}], overhead={"cpu": "250m"}, resources={"cpu": "3"})
    assert pod_requests(pod) == {"cpu": 3250}


def test_unstated_requests_count_as_the_defaults_per_container_when_scored():
    info = PodInfos().of(_pod([{}, {"cpu": "0"}]))
    assert (info.nonzero_cpu, info.nonzero_memory) == (100, 400 * 1024 * 1024)
    assert info.requests == {}


def test_requests_of_the_pod_as_a_whole_count_on_the_node_but_are_not_scored():
    """As the real scheduler does: its scorer adds up containers only."""
    pod = _pod([{"cpu": "1"}, {}], resources={"memory": "3Gi"})
    info = PodInfos().of(pod)
    assert (info.nonzero_cpu, info.nonzero_memory) == (1000, 3 << 30)
    assert (info.scored_cpu, info.scored_memory) == (1100, 400 * 1024 * 1024)


def test_in_the_nodes_own_network_a_containers_port_is_the_nodes(pod):
    def ports(**spec):
        made = pod(**spec)
        made.spec.containers[0].ports = [ContainerPort(container_port=7070)]
        return [(port.address, port.port) for port in PodInfos().of(made).host_ports]

    assert ports(hostNetwork=True) == [("0.0.0.0", 7070)]
    assert ports() == []


def test_pods_of_one_template_share_the_computation_and_others_do_not(pod):
    infos = PodInfos()
    a, b = infos.of(pod("a", requests={"cpu": "1"})), infos.of(pod("b", requests={"cpu": "1"}))
    other = infos.of(pod("c", requests={"cpu": "2"}))
    assert a.template == b.template != other.template
    assert (a.uid, b.uid, a.key.name, b.key.name) == ("a", "b", "a", "b")
    assert a.requests is b.requests


def test_the_template_cache_forgets_the_oldest_and_stays_right(pod):
    infos = PodInfos(capacity=2)
    for cpu in ("1", "2", "3", "1"):
        assert infos.of(pod(requests={"cpu": cpu})).requests["cpu"] == int(cpu) * 1000


def test_image_names_get_their_tag():
    assert normalized_image("nginx") == "nginx:latest"
    assert normalized_image("reg:5000/nginx") == "reg:5000/nginx:latest"
    assert normalized_image("reg:5000/nginx:1") == "reg:5000/nginx:1"


@pytest.mark.parametrize(
    ("asked", "allocated", "has", "reason", "counted"),
    [
        ("1", "1", "1", "", 1000),
        ("1", "1000m", None, "", 1000),
        ("500m", "2", "2", "", 2000),  # it shrinks, but has not yet
        ("500m", "500m", "2", "", 2000),
        ("3", "2", "2", "Deferred", 3000),  # it is to have that as soon as may be
        ("999", "2", "2", "Infeasible", 2000),  # it never will
        ("999", None, None, "Infeasible", 999_000),  # nobody says what it has
    ],
)
def test_a_pod_that_is_resized_counts_for_what_it_has_or_will_have(
    pod, asked, allocated, has, reason, counted
):
    placed = pod(requests={"cpu": asked, "memory": "1Gi"}, node="n")
    told = {"name": "c"}
    if allocated:
        told["allocatedResources"] = {"cpu": allocated, "memory": "1Gi"}
    if has:
        told["resources"] = {"requests": {"cpu": has, "memory": "1Gi"}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    status = {"containerStatuses": [told], "conditions": conditions if reason else []}
    placed.status = Pod.of({"status": status}).status
    info = PodInfos().of(placed)
    assert info.requests == {"cpu": counted, "memory": 1 << 30}
    assert info.pod is placed
