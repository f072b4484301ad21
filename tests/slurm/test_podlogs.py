"""kubectl's doors to pods on Slurm: logs, live and afterwards; a clear no to terminals."""

import contextlib
import re
import subprocess

import pytest

from motley.lib import clock


@contextlib.contextmanager
def followed(world, *arguments):
    """`kubectl logs -f` as a process, with what it has shown so far."""
    path = world.local / f"followed-{next(world.names)}"
    with path.open("wb") as sink:
        process = subprocess.Popen(
            world.kubectl.command("logs", "-f", *arguments),
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=world.kubectl.environment(),
        )
    try:
        yield process, path.read_text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def talkative(world, name):
    """A pod that prints, waits for a gate, and prints more; it is at its gate."""
    waits, gate = world.gate(name)
    says = f"echo one; echo two >&2; {waits}; echo three; echo four"
    world.pod(name, "slurm-default", command=["sh", "-c", says])
    world.until_pod(name, "Running")
    return gate


def test_a_running_pod_is_followed_live_to_its_end_through_a_cut_connection(nodes):
    gate = talkative(nodes, "talks")
    with followed(nodes, "talks") as (process, shown):
        nodes.wait(lambda: "two" in shown(), "what was printed is shown while it runs")
        assert process.poll() is None
        assert nodes.get("talks", "pods")["status"]["phase"] == "Running"
        nodes.proxy.cut()
        gate.touch()
        assert process.wait(60) == 0

        whole = "image docker://example.com/tool:1\none\ntwo\nthree\nfour\n"
        assert shown() == whole
    nodes.until_pod("talks", "Succeeded")
    assert nodes.kubectl("logs", "talks", "-c", "main").out == whole
    assert nodes.kubectl("logs", "talks", "--tail=2").out == "three\nfour\n"
    assert nodes.kubectl("logs", "talks", "--limit-bytes=5").out == "image"


def test_lines_have_the_times_at_which_they_were_printed(nodes):
    gate = talkative(nodes, "timed")
    folder = next((nodes.slurm.directory / "work/default").glob("timed-*"))
    notes, printed = folder / ".motley/times", folder / "timed.out"

    def are_noted():
        lines = notes.read_text().splitlines() if notes.exists() else []
        return "two" in printed.read_text() and f" {printed.stat().st_size}" in "".join(lines[-1:])

    nodes.wait(are_noted, "the first lines are noted")
    early = clock.SYSTEM.now()
    nodes.wait(lambda: clock.SYSTEM.now() > early + 1.1, "another second has come", 5)
    gate.touch()
    nodes.until_pod("timed", "Succeeded")

    since = clock.rfc3339(early + 1)
    assert nodes.kubectl("logs", "timed", f"--since-time={since}").out == "three\nfour\n"
    lines = nodes.kubectl("logs", "timed", "--timestamps").out.splitlines()
    assert [line.split(" ")[1] for line in lines[1:]] == ["one", "two", "three", "four"]
    times = [line.split(" ")[0] for line in lines]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", one) for one in times)
    assert times == sorted(times)
    assert clock.parse_rfc3339(times[2]) < early
    assert clock.parse_rfc3339(times[3]) > early + 1


@pytest.fixture(scope="module")
def quiet(nodes):
    """A pod that runs and says nothing, and one that never ran."""
    nodes.pod("refused-log", "plain-node", command=["true"])
    nodes.pod("quiet", "slurm-default", command=["sleep", "300"])
    nodes.until_pod("refused-log", "Failed")
    nodes.until_pod("quiet", "Running")
    yield nodes
    nodes.delete("quiet", "pods")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("logs", "refused-log"), "did not run: the Slurm cluster has neither Apptainer"),
        (("logs", "quiet", "-c", "other"), "container other is not valid for pod quiet"),
        (("logs", "quiet", "--previous"), 'previous terminated container "main" in pod "quiet"'),
        (("exec", "quiet", "--", "sh"), "kubectl exec is not possible here: the pod is a batch"),
        (("port-forward", "quiet", ":80"), "kubectl port-forward is not possible here: the pod"),
        (("attach", "quiet"), "kubectl attach is not possible here: the pod is a batch job"),
    ],
)
def test_what_there_is_not_is_refused_in_words(quiet, arguments, said):
    assert said in quiet.kubectl(*arguments, fails=True).err


def test_a_pod_that_waits_in_the_queue_has_no_log_yet(nodes):
    nodes.pod("queued", "slurm-default", command=["true"], resources={"requests": {"cpu": "17"}})
    nodes.wait(lambda: not nodes.is_gone("queued"), "it has a job")

    assert 'container "main" in pod "queued" is waiting to start: ' in (
        nodes.kubectl("logs", "queued", fails=True).err
    )
    nodes.delete("queued", "pods")


def test_a_kept_log_is_shown_while_the_cluster_is_away(nodes):
    nodes.pod("kept", "slurm-default", command=["echo", "still here"])
    nodes.until_pod("kept", "Succeeded")
    nodes.until("kept", "Completed")
    nodes.proxy.is_open = False
    nodes.proxy.cut()
    try:
        shown = nodes.kubectl("logs", "kept").out
    finally:
        nodes.proxy.is_open = True

    assert shown == "image docker://example.com/tool:1\nstill here\n"
