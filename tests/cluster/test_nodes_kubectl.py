"""What people do with kubectl on a running cluster, done by kubectl itself on three nodes.

Streams cross machines here: the API server is on the first node, the pods asked are on others.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios

import pytest

from motley.lib import clock
from motley.ops.testbed import eventually

from .threenodes import SERVER, addresses, apply

pytestmark = pytest.mark.root

BUSYBOX = "localhost/motley/busybox:1"
APP_VIP = "10.96.0.81"


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share."""
    return three


def kubectl(cluster, *words):
    """A kubectl command line of this cluster, for what runs beside the test."""
    program = cluster.kubectl_program
    return [*cluster.inside, program, "--kubeconfig", str(cluster.kubeconfig), *map(str, words)]


@contextlib.contextmanager
def beside(cluster, *words):
    """kubectl running beside the block; ended with it."""
    command = kubectl(cluster, *words)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


class Terminal:
    """kubectl at a terminal of 40 lines and 100 columns, and somebody who types."""

    def __init__(self, cluster, *words):
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self._process = subprocess.Popen(
            kubectl(cluster, *words),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        self.screen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait(10)
        os.close(self._leader)

    def type(self, text):
        os.write(self._leader, text.encode())

    def until(self, pattern, timeout_s=20.0):
        """What the screen shows once it shows the pattern; that much is then forgotten."""
        deadline = clock.SYSTEM.monotonic() + timeout_s
        while (found := re.search(pattern, self.screen)) is None:
            left_s = deadline - clock.SYSTEM.monotonic()
            assert left_s > 0, f"no {pattern!r} on the screen:\n{self.screen}"
            if select.select([self._leader], [], [], left_s)[0]:
                try:
                    piece = os.read(self._leader, 4096)
                except OSError:  # EIO: nobody holds the other end any more
                    piece = b""
                assert piece, f"kubectl ended without {pattern!r}:\n{self.screen}"
                self.screen += piece.decode()
        self.screen = self.screen[found.end() :]
        return found

    def ended(self):
        """kubectl's exit code, once it has ended by itself."""
        return self._process.wait(20)


def deployment(replicas=2):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "app"}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"app": "app"}},
                "spec": {
                    "terminationGracePeriodSeconds": 4,
                    "containers": [
                        {
                            "name": "server",
                            "image": "localhost/motley/python:1",
                            "command": ["python3", "-c", SERVER],
                            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                        }
                    ],
                },
            },
        },
    }


GUARDS = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "app"},
        "spec": {
            "clusterIP": APP_VIP,
            "selector": {"app": "app"},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "app"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "app"}}},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "everywhere"},
        "spec": {
            "selector": {"matchLabels": {"app": "everywhere"}},
            "template": {
                "metadata": {"labels": {"app": "everywhere"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {"name": "main", "image": BUSYBOX, "command": ["sleep", "100000"]}
                    ],
                },
            },
        },
    },
)


def living(cluster, app="app"):
    """The pods of a label that nobody has told to end, by name."""
    found = cluster.get("pods", "-l", f"app={app}")["items"]
    return {p["metadata"]["name"]: p for p in found if "deletionTimestamp" not in p["metadata"]}


def nodes_of(pods):
    return sorted(pod["spec"]["nodeName"] for pod in pods.values())


def test_cordoned_nodes_get_no_pods_until_they_are_uncordoned(cluster):
    told = cluster.kubectl("cordon", "node-1", "node-3")
    assert "node/node-1 cordoned" in told
    shown = cluster.kubectl("get", "nodes", "--no-headers").splitlines()
    states = {line.split()[0]: line.split()[1] for line in shown}
    cordoned = "Ready,SchedulingDisabled"
    assert states == {"node-1": cordoned, "node-2": "Ready", "node-3": cordoned}
    apply(cluster, deployment(), *GUARDS)
    cluster.kubectl("rollout", "status", "deployment/app", "--timeout=60s")
    assert nodes_of(living(cluster)) == ["node-2", "node-2"]
    # Pods of a DaemonSet belong to their nodes, cordoned or not.
    cluster.kubectl("rollout", "status", "daemonset/everywhere", "--timeout=60s")
    assert nodes_of(living(cluster, "everywhere")) == ["node-1", "node-2", "node-3"]
    assert "node/node-3 uncordoned" in cluster.kubectl("uncordon", "node-1", "node-3")


