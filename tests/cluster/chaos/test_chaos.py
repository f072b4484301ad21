"""Parts die, a node is cut off, the store's disk is full: pods go on answering, nothing is lost.

One cluster of three nodes under a steady load lives through all of it. The tests build on each
other, in the order of the file; the last ones look at what is left of every object.

What is allowed: processes of Motley never touch a packet on its way, so no request may fail when
one is killed, whichever it is. A node that is cut off takes the requests with it that are sent to
its pods until its endpoints are gone, and no other.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from storm import faults, ledger, load
from storm.bed import NODES, Bed
from storm.workload import CALLER, DEPLOYMENT, ELASTIC, SERVICE, STEADY, VIP, WRITTEN, steady_pods

from motley.lib import clock
from motley.ops import processes
from motley.ops.testbed import eventually

pytestmark = pytest.mark.root

SEED = int(os.environ.get("CHAOS_SEED", "7"))
POD_ADDRESS = re.compile(r"10\.244\.\d+\.(?![01]$)\d+$")  # not that of a range or a bridge
GRACE_S = 20  # silence of a node: twice the period of its renewals; 40 by default


def apply(bed, *objects):
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    bed.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document).decode())


def is_ready(pod):
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ())
    )


def lives(pods):
    """Each pod's identity: itself, its containers and how often they were started again."""
    return {
        name: (
            pod["metadata"]["uid"],
            *((c["containerID"], c["restartCount"]) for c in pod["status"]["containerStatuses"]),
        )
        for name, pod in pods.items()
    }


def staying(bed, app):
    found = bed.pods("-l", f"app={app}").items()
    return {name: one for name, one in found if "deletionTimestamp" not in one["metadata"]}


def has_converged(bed):
    """Exactly the pods that were asked for are there, ready, and behind the Service."""
    wanted = bed.get("deployment", ELASTIC)["spec"]["replicas"]
    pods = staying(bed, ELASTIC)
    return len(pods) == wanted and all(map(is_ready, pods.values())) and pods


def is_settled(bed):
    """Every node sends requests to the pods that stay, and to no other any more."""
    staying_ = {**staying(bed, ELASTIC), **staying(bed, STEADY)}
    wanted = {one["status"].get("podIP") for one in staying_.values()}
    return has_converged(bed) and all(
        {address for address in bed.sends_to(node) if POD_ADDRESS.match(address)} == wanted
        for node in NODES
    )


@pytest.fixture(scope="module")
def bed(cache):
    testbed = Bed(cache)
    try:
        testbed.start()
        apply(testbed, WRITTEN, SERVICE, DEPLOYMENT, *steady_pods())
        words = ("--for=condition=Ready", "pod", "-l", f"app in ({STEADY},{CALLER})")
        testbed.kubectl("wait", *words, "--timeout=90s")
        eventually(lambda: has_converged(testbed), 60)
        yield testbed
    finally:
        testbed.destroy()


@pytest.fixture(scope="module")
def calls(bed):
    """The load, for the whole of the module."""
    found = load.Load(bed, VIP)
    try:
        for number in (1, 2):
            node = f"node-{number}"
            found.call_from(node, f"10.77.0.{number}", bed.node_inside(node))
        found.call_from_pod(CALLER, bed.pods()[CALLER]["status"]["podIP"])
        with found.goes_on():  # the caller in the pod may have been there before the servers were
            found.all_answered_since(found.answers())
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def written(bed):
    """The writer, for the whole of the module."""
    found = ledger.Ledger(bed)
    try:
        found.start()
        eventually(lambda: found.acknowledged() > 3)
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def before(bed, calls):
    """Every object as it was before the storm, and every pod's life."""
    return ledger.census(bed), lives(bed.pods("-l", f"app in ({STEADY},{CALLER})"))


def ask(bed, fault):
    """What is asked of the cluster while something is dead; the API server itself may be."""
    if fault.request == "scale":
        words = ("scale", f"deployment/{ELASTIC}", f"--replicas={fault.size}")
    elif fault.request == "delete a pod":
        first = eventually(lambda: sorted(staying(bed, ELASTIC)))[0]
        words = ("delete", "pod", first, "--wait=false", "--ignore-not-found")
    else:
        return
    eventually(lambda: bed.kubectl(*words))


def test_no_request_fails_and_all_converges_whatever_is_killed(bed, calls, written, before):
    for fault in faults.storm(SEED, NODES):
        print(f"{clock.SYSTEM.now():.1f} {fault}")
        acknowledged = written.acknowledged()
        with calls.goes_on():
            killed = bed.kill(*fault.killed)
            ask(bed, fault)
            bed.wait_all_run(killed)
            eventually(lambda: has_converged(bed), 60)
            eventually(lambda count=acknowledged: written.acknowledged() > count + 3)
    assert lives(bed.pods("-l", f"app in ({STEADY},{CALLER})")) == before[1]


