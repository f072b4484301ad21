"""Endpoints of both forms, followed through a Service's life."""

from motley.api.views.core import EndpointSlice, Service
from motley.controllers.endpointsv1 import Endpoints
from motley.controllers.workload import Deployment

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


async def test_endpoints_follow_the_pods_and_go_with_the_service(cluster):
    async with cluster() as c:
        selector = {"matchLabels": {"app": "web"}}
        spec = {"replicas": 3, "selector": selector, "template": TEMPLATE}
        ports = [{"port": 80, "targetPort": 8080}]
        await c.create(
            Service,
            {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}},
        )
        await c.create(Deployment, {"metadata": {"name": "web"}, "spec": spec})

        async def addresses(count):
            if not await c.exists(Endpoints, "web"):
                return False
            found = (await c.get(Endpoints, "web")).subsets or []
            return sum(len(s.get("addresses", ())) for s in found) == count

        await c.eventually(lambda: addresses(3), "three addresses")
        await c.patch(Deployment, "web", {"spec": {"replicas": 1}})
        await c.eventually(lambda: addresses(1), "one address")
        labels = {"service.kubernetes.io/headless": None}
        await c.patch(Service, "web", {"metadata": {"labels": {"team": "a", **labels}}})

        async def labelled():
            return (await c.get(Endpoints, "web")).metadata.labels.get("team") == "a"

        await c.eventually(labelled, "labels follow the Service")
        await c.delete(Service, "web")

        async def gone():
            return not await c.exists(Endpoints, "web")

        await c.eventually(gone, "Endpoints go with their Service")


async def test_hand_written_endpoints_become_slices_and_follow_changes(cluster):
    async with cluster() as c:
        await c.create(Service, {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})
        subset = {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5432}]}
        await c.create(Endpoints, {"metadata": {"name": "db"}, "subsets": [subset]})

        async def mirrored(*wanted):
            found = await c.list(EndpointSlice, label_selector="kubernetes.io/service-name=db")
            shown = [a for s in found for e in s.endpoints for a in e.addresses]
            return sorted(shown) == sorted(wanted)

        await c.eventually(lambda: mirrored("192.0.2.1"), "mirrored")
        more = {**subset, "addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}
        await c.patch(Endpoints, "db", {"subsets": [more]})
        await c.eventually(lambda: mirrored("192.0.2.1", "192.0.2.2"), "the mirror follows")
        await c.delete(Endpoints, "db")

        async def none():
            return not await c.list(EndpointSlice, label_selector="kubernetes.io/service-name=db")

        await c.eventually(none, "the mirror goes")
