"""A second machine joins with a token, works, survives, and leaves nothing behind.

The machine is another network namespace on the first one's network, with its own root directory,
containerd and control groups. The tests build on each other, in the order of the file.
"""

import os
import shlex
import signal
import sys
from dataclasses import replace

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
    cluster.kubectl("wait", "--for=condition=Ready", "pod/there", "--timeout=30s")
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
    cluster.kubectl("rollout", "status", "deployment/movable", "--timeout=30s")

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
    cluster.kubectl("rollout", "status", "deployment/movable", "--timeout=30s")
    assert place() == nodes


def reachable(cluster):
    """The administrator's kubeconfig with an address that is good from the other machine."""
    config = replace(kubeconfig.load(cluster.kubeconfig), server="https://10.77.0.1:6443")
    path = cluster.root / "elsewhere.kubeconfig"
    path.write_text(kubeconfig.render(config, user="admin"))
    path.chmod(0o600)
    return path