def test_a_drain_waits_for_the_budget_leaves_daemons_and_fails_no_request(cluster):
    before = living(cluster, "everywhere")
    selected = ("drain", "node-2", "--pod-selector", "app in (app, everywhere)")
    code, _, refused = cluster.answer(*kubectl(cluster, *selected)[2:])
    assert code != 0
    assert "cannot delete DaemonSet-managed Pods" in refused
    with cluster.requests(APP_VIP) as requests:
        words = (*selected, "--ignore-daemonsets", "--timeout=90s")
        code, told, warned = cluster.answer(*kubectl(cluster, *words)[2:])
    assert code == 0, told + warned
    # Both pods were there: of two, one may go; the other only once the first has been replaced.
    assert "violate the pod's disruption budget" in warned
    assert "node/node-2 drained" in told
    assert requests.failures == []
    assert requests.answers > 50
    cluster.kubectl("rollout", "status", "deployment/app", "--timeout=60s")
    assert "node-2" not in nodes_of(living(cluster))
    assert living(cluster, "everywhere").keys() == before.keys()
    assert cluster.get("node", "node-2")["spec"]["unschedulable"] is True
    cluster.kubectl("uncordon", "node-2")
    assert "unschedulable" not in cluster.get("node", "node-2")["spec"]


def revision(cluster):
    return int(
        cluster.get("deployment", "app")["metadata"]["annotations"][
            "deployment.kubernetes.io/revision"
        ]
    )


def test_a_rollout_is_followed_undone_and_repeated_and_no_request_fails(cluster):
    def variable():
        (container,) = cluster.get("deployment", "app")["spec"]["template"]["spec"]["containers"]
        return [one["value"] for one in container.get("env", ())]

    old = living(cluster).keys()
    with cluster.requests(APP_VIP) as requests:
        cluster.kubectl("set", "env", "deployment/app", "VERSION=2")
        told = cluster.kubectl("rollout", "status", "deployment/app", "--timeout=60s")
        assert "successfully rolled out" in told
        new = living(cluster).keys()
        assert not old & new
        words = ("exec", "deploy/app", "--", "sh", "-c", "echo $VERSION")
        assert cluster.kubectl(*words).strip() == "2"
        history = cluster.kubectl("rollout", "history", "deployment/app")
        assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["1", "2"]
        assert "deployment.apps/app rolled back" in cluster.kubectl(
            "rollout", "undo", "deployment/app"
        )
        cluster.kubectl("rollout", "status", "deployment/app", "--timeout=60s")
        assert variable() == []
        assert revision(cluster) == 3
        again = living(cluster).keys()
        cluster.kubectl("rollout", "restart", "deployment/app")
        cluster.kubectl("rollout", "status", "deployment/app", "--timeout=60s")
        assert not again & living(cluster).keys()
        assert revision(cluster) == 4
    assert requests.failures == []
    assert requests.answers > 50
    cluster.kubectl("delete", "deployment/app", "service/app", "pdb/app", "daemonset/everywhere")


@pytest.mark.parametrize(
    ("target", "port", "expected"),
    [("pod/web-2", 8080, {"web-2"}), ("service/web", 80, {"web-1", "web-2", "web-3"})],
)
def test_a_port_of_a_pod_and_of_a_service_is_forwarded(cluster, target, port, expected):
    with beside(cluster, "port-forward", target, f":{port}") as forward:
        said = forward.stdout.readline()
        local = int(re.search(r"127\.0\.0\.1:(\d+) -> ", said)[1])
        answers = {cluster.fetch("127.0.0.1", local).split()[2] for _ in range(3)}
    # A Service's port is that of one of its pods, for as long as the command runs.
    assert len(answers) == 1
    assert answers <= expected


