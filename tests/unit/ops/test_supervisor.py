"""The supervisor with real processes: they start, crash, come back, survive it, and stop."""

import os
import signal
import sys
from contextlib import contextmanager

import pytest

from motley.ops import processes, spawning
from motley.ops.supervision import Spec

from . import supervised
from .supervised import eventually

LISTENER = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
path = sys.argv[1]
if os.path.exists(path): os.unlink(path)
s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()
print("listening", flush=True)
while True: s.accept()[0].close()
"""


class Rig(supervised.Rig):
    def spec(self, name, **options):
        path = self.root / f"{name}.sock"
        command = (sys.executable, "-c", LISTENER, str(path))
        return Spec(name=name, command=command, probe=f"unix:{path}", **options)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()


def test_components_start_in_order_and_stop_on_sigterm(rig):
    rig.ask(rig.spec("second", after=("first",)), rig.spec("first"))
    supervisor = rig.start()
    found = eventually(lambda: rig.running("first", "second"))
    assert found["first"].started <= found["second"].started
    assert (rig.root / "logs" / "first.log").read_text() == "listening\n"
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(15) == 0
    assert processes.of_cluster(rig.root) == {}
    assert not rig.state.is_supervised


def test_a_killed_component_comes_back_as_another_process(rig):
    rig.ask(rig.spec("one"))
    rig.start()
    before = eventually(lambda: rig.running("one"))["one"]
    os.kill(before.pid, signal.SIGKILL)
    after = eventually(
        lambda: (found := rig.running("one")) and found["one"].pid != before.pid and found["one"]
    )
    assert after.restarts == 1


def test_components_survive_a_killed_supervisor_and_are_adopted_by_the_next(rig):
    rig.ask(rig.spec("one"))
    first = rig.start()
    before = eventually(lambda: rig.running("one"))["one"]
    first.kill()
    first.wait()
    assert before.process is not None
    assert not rig.state.is_supervised
    rig.start()
    after = eventually(lambda: rig.running("one"))["one"]
    assert (after.pid, after.restarts) == (before.pid, 0)
    os.kill(after.pid, signal.SIGKILL)  # and it is watched like a child
    eventually(lambda: (found := rig.running("one")) and found["one"].restarts == 1)


def test_a_component_nobody_wrote_down_is_found_by_its_mark(rig):
    spec = rig.spec("one")
    rig.ask(spec)
    stray = spawning.launch(
        spec.command, root=rig.root, component="one", log=rig.root / "logs" / "one.log"
    )
    rig.start()
    assert eventually(lambda: rig.running("one"))["one"].pid == stray.pid


def test_a_second_supervisor_refuses_to_start(rig):
    rig.ask(rig.spec("one"))
    rig.start()
    eventually(lambda: rig.running("one"))
    assert rig.start().wait(15) == 3


def test_a_new_list_stops_what_is_gone_and_starts_what_is_new(rig):
    rig.ask(rig.spec("old"), rig.spec("both"))
    supervisor = rig.start()
    before = eventually(lambda: rig.running("old", "both"))
    rig.ask(rig.spec("both"), rig.spec("new"))
    supervisor.send_signal(signal.SIGHUP)
    after = eventually(lambda: rig.running("both", "new"))
    assert after["both"].pid == before["both"].pid
    assert before["old"].process is None


def test_a_supervisor_hands_over_without_touching_its_components(rig):
    rig.ask(rig.spec("one"))
    first = rig.start()
    before = eventually(lambda: rig.running("one"))["one"]
    first.send_signal(signal.SIGUSR1)
    assert first.wait(15) == 0
    assert before.process is not None


def test_a_command_that_cannot_run_is_reported_with_its_reason(rig):
    rig.ask(Spec(name="lost", command=("no-such-program-anywhere",)))
    rig.start()
    lost = eventually(lambda: (c := rig.state.component("lost")) and c.restarts > 1 and c)
    assert lost.pid is None
    assert "no such command" in lost.reason


@contextmanager
def appending(path):
    with path.open("ab", buffering=0) as file:
        yield file


def test_a_log_is_cut_while_it_is_written_to(tmp_path):
    log = tmp_path / "x.log"
    with appending(log) as file:
        file.write(b"a" * 100)
        assert not spawning.rotate(log, limit_bytes=100)
        file.write(b"b")
        assert spawning.rotate(log, limit_bytes=100)
        file.write(b"c")
    assert log.read_bytes() == b"c"
    assert log.with_name("x.log.1").read_bytes() == b"a" * 100 + b"b"
