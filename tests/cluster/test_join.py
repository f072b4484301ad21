"""A second machine joins with a token, works, survives, and leaves nothing behind.

The machine is another network namespace on the first one's network, with its own root directory,
containerd and control groups. The tests build on each other, in the order of the file.
"""

import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from motley.client import kubeconfig
from motley.lib import clock
from motley.ops import config as configs
from motley.ops import processes
from motley.ops.testbed import Testbed, eventually

pytestmark = pytest.mark.root

ADDRESS = "10.77.0.2"
MINIK8S = Path(__file__).parents[2] / "examples" / "minik8s"
MOTLEY = (sys.executable, "-P", "-m", "motley.cli.main")
BY_HAND = """
apiVersion: v1
kind: Node
metadata: {name: second, labels: {made: by-hand}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: there}
spec:
  nodeName: second
  terminationGracePeriodSeconds: 0
  containers:
    - name: shell
      image: localhost/motley/busybox:1
      command: [sh, -c, "echo hello from the second; sleep 3600"]
"""
PAGE = """
apiVersion: v1
kind: Pod
metadata: {name: page, labels: {app: page}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: localhost/motley/busybox:1
      command: [sh, -c, "mkdir /www; echo a page > /www/index.html; httpd -f -p 80 -h /www"]
---
apiVersion: v1
kind: Service
metadata: {name: page}
spec:
  clusterIP: 10.6.0.9
  selector: {app: page}
  ports: [{port: 80}]
---
apiVersion: motley.io/v1
kind: Route
metadata: {name: page}
spec:
  host: page.example
  address: 10.8.0.9
  paths: [{path: /world, service: page, port: 80}]
"""
MOVABLE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: movable}
spec:
  replicas: 1
  selector: {matchLabels: {app: movable}}
  template:
    metadata: {labels: {app: movable}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              preference: {matchExpressions: [{key: rack, operator: In, values: ["4"]}]}
      containers:
        - {name: shell, image: "localhost/motley/busybox:1", command: [sleep, "3600"]}
"""


@pytest.fixture(scope="module")
def second(cluster, cache):
    """Another machine, with nothing of Motley on it."""
    testbed = Testbed(cache)
    try:
        testbed.make_neighbour(cluster, ADDRESS)
        yield testbed
    finally:
        testbed.destroy()


@pytest.fixture(scope="module")
def command(cluster):
    """The join command, as an administrator would copy it."""
    made = cluster.motley("token", "create", "--print-join-command", "--description", "test")
    program, *words = shlex.split(made)
    assert program == "motley"
    return words


def join(second, *words, root=None):
    given = ("--root", root or second.root, "--node-name", "second")
    cache = ("--image-cache", second.cache / "images")
    return second.answer(*MOTLEY, *words, *given, *cache)


def node(cluster):
    return cluster.get("node", "second")


def is_ready(document):
    conditions = document["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_tokens_are_listed_with_their_end(cluster, command):
    token = command[command.index("--token") + 1]
    (one,) = msgspec.json.decode(cluster.motley("token", "list", "-o", "json"))
    assert (one["token"], one["description"]) == (token, "test")
    left_s = clock.parse_rfc3339(one["expires"]) - clock.SYSTEM.now()
    assert 23 * 3600 < left_s <= 24 * 3600
    assert "authentication" in cluster.motley("token", "list", "-o", "wide")


def test_a_wrong_hash_or_token_is_refused_with_what_to_do(cluster, second, command):
    wrong = [*command[:-1], "sha256:" + "0" * 64]
    code, out, _ = join(second, *wrong)
    assert code == 1
    assert "is not the cluster of this join command" in out
    unknown = [
        w if "." not in w or w.startswith("https") else "zzzzzz." + "0" * 16 for w in command
    ]
    code, out, _ = join(second, *unknown)
    assert code == 1
    assert "motley token create --print-join-command" in out
    code, out, _ = join(second, *command, "--dry-run")
    assert code == 0
    assert f"node second ({ADDRESS})" in out
    assert not list(second.root.iterdir())


def test_minik8s_variables_say_where_the_cluster_is_and_which_node_this_is(second, command):
    server = next(word for word in command if word.startswith("https://"))
    host, _, port = server.removeprefix("https://").partition(":")
    node_config = MINIK8S / "node.yaml"
    told = ("env", f"API_SERVER={host}", f"PORT={port}", f"NODE_CONFIG={node_config}")
    words = [word for word in command if word != server]
    given = ("--compat", "minik8s", "--dry-run", "--root", second.root)
    out = second.run(*told, *MOTLEY, *words, *given)
    assert f"node node1 ({ADDRESS}) of the cluster at {server}" in out


def test_a_node_made_by_hand_turns_ready_when_its_machine_joins(cluster, second, command):
    cluster.kubectl("create", "-f", "-", stdin=BY_HAND)
    before = node(cluster)
    assert not is_ready(before)
    code, out, errors = join(second, *command, "--labels", "rack=4")
    assert code == 0, out + errors
    after = node(cluster)
    assert is_ready(after)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    labels = after["metadata"]["labels"]
    assert (labels["made"], labels["rack"]) == ("by-hand", "4")
    assert labels["kubernetes.io/arch"] == labels["beta.kubernetes.io/arch"]
    assert labels["kubernetes.io/os"] == labels["beta.kubernetes.io/os"] == "linux"
    assert after["spec"]["podCIDRs"] == [after["spec"]["podCIDR"]]
    assert {"type": "InternalIP", "address": ADDRESS} in after["status"]["addresses"]


def test_the_node_has_certificates_of_its_own_and_the_token_is_gone(cluster, second, command):
    pki = second.root / "pki"
    names = {path.name for path in pki.iterdir()}
    assert names == {"node.kubeconfig", "proxy.kubeconfig", "node-serving.pem"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in pki.iterdir())
    subjects = {}
    for name in ("node", "proxy"):
        pem = kubeconfig.load(pki / f"{name}.kubeconfig").client_cert
        subjects[name] = x509.load_pem_x509_certificate(pem).subject.rfc4514_string()
    assert subjects == {
        "node": "CN=system:node:second,O=system:nodes",
        "proxy": "CN=system:kube-proxy",
    }
    # Nobody who can read process lists or files learns it either.
    token = command[command.index("--token") + 1]
    for process in processes.of_cluster(second.root):
        with open(f"/proc/{process.pid}/cmdline") as words:
            assert token not in words.read()
    assert not any(token in log.read_text() for log in (second.root / "logs").glob("*.log"))


def test_a_pod_runs_there_and_its_output_is_read_through_the_api_server(cluster, second):
    cluster.kubectl("create", "-f", "-", stdin=POD)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/there", "--timeout=60s")
    # Over TLS that the API server verifies: the authority, and the address it called.
    assert cluster.kubectl("logs", "there").strip() == "hello from the second"
    assert cluster.kubectl("exec", "there", "--", "echo", "also this").strip() == "also this"
    config = configs.load(second.root)
    assert processes.in_cgroup(config.cgroup_root)


def test_a_killed_agent_comes_back_without_the_token(cluster, second, command):
    token = command[command.index("--token") + 1]
    assert token.partition(".")[0] in cluster.motley("token", "delete", token)
    before = second.components()["node"]["pid"]
    pod = cluster.get("pod", "there")
    os.kill(before, signal.SIGKILL)

    def back():
        component = second.components()["node"]
        return component["state"] == "running" and component["pid"] != before

    eventually(back)
    eventually(lambda: is_ready(node(cluster)))
    assert cluster.kubectl("logs", "there").strip() == "hello from the second"
    after = cluster.get("pod", "there")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    # Nothing was asked for again: the certificates of its first life are used.
    requests = cluster.get("csr")["items"]
    assert len(requests) == 3, [r["metadata"]["name"] for r in requests]


def test_paths_are_reached_from_the_machine_and_from_its_pods(cluster, second):
    """The gateway's nginx is on the first machine; this one has only routes to itself and there."""
    cluster.kubectl("apply", "-f", MINIK8S / "service-cidr.yaml")
    cluster.kubectl("apply", "-f", "-", stdin=PAGE)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/page", "--timeout=60s")
    words = ("exec", "there", "--", "timeout", "5", "wget", "-q", "-O", "-")
    for url in ("http://page.example/world", "http://10.6.0.9/"):
        eventually(lambda url=url: cluster.kubectl(*words, url).strip() == "a page")
    curl = ("curl", "-sS", "--fail", "--max-time", "5")
    resolve = ("--resolve", "page.example:80:10.8.0.9")
    assert second.run(*curl, *resolve, "http://page.example/world").strip() == "a page"
    assert second.run(*curl, "http://10.6.0.9/").strip() == "a page"
    cluster.kubectl("delete", "-f", "-", stdin=PAGE)


def test_certificates_are_listed_and_asked_for_again(cluster, second):
    def listed():
        found = msgspec.json.decode(second.motley("certs", "list", "-o", "json"))
        return {one["name"]: one for one in found}

    def serials():
        pems = {
            name: kubeconfig.load(second.root / "pki" / name).client_cert
            for name in ("node.kubeconfig", "proxy.kubeconfig")
        }
        pems["node-serving.pem"] = (second.root / "pki" / "node-serving.pem").read_bytes()
        return {n: x509.load_pem_x509_certificate(pem).serial_number for n, pem in pems.items()}

    before = serials()
    assert listed().keys() == before.keys()
    assert all(one["residualSeconds"] > 3600 for one in listed().values())
    told = second.motley("certs", "renew", "proxy.kubeconfig")
    assert "proxy.kubeconfig renewed" in told
    assert {name for name, number in serials().items() if number != before[name]} == {
        "proxy.kubeconfig"
    }
    second.motley("certs", "renew")
    assert not serials().items() & before.items()
    second.run(*MOTLEY, "join", "--restart", "--root", second.root)
    # With the new ones: the node is Ready, and what it serves is believed.
    eventually(lambda: is_ready(node(cluster)))
    assert cluster.kubectl("logs", "there").strip() == "hello from the second"
    code, told, _ = second.answer(*MOTLEY, "certs", "rotate-ca", "--root", second.root)
    assert code != 0


def test_join_again_changes_nothing(cluster, second):
    pids = {name: one["pid"] for name, one in second.components().items()}
    code, out, errors = second.answer(*MOTLEY, "join", "--root", second.root)
    assert code == 0, out + errors
    assert {name: one["pid"] for name, one in second.components().items()} == pids
    assert second.status()["joined"].startswith("https://10.77.0.1")


def test_a_second_machine_of_the_same_name_is_refused(cluster, second, cache):
    other = Testbed(cache)
    try:
        other.make_neighbour(cluster, "10.77.0.3")
        _, *words = shlex.split(cluster.motley("token", "create", "--print-join-command"))
        code, out, _ = join(other, *words)
        assert code == 1
        assert 'node "second" is registered with another configuration' in out
        assert "kubectl delete node second" in out
        assert f"motley leave --root {other.root}" in out
        assert is_ready(node(cluster))
        assert {"type": "InternalIP", "address": ADDRESS} in node(cluster)["status"]["addresses"]
    finally:
        other.destroy()


def test_leaving_moves_the_pods_and_leaves_nothing(cluster, second):
    cluster.kubectl("apply", "-f", "-", stdin=MOVABLE)
    cluster.kubectl("rollout", "status", "deployment/movable", "--timeout=60s")

    def place():
        items = cluster.get("pods", "-l", "app=movable")["items"]
        living = [p for p in items if "deletionTimestamp" not in p["metadata"]]
        return [p["spec"].get("nodeName") for p in living]

    assert place() == ["second"]
    out = second.run(
        *(*MOTLEY, "leave", "--drain", "--yes", "--root", second.root),
        *("--kubeconfig", reachable(cluster)),
    )
    assert "drain second" in out
    assert not second.root.exists()
    assert second.leftovers() == {}
    nodes = [n["metadata"]["name"] for n in cluster.get("nodes")["items"]]
    assert "second" not in nodes
    cluster.kubectl("rollout", "status", "deployment/movable", "--timeout=60s")
    assert place() == nodes


def reachable(cluster):
    """The administrator's kubeconfig with an address that is good from the other machine."""
    config = replace(kubeconfig.load(cluster.kubeconfig), server="https://10.77.0.1:6443")
    path = cluster.root / "elsewhere.kubeconfig"
    path.write_text(kubeconfig.render(config, user="admin"))
    path.chmod(0o600)
    return path
