"""A component that keeps failing: `up` ends with the reason, `status` and `doctor` show it."""

import asyncio
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random

import msgspec
import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.lib import clock
from motley.ops import doctor, overview, processes, statefile, supervision
from motley.ops.cluster import Cluster
from motley.ops.config import Config, current_netns
from motley.ops.failure import Failure
from motley.ops.statefile import ComponentState
from motley.ops.supervision import Spec

BROKEN = Spec(
    name="scheduler",
    command=(sys.executable, "-c", "print('cannot open the door'); raise SystemExit(3)"),
    probe="unix:/nobody/listens/here",
)
NOW = clock.parse_rfc3339("2026-11-16T08:00:00Z")


@pytest.fixture
def cluster(tmp_path):
    config = Config(root=tmp_path, node_name="n1", node_ip="10.0.0.1", netns=current_netns())
    config.run.mkdir()
    config.save()
    found = Cluster(config)
    yield found
    for process in processes.of_cluster(tmp_path):
        processes.send(process, signal.SIGKILL)
        processes.wait(process, 5.0)


def motley(*arguments):
    # In a thread of its own: a command runs an event loop, and pytest has one in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(CliRunner().invoke, main, list(map(str, arguments))).result(60)


def test_up_status_and_doctor_show_the_end_of_a_failing_components_log(cluster):
    cluster.supervise([BROKEN])
    with pytest.raises(Failure) as raised:
        asyncio.run(cluster.wait_ready(BROKEN))
    assert raised.value.message == "scheduler ends again and again (exit code 3)"
    assert "cannot open the door" in raised.value.advice
    root = cluster.config.root
    status = motley("status", "--root", root)
    assert status.exit_code == 1
    assert "scheduler keeps failing (exit code 3). Its log ends:" in status.output
    assert "  cannot open the door" in status.output
    shown = msgspec.json.decode(motley("status", "--root", root, "-o", "json").output)
    (component,) = shown["components"]
    assert component["failures"] >= 3
    assert component["lastEnd"] == "exit code 3"
    assert set(component["lastLines"]) == {"cannot open the door"}
    seen = asyncio.run(overview.overview(cluster.config))
    (one,) = seen.components
    facts = doctor.Running(one.name, one.state, one.last_end, one.log, tuple(one.last_lines))
    (finding,) = doctor.examine(
        doctor.Facts(is_made=True, is_supervised=True, components=(facts,))
    )[-1:]
    assert finding.level == "fail"
    assert finding.text.startswith("scheduler keeps failing: exit code 3\n")
    assert "cannot open the door" in finding.text


@pytest.mark.parametrize(
    ("state", "failures", "since", "is_failing"),
    [
        ("backoff", 1, "2026-11-16T07:59:59Z", True),
        ("starting", 1, "2026-11-16T07:59:59Z", False),  # it ended once, which happens
        ("starting", 2, "2026-11-16T07:59:59Z", True),
        ("running", 4, "2026-11-16T07:59:55Z", True),  # it came up, as it did before
        ("running", 4, "2026-11-16T07:59:00Z", False),
        ("running", 0, "2026-11-16T07:59:59Z", False),
        ("stopped", 0, "", False),
    ],
)
def test_what_has_not_stood_for_a_while_is_still_failing(state, failures, since, is_failing):
    one = ComponentState("x", state, failures=failures, since=since)
    assert overview.is_failing(one, NOW) is is_failing


def test_waits_before_restarts_differ_grow_to_a_bound_and_begin_anew_after_a_stable_time():
    def waits(seed):
        one = supervision.unit(Spec(name="x", command=("x",)), Random(seed), 0.0)
        found, now = [], 0.0
        for _ in range(12):
            supervision.started(one, processes.Process(1, 1), now)
            supervision.exited(one, "exit code 1", now + 1.0)
            found.append(one.start_at - now - 1.0)
            now = one.start_at
        assert one.failures == 12
        supervision.started(one, processes.Process(1, 1), now)
        supervision.exited(one, "exit code 1", now + supervision.STABLE_S + 1.0)
        assert one.failures == 1
        return found, one.start_at - now - supervision.STABLE_S - 1.0

    (first, anew), (second, _) = waits(1), waits(2)
    assert first != second
    assert first[0] <= supervision.BASE_S
    assert max(first) <= supervision.CAP_S
    assert min(first[-3:]) >= supervision.CAP_S / 2
    assert anew <= supervision.BASE_S


def test_a_damaged_state_file_is_no_state(tmp_path):
    (tmp_path / "state.json").write_text('{"supervisor": 1}')
    assert statefile.read_state(tmp_path / "state.json").components == []
