"""The bridge to Slurm: how soon an applied job is in the queue, and many jobs over one connection.

A whole Slurm on loopback (slurmctld, slurmd, slurmdbd, sshd of Debian), an API server and a bridge.
From the create of a SlurmJob to Slurm's number in its status, compared with a bare `ssh … sbatch`
on a connection of its own in the same run. Then many jobs at once, submitted and followed to their
end; the benchmark fails if they needed more than one connection, or if one was submitted twice.
"""

import asyncio
import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
from motley.api.views.core import Secret
from motley.api.views.slurm import SlurmCluster, SlurmJob
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.ops.freeports import free_port

ROOT = Path(__file__).parents[1]
MOST_S = 1.0  # from apply to sbatch accepted, on loopback


def _bed() -> Any:
    spec = importlib.util.spec_from_file_location("slurmbed", ROOT / "tests/slurm/slurmbed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["slurmbed"] = module
    spec.loader.exec_module(module)
    return module


async def until(read: Any, holds: Any, timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if holds(found := await read()):
                return found
        except Exception as error:  # the server is not up yet
            if "NotFound" in type(error).__name__:
                raise
        await clock.SYSTEM.sleep(0.01)
    raise TimeoutError("the benchmark's condition did not come true")


def _job(name: str, command: str = "true") -> dict[str, Any]:
    files = {"data.txt": "some input\n"}
    return {"metadata": {"name": name}, "spec": {"files": files, "command": command}}


async def one_by_one(report: figures.Report, client: Client, slurm: Any, rounds: int) -> None:
    ours, bare = [], []
    for number in range(rounds + 1):  # the first warms up
        begun = time.monotonic()
        await client.create(SlurmJob, _job(f"one-{number}"), "default")
        await until(
            lambda number=number: client.get(SlurmJob, f"one-{number}", "default"),
            lambda job: job.status.job_id,
        )
        ours.append((time.monotonic() - begun) * 1000)
        begun = time.monotonic()
        _bare(slurm)
        bare.append((time.monotonic() - begun) * 1000)
    p50 = statistics.median(ours[1:])
    report.add("slurm.submit.p50", p50, "ms", f"create to Slurm's number, {rounds} jobs")
    report.add("slurm.submit.max", max(ours[1:]), "ms", f"at most {MOST_S * 1000:.0f} are allowed")
    report.add("slurm.bare.p50", statistics.median(bare[1:]), "ms", "`ssh … sbatch` alone")
    if p50 > MOST_S * 1000:
        raise SystemExit(f"apply to sbatch accepted took {p50:.0f} ms")


def _bare(slurm: Any) -> None:
    directory = slurm.directory
    options = ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={directory}/known"]
    (directory / "known").write_text(f"[127.0.0.1]:{slurm.ssh_port} {slurm.host_key}\n")
    script = "#!/bin/sh\ntrue\n"
    subprocess.run(
        ["ssh", "-q", "-F", "none", *options, "-i", f"{directory}/user", "-p", str(slurm.ssh_port),
         "root@127.0.0.1", "sbatch --parsable -o /dev/null"],
        input=script, text=True, check=True, capture_output=True, timeout=60,
    )  # fmt: skip


async def many(report: figures.Report, client: Client, slurm: Any, proxy: Any, count: int) -> None:
    connections = proxy.connections
    begun = time.monotonic()
    for number in range(count):
        await client.create(SlurmJob, _job(f"many-{number}"), "default")

    async def listed() -> list[SlurmJob]:
        await clock.SYSTEM.sleep(0.2)
        found = await client.list(SlurmJob, namespace="default")
        return [job for job in found.items if job.metadata.name.startswith("many-")]

    await until(listed, lambda jobs: all(job.status.job_id for job in jobs), 300.0)
    submitted_s = time.monotonic() - begun
    jobs = await until(listed, lambda jobs: all(job.is_finished for job in jobs), 300.0)
    followed_s = time.monotonic() - begun
    report.add("slurm.many.submitted", count / submitted_s, "jobs/s", f"{count} jobs at once")
    report.add("slurm.many.finished", count / followed_s, "jobs/s", "seen to have ended")
    report.add("slurm.many.connections", proxy.connections - connections, "", "made meanwhile")

    async def counted() -> Any:
        return slurm.submissions("many-")

    # The accounts are a second or two behind.
    twice = len(await until(counted, lambda rows: len(rows) >= count, 30.0)) - count
    if proxy.connections != 1 or twice or any(j.status.phase != "Completed" for j in jobs):
        raise SystemExit(f"{proxy.connections} connections, {twice} submitted more than once")


async def main(report: figures.Report) -> None:
    bed = _bed()
    with (
        tempfile.TemporaryDirectory(prefix="motley-bench-") as name,
        bed.running(Path(name)) as slurm,
    ):
        directory = slurm.directory
        (directory / "api").mkdir()
        port = free_port()
        proxy = bed.Proxy(slurm.ssh_port)
        config = directory / "api/admin.kubeconfig"
        motley = [sys.executable, "-m", "motley.cli.main"]
        running = [_start(directory, "server", [*motley, "apiserver", f"--port={port}",
                   f"--data-dir={directory}/api", "--store=memory"])]  # fmt: skip
        try:
            await until(_exists(config), bool)
            running.append(_start(directory, "bridge", [*motley, "slurm", "bridge", "--poll-s=0.5",
                f"--kubeconfig={config}", f"--directory={directory}/results", "--health-port=0",
                "--log-level=warning"]))  # fmt: skip
            async with Client(kubeconfig.load(config)) as client:
                await _connect(client, slurm, proxy)
                await one_by_one(report, client, slurm, 5 if report.quick else 20)
                await many(report, client, slurm, proxy, 50 if report.quick else 200)
        finally:
            for process in reversed(running):
                os.kill(process.pid, signal.SIGTERM)
                process.wait(20)
            proxy.close()


def _exists(path: Path) -> Any:
    async def read() -> bool:
        return path.exists()

    return read


def _start(directory: Path, name: str, command: list[str]) -> "subprocess.Popen[bytes]":
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


async def _connect(client: Client, slurm: Any, proxy: Any) -> None:
    meta = {"name": "slurm", "namespace": "default"}
    data = {"metadata": meta, "stringData": {"ssh-privatekey": slurm.key()}}
    while True:
        try:
            await client.create(Secret, data)
            break
        except Exception:  # the server is still coming up
            await clock.SYSTEM.sleep(0.2)
    spec = {
        "hosts": [f"127.0.0.1:{proxy.port}"],
        "user": "root",
        "credentialsSecret": {"namespace": "default", "name": "slurm"},
        "hostKeys": [slurm.host_key],
        "workDirectory": str(slurm.directory / "work"),
    }
    await client.create(SlurmCluster, {"metadata": {"name": "default"}, "spec": spec})
    await until(lambda: client.get(SlurmCluster, "default"), lambda found: found.status.host)


if __name__ == "__main__":
    made = figures.Report.from_arguments(__doc__ or "")
    asyncio.run(main(made))
    made.finish()
