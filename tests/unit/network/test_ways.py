"""Which addresses of Services need a way; the ways themselves are in tests/network."""

import msgspec

from motley.api.views.core import Service
from motley.network.proxy import ways


def service(**spec):
    document = {"metadata": {"name": "a", "namespace": "default"}, "spec": spec}
    return msgspec.convert(document, Service)


def test_only_addresses_outside_the_clusters_ranges_need_a_route():
    found = ways.outside({"10.96.0.3", "10.6.1.1", "10.244.3.4"}, ["10.96.0.0/16", "10.244.0.0/16"])
    assert found == {"10.6.1.1"}


def test_services_without_an_address_of_their_own_need_none():
    found = ways.virtual(
        [
            service(clusterIP="10.6.1.1"),
            service(clusterIP="10.96.0.7", clusterIPs=["10.96.0.7", "fd00::7"]),
            service(clusterIP="None", clusterIPs=["None"]),
            service(type="ExternalName"),
            None,
        ]
    )
    assert found == {"10.6.1.1", "10.96.0.7"}
