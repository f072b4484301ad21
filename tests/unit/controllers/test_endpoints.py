from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.core import EndpointSlice, Service
from motley.api.views.pod import Pod
from motley.controllers import endpoints


def service(*, ports=None, **spec):
    ports = ports if ports is not None else [{"port": 80, "targetPort": 8080}]
    return Service.of(
        {
            "metadata": {"name": "web", "namespace": "n", "uid": "svc", "labels": {"team": "t"}},
            "spec": {"selector": {"app": "a"}, "ports": ports, **spec},
        }
    )


def pod(name, *, ip="10.0.0.1", ready=True, phase="Running", deleted=False, port=None, **spec):
    meta = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    containers = [{"name": "c", "ports": [{"name": "http", "containerPort": port}]}] if port else []
    return Pod.of(
        {
            "metadata": meta,
            "spec": {"nodeName": "node-1", "containers": containers, **spec},
            "status": {
                "phase": phase,
                "podIP": ip,
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
    )


def conditions(target):
    c = target.conditions
    return c.ready, c.serving, c.terminating


def test_conditions_follow_readiness_and_termination():
    web = service()
    assert conditions(endpoints.endpoint(web, pod("a"))) == (True, True, False)
    assert conditions(endpoints.endpoint(web, pod("a", ready=False))) == (False, False, False)
    assert conditions(endpoints.endpoint(web, pod("a", deleted=True))) == (False, True, True)
    early = service(publishNotReadyAddresses=True)
    assert conditions(endpoints.endpoint(early, pod("a", ready=False))) == (True, False, False)


def test_pods_without_an_address_or_ended_are_no_endpoints():
    assert endpoints.endpoint(service(), pod("a", ip="")) is None
    assert endpoints.endpoint(service(), pod("a", phase="Succeeded")) is None


def test_an_endpoint_names_its_pod_node_zone_and_hostname():
    target = endpoints.endpoint(service(), pod("a", hostname="h", subdomain="web"), "east")
    assert (target.node_name, target.zone, target.hostname) == ("node-1", "east", "h")
    assert (target.target_ref.kind, target.target_ref.uid) == ("Pod", "uid-a")
    assert endpoints.endpoint(service(), pod("a", hostname="h", subdomain="x")).hostname == ""


def test_a_named_port_is_resolved_in_each_pod():
    named = service(ports=[{"name": "w", "port": 80, "targetPort": "http"}])
    wanted = endpoints.wanted(
        named, [pod("a", port=1), pod("b", port=2), pod("c", port=1), pod("d")]
    )
    assert {shape[1]: len(e) for shape, e in wanted.items()} == {
        (("w", "TCP", 1, ""),): 2,
        (("w", "TCP", 2, ""),): 1,
        (): 1,
    }


def test_a_service_without_endpoints_has_one_empty_slice():
    plan = endpoints.plan(endpoints.origin(service()), endpoints.wanted(service(), []), [])
    (body,) = plan.create
    assert body["endpoints"] == []
    assert body["metadata"]["labels"] == {
        "team": "t",
        endpoints.SERVICE_NAME: "web",
        endpoints.MANAGED_BY: endpoints.CONTROLLER,
    }


def test_selectorless_and_external_services_are_left_alone():
    assert not endpoints.has_endpoints(service(selector={}))
    assert not endpoints.has_endpoints(service(type="ExternalName"))
    assert endpoints.has_endpoints(service())


def test_a_headless_service_is_labelled():
    headless = endpoints.origin(service(clusterIP="None"))
    plan = endpoints.plan(headless, {("IPv4", ()): []}, [])
    assert plan.create[0]["metadata"]["labels"][endpoints.HEADLESS] == ""


class World:
    """Slices as a server would keep them."""

    def __init__(self):
        self.slices, self.names, self.writes = {}, 0, 0

    def settle(self, web, pods, limit):
        plan = endpoints.plan(
            endpoints.origin(web), endpoints.wanted(web, pods), list(self.slices.values()), limit
        )
        for body in plan.create:
            self.names += 1
            self._put(f"s{self.names}", body)
        for piece, body in plan.update:
            self._put(piece.metadata.name, body)
        for piece in plan.delete:
            del self.slices[piece.metadata.name]
        self.writes = len(plan.create) + len(plan.update) + len(plan.delete)

    def _put(self, name, body):
        meta = {**body["metadata"], "name": name}
        self.slices[name] = EndpointSlice.of({**body, "metadata": meta})

    def uids(self):
        return sorted(e.target_ref.uid for s in self.slices.values() for e in s.endpoints)


def test_nothing_is_written_when_nothing_changed():
    world, web = World(), service()
    pods = [pod(str(i), ip=f"10.0.0.{i}") for i in range(1, 8)]
    world.settle(web, pods, 3)
    assert len(world.slices) == 3
    world.settle(web, pods, 3)
    assert world.writes == 0


def test_one_pods_change_rewrites_one_slice():
    world, web = World(), service()
    pods = [pod(f"{i:03d}", ip=f"10.0.{i // 250}.{i % 250}") for i in range(1, 500)]
    world.settle(web, pods, 100)
    assert len(world.slices) == 5
    pods[250] = pod("251", ip=pods[250].status.pod_ip, ready=False)
    world.settle(web, pods, 100)
    assert world.writes == 1


def test_going_to_zero_and_back_keeps_the_slice():
    world, web = World(), service()
    world.settle(web, [pod("a")], 100)
    (name,) = world.slices
    world.settle(web, [], 100)
    world.settle(web, [pod("b")], 100)
    assert list(world.slices) == [name]
    assert world.uids() == ["uid-b"]


def test_a_changed_port_moves_the_endpoints_to_new_slices():
    world = World()
    world.settle(service(), [pod("a")], 100)
    world.settle(service(ports=[{"port": 80, "targetPort": 9090}]), [pod("a")], 100)
    (piece,) = world.slices.values()
    assert piece.ports[0].port == 9090


@given(st.lists(st.sets(st.integers(1, 40)), min_size=1, max_size=8), st.integers(1, 7))
def test_slices_always_hold_exactly_the_wanted_endpoints(history, limit):
    world, web = World(), service()
    for present in history:
        pods = [pod(str(i), ip=f"10.0.0.{i}", ready=i % 3 > 0) for i in sorted(present)]
        world.settle(web, pods, limit)
        assert world.uids() == sorted(f"uid-{i}" for i in present)
        assert all(len(s.endpoints) <= limit for s in world.slices.values())
        assert len(world.slices) >= 1
        assert len(present) == 0 or all(s.endpoints for s in world.slices.values())
        world.settle(web, pods, limit)
        assert world.writes == 0
