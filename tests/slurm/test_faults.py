"""What breaks between the bridge and the cluster, and what must not come of it."""

import asyncio
import contextlib
import hashlib

import pytest

from motley.slurm.ssh import Access, Connection, Credentials, Host, Unreachable

MIB = 1 << 20


@pytest.fixture
def big(world):
    """Four mebibytes that do not repeat, in an opened folder."""
    path = world.local / "big.bin"
    if not path.exists():
        block = hashlib.sha256
        path.write_bytes(b"".join(block(str(i).encode()).digest() for i in range(4 * MIB // 32)))
    return path


def test_a_connection_cut_during_the_upload_is_made_again_and_goes_on(world, big):
    before = world.proxy.connections
    carried = world.proxy.carried["up"]
    world.proxy.cut_after("up", 2 * MIB)

    name = world.job(inputs=[{"path": "D:\\work\\big.bin"}], command="sha256sum big.bin")

    status = world.until(name, "Completed")
    assert status["output"].split()[0] == hashlib.sha256(big.read_bytes()).hexdigest()
    assert world.proxy.connections == before + 1
    # What had arrived was not sent again.
    assert world.proxy.carried["up"] - carried < 6 * MIB
    assert len(world.submissions(name)) == 1


def test_a_connection_cut_during_the_download_goes_on_where_it_was(world, big):
    name = world.job(
        command="sleep 0.5; cp $BIG copy.bin",
        environment={"BIG": str(big)},
        outputs=["copy.bin"],
    )
    world.wait(lambda: world.status(name).get("jobID"), "it is submitted")
    carried = world.proxy.carried["down"]
    world.proxy.cut_after("down", 2 * MIB)

    status = world.until(name, "Completed")

    files = {f["name"]: f["sha256"] for f in status["results"]}
    assert files["copy.bin"] == hashlib.sha256(big.read_bytes()).hexdigest()
    assert world.proxy.carried["down"] - carried < 6 * MIB


def test_a_connection_cut_during_the_run_changes_nothing_for_the_job(world):
    waits, gate = world.gate("cut")
    name = world.job(command=f"{waits}; echo done")
    world.until(name, "Running")
    cuts = world.proxy.connections

    world.proxy.cut()
    gate.touch()
    status = world.until(name, "Completed")

    assert status["output"] == "done\n"
    assert world.proxy.connections == cuts + 1
    assert len(world.submissions(name)) == 1


@contextlib.asynccontextmanager
async def few_sessions(world):
    """A connection to the sshd that allows three sessions on it."""
    slurm = world.slurm
    host = Host("127.0.0.1", slurm.bare_port, "root", (slurm.host_key,), Credentials(slurm.key()))
    connection = Connection(Access((host,)))
    try:
        yield connection
    finally:
        await connection.close()


async def test_commands_wait_for_their_turn_where_few_sessions_are_allowed(world):
    async with few_sessions(world) as connection:
        commands = [connection.run(f"sleep 0.1; echo {number}") for number in range(12)]
        async with connection.sftp() as sftp, asyncio.timeout(60):
            assert await sftp.exists(str(world.slurm.directory))
            results = await asyncio.gather(*commands)

        assert [result.out for result in results] == [f"{number}\n" for number in range(12)]
        assert connection.connects == 1


async def test_commands_that_take_too_long_leave_room_for_others(world):
    async with few_sessions(world) as connection:
        for _ in range(4):
            with pytest.raises(Unreachable, match=r"sleep on .* did not end in 0.05 s"):
                await connection.run("sleep 20", timeout_s=0.05)

        async with asyncio.timeout(10):
            assert (await connection.run("echo here")).out == "here\n"
        assert connection.connects == 1


def test_a_login_node_that_is_down_for_a_while_is_waited_for(world):
    waits, gate = world.gate("down")
    running = world.job(command=f"{waits}; echo survived")
    world.until(running, "Running")
    world.slurm.stop_sshd()
    try:
        waiting = world.job(command="echo late")
        status = world.until(waiting, "Pending", reason="Unreachable")
        assert "127.0.0.1" in status["message"]
        assert world.until_connected("default", is_good=False)["reason"] == "Unreachable"
        assert world.status(running)["phase"] == "Running"
        gate.touch()
    finally:
        world.slurm.start_sshd()

    assert world.until(running, "Completed")["output"] == "survived\n"
    assert world.until(waiting, "Completed")["output"] == "late\n"


def test_a_host_with_another_key_is_refused(world):
    stranger = " ".join((world.slurm.directory / "stranger.pub").read_text().split()[:2])
    world.cluster("impostor", hostKeys=[stranger])
    name = world.job(cluster="impostor", command="true")

    condition = world.until_connected("impostor", is_good=False)
    status = world.until(name, "Pending", reason="HostKeyRefused")

    assert condition["reason"] == "HostKeyRefused"
    assert "host key that is not among hostKeys" in status["message"]
    assert world.slurm.submissions(f"{name}.") == []
    world.delete(name)
    world.delete("impostor", "slurmclusters")


def test_a_key_without_access_says_so_and_a_better_one_is_taken(world):
    world.secret("stranger", world.slurm.key("stranger"))
    world.cluster("closed", secret="stranger")
    name = world.job(cluster="closed", command="echo in")

    condition = world.until_connected("closed", is_good=False)
    assert condition["reason"] == "PermissionDenied"
    assert "authorized keys" in condition["message"]
    world.until(name, "Pending", reason="PermissionDenied")

    world.secret("stranger", world.slurm.key())
    assert world.until(name, "Completed")["output"] == "in\n"


def test_certificates_prove_who_we_are_and_who_the_host_is(world):
    slurm = world.slurm
    key, hosts = slurm.key("member"), [f"127.0.0.1:{slurm.bare_port}"]
    authority = [f"@cert-authority * {slurm.public_key('authority')}"]
    expired = slurm.certify("member", "-n", "root", "-V", "20200101:20200102")
    world.secret("member", key, **{"ssh-certificate": expired})
    world.cluster("certified", hosts=hosts, secret="member", hostKeys=authority)
    name = world.job(cluster="certified", command="echo in")

    status = world.until(name, "Pending", reason="PermissionDenied")
    assert "Certificate expired (user root); `ssh-keygen -L` shows" in status["message"]
    assert world.until_connected("certified", is_good=False)["message"] == status["message"]

    valid = slurm.certify("member", "-n", "root", "-V", "+1h")
    world.secret("member", key, **{"ssh-certificate": valid})
    assert world.until(name, "Completed")["output"] == "in\n"
    world.delete("certified", "slurmclusters")


def test_a_host_certificate_of_another_authority_is_refused(world):
    slurm = world.slurm
    other = [f"@cert-authority * {slurm.public_key('stranger')}"]
    world.cluster("uncertified", hosts=[f"127.0.0.1:{slurm.bare_port}"], hostKeys=other)

    condition = world.until_connected("uncertified", is_good=False)

    assert condition["reason"] == "HostKeyRefused"
    world.delete("uncertified", "slurmclusters")


def test_a_second_login_node_and_a_jump_host_are_used(world):
    port = world.slurm.ssh_port
    jump = {"host": "127.0.0.1", "port": world.slurm.bare_port, "hostKeys": [world.slurm.host_key]}
    world.cluster("around", hosts=["127.0.0.1:1", f"127.0.0.1:{port}"], jumpHost=jump)

    name = world.job(cluster="around", command="echo there")

    assert world.until(name, "Completed")["output"] == "there\n"


def _step_marks(world, name):
    """What shows that a job has come to a step, in the order of steps."""

    def folder():
        return next((world.slurm.directory / "work/default").glob(f"{name}-*"), None)

    def has(file):
        return lambda: (found := folder()) is not None and (found / file).exists()

    return {
        "recorded": lambda: world.status(name).get("attempt"),
        "staged": has(".motley/job.sh"),
        "accepted": (world.slurm.directory / "accepted").exists,
        "noted": has(".motley/jobid"),
        "submitted": lambda: world.status(name).get("jobID"),
        "running": lambda: world.status(name).get("phase") == "Running",
        "ended": has(".motley/exit"),
        "completed": lambda: world.status(name).get("phase") == "Completed",
    }


def test_a_bridge_killed_at_every_step_submits_every_job_once(world):
    names = []
    late, accepted = (world.slurm.directory / name for name in ("late", "accepted"))
    for step in _step_marks(world, ""):
        name = f"killed-{step}"
        names.append(name)
        if step == "accepted":
            late.touch()
        waits, gate = world.gate(name)
        if step in ("ended", "completed"):
            gate.touch()
        world.job(name, command=f"{waits}; echo $RANDOM > proof", outputs=["proof"])
        world.wait(_step_marks(world, name)[step], f"{name} has come so far")
        world.bridge.kill()
        gate.touch()
        late.unlink(missing_ok=True)
        accepted.unlink(missing_ok=True)
        world.bridge.start()

    for name in names:
        status = world.until(name, "Completed")
        assert status["attempt"] == 1
        assert "proof" in world.results(name)
    assert [len(world.submissions(name)) for name in names] == [1] * len(names)


def test_jobs_that_ended_while_no_bridge_looked_are_judged_all_the_same(world):
    """Slurm's queue has forgotten them by then: from the accounts, or from the job's own note."""
    world.cluster("unaccounting", hosts=[f"127.0.0.1:{world.slurm.bare_port}"])
    waits, gate = world.gate("forgotten")
    clusters = ("default", "unaccounting")
    names = [world.job(cluster=cluster, command=f"{waits}; exit 7") for cluster in clusters]
    numbers = {world.until(name, "Running")["jobID"] for name in names}
    world.bridge.kill()
    gate.touch()
    shown = ("squeue", "-h", "-t", "all", "-o", "%i")
    world.wait(
        lambda: not numbers & set(world.slurm.command(*shown).split()), "Slurm has forgotten them"
    )
    world.bridge.start()

    for name in names:
        status = world.until(name, "Failed")
        assert (status["reason"], status["exitCode"]) == ("NonZeroExit", 7)