def test_nothing_notices_when_everything_is_killed_with_its_supervisors(bed, calls, before):
    # While nobody changes rules, pods that are just leaving would be called until they are gone.
    eventually(lambda: is_settled(bed))
    victims = [(node, "supervisor") for node in NODES]
    victims += [(node, one.name) for node in NODES for one in bed.state(node).components]
    with calls.goes_on():
        bed.kill(*victims)
        assert not bed.all_run()
        bed.up_nodes(len(NODES))
        assert bed.all_run()
        ask(bed, faults.Fault((), "scale", 2))
        eventually(lambda: has_converged(bed), 60)
    assert lives(bed.pods("-l", f"app in ({STEADY},{CALLER})")) == before[1]
    status = bed.status()
    assert status["running"]
    assert status["cluster"]["nodesReady"] == len(NODES)


def ready_condition(bed, node):
    found = bed.get("node", node)["status"]["conditions"]
    return next(one["status"] for one in found if one["type"] == "Ready")


def backends(bed):
    """Names of the pods behind the Service that new requests are sent to."""
    slices = bed.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
    return {
        one["targetRef"]["name"]
        for found in slices
        for one in found["endpoints"] or ()
        if one["conditions"]["ready"]
    }


@contextlib.contextmanager
def without_cable(bed, node):
    bed.cut(node)
    try:
        yield
    finally:
        bed.cut(node, is_cut=False)


def test_a_short_cut_of_a_node_changes_nothing(bed, calls, before):
    taints = bed.get("node", "node-3")["spec"].get("taints")
    # Those that the storm before has told to end may still be ending.
    eventually(
        lambda: not any("deletionTimestamp" in p["metadata"] for p in bed.pods().values()), 40
    )
    pods = lives(bed.pods())
    with without_cable(bed, "node-3"):
        cut_at = clock.SYSTEM.monotonic()
        eventually(lambda: clock.SYSTEM.monotonic() > cut_at + 3.0)
        assert ready_condition(bed, "node-3") == "True"
    # Requests on their way to that node had to wait, or failed; from now on none does.
    answered = calls.answers()
    calls.all_answered_since(answered)
    with calls.goes_on():
        eventually(lambda: calls.names()[f"{STEADY}-3"])
    assert ready_condition(bed, "node-3") == "True"
    assert bed.get("node", "node-3")["spec"].get("taints") == taints
    assert lives(bed.pods()) == pods


def test_pods_of_a_lost_node_are_replaced_and_end_when_it_returns(bed, calls, before):
    bed.change("node-1", "controllers", lambda words: [*words, f"--node-monitor-grace-s={GRACE_S}"])
    bed.kubectl("scale", f"deployment/{ELASTIC}", "--replicas=3")
    pods = eventually(lambda: has_converged(bed), 60)
    lost = {name for name, one in pods.items() if one["spec"]["nodeName"] == "node-3"}
    assert lost, "the scheduler spreads three pods over three nodes"
    there = bed.pods()
    addresses = {there[name]["status"]["podIP"] for name in (*lost, f"{STEADY}-3")}
    eventually(lambda: addresses <= bed.sends_to("node-1") & bed.sends_to("node-2"))
    with without_cable(bed, "node-3"):
        eventually(lambda: ready_condition(bed, "node-3") == "Unknown", GRACE_S + 30)
        eventually(lambda: backends(bed).isdisjoint({*lost, f"{STEADY}-3"}))
        for node in ("node-1", "node-2"):
            eventually(lambda where=node: addresses.isdisjoint(bed.sends_to(where)))
        gone_at = clock.SYSTEM.now()
        taints = {(t["key"], t["effect"]) for t in bed.get("node", "node-3")["spec"]["taints"]}
        assert ("node.kubernetes.io/unreachable", "NoSchedule") in taints
        replaced = eventually(lambda: has_converged(bed), 60)
        assert lost.isdisjoint(replaced)
        assert {one["spec"]["nodeName"] for one in replaced.values()} == {"node-1", "node-2"}
        taints = {(t["key"], t["effect"]) for t in bed.get("node", "node-3")["spec"]["taints"]}
        assert ("node.kubernetes.io/unreachable", "NoExecute") in taints
        # Nobody can confirm their end, so they stay objects.
        assert lost <= bed.pods().keys()
        steady = bed.pods()[f"{STEADY}-3"]
        assert not is_ready(steady)
        assert "deletionTimestamp" not in steady["metadata"]
        calls.all_answered_since(calls.answers())
        # Connections that were open to the lost pods find out by their own timeout.
        kept = {"new": 0.0, "kept": load.TIMEOUT_S}
        assert [
            one for one in calls.failures(gone_at) if one.begun > gone_at + kept[one.kind]
        ] == []
    eventually(lambda: ready_condition(bed, "node-3") == "True", 60)
    eventually(lambda: lost.isdisjoint(bed.pods()), 60)
    eventually(lambda: not bed.get("node", "node-3")["spec"].get("taints"))
    eventually(lambda: f"{STEADY}-3" in backends(bed))
    assert staying(bed, ELASTIC).keys() == replaced.keys()
    uids = {one["metadata"]["uid"] for one in pods.values() if one["metadata"]["name"] in lost}
    eventually(lambda: uids.isdisjoint(pods_on("node-3", bed)))
    assert lives(bed.pods("-l", f"app in ({STEADY},{CALLER})")) == before[1]
    with calls.goes_on():
        calls.all_answered_since(calls.answers())


