import os
import signal
import subprocess
import sys

from motley.ops import processes
from motley.ops.processes import Process


def test_a_pid_alone_is_not_an_identity():
    me = processes.identify(os.getpid())
    assert me is not None
    assert me.is_alive
    assert not Process(me.pid, me.started + 1).is_alive
    assert not processes.send(Process(me.pid, me.started + 1), signal.SIGTERM)


def test_a_zombie_does_not_count_as_running():
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.start_of(child.pid) is None
        assert processes.identify(child.pid) is None


def test_a_process_with_a_strange_name_is_read_correctly(tmp_path):
    strange = tmp_path / "a) Z 1 ("
    strange.symlink_to("/bin/sleep")
    with subprocess.Popen([strange, "30"]) as child:
        found = processes.identify(child.pid)
        assert found is not None
        assert found.is_alive
        processes.stop([found], 5.0)
    assert child.returncode == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed():
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}\nwhile True: signal.pause()"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = processes.identify(child.pid)
        assert found is not None
        processes.stop([found], 0.2)
    assert child.returncode == -signal.SIGKILL


def test_processes_are_found_by_the_cluster_they_were_started_for(tmp_path):
    variables = {"PATH": "/usr/bin:/bin", "MOTLEY_ROOT": str(tmp_path), "MOTLEY_COMPONENT": "x"}
    with subprocess.Popen(["sleep", "30"], env=variables) as child:
        try:
            found = processes.of_cluster(tmp_path)
            assert [(p.pid, name) for p, name in found.items()] == [(child.pid, "x")]
            assert processes.of_cluster(tmp_path / "other") == {}
        finally:
            child.kill()


def test_memory_of_a_process_is_counted_in_bytes():
    assert processes.rss_bytes(os.getpid()) > 1 << 20
    assert processes.rss_bytes(2**22 + 1) == 0
