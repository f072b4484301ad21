"""The zygote with real processes: what it forks is like what a command starts, and it may die."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from motley.lib import clock
from motley.ops import preloaded, processes, spawning, zygote
from motley.ops.supervision import Spec

from . import supervised
from .supervised import eventually

COMPONENT = "timeit"  # stands for a component: a module that runs what its arguments say
NEVER_ENDS = ("-n", "1", "-r", "1", "-s", "import signal", "signal.pause()")


class Rig(supervised.Rig):
    def command(self, *arguments):
        return (sys.executable, "-P", "-m", COMPONENT, *(arguments or NEVER_ENDS))

    def restarted(self, name, restarts):
        def check():
            found = self.running(name)
            return found and found[name].restarts == restarts and found[name]

        return eventually(check)

    def one_zygote(self):
        """The only one, as soon as it has its name."""
        (found,) = eventually(lambda: len(self.zygotes) == 1 and self.zygotes)
        return found

    @property
    def zygotes(self):
        marks = processes.of_cluster(self.root)
        return [p for p in marks if "motley.ops.zygote" in processes.command_of(p.pid)]

    def logged(self):
        return (self.root / "logs" / "supervisor.log").read_text()


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_a_forked_component_shows_what_a_started_one_shows(rig):
    rig.ask(Spec(name="one", command=rig.command()))
    supervisor = rig.start()
    pid = eventually(lambda: rig.running("one"))["one"].pid
    born = rig.one_zygote()
    assert "forked" in rig.logged()

    assert eventually(lambda: processes.command_of(pid) == rig.command())
    assert processes.environment(pid) == spawning.environment(rig.root, "one")
    assert processes.of_cluster(rig.root)[processes.identify(pid)] == "one"
    assert os.getsid(pid) == pid
    assert parent(pid) == supervisor.pid, "the supervisor collects it"
    for number in (1, 2):
        assert os.readlink(f"/proc/{pid}/fd/{number}") == str(rig.root / "logs" / "one.log")
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert set(os.listdir(f"/proc/{pid}/fd")) <= {"0", "1", "2"}, "nothing of the zygote's is open"
    assert born.pid != pid

    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(20)
    assert processes.of_cluster(rig.root) == {}, "a supervisor that ends takes its zygote along"


def test_its_environment_and_arguments_are_real_and_its_exit_is_known(rig):
    code = "import os, sys; print(os.environ['MOTLEY_COMPONENT'], sys.argv[-1]); os._exit(7)"
    rig.ask(Spec(name="one", command=rig.command("-n", "1", "-r", "1", code)))
    rig.start()

    def reason():
        component = rig.state.component("one")
        return component and component.restarts and component.reason

    assert eventually(reason) == "exit code 7"
    assert (rig.root / "logs" / "one.log").read_text().startswith(f"one {code}\n")


def test_a_killed_zygote_harms_nobody_and_is_replaced(rig):
    rig.ask(Spec(name="one", command=rig.command()))
    rig.start()
    first = eventually(lambda: rig.running("one"))["one"].process
    zygote_ = rig.one_zygote()
    processes.send(zygote_, signal.SIGKILL)
    assert processes.wait(zygote_, 5)
    assert first.is_alive

    processes.send(first, signal.SIGKILL)
    second = rig.restarted("one", 1)
    assert second.process != first
    another = rig.one_zygote()
    assert another != zygote_


def test_a_zygote_of_older_files_forks_nothing(rig, tmp_path, monkeypatch):
    code = tmp_path / "code"
    code.mkdir()
    (code / "shared_with_us.py").write_text("VERSION = 1\n")
    monkeypatch.syspath_prepend(str(code))
    zygote.importlib.import_module("shared_with_us")
    try:
        read, begun_ns = zygote.stamps(), time.time_ns()
        assert not zygote.is_stale(read, begun_ns)
        (code / "shared_with_us.py").write_text("VERSION = 22\n")
        assert zygote.is_stale(read, begun_ns)
        assert zygote.is_stale(zygote.stamps(), begun_ns), "written while it was being read"
    finally:
        del sys.modules["shared_with_us"]


def test_an_order_to_a_zygote_of_older_files_is_refused_and_it_ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        order = zygote.Order((sys.executable, "-P", "-m", COMPONENT), {}, "one", os.devnull)
        ours.send(msgspec.json.encode(order))
        assert zygote.serve(theirs, begun_ns=0) is None  # every file is younger than that
        answers = [msgspec.json.decode(ours.recv(1 << 16), type=zygote.Answer) for _ in range(2)]
    assert answers == [zygote.Answer(), zygote.Answer(stale=True)]


@pytest.mark.parametrize("answer", [zygote.Answer(stale=True), zygote.Answer(error="no memory")])
def test_what_a_zygote_does_not_fork_is_started_by_its_command(tmp_path, answer):
    async def story():
        nursery = preloaded.Preloaded(tmp_path, tmp_path / "z.log", print, clock.SYSTEM)
        nursery._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nursery._is_ready = True
        theirs.send(msgspec.json.encode(answer))
        command = (sys.executable, "-P", "-m", COMPONENT, *NEVER_ENDS)
        process = nursery.launch(command, component="one", log_file=tmp_path / "one.log")
        assert eventually(lambda: processes.command_of(process.pid) == command)
        assert msgspec.json.decode(theirs.recv(1 << 16), type=zygote.Order).command == command
        assert (nursery._socket is None) == answer.stale, "one of older files is given up"
        processes.send(process, signal.SIGKILL)
        theirs.close()
        nursery._drop("the test ends")
        return process.pid

    os.waitpid(asyncio.run(story()), 0)


def test_the_zygote_ends_with_a_killed_supervisor_and_components_are_taken_over(rig):
    rig.ask(Spec(name="one", command=rig.command()))
    supervisor = rig.start()
    before = eventually(lambda: rig.running("one"))["one"].process
    zygote_ = rig.one_zygote()
    supervisor.kill()
    supervisor.wait()
    assert processes.wait(zygote_, 5)
    assert before.is_alive

    (rig.root / "run" / "state.json").unlink()  # only the marks are left to find it by
    rig.start()
    assert eventually(lambda: rig.running("one"))["one"].process == before
    assert not rig.zygotes, "nothing is to be started: none is needed"


def test_other_programs_are_started_by_their_command(rig):
    rig.ask(Spec(name="one", command=("sleep", "1000")))
    rig.start()
    eventually(lambda: rig.running("one"))
    assert not rig.zygotes
    assert not zygote.is_forkable(("sleep", "1000"))
    assert zygote.is_forkable(spawning.motley("proxy"))


def test_a_command_line_that_has_no_room_is_started_by_its_command(rig):
    long = "x" * zygote.ROOM_BYTES
    rig.ask(Spec(name="one", command=rig.command(*NEVER_ENDS[:-1], f"signal.pause()#{long}")))
    rig.start()
    pid = eventually(lambda: rig.running("one"))["one"].pid
    assert eventually(lambda: processes.command_of(pid)[-1].endswith(long))
    assert "forked" not in rig.logged()


def test_what_is_preloaded_starts_no_thread_and_no_loop():
    code = (
        "import threading, asyncio, sys\n"
        "from motley.ops import zygote\n"
        "zygote.preload()\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert asyncio.events._get_running_loop() is None\n"
        "assert not any(n == 'grpc' or n.startswith('motley.cli.') for n in sys.modules)\n"
        "import gc; assert gc.get_freeze_count() > 1000\n"
        "import os; print(len(os.listdir('/proc/self/task')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_the_supervisor_waits_for_the_zygote_only_so_long(tmp_path, monkeypatch):
    async def story():
        monkeypatch.setattr(preloaded, "READY_S", 0.0)
        woken = asyncio.Event()
        nursery = preloaded.Preloaded(tmp_path, tmp_path / "z.log", woken.set, clock.SYSTEM)
        command = (sys.executable, "-P", "-m", COMPONENT, *NEVER_ENDS)
        process = nursery.launch(command, component="one", log_file=tmp_path / "one.log")
        assert nursery.process is None
        assert eventually(lambda: processes.command_of(process.pid) == command)
        processes.send(process, signal.SIGKILL)

    before = children()
    asyncio.run(story())
    for pid in children() - before:  # it, and the zygote that was given up
        os.waitpid(pid, 0)


def children():
    """Those of this process: other tests may have some that live on."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found
