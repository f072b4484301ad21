"""Logs of pods on Slurm: which lines are meant, how old they are, whose they are."""

import subprocess

import pytest
from aiohttp.test_utils import TestClient, TestServer

from motley.api.views.container import Container
from motley.api.views.pod import Pod
from motley.api.views.slurm import SlurmJob
from motley.lib import clock as clocks
from motley.node.logs import Options
from motley.slurm import nodeserver, podlogs, runtimes
from motley.slurm.podlogs import Printed, Times
from motley.slurm.ssh import Unreachable
from motley.slurm.virtualnode import Bound


class Grown:
    """A file in memory that may be away for a while."""

    def __init__(self, data=b"", written=100.0):
        self.data, self.written, self.failures = data, written, 0
        self.read_bytes = 0

    async def stat(self):
        if self.failures:
            self.failures -= 1
            raise Unreachable("ConnectionLost", "cut")
        return len(self.data), self.written

    async def read(self, offset, size):
        piece = self.data[offset : offset + size]
        self.read_bytes += len(piece)
        return piece


class Steps:
    """A clock whose sleeps let something happen."""

    def __init__(self, *steps):
        self._steps = list(steps)

    async def sleep(self, seconds):
        if self._steps:
            self._steps.pop(0)()


async def shown(*printed, clock=None, is_over=lambda: True, **options):
    found = podlogs.read(printed, Options(**options), clock or Steps(), is_over)
    return b"".join([piece async for piece in found]).decode()


def out(data, notes=b"", written=100.0):
    return Printed("Stdout", Grown(data, written), Grown(notes))


def err(data):
    return Printed("Stderr", Grown(data))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [(0, ""), (1, "c"), (2, "b\nc"), (3, "a\nb\nc"), (9, "a\nb\nc")],
)
async def test_the_last_lines_are_counted_from_the_end(lines, wanted):
    assert await shown(out(b"a\nb\nc"), tail_lines=lines) == wanted
    assert await shown(out(b"a\nb\nc\n"), tail_lines=lines) == wanted + ("\n" if wanted else "")


async def test_the_tail_of_a_large_log_is_found_without_reading_it():
    line = b"x" * 99 + b"\n"
    file = out(line * 50_000)

    assert await shown(file, tail_lines=2000) == (line * 2000).decode()
    assert file.file.read_bytes < 800_000


async def test_what_slurm_itself_says_comes_last_and_counts_as_lines():
    files = (out(b"a\nb\n"), err(b"cancelled\n"))

    assert await shown(*files) == "a\nb\ncancelled\n"
    assert await shown(*files, tail_lines=2) == "b\ncancelled\n"
    assert await shown(*files, stream="Stderr") == "cancelled\n"
    assert await shown(*files, limit_bytes=3) == "a\nb"


NOTES = b"50.500 2\n60.000 6\n60"


async def test_lines_are_as_old_as_the_first_note_that_covers_them():
    file = out(b"a\nb\nc\nlast", NOTES)

    assert await shown(file, timestamps=True) == (
        "1970-01-01T00:00:50.500000Z a\n"
        "1970-01-01T00:01:00.000000Z b\n"
        "1970-01-01T00:01:00.000000Z c\n"
        "1970-01-01T00:01:40.000000Z last"
    )
    assert await shown(file, since=55.0) == "b\nc\nlast"
    assert await shown(file, since=61.0) == "last"
    assert await shown(file, since=101.0) == ""


async def test_a_line_of_which_a_part_was_there_before_is_shown_whole():
    assert await shown(out(b"old\nhalf and half\n", b"50 8\n60 18\n"), since=55.0) == (
        "half and half\n"
    )


async def test_without_notes_lines_are_as_old_as_the_file():
    assert await shown(err(b"a\n"), timestamps=True) == "1970-01-01T00:01:40.000000Z a\n"


def test_notes_that_make_no_sense_are_left_out():
    times = Times()
    times.parse("?.3Y 10\n\n20.5 5\n19 7\nx\n30 6")

    assert [times.of(end) for end in (1, 5, 6, 9)] == [20.5, 20.5, 20.5, 20.5]


async def test_following_goes_on_through_a_broken_connection_to_the_end():
    file, state = out(b"one\n"), {"over": False}

    def breaks():
        file.file.data += b"two\nthr"
        file.file.failures = 2

    def ends():
        file.file.data += b"ee\n"
        state["over"] = True

    clock = Steps(breaks, lambda: None, lambda: None, ends)
    text = await shown(file, clock=clock, is_over=lambda: state["over"], follow=True)

    assert text == "one\ntwo\nthree\n"


async def test_who_does_not_follow_gets_what_there_was_at_first_and_the_truth():
    file = Grown(b"x" * 300_000)
    pieces = podlogs.read([Printed("Stdout", file)], Options(), Steps(), lambda: True)
    assert await anext(pieces) == b""
    file.data += b"later"
    assert sum([len(piece) async for piece in pieces]) == 300_000

    file.failures = 1
    with pytest.raises(Unreachable):
        await shown(Printed("Stdout", file))