def test_files_and_directories_are_copied_both_ways(cluster, tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "there" / "below").mkdir(parents=True)
    (tmp_path / "there" / "data").write_bytes(content)
    (tmp_path / "there" / "below" / "name with spaces").write_text("small")
    cluster.kubectl("cp", tmp_path / "there", "web-2:/tmp/there")
    shown = cluster.kubectl("exec", "web-2", "--", "cat", "/tmp/there/below/name with spaces")
    assert shown == "small"
    cluster.kubectl("cp", "default/web-2:/tmp/there/data", tmp_path / "back", "-c", "server")
    assert (tmp_path / "back").read_bytes() == content
    cluster.kubectl("exec", "web-2", "--", "rm", "-r", "/tmp/there")


def test_a_person_types_into_a_shell_of_a_pod(cluster):
    with Terminal(cluster, "exec", "-it", "web-3", "--", "sh") as terminal:
        terminal.until(r"# ")
        terminal.type("stty size; tty; echo $((6 * 7))\n")
        terminal.until(r"40 100\s+/dev/pts/\d+\s+42\s")
        terminal.type("sh -c 'echo began $((1 + 1)); sleep 1000'\n")
        terminal.until(r"began 2\s")  # from here on the terminal is the program's
        terminal.type("\x03")  # Ctrl-C ends the program, not the shell
        terminal.until(r"\^C")
        terminal.type("echo still $((40 + 4))\n")
        terminal.until(r"still 44\s")
        terminal.type("exit 7\n")
        assert terminal.ended() == 7


TALKER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "talker", "labels": {"app": "talker"}},
    "spec": {
        "nodeName": "node-3",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": BUSYBOX,
                # Its first life ends by itself, the second one counts.
                "command": [
                    "sh",
                    "-c",
                    "if [ ! -e /keep/seen ]; then touch /keep/seen; echo first life; exit 1; fi;"
                    " i=0; while true; do echo line $i; i=$((i+1)); sleep 0.2; done",
                ],
                "volumeMounts": [{"name": "keep", "mountPath": "/keep"}],
            },
            {
                "name": "echo",
                "image": BUSYBOX,
                "stdin": True,
                "command": ["sh", "-c", "while read line; do echo heard $line; done"],
            },
        ],
        "volumes": [{"name": "keep", "emptyDir": {}}],
    },
}


@pytest.fixture(scope="module")
def talker(cluster):
    """A pod that talks, in its second life, and a container of it that listens."""
    apply(cluster, TALKER)

    def second_life():
        found = cluster.get("pod", "talker")["status"]["containerStatuses"]
        (main,) = (one for one in found if one["name"] == "main")
        return main["restartCount"] == 1 and "running" in main["state"]

    eventually(second_life)
    yield "talker"
    cluster.kubectl("delete", "pod", "talker")


def test_logs_are_followed_and_those_of_an_earlier_life_are_kept(cluster, talker):
    with beside(cluster, "logs", "-f", talker, "-c", "main", "--tail=1") as following:
        first = int(following.stdout.readline().removeprefix("line "))
        for number in range(first + 1, first + 6):  # as they are written
            assert following.stdout.readline() == f"line {number}\n"
    earlier = cluster.kubectl("logs", talker, "-c", "main", "--previous")
    assert earlier == "first life\n"
    everything = cluster.kubectl("logs", talker, "-c", "main").splitlines()
    assert everything[:3] == ["line 0", "line 1", "line 2"]
    recent = cluster.kubectl("logs", talker, "-c", "main", "--since=1s", "--timestamps")
    stamps = [clock.parse_rfc3339(line.split()[0]) for line in recent.splitlines()]
    assert stamps
    assert stamps[-1] - stamps[0] < 2.0
    assert cluster.kubectl("logs", talker, "-c", "main", "--since=1h").splitlines()[0] == "line 0"
    words = ("-l", "app=talker", "--all-containers", "--prefix", "--tail=2")
    assert "[pod/talker/main] line " in cluster.kubectl("logs", *words)


