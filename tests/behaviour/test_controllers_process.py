"""`motley controllers` and `motley fake-nodes` as processes: readiness, arguments, a clean end."""

import asyncio
import signal
import subprocess
import sys

import pytest

from motley.api import status
from motley.api.views.core import Lease, Node, ServiceAccount
from motley.controllers import service
from motley.lib.clock import SYSTEM
from motley.ops.freeports import free_port


def motley(*arguments):
    command = [sys.executable, "-m", "motley.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def started():
    processes = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=10)


async def healthz(port):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_controllers_become_ready_work_and_stop_promptly(shared_server, eventually, started):
    if shared_server.process is None:
        await shared_server.start()
    port = free_port()
    config = str(shared_server.kubeconfig)
    process = motley("controllers", "--kubeconfig", config, "--health-port", str(port))
    started.append(process)

    async def ready():
        return "200 OK" in await healthz(port)

    await eventually(ready, "ready")
    async with shared_server.client() as client:

        async def account():
            try:
                return await client.get(ServiceAccount, "default", "default")
            except status.NotFound:
                return None

        await eventually(account, "it works")
        lease = await client.get(Lease, "kube-controller-manager", "kube-system")
        assert lease.spec.holder_identity
        asked = SYSTEM.monotonic()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert SYSTEM.monotonic() - asked < 14
        lease = await client.get(Lease, "kube-controller-manager", "kube-system")
        assert not lease.spec.holder_identity


async def test_a_killed_leader_is_succeeded_at_once(shared_server, eventually, started):
    if shared_server.process is None:
        await shared_server.start()
    config = str(shared_server.kubeconfig)
    async with shared_server.client() as client:

        async def holder_other_than(before):
            try:
                lease = await client.get(Lease, "kube-controller-manager", "kube-system")
            except status.NotFound:
                return None
            holder = lease.spec.holder_identity
            return holder if holder and holder != before else None

        first = motley("controllers", "--kubeconfig", config, "--health-port", "0")
        started.append(first)
        identity = await eventually(lambda: holder_other_than(None), "the first leads")
        first.kill()
        second = motley("controllers", "--kubeconfig", config, "--health-port", "0")
        started.append(second)
        killed = SYSTEM.monotonic()
        await eventually(lambda: holder_other_than(identity), "the second leads")
        assert SYSTEM.monotonic() - killed < 14  # a lease lasts 15 seconds


async def test_fake_nodes_register_and_stop_promptly(shared_server, eventually, started):
    if shared_server.process is None:
        await shared_server.start()
    config = str(shared_server.kubeconfig)
    options = ("--count", "3", "--prefix", "proc-", "--cpu", "7", "--label", "disk=ssd")
    process = motley("fake-nodes", "--kubeconfig", config, *options)
    started.append(process)
    async with shared_server.client() as client:

        async def registered():
            nodes = (await client.list(Node, label_selector="disk=ssd")).items
            return nodes if len(nodes) == 3 and all(n.is_ready for n in nodes) else None

        nodes = await eventually(registered, "three ready nodes")
        assert {n.metadata.name for n in nodes} == {"proc-0", "proc-1", "proc-2"}
        assert nodes[0].status.allocatable["cpu"] == "7"
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 10) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["controllers", "--kubeconfig", "/nonexistent"], "No such file"),
        (["controllers", "--kubeconfig", "/dev/null", "--pod-cidr", "x"], "'x'"),
        (["controllers", "--pod-cidr", "10.0.0.0/30"], "does not fit"),
        (["fake-nodes"], "--count"),
        (["fake-nodes", "--count", "1", "--label", "x"], "KEY=VALUE"),
        (["fake-nodes", "--count", "1", "--kubeconfig", "/nonexistent"], "No such file"),
    ],
)
def test_bad_arguments_are_said_in_one_line(arguments, message, started):
    process = motley(*arguments)
    started.append(process)
    output, _ = process.communicate(timeout=20)
    assert process.returncode != 0
    assert message in output.splitlines()[-1]
    assert "Traceback" not in output


async def scraped(port, path="/metrics"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return dict(
        line.rsplit(" ", 1) for line in text.partition("\r\n\r\n")[2].splitlines() if line[0] != "#"
    )


async def test_every_controller_counts_its_work_under_kubernetes_names(
    shared_server, eventually, started
):
    if shared_server.process is None:
        await shared_server.start()
    port = free_port()
    config = str(shared_server.kubeconfig)
    process = motley("controllers", "--kubeconfig", config, "--health-port", str(port))
    started.append(process)

    async def worked():
        if "200 OK" not in await healthz(port):
            return None
        found = await scraped(port)
        done = float(found.get('workqueue_work_duration_seconds_count{name="namespace"}', "0"))
        return found if done else None

    found = await eventually(worked, "the namespace controller worked")
    for name in service.NAMES:
        label = f'{{name="{name}"}}'
        for metric in (
            "workqueue_depth",
            "workqueue_adds_total",
            "workqueue_retries_total",
            "workqueue_queue_duration_seconds_count",
            "workqueue_work_duration_seconds_count",
            "workqueue_unfinished_work_seconds",
            "workqueue_longest_running_processor_seconds",
        ):
            assert metric + label in found, name
        assert f'controller_runtime_reconcile_errors_total{{controller="{name}"}}' in found
    adds = float(found['workqueue_adds_total{name="namespace"}'])
    assert adds >= float(found['workqueue_queue_duration_seconds_count{name="namespace"}']) >= 1
