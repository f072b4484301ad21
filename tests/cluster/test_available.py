"""Three of each: whatever single part of the control plane is killed, work goes on.

A user creates objects, scales a Deployment and watches all the time (`steady.py`), through the list
of API servers in the kubeconfig. The tests build on each other, in the order of the file.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motley.client import kubeconfig
from motley.ops import config as configs
from motley.ops import statefile
from motley.ops.testbed import Testbed, eventually

pytestmark = pytest.mark.root

STEADY = Path(__file__).with_name("steady.py")
EACH = ("etcd", "apiserver", "controllers", "scheduler")
THREE = {name for one in EACH for name in (one, f"{one}-2", f"{one}-3")}
LEASES = {"controllers": "kube-controller-manager", "scheduler": "motley-scheduler"}

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: steady}
spec:
  replicas: 3
  selector: {matchLabels: {app: steady}}
  template:
    metadata: {labels: {app: steady}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: sleep
          image: localhost/motley/busybox:1
          command: ["sleep", "100000"]
"""


@pytest.fixture(scope="module")
def three(cache):
    """A cluster with three control planes; destroyed at the end, whatever happened."""
    testbed = Testbed(cache)
    try:
        testbed.make_namespace()
        testbed.up("--control-planes", 3, "--no-functions", "--no-slurm")
        testbed.kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        yield testbed
    finally:
        testbed.destroy()


class Steady:
    """The user, at work while a `with` block runs; afterwards what came of it."""

    def __init__(self, testbed):
        self._command = [*testbed.inside, sys.executable, str(STEADY), str(testbed.kubeconfig)]

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_):
        try:
            out, _errors = self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        self.told = json.loads(out)


def components(testbed):
    """What runs, from the supervisor's own file: asked often, so without a command."""
    found = statefile.read_state(testbed.root / "run" / "state.json").components
    return {one.name: one for one in found}


def planes(testbed):
    return configs.load(testbed.root).planes


def holder(testbed, component):
    """The process that holds a component's lease."""
    lease = testbed.get("lease", LEASES[component], "-n", "kube-system")
    return int(lease["spec"]["holderIdentity"].split("_")[-2])


def leader(testbed, component):
    """The name of the component that holds its lease."""
    pid = holder(testbed, component)
    found = [name for name, one in components(testbed).items() if one.pid == pid]
    assert found, f"{component} {pid} does not run"
    return found[0]


def leading_member(testbed):
    """The etcd member that the others follow."""
    for plane in planes(testbed):
        figures = testbed.run(
            sys.executable,
            "-IS",
            "-c",
            "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())",
            f"http://127.0.0.1:{plane.etcd_health_port}/metrics",
        )
        if "etcd_server_is_leader 1" in figures:
            return plane.name("etcd")
    raise AssertionError("no member leads")


def kill(testbed, *names):
    """kill -9; what was killed must come back by itself, as another process."""
    before = components(testbed)
    for name in names:
        os.kill(before[name].pid, signal.SIGKILL)

    def replaced():
        now = components(testbed)
        return all(
            now[name].state == "running" and now[name].pid != before[name].pid for name in names
        )

    return lambda: eventually(replaced)


def pods(testbed):
    return [
        pod
        for pod in testbed.get("pods", "-l", "app=steady")["items"]
        if "deletionTimestamp" not in pod["metadata"]
    ]


def ready(testbed, count):
    found = pods(testbed)
    conditions = [pod["status"].get("conditions", ()) for pod in found]
    return len(found) == count and all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions
    )


def endpoints(testbed):
    """Where the `kubernetes` Service leads."""
    chosen = ("-l", "kubernetes.io/service-name=kubernetes")
    return {
        (address, port["port"])
        for one in testbed.get("endpointslices", *chosen)["items"]
        for endpoint in one["endpoints"] or ()
        for address in endpoint["addresses"]
        for port in one["ports"]
    }


def test_three_of_each_come_up_over_one_store(three):
    assert {n for n, one in three.components().items() if one["state"] == "running"} >= THREE
    found = kubeconfig.load(three.kubeconfig)
    assert found.servers == tuple(f"https://127.0.0.1:{plane.api_port}" for plane in planes(three))
    node_ip = configs.load(three.root).node_ip
    assert endpoints(three) == {(node_ip, plane.api_port) for plane in planes(three)}
    eventually(lambda: ready(three, 3))


def test_work_goes_on_whatever_is_killed(three):
    with Steady(three) as steady:
        for component in ("controllers", "scheduler"):
            victim, dead = leader(three, component), holder(three, component)
            back = kill(three, victim)
            # Another process leads: one of the others, or the victim's own successor.
            eventually(lambda c=component, dead=dead: holder(three, c) != dead)
            back()
        for victim in ("apiserver-2", leading_member(three)):
            kill(three, victim)()
    told = steady.told
    count = told["acknowledged"]
    assert count > 15, "it was at work all the while"
    assert told["longest_s"] < 10, told["doubts"]
    assert told["stored"] == sorted(f"step-{number}" for number in range(count))
    assert set(told["seen"]) == set(told["stored"])
    assert set(told["seen"].values()) == {1}


def test_the_deployment_is_as_it_was_last_scaled(three):
    three.kubectl("scale", "deployment/steady", "--replicas=4")
    eventually(lambda: ready(three, 4))

    def counted():
        (replicaset,) = three.get("replicasets", "-l", "app=steady")["items"]
        return replicaset["status"]["replicas"] == 4

    eventually(counted)


def test_a_control_plane_that_loses_all_power_comes_back_with_everything(three):
    before = {item["metadata"]["uid"] for item in three.get("configmaps", "-A")["items"]}
    running = {pod["metadata"]["uid"] for pod in pods(three)}
    kill(three, *sorted(THREE))()
    eventually(lambda: ready(three, 4))
    assert {item["metadata"]["uid"] for item in three.get("configmaps", "-A")["items"]} == before
    assert {pod["metadata"]["uid"] for pod in pods(three)} == running
    three.kubectl("scale", "deployment/steady", "--replicas=1")
    eventually(lambda: ready(three, 1))
