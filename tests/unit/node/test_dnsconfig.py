"""resolv.conf and /etc/hosts."""

from motley.api.views.pod import Pod
from motley.node import dnsconfig
from motley.node.dnsconfig import Resolver

HOST = dnsconfig.parse("# x\nsearch lan example.org\nnameserver 192.0.2.1\noptions edns0 ndots:2\n")
CLUSTER = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")


def resolver(**spec):
    pod = Pod.of({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    return dnsconfig.resolver(pod, HOST, ["10.96.0.10"], "cluster.local")


def test_a_hosts_file_is_understood():
    assert Resolver(("192.0.2.1",), ("lan", "example.org"), ("edns0", "ndots:2")) == HOST


def test_cluster_first_asks_the_cluster_and_keeps_the_hosts_searches():
    assert resolver() == Resolver(("10.96.0.10",), (*CLUSTER, "lan", "example.org"), ("ndots:5",))


def test_a_host_network_pod_uses_the_hosts_resolver_unless_it_says_otherwise():
    assert resolver(hostNetwork=True) == HOST
    chosen = resolver(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    assert chosen.servers == ("10.96.0.10",)


def test_default_is_the_hosts_and_none_is_nothing_but_what_is_given():
    assert resolver(dnsPolicy="Default") == HOST
    given = {
        "nameservers": ["1.1.1.1"],
        "searches": ["a.b"],
        "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}],
    }
    found = resolver(dnsPolicy="None", dnsConfig=given)
    assert found == Resolver(("1.1.1.1",), ("a.b",), ("ndots:3", "edns0"))


def test_dns_config_adds_without_repeating_and_overrides_options():
    given = {"searches": ["lan", "more"], "options": [{"name": "ndots", "value": "1"}]}
    found = resolver(dnsConfig=given)
    assert found.searches == (*CLUSTER, "lan", "example.org", "more")
    assert found.options == ("ndots:1",)


def test_a_long_pod_name_is_cut_to_a_host_name():
    pod = Pod.of({"metadata": {"name": "a" * 62 + "-tail"}, "spec": {}})
    assert dnsconfig.hostname(pod) == "a" * 62


def test_the_hosts_file_of_a_host_network_pod_is_the_hosts_with_aliases():
    spec = {"hostNetwork": True, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x", "y"]}]}
    pod = Pod.of({"metadata": {"name": "p"}, "spec": spec})
    text = dnsconfig.hosts(pod, [], "cluster.local", "127.0.0.1 localhost\n")
    assert text.splitlines()[0] == "# Kubernetes-managed hosts file (host network)."
    assert "127.0.0.1 localhost" in text
    assert text.endswith("10.0.0.1\tx\ty\n")


def test_the_hosts_file_of_a_pod_says_whose_it_is_and_has_the_pods_own_name():
    pod = Pod.of({"metadata": {"name": "p"}, "spec": {}})
    lines = dnsconfig.hosts(pod, ["10.0.0.1"], "cluster.local", "192.0.2.1 host\n").splitlines()
    assert lines[0] == "# Kubernetes-managed hosts file."
    assert lines[-1] == "10.0.0.1\tp"
    assert "192.0.2.1 host" not in lines