def pods_on(node, bed):
    """Uids of the pods that have a process on a node."""
    found = set()
    for process in processes.in_cgroup(bed.config(node).cgroup_root):
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/cgroup") as file:
            found |= {part.replace("_", "-").removeprefix("pod") for part in file.read().split("/")}
    return found


def fill_log(bed, kubectl):
    """What a refused write is told; the store's log has some room of its own, to be used up."""
    file = bed.root / "large"
    told = ""
    for size in (900_000, 100_000, 10_000):
        file.write_bytes(b"x" * size)
        for number in range(30):
            words = ("create", "cm", f"large-{size}-{number}", f"--from-file={file}")
            code, _, told = bed.answer(*kubectl, *words)
            if code != 0:
                break
        assert code != 0, "the disk does not fill"
    return told


def test_a_full_disk_refuses_writes_clearly_and_all_goes_on_when_there_is_room(
    bed, calls, written, before
):
    process = bed.process("node-1", "apiserver")
    program = bed.kubectl_program
    kubectl = [*bed.inside, program, "--kubeconfig", bed.kubeconfig]
    ballast = bed.store / "ballast"
    seen = bed.root / "watched.txt"
    with seen.open("w") as output:
        watching = subprocess.Popen([*kubectl, "get", "cm", "-w", "-o", "name"], stdout=output)
    try:
        with calls.goes_on():
            room = os.statvfs(bed.store)
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                for _ in range(room.f_blocks * room.f_frsize // 4096):
                    file.write(b"\0" * 4096)
            known = len(written.entries())
            errors = fill_log(bed, kubectl[2:])
            assert "no space left" in errors
            assert "make room" in errors

            def refused():
                return [one for one in written.entries()[known:] if one["code"] == 507]

            eventually(refused)
            # Reads go on, also from disk; so do pods.
            assert len(bed.pods()) >= 4
            assert bed.kubectl("get", "--raw", "/readyz") == "ok"
            ballast.unlink()
            bed.kubectl("create", "cm", "accepted")
            eventually(lambda: "configmap/accepted" in seen.read_text())
            ask(bed, faults.Fault((), "scale", 1))
            eventually(lambda: has_converged(bed))
        # Everything that was acknowledged was told to the watch, and nothing else.
        there = {f"configmap/{one['metadata']['name']}" for one in bed.get("cm")["items"]}
        eventually(lambda: set(seen.read_text().split()) == there)
    finally:
        ballast.unlink(missing_ok=True)
        watching.kill()
        watching.wait(10)
    assert bed.process("node-1", "apiserver") == process
    assert bed.all_run()
    names = [one["metadata"]["name"] for one in bed.get("cm")["items"]]
    bed.kubectl("delete", "cm", *(name for name in names if name != "kube-root-ca.crt"))


HOUR_S = 3600


class FakeTime:
    """Components that see another wall clock, as if their machine's had been put forward or back.

    libfaketime answers for the C library, so everything in a process sees it: Python, OpenSSL,
    SQLite. The steady clock is left as it is, as the kernel leaves it.
    """

    def __init__(self, bed, name, victims):
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        self._file = bed.root / f"faketime-{name}"
        self.put(0)
        words = ("env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={self._file}")
        words = (*words, "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_NO_CACHE=1")
        for node, component in victims:
            bed.change(node, component, lambda command: (*words, *command))

    def put(self, ahead_s):
        """How far the clock is ahead of the true time; behind, when less than 0."""
        partial = self._file.with_suffix(".partial")
        partial.write_text(f"{ahead_s:+d}\n")
        partial.replace(self._file)


def test_clocks_may_be_put_forward_and_back(bed, calls, written, before):
    control_plane = [("node-1", name) for name in faults.CONTROL_PLANE]
    servers = FakeTime(bed, "servers", control_plane)
    agent = FakeTime(bed, "agent", [("node-2", "node")])
    leases = ("leases", "-n", "kube-node-lease")
    token = bed.kubectl("create", "token", "default", "--duration=3h").strip()

    def renewals():
        return {
            one["metadata"]["name"]: one["spec"]["renewTime"] for one in bed.get(*leases)["items"]
        }

    def are_renewed(since):
        return all(at != since[node] for node, at in renewals().items())

    with calls.goes_on():
        for size, (servers_s, agent_s) in enumerate(
            [(HOUR_S, -HOUR_S), (-HOUR_S, HOUR_S)], start=1
        ):
            acknowledged = written.acknowledged()
            servers.put(servers_s)
            agent.put(agent_s)
            stamped = clock.parse_rfc3339(
                eventually(
                    lambda n=size: bed.kubectl(
                        *(
                            "create",
                            "cm",
                            f"time-{n}",
                            "-o",
                            "jsonpath={.metadata.creationTimestamp}",
                        )
                    ),
                    20,
                )
            )
            assert abs(stamped - clock.SYSTEM.now() - servers_s) < 60
            # Everything works at that time: pods come and go, objects are written.
            since = renewals()
            eventually(lambda n=size: bed.kubectl(*resized(1 + n % 3)))
            eventually(lambda: has_converged(bed))
            first = sorted(staying(bed, ELASTIC))[0]
            bed.kubectl("delete", "pod", first, "--wait=false")
            eventually(
                lambda name=first: name not in staying(bed, ELASTIC) and has_converged(bed), 40
            )
            eventually(lambda count=acknowledged: written.acknowledged() > count + 3)
            assert is_accepted(bed, token)
            assert is_accepted(bed, bed.kubectl("create", "token", "default").strip())
            # Nodes are judged by what was seen of them, not by what their clocks say.
            eventually(lambda seen=since: are_renewed(seen))
            assert {ready_condition(bed, node) for node in NODES} == {"True"}
            bed.kubectl("delete", "cm", f"time-{size}")
    assert lives(bed.pods("-l", f"app in ({STEADY},{CALLER})")) == before[1]
    assert bed.all_run()


def is_accepted(bed, token):
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    text = msgspec.json.encode({**review, "spec": {"token": token}}).decode()
    said = msgspec.json.decode(bed.kubectl("create", "-o", "json", "-f", "-", stdin=text))
    return said["status"].get("authenticated")


def resized(size):
    return "scale", f"deployment/{ELASTIC}", f"--replicas={size}"


# `motley up` of a version that is called newer.
NEWER = """
import sys, motley
motley.__version__ = "999.0"
from motley.cli.main import main
main(sys.argv[1:])
"""


def test_up_of_a_newer_version_replaces_components_one_by_one(bed, calls, written, before):
    words = ("up", "--nodes", len(NODES), "--image-cache", bed.cache / "images", "--root", bed.root)
    command = [*bed.inside, sys.executable, "-P", "-c", NEWER, *map(str, words)]
    pids = {one.name: one.pid for one in bed.state().components}
    away = set()
    with calls.goes_on():
        updating = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        def is_done():
            now = [one.name for one in bed.state().components if one.state != "running"]
            away.add(tuple(now))
            return updating.poll() is not None

        eventually(is_done, 120, pause_s=0.02)
        assert updating.returncode == 0
        eventually(lambda: has_converged(bed), 60)
    assert max(map(len, away)) == 1
    replaced = {one.name for one in bed.state().components if one.pid != pids[one.name]}
    assert replaced == set(faults.KINDS) - {"containerd"}  # its command says no version
    assert {spec.version for spec in bed.specs()} == {"999.0", ""}
    assert lives(bed.pods("-l", f"app in ({STEADY},{CALLER})")) == before[1]


def test_no_object_was_lost_or_made_twice(bed, calls, written, before):
    eventually(lambda: has_converged(bed), 60)
    written.stop()
    after = ledger.census(bed)
    assert written.acknowledged() > 100
    assert {what: found for what, found in written.problems(after).items() if found} == {}
    gone, fresh, replaced = ledger.changes(before[0], after)
    assert replaced == {}
    own = (f"default/{ELASTIC}-", f"{ledger.NAMESPACE}/w")
    for resource, names in [*gone.items(), *fresh.items()]:
        if not resource.endswith("/events"):
            assert [name for name in names if not name.startswith(own)] == [], resource
    assert len(staying(bed, ELASTIC)) == bed.get("deployment", ELASTIC)["spec"]["replicas"]
    assert len(bed.get("replicasets", "-l", f"app={ELASTIC}")["items"]) == 1


def test_nothing_is_left_after_all_that(bed, calls):
    calls.stop()
    bed.motley("down", "--grace", 0)
    # The disk that was given to the store is not ours to take away.
    assert bed.leftovers() == {"mounts": [str(bed.store)]}
