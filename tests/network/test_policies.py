"""Network policies in the real kernel: namespaces as pods, real connections."""

import pytest

pytestmark = pytest.mark.root

VIP = "10.96.0.60"
LABELS = {  # name → namespace, labels
    "web": ("default", {"app": "web"}),
    "friend": ("default", {"app": "friend"}),
    "stranger": ("default", {"app": "stranger"}),
    "guest": ("guests", {"app": "friend"}),
}
CLIENTS = ("friend", "stranger", "guest")


class Bed:
    """One node whose pods the API knows."""

    def __init__(self, node):
        self.node = node
        self.policies = []
        self.probes = {}
        for name in ("default", "guests"):
            node.put("namespaces", {"metadata": {"name": name, "labels": {"team": name}}})
        for name, (namespace, labels) in LABELS.items():
            pod = node.add_pod(name)
            self.probes[name] = node.spawn(pod.python("probe.py"))
            node.put("pods", self.document(name, pod.ip, namespace, labels))
        self.probes["host"] = node.spawn(node.python("probe.py"))
        self.web = node.pods["web"].ip
        node.put_service(name="web", ip=VIP)
        node.put_endpoints([node.pods["web"]], name="web")
        node.eventually(lambda: "default/web/tcp" in node.rules())

    @staticmethod
    def document(name, ip, namespace, labels):
        port = {"name": "http", "containerPort": 8080, "protocol": "TCP"}
        return {
            "metadata": {"name": name, "namespace": namespace, "labels": labels, "uid": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "ports": [port]}]},
            "status": {"podIP": ip, "phase": "Running"},
        }

    def allow(self, name="p", *, namespace="default", **spec):
        document = {"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec}
        self.node.put("networkpolicies", document, "MODIFIED" if self.has(name) else "ADDED")
        if not self.has(name):
            self.policies.append(document)

    def has(self, name):
        return any(p["metadata"]["name"] == name for p in self.policies)

    def clear(self):
        for document in self.policies:
            self.node.put("networkpolicies", document, "DELETED")
        self.policies = []
        self.settle(lambda: "jump in-" not in self.rules() and "jump out-" not in self.rules())

    def rules(self):
        return self.node.rules()

    def settle(self, condition):
        self.node.eventually(condition)

    def ask(self, name, *words):
        return self.probes[name].say(" ".join(map(str, words))).strip()

    def reached(self, address=None, port=8080, protocol="tcp"):
        """Who reaches it?"""
        asked = [self.probes[client].popen for client in CLIENTS]
        for probe in asked:  # all at once: a packet that is dropped takes its time
            probe.stdin.write(f"{protocol} {address or self.web} {port}\n")
            probe.stdin.flush()
        answers = [probe.stdout.readline().strip() for probe in asked]
        return [c for c, answer in zip(CLIENTS, answers, strict=True) if answer == "web"]

    def becomes(self, expected, **options):
        self.settle(lambda: self.reached(**options) == expected)


@pytest.fixture(scope="module")
def kept_bed(own_node):
    return Bed(own_node)


@pytest.fixture
def bed(kept_bed):
    yield kept_bed
    kept_bed.clear()


WEB = {"matchLabels": {"app": "web"}}
FRIEND = {"podSelector": {"matchLabels": {"app": "friend"}}}
GUESTS = {"namespaceSelector": {"matchLabels": {"team": "guests"}}}


def test_without_policies_everybody_may(bed):
    assert bed.reached() == list(CLIENTS)


def test_default_deny_keeps_all_away_but_the_node_and_the_pod_itself(bed):
    bed.allow(podSelector={}, policyTypes=["Ingress"])
    bed.becomes([])
    assert bed.reached(address=VIP, port=80) == [], "also by the Service"
    assert bed.ask("host", "tcp", bed.web, 8080) == "web", "the node's probes"
    assert bed.ask("web", "tcp", VIP, 80) == "web", "itself"
    assert bed.ask("web", "tcp", bed.node.pods["guest"].ip, 8080) == "guest", (
        "not isolated outwards"
    )


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ([FRIEND], ["friend"]),
        ([GUESTS], ["guest"]),
        ([{**FRIEND, **GUESTS}], ["guest"]),
        ([FRIEND, GUESTS], ["friend", "guest"]),
        ([{"podSelector": {}}], ["friend", "stranger"]),
        ([], ["friend", "stranger", "guest"]),
    ],
)
def test_who_is_let_in_by_label_and_namespace(bed, peers, expected):
    bed.allow(podSelector=WEB, policyTypes=["Ingress"])
    bed.becomes([])
    bed.allow("more", podSelector=WEB, ingress=[{"from": peers}])
    bed.becomes(expected)
    assert bed.reached(address=VIP, port=80) == expected


