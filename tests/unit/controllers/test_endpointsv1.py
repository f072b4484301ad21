"""Endpoints from pods, and slices from hand-written Endpoints."""

from motley.api.views.core import Service
from motley.api.views.pod import Pod
from motley.controllers.endpointslicemirroring import is_mirrored, mirrored
from motley.controllers.endpointsv1 import CAPACITY, Endpoints, subsets


def service(ports=None, **spec):
    ports = [{"port": 80, "targetPort": 8080}] if ports is None else ports
    return Service.of(
        {
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {"selector": {"app": "a"}, "ports": ports, **spec},
        }
    )


def pod(name, ip, *, ready=True, deleted=False, port=None):
    meta = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"name": "http", "containerPort": port}] if port else []
    conditions = [{"type": "Ready", "status": str(ready)}]
    return Pod.of(
        {
            "metadata": meta,
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": conditions},
        }
    )


def test_ready_and_unready_addresses_stand_apart_and_the_leaving_are_left_out():
    pods = [pod("b", "10.0.0.2"), pod("a", "10.0.0.1"), pod("c", "10.0.0.3", ready=False)]
    pods.append(pod("d", "10.0.0.4", deleted=True))
    (subset,), cut = subsets(service(), pods)
    assert not cut
    assert [a["ip"] for a in subset["addresses"]] == ["10.0.0.1", "10.0.0.2"]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["10.0.0.3"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    first = subset["addresses"][0]
    assert first["nodeName"] == "node-1"
    assert first["targetRef"] == {"kind": "Pod", "namespace": "n", "name": "a", "uid": "uid-a"}


def test_a_service_that_publishes_early_shows_even_the_leaving():
    early = service(publishNotReadyAddresses=True)
    pods = [pod("a", "10.0.0.1", ready=False), pod("b", "10.0.0.2", deleted=True)]
    (subset,), _ = subsets(early, pods)
    assert {a["ip"] for a in subset["addresses"]} == {"10.0.0.1", "10.0.0.2"}


def test_a_named_port_that_differs_makes_two_subsets_and_one_that_is_missing_none():
    named = service(ports=[{"name": "web", "port": 80, "targetPort": "http"}])
    pods = [pod("a", "10.0.0.1", port=1), pod("b", "10.0.0.2", port=2), pod("c", "10.0.0.3")]
    found, _ = subsets(named, pods)
    assert [s["ports"][0]["port"] for s in found] == [1, 2]
    assert all(len(s["addresses"]) == 1 for s in found)


def test_a_headless_service_without_ports_has_addresses_all_the_same():
    found, _ = subsets(service(ports=[], clusterIP="None"), [pod("a", "10.0.0.1")])
    assert [list(s) for s in found] == [["addresses"]]


def test_a_thousand_addresses_are_enough_and_ready_ones_come_first():
    many = [pod(f"u-{i}", f"10.1.{i // 200}.{i % 200}", ready=False) for i in range(600)]
    many += [pod(f"r-{i}", f"10.2.{i // 200}.{i % 200}") for i in range(600)]
    (subset,), cut = subsets(service(), many)
    assert cut
    assert len(subset["addresses"]) == 600
    assert len(subset["notReadyAddresses"]) == CAPACITY - 600


def written(**meta):
    return Endpoints.of({"metadata": {"name": "db", "namespace": "n", **meta}})


def test_only_a_hand_written_list_of_a_service_without_a_selector_is_mirrored():
    plain = Service.of({"metadata": {"name": "db", "namespace": "n"}})
    assert is_mirrored(written(), plain)
    assert not is_mirrored(written(), None)
    assert not is_mirrored(written(), service())
    skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    assert not is_mirrored(written(labels=skip), plain)
    ours = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert not is_mirrored(written(labels=ours), plain)
    lock = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    assert not is_mirrored(written(annotations=lock), plain)


def test_a_mirror_keeps_families_ports_and_readiness_apart():
    found = Endpoints.of(
        {
            "metadata": {"name": "db", "namespace": "n"},
            "subsets": [
                {
                    "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}],
                    "notReadyAddresses": [{"ip": "192.0.2.2", "hostname": "two"}],
                    "ports": [{"name": "pg", "port": 5432}],
                }
            ],
        }
    )
    result = mirrored(found)
    ports = (("pg", "TCP", 5432, ""),)
    four = result["IPv4", ports]
    assert [(e.addresses, e.conditions.ready) for e in four] == [
        (["192.0.2.1"], True),
        (["192.0.2.2"], False),
    ]
    assert [e.addresses for e in result["IPv6", ports]] == [["2001:db8::1"]]
    assert mirrored(written()) == {("IPv4", ()): []}