def test_one_may_attach_to_a_container_and_be_heard(cluster, talker):
    with beside(cluster, "attach", talker, "-c", "echo", "-i") as attached:
        attached.stdin.write("somebody\n")
        attached.stdin.flush()
        lines = iter(attached.stdout.readline, "")
        assert any(line == "heard somebody\n" for line in lines)


def test_a_debugger_looks_into_a_pod_and_into_a_node(cluster):
    def look(target, command, *words):
        # What was printed before kubectl is attached is not seen: so it waits for a word.
        given = ("--image", BUSYBOX, "--profile=general", "-i", *words)
        script = ("sh", "-c", f"read word; {command}")
        return cluster.kubectl("debug", target, *given, "--", *script, stdin="go\n")

    assert "python3 -c" in look("web-2", "ps", "--target=server")
    told = look("node/node-2", "ip addr show dev eth0; ls /host/proc/1/cgroup")
    assert "inet 10.77.0.2/24" in told
    assert "/host/proc/1/cgroup" in told
    found = cluster.get("pods")["items"]
    made = [p["metadata"]["name"] for p in found if "node-debugger" in p["metadata"]["name"]]
    assert len(made) == 1
    cluster.kubectl("delete", "pod", *made)


def test_what_nodes_and_pods_use_is_shown_for_every_node(cluster):
    def used():
        told = cluster.kubectl("top", "nodes", "--no-headers").splitlines()
        rows = {line.split()[0]: line.split()[1:] for line in told}
        return rows if rows.keys() == {"node-1", "node-2", "node-3"} else None

    for cores, _, memory, _ in eventually(used, 60, pause_s=0.5).values():
        assert int(cores.removesuffix("m")) > 0
        assert int(memory.removesuffix("Mi")) > 100

    def of_pods():
        told = cluster.kubectl("top", "pods", "-l", "app=web", "--containers", "--no-headers")
        rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
        return rows if rows.keys() == addresses(cluster).keys() else None

    for name, cores, memory in eventually(of_pods, 60, pause_s=0.5).values():
        assert name == "server"
        assert cores.endswith("m")
        assert 1 <= int(memory.removesuffix("Mi")) < 200


def test_a_resource_announced_on_a_node_and_its_ports_are_given_to_one_pod_only(cluster):
    """By the scheduler, and by the node itself where somebody goes past the scheduler."""
    path = "/status/capacity/example.com~1card"
    patch = ("patch", "node", "node-2", "--subresource=status", "--type=json", "-p")
    cluster.kubectl(*patch, f'[{{"op": "add", "path": "{path}", "value": "1"}}]')

    def pod(name, **spec):
        card = {"example.com/card": "1"}
        container = {
            "name": "main",
            "image": BUSYBOX,
            "command": ["sleep", "1000"],
            "ports": [{"containerPort": 80, "hostPort": 18080}],
            "resources": {"limits": card},
        }
        spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def state(name):
        found = cluster.get("pod", name)
        return found["status"]["phase"], found["spec"].get("nodeName"), found["status"]

    try:
        apply(cluster, pod("first"))
        eventually(lambda: state("first")[:2] == ("Running", "node-2"), 60)
        apply(cluster, pod("second"), pod("forced", nodeName="node-2"))
        eventually(lambda: state("forced")[0] == "Failed", 60)
        assert state("forced")[2]["reason"] == "OutOfexample.com/card"
        phase, node, told = state("second")
        assert (phase, node) == ("Pending", None)
        assert "Insufficient example.com/card" in told["conditions"][0]["message"]
    finally:
        cluster.kubectl("delete", "pod", "first", "second", "forced", "--ignore-not-found")
        cluster.kubectl(*patch, f'[{{"op": "remove", "path": "{path}"}}]')
