"""Ways to addresses of Services for the machine's own programs, in the real kernel."""

import json
import signal
import sys

import pytest

pytestmark = pytest.mark.root

OTHER = "10.6.1.1"  # in none of the cluster's ranges
INTERFACE = "minik8s-proxy0"


def answered_by(node, address):
    answers = node.http(address)
    return {answer[0] for answer in answers}


def gone(node, name):
    """A Service is deleted."""
    node.put_endpoints([], type_="DELETED", name=name)
    node.put_service(type_="DELETED", name=name, ip=OTHER)


def test_an_address_of_another_range_is_reached_until_its_service_is_gone(node):
    node.serve(["a"], name="other", ip=OTHER)
    node.eventually(lambda: answered_by(node, OTHER) == {"a"})
    # Who calls has the bridge's address, to which pods of other nodes find back.
    assert node.http(OTHER) == [["a", "10.244.1.1"]]
    node.run("ip", "route", "del", OTHER)
    node.put_service(name="more", ip="10.6.1.2")  # any change: what is missing is found
    node.eventually(lambda: answered_by(node, OTHER) == {"a"})
    gone(node, "other")
    node.eventually(lambda: OTHER not in node.run("ip", "route").stdout)
    assert "10.6.1.2" in node.run("ip", "route").stdout


@pytest.fixture
def holding(make_node):
    """A node whose Services' addresses are on an interface, as Minik8s has them."""
    node = make_node()
    node.ensure()
    node.start_api()
    node.start_proxy("--service-interface", INTERFACE)
    node.wait_ready()
    return node


def held(node):
    shown = node.run("ip", "-json", "addr", "show", "dev", INTERFACE, check=False)
    (link,) = json.loads(shown.stdout or "[{}]")
    return {a["local"] for a in link.get("addr_info", ()) if a["family"] == "inet"}


def test_an_interface_holds_every_services_address_when_asked_for(holding):
    client = holding.add_pod("client", server=False)
    holding.serve(["a"], name="web", ip="10.96.0.50")
    holding.serve(["b"], name="other", ip=OTHER)
    holding.eventually(lambda: held(holding) == {"10.96.0.50", OTHER})
    for asker in (holding, client):
        assert answered_by(asker, "10.96.0.50") == {"a"}
        assert answered_by(asker, OTHER) == {"b"}
    assert holding.http(OTHER) == [["b", "10.244.1.1"]]
    gone(holding, "other")
    holding.eventually(lambda: held(holding) == {"10.96.0.50"})
    assert answered_by(holding, "10.96.0.50") == {"a"}
    assert OTHER not in holding.run("ip", "route", "show", "table", "local").stdout
    holding.proxy.kill(signal.SIGTERM)
    code = (
        "import asyncio; from motley.network import cleanup;"
        "asyncio.run(cleanup.remove(bridge='motley0', table='motley', service_cidr='10.96.0.0/16',"
        f"cluster_cidr='10.244.0.0/16', service_interface={INTERFACE!r}))"
    )
    for _ in range(2):
        holding.run(sys.executable, "-W", "error", "-c", code)
        assert INTERFACE not in holding.run("ip", "-o", "link").stdout