def bound(status=None, job=None):
    pod = Pod.of(
        {
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "main"}]},
            "status": status or {},
        }
    )
    found = SlurmJob.of({"metadata": {"name": "p"}, "status": job}) if job is not None else None
    return Bound(pod, "slurm-x", "x", found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (bound(), 'container "main" in pod "p" is waiting to start: SlurmJobCreating'),
        (bound({"phase": "Failed", "message": "no runtime"}), "did not run: no runtime"),
        (bound(job={"phase": "Failed", "message": "bad partition"}), "did not run: bad partition"),
        (bound(job={"phase": "Pending", "reason": "Priority", "attempt": 1}), "start: Priority"),
    ],
)
def test_a_pod_without_a_log_says_why(found, said):
    with pytest.raises(nodeserver.Refused, match=said) as refused:
        nodeserver.which_attempt(found, nodeserver.which_job(found, "main"), is_previous=False)
    assert refused.value.code == 400
    with pytest.raises(nodeserver.Refused, match='container "other" not found in pod "p"'):
        nodeserver.which_job(found, "other")


def test_a_pod_that_is_tried_again_has_an_earlier_log():
    def attempt(phase, number, is_previous=False):
        found = bound(job={"phase": phase, "attempt": number, "jobID": "7"})
        job = nodeserver.which_job(found, "main")
        return nodeserver.which_attempt(found, job, is_previous=is_previous)

    assert attempt("Running", 2) == 2
    assert attempt("Pending", 2) == 1  # as long as there is nothing newer
    assert attempt("Running", 3, is_previous=True) == 2
    with pytest.raises(nodeserver.Refused, match="previous terminated container"):
        attempt("Running", 1, is_previous=True)


class Judged:
    """Lets in who has the right token, and remembers what was asked for."""

    def __init__(self):
        self.asked = []

    async def code(self, path, header, resource):
        self.asked.append(resource)
        return 200 if header == "Bearer right" else 401


class Pods:
    is_ready = True

    def bound(self, key):
        return bound() if key.name == "p" else None


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", "/containerLogs/n/p/main", 400, "is waiting to start: SlurmJobCreating"),
        ("GET", "/containerLogs/n/q/main", 404, 'pod "q" not found on a node of this bridge'),
        ("GET", "/containerLogs/n/p/main?tailLines=-1", 400, "tailLines must not be negative"),
        ("POST", "/containerLogs/n/p/main", 405, "only GET is"),
        ("POST", "/exec/n/p/main?command=sh", 501, "kubectl exec is not possible here"),
        ("OPTIONS", "/portForward/n/p", 501, "kubectl port-forward is not possible here"),
        ("GET", "/pods", 404, "/pods is not here: a node that stands for a Slurm cluster"),
        ("GET", "/metrics/resource", 200, "# What jobs use"),
    ],
)
async def test_the_server_of_virtual_nodes_answers_clearly_and_only_whom_it_may(
    method, path, code, said
):
    judged = Judged()
    server = nodeserver.NodeServer(None, Pods(), None, None, judged, clocks.SYSTEM)
    async with TestClient(TestServer(server.app())) as client:
        async with client.request(method, path) as answer:
            assert answer.status == 401
        headers = {"Authorization": "Bearer right"}
        async with client.request(method, path, headers=headers) as answer:
            assert answer.status == code
            assert said in await answer.text()
        async with client.get("/healthz") as answer:
            assert answer.status == 200
    assert len(judged.asked) == 2
    assert judged.asked[0]["name"] == ("slurm-x" if "/p" in path[2:] else "")


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        ("busybox", "docker://busybox"),
        ("nvidia/cuda:12.2.0-base", "docker://nvidia/cuda:12.2.0-base"),
        ("docker.io/library/busybox:1", "docker://library/busybox:1"),
        ("nvcr.io/nvidia/pytorch:25.06-py3", "docker://nvcr.io#nvidia/pytorch:25.06-py3"),
        ("localhost:5000/a/b", "docker://localhost:5000#a/b"),
    ],
)
def test_images_are_named_as_enroot_names_them(image, uri):
    assert runtimes.enroot_uri(image) == uri


def test_enroot_gets_the_devices_that_slurm_gave():
    container = Container(name="main", image="x", command=["nvidia-smi"])

    text = runtimes.command(container, {"A": "b c"}, "enroot", name="u1", gpus=1)

    assert (
        'enroot start --rw --env NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-all}"'
        " --env 'A=b c' --mount .motley/rc.local:/etc/rc.local:none:x-create=file,bind"
        " u1 nvidia-smi &\n"
    ) in text
    assert runtimes.problems({"A": "b\nc"}, "enroot") == [
        "enroot takes no variables of several lines (A)"
    ]
    assert runtimes.problems({"A": "b\nc"}, "apptainer") == []


@pytest.mark.parametrize("strict", ["", "set -e\n"])
def test_a_noted_command_keeps_its_exit_code_and_the_order_of_what_it_prints(tmp_path, strict):
    (tmp_path / ".motley").mkdir()
    run = runtimes.noted("echo a; echo b >&2; echo c; sh -c 'exit 7'", "it.out")
    with (tmp_path / "it.out").open("ab") as printed:
        code = subprocess.run(
            ["bash", "-c", strict + run], cwd=tmp_path, stdout=printed, check=False, timeout=30
        ).returncode

    assert (code, (tmp_path / "it.out").read_text()) == (7, "a\nb\nc\n")
    assert (tmp_path / ".motley/times").read_text().splitlines()[-1].endswith(" 6")
