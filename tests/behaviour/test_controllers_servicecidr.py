"""ServiceCIDRs with a real API server and the real controller."""

import pytest

from motley.api import status
from motley.api.views.core import Service
from motley.controllers.servicecidr import IPAddress, ServiceCIDR, is_needed


def cidr(name, *cidrs):
    return ServiceCIDR.of({"metadata": {"name": name}, "spec": {"cidrs": list(cidrs)}})


def test_a_range_is_needed_while_it_alone_has_an_address():
    small, large = cidr("small", "10.6.0.0/24"), cidr("large", "10.6.0.0/16", "fd00::/112")

    assert is_needed(small, [small], ["10.6.0.1"])
    assert not is_needed(small, [small], ["10.7.0.1"])
    assert not is_needed(small, [small, large], ["10.6.0.1"])
    assert is_needed(large, [small, large], ["10.6.0.1", "10.6.1.1"])
    assert is_needed(large, [small, large], ["fd00::1"])


def test_a_range_that_is_being_deleted_itself_does_not_stand_in_for_another():
    going = cidr("going", "10.6.0.0/16")
    going.metadata.deletion_timestamp = "2026-11-16T00:00:00Z"

    assert is_needed(cidr("small", "10.6.0.0/24"), [going], ["10.6.0.1"])


def service(name, address):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}


async def test_a_range_serves_addresses_and_outlives_its_deletion_while_one_is_held(cluster):
    async with cluster() as c:
        await c.client.create(
            ServiceCIDR, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.6.0.0/24"]}}
        )

        async def condition(wanted):
            found = await c.client.get(ServiceCIDR, "more")
            return wanted in [(x.status, x.reason) for x in found.status.conditions]

        await c.eventually(lambda: condition(("True", "")), "the range is ready")
        await c.create(Service, service("a", "10.6.0.1"))
        assert (await c.client.get(IPAddress, "10.6.0.1")).is_given_out

        await c.client.delete(ServiceCIDR, "more")
        await c.eventually(lambda: condition(("False", "Terminating")), "the range waits")
        with pytest.raises(status.Invalid):
            await c.create(Service, service("b", "10.6.0.2"))

        await c.delete(Service, "a")

        async def gone():
            try:
                await c.client.get(ServiceCIDR, "more")
            except status.NotFound:
                return True
            return False

        await c.eventually(gone, "the range goes")