def test_a_block_of_addresses_with_a_hole(bed):
    hole = f"{bed.node.pods['stranger'].ip}/32"
    block = {"ipBlock": {"cidr": "10.244.1.0/24", "except": [hole]}}
    bed.allow(podSelector=WEB, ingress=[{"from": [block]}])
    bed.becomes(["friend", "guest"])


def test_ports_by_number_range_name_and_protocol(bed):
    def doors(*ports):
        bed.allow(podSelector=WEB, ingress=[{"ports": list(ports)}])

    doors({"port": 81})
    bed.becomes([])
    doors({"port": "http"})
    bed.becomes(list(CLIENTS))
    assert bed.reached(protocol="udp") == [], "TCP is not UDP"
    doors({"port": 8000, "endPort": 8080, "protocol": "UDP"}, {"port": 9999})
    bed.becomes(list(CLIENTS), protocol="udp")
    assert bed.reached() == []


def test_going_out_is_judged_by_the_endpoint_and_names_must_be_allowed(bed):
    bed.allow(podSelector={"matchLabels": {"app": "friend"}}, policyTypes=["Egress"])
    bed.becomes(["stranger", "guest"])

    question = ("name", "10.96.0.10", "web.default.svc.cluster.local")
    assert bed.ask("friend", *question) == "no"
    assert bed.ask("stranger", *question) == VIP
    dns = {
        "to": [
            {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                },
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"port": 53, "protocol": "UDP"}],
    }
    bed.allow(
        podSelector={"matchLabels": {"app": "friend"}},
        policyTypes=["Egress"],
        egress=[dns, {"to": [{"podSelector": WEB}], "ports": [{"port": 8080}]}],
    )
    bed.becomes(list(CLIENTS), address=VIP, port=80)
    assert bed.ask("friend", *question) == VIP
    assert bed.ask("friend", "tcp", bed.node.pods["guest"].ip, 8080) == "no"


def test_the_kernel_takes_every_form_of_a_rule(bed):
    forms = [
        {"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "SCTP", "port": 9}]},
        {"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/9", "10.128.0.0/9"]}}]},
        {"from": [{"ipBlock": {"cidr": "10.244.3.7/16", "except": ["10.244.1.0/24"]}}]},
        {"ports": [{"protocol": "SCTP"}, {"port": 1, "endPort": 65535, "protocol": "UDP"}]},
        {"ports": [{"port": "a-name"}, {"port": "other", "protocol": "UDP"}, {"port": 7}]},
        {
            "from": [{"namespaceSelector": {}, "podSelector": {}}],
            "ports": [{"port": 1}, {"port": 3}],
        },
    ]
    both = ["Ingress", "Egress"]
    outward = [{"to": f.get("from", []), "ports": f.get("ports", [])} for f in forms]
    bed.allow(podSelector=WEB, policyTypes=both, ingress=forms, egress=outward)
    bed.becomes([])
    for kind in (" in-", " out-"):
        chains = [c for c in bed.rules().split("chain") if c.startswith(kind)]
        assert [c.count("return") for c in chains] == [9]


def test_a_deleted_policy_leaves_nothing_behind(bed):
    bed.allow(podSelector={}, policyTypes=["Ingress", "Egress"])
    bed.becomes([])
    bed.clear()
    assert bed.reached() == list(CLIENTS)
    assert "pods-" not in bed.rules()


def test_a_label_that_changes_lets_a_pod_in_and_out(bed):
    bed.allow(podSelector=WEB, ingress=[{"from": [FRIEND]}])
    bed.becomes(["friend"])
    ip = bed.node.pods["stranger"].ip
    bed.node.put("pods", bed.document("stranger", ip, "default", {"app": "friend"}), "MODIFIED")
    bed.becomes(["friend", "stranger"])
    bed.node.put("pods", bed.document("stranger", ip, "default", {"app": "stranger"}), "MODIFIED")
    bed.becomes(["friend"])


def test_open_connections_survive_a_change_that_still_allows_them(bed):
    bed.allow(podSelector=WEB, ingress=[{"from": [FRIEND, GUESTS]}])
    bed.becomes(["friend", "guest"])
    assert bed.ask("friend", "hold", bed.web, 8080) == "held"
    bed.allow(podSelector=WEB, ingress=[{"from": [FRIEND]}])
    bed.becomes(["friend"])
    assert bed.ask("friend", "again") == "web"


def test_a_restarted_proxy_finds_the_policies_in_order_and_may_drop_them(bed):
    bed.allow(podSelector=WEB, ingress=[{"from": [FRIEND]}])
    bed.becomes(["friend"])
    before = bed.rules()
    bed.node.proxy.kill()
    assert bed.reached() == ["friend"], "the rules stay while no proxy runs"
    for words, expected in ((), ["friend"]), (("--no-network-policy",), list(CLIENTS)):
        bed.node.start_proxy(*words)
        bed.node.wait_ready()
        assert bed.reached() == expected
        assert (bed.rules() == before) == (not words)
        bed.node.proxy.kill()
