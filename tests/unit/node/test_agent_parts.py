"""Small parts of the agent: what pods refer to, who may ask, what is written, what is generated."""

import asyncio
import filecmp
import importlib.util
from pathlib import Path

import pytest

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap, Node, Secret
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.node import access, machine, objects, registration, statuswriter
from motley.node.context import NodeResources, Settings
from motley.node.cri.values import Version

ROOT = Path(__file__).parents[3]


class Nodes:
    """The API's side of one Node: what is written is stored, and `raised` on its way in."""

    def __init__(self):
        self.raised, self.writes = {}, 0

    async def patch(self, cls, name, namespace, body, **_):
        self.writes += 1
        allocatable = {**body["status"]["allocatable"], **self.raised}
        stored = {**body["status"], "allocatable": allocatable}
        return cls.of({"metadata": {"name": name}, "status": stored})


async def test_the_agents_own_figures_are_written_again_when_others_were(tmp_path):
    """A webhook that raises them raises them again; once it is gone nothing of it stays."""
    nodes, about = Nodes(), machine.read(tmp_path)
    has = NodeResources({"cpu": 2000, "pods": 110}, {"cpu": 1900, "pods": 110}, False)
    settings = Settings(name="a", node_ip="10.0.0.1", root=tmp_path)
    agent = registration.Registration(
        nodes, FakeImages(), settings, about, has, Version("x", "1", "v1"), SYSTEM, lambda: ""
    )
    await agent.report()
    await agent.report()
    assert nodes.writes == 1  # as it is: nobody is bothered
    nodes.raised = {"cpu": "3800m"}
    agent.update(Node.of({"status": {**await agent.status(), "allocatable": {"cpu": "3800m"}}}))
    await agent.report()
    await agent.report()
    assert nodes.writes == 3  # raised each time
    nodes.raised = {}
    await agent.report()
    await agent.report()
    assert nodes.writes == 4


class FakeImages:
    async def list_images(self):
        return []


def test_the_generated_messages_are_those_of_the_proto_files(tmp_path):
    spec = importlib.util.spec_from_file_location("gen_protos", ROOT / "tools" / "gen_protos.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    generated = tool.generate(tmp_path)
    assert len(generated) == 4
    for path in generated:
        assert filecmp.cmp(path, tool.SOURCE / path.name, shallow=False), (
            f"{path.name} is not current: run tools/gen_protos.py"
        )


def test_every_reference_of_a_pod_is_found():
    pod = Pod.of(
        {
            "metadata": {"namespace": "n"},
            "spec": {
                "imagePullSecrets": [{"name": "s3"}],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "s1"}}]}],
                "containers": [
                    {
                        "env": [
                            {
                                "name": "A",
                                "valueFrom": {"configMapKeyRef": {"name": "m1", "key": "k"}},
                            }
                        ]
                    }
                ],
                "volumes": [
                    {"name": "a", "configMap": {"name": "m2"}},
                    {"name": "b", "secret": {"secretName": "s2"}},
                    {"name": "c", "projected": {"sources": [{"configMap": {"name": "m3"}}]}},
                ],
            },
        }
    )
    found = objects.references(pod)
    assert {(r.kind, r.key) for r in found} == {
        *((ConfigMap, Key("n", m)) for m in ("m1", "m2", "m3")),
        *((Secret, Key("n", s)) for s in ("s1", "s2", "s3")),
    }


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ([("commonName", "kube-apiserver-kubelet-client")], True),
        ([("organizationName", "system:masters"), ("commonName", "x")], True),
        ([("commonName", "system:masters")], False),
        ([("organizationName", "kube-apiserver-kubelet-client")], False),
        ([], False),
    ],
)
def test_only_known_certificates_are_let_in(subject, expected):
    assert access.is_allowed({"subject": tuple((pair,) for pair in subject)}) is expected
    assert not access.is_allowed(None)


def test_what_is_added_to_the_capacity_of_a_node_can_be_had():
    known = {
        "capacity": {"cpu": "4", "example.com/dongle": "4"},
        "allocatable": {"cpu": "3", "example.com/gone": "1"},
    }
    node = Node.of({"metadata": {"name": "n"}, "status": known})
    added = registration.added_by_hand(node)
    assert added == {"example.com/dongle": "4", "example.com/gone": None}
    assert registration.added_by_hand(None) == {}


def test_a_node_condition_keeps_its_time_while_it_lasts():
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    node = Node.of({"status": {"conditions": [ready]}})
    still = {c["type"]: c for c in registration.conditions(node, "", 1_800_000_000.0)}
    assert still["Ready"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert still["MemoryPressure"]["status"] == "False"
    lost = {c["type"]: c for c in registration.conditions(node, "no runtime", 1_800_000_000.0)}
    assert lost["Ready"]["status"] == "False"
    assert lost["Ready"]["message"] == "no runtime"
    assert lost["Ready"]["lastTransitionTime"] != "2026-01-01T00:00:00Z"


def test_a_configuration_is_its_address_and_its_directory(tmp_path):
    one = Settings(name="a", node_ip="10.0.0.1", root=tmp_path)
    same = Settings(name="b", node_ip="10.0.0.1", root=tmp_path, max_pods=5)
    other = Settings(name="a", node_ip="10.0.0.2", root=tmp_path)
    assert registration.config_hash(one) == registration.config_hash(same)
    assert registration.config_hash(one) != registration.config_hash(other)


class Api:
    """Takes patches; may be away."""

    def __init__(self):
        self.patches = []
        self.is_away = False

    async def patch(self, cls, name, namespace, body, *, type, subresource):
        if self.is_away:
            raise status.ServiceUnavailable("away")
        self.patches.append(body)
        version = str(100 + len(self.patches))
        return Pod.of({"metadata": {"name": name, "uid": "u", "resourceVersion": version}})


class QuickClock:
    """Sleeps take a turn of the loop, not time."""

    def now(self):
        return SYSTEM.now()

    def monotonic(self):
        return SYSTEM.monotonic()

    async def sleep(self, seconds):
        await SYSTEM.sleep(0)


def _pod(version="1", phase="Pending", ip=""):
    state = {"phase": phase, "podIPs": [{"ip": ip}] if ip else []}
    return Pod.of(
        {"metadata": {"name": "p", "uid": "u", "resourceVersion": version}, "status": state}
    )


def _status(phase, ip="10.0.0.9"):
    return {"phase": phase, "conditions": [], "podIPs": [{"ip": ip}]}


async def _written(steps):
    api = Api()
    writer = statuswriter.StatusWriter(api, QuickClock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run())
        await steps(api, writer)
        running.cancel()
    return api.patches


async def test_only_changes_are_written():
    async def steps(api, writer):
        for phase in ("Pending", "Pending", "Running", "Running"):
            writer.set(_pod(), _status(phase))
            assert await writer.settled(5)

    patches = await _written(steps)
    assert [p["status"]["phase"] for p in patches] == ["Pending", "Running"]
    assert patches[0]["metadata"] == {"uid": "u"}


async def test_while_the_api_is_away_only_the_newest_status_waits():
    async def steps(api, writer):
        api.is_away = True
        writer.set(_pod(), _status("Pending"))
        assert not await writer.settled(0.05)
        writer.set(_pod(), _status("Running"))
        api.is_away = False
        assert await writer.settled(5)

    assert [p["status"]["phase"] for p in await _written(steps)] == ["Running"]


async def test_another_opinion_in_the_api_is_overwritten():
    async def steps(api, writer):
        writer.set(_pod(), _status("Running"))
        await writer.settled(5)
        writer.set(_pod("50", "Failed"), _status("Running"))  # older than our own write
        await writer.settled(5)
        writer.set(_pod("200", "Failed"), _status("Running"))
        await writer.settled(5)

    assert len(await _written(steps)) == 2


async def test_a_changed_address_replaces_the_old_one():
    async def steps(api, writer):
        writer.set(_pod(ip="10.0.0.1"), _status("Running"))
        await writer.settled(5)

    (patch,) = await _written(steps)
    assert patch["status"]["podIPs"] == [{"$patch": "replace"}, {"ip": "10.0.0.9"}]


async def test_a_passing_status_is_left_out_when_the_next_comes_soon():
    async def steps(api, writer):
        writer.set(_pod(), _status("Pending"), is_passing=True)
        await SYSTEM.sleep(0.05)
        assert not api.patches
        writer.set(_pod(), _status("Running"))
        assert await writer.settled(5)

    assert [p["status"]["phase"] for p in await _written(steps)] == ["Running"]


async def test_a_passing_status_is_written_when_nothing_follows(monkeypatch):
    monkeypatch.setattr(statuswriter, "LINGER_S", 0.05)

    async def steps(api, writer):
        writer.set(_pod(), _status("Pending"), is_passing=True)
        async with asyncio.timeout(20):
            while not api.patches:
                await SYSTEM.sleep(0.01)

    assert [p["status"]["phase"] for p in await _written(steps)] == ["Pending"]


async def test_a_few_changes_are_written_at_once_and_many_are_slowed_down():
    slept = []

    class Clock(QuickClock):
        def monotonic(self):
            return 1.0

        async def sleep(self, seconds):
            slept.append(seconds)
            await SYSTEM.sleep(0)

    api = Api()
    writer = statuswriter.StatusWriter(api, Clock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run())
        for number in range(statuswriter.BURST + 3):
            writer.set(_pod(), _status(f"phase {number}"))
            assert await writer.settled(5)
        await SYSTEM.sleep(0.01)
        running.cancel()
    assert len(api.patches) == statuswriter.BURST + 3
    assert len(slept) == 4, "the first three are free, then each has to wait"


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ([], True),
        ([{"name": "e", "emptyDir": {}}], True),
        ([{"name": "c", "configMap": {"name": "mine"}}], False),
        ([{"name": "h", "hostPath": {"path": "/x"}}], False),
        (
            [
                {
                    "name": "kube-api-access",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt"}},
                        ]
                    },
                }
            ],
            True,
        ),
        ([{"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}]}}], False),
    ],
)
def test_a_pod_is_plain_that_refers_to_nothing_which_might_be_missing(volumes, expected):
    spec = {"containers": [{"name": "c"}], "volumes": volumes}
    assert objects.is_plain(Pod.of({"metadata": {"namespace": "n"}, "spec": spec})) is expected
