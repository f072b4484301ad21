"""What users, clusters and disks may do to the bridge, on its pure parts and its shell scripts."""

import base64
import os
import stat
import subprocess
from pathlib import Path

import asyncssh
import pytest

from motley.api.views.container import Container
from motley.api.views.slurm import ResultFile, SlurmCluster, SlurmJob
from motley.lib import clock
from motley.node.logs import Options
from motley.slurm import (
    building,
    cluster,
    clusters,
    jobs,
    localpaths,
    podlogs,
    resultkeys,
    results,
    runtimes,
    script,
    sessions,
    ssh,
    staging,
    submission,
)
from motley.slurm import status as statuses
from motley.slurm.jobs import Row

KEY = asyncssh.generate_private_key("ssh-ed25519")
PUBLIC = KEY.export_public_key().decode().strip()
OTHER = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


def job(metadata=None, status=None, **spec):
    meta = {"name": "sum", "namespace": "lab", "uid": "0f2c9a7e-1111", **(metadata or {})}
    return SlurmJob.of({"metadata": meta, "spec": spec, "status": status or {}})


def site(**spec):
    return SlurmCluster.of({"metadata": {"name": "pi"}, "spec": {"hosts": ["login"], **spec}})


# Whom we trust, and who we are.


def test_a_revoked_key_is_not_trusted():
    keys, authorities, revoked = ssh.trusted([PUBLIC, f"@revoked * {OTHER}"])

    assert [len(keys), len(authorities), len(revoked)] == [1, 0, 1]
    with pytest.raises(ValueError, match="names no key"):
        ssh.trusted([f"@revoked * {OTHER}"])


@pytest.mark.parametrize(
    "hosts", ["ssh-login.example.org,[ssh-2.example.org]:2222", "[10.0.0.1]:2222"]
)
def test_lines_of_a_known_hosts_file_are_taken_as_they_are(hosts):
    line = f"{hosts} {PUBLIC}"
    keys, _, _ = ssh.trusted([line])

    assert [key.export_public_key() for key in keys] == [
        KEY.convert_to_public().export_public_key()
    ]


def test_a_whole_known_hosts_file_in_one_text_has_all_its_keys():
    keys, _, _ = ssh.trusted([f"# login-1:22 SSH-2.0-OpenSSH_9.2\n{PUBLIC}\nlogin-2 {OTHER}\n"])

    assert len(keys) == 2


class Secrets:
    """A client with one Secret."""

    def __init__(self, **data: bytes) -> None:
        self.data = {name: base64.b64encode(value).decode() for name, value in data.items()}

    async def get(self, cls, name, namespace):
        return cls.of({"metadata": {"name": name}, "data": self.data})


@pytest.mark.filterwarnings("ignore:Warning. bcrypt.kdf")  # quick rather than safe
async def test_a_key_with_a_passphrase_from_a_file_is_read():
    locked = KEY.export_private_key(passphrase="open sesame", rounds=4)
    client = Secrets(**{"ssh-privatekey": locked, "passphrase": b"open sesame\n", "x": b"\xff\xfe"})
    spec = {"user": "ann", "hostKeys": [PUBLIC], "credentialsSecret": {"name": "s"}}
    access = await sessions.Sessions(client)._access(site(**spec))

    mine = ssh._own_key(access.hosts[0].credentials)

    assert mine.export_public_key() == KEY.export_public_key()


# Scripts for the login node, with disks that are full and shells that talk.


class Login:
    """A login node's commands as programs in a folder, and what was asked of them."""

    def __init__(self, path: Path) -> None:
        self.bin, self.work, self.asked = path / "bin", path / "work", path / "asked"
        self.bin.mkdir()
        self.asked.touch()
        self.program("sbatch", "echo 4711")
        self.program("squeue", "")
        self.program("sacct", "")
        self.program("scancel", "")

    def program(self, name: str, does: str) -> None:
        text = f'#!/bin/sh\n(ulimit -Sf unlimited; echo "{name} $*" >> {self.asked}) 2>&1\n{does}\n'
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, text: str, before: str = "") -> "subprocess.CompletedProcess[str]":
        path = f"{self.bin}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-s"], input=before + text, text=True, capture_output=True, check=False,
            timeout=60, env={"PATH": path, "LC_ALL": "C"}, cwd=self.work.parent,
        )  # fmt: skip

    def calls(self, name: str) -> int:
        return sum(line.split()[0] == name for line in self.asked.read_text().splitlines())


@pytest.fixture
def login(tmp_path):
    return Login(tmp_path)


# Empty files can be made, nothing can be written into them: as with a quota that is used up.
FULL = "ulimit -Sf 0; trap '' XFSZ\n"


def test_a_job_that_was_accepted_counts_although_its_number_cannot_be_written_down(login):
    (login.work / ".motley").mkdir(parents=True)

    done = login.run(submission.submission(str(login.work), "n", []), FULL)

    assert (done.returncode, submission.number_in(done.stdout)) == (0, "4711")
    login.program("squeue", "echo 4711")
    again = login.run(submission.submission(str(login.work), "n", []))
    assert (submission.number_in(again.stdout), login.calls("sbatch")) == ("4711", 1)


def test_nothing_is_submitted_where_the_mark_of_it_cannot_be_made(login):
    (login.work / ".motley").mkdir(parents=True)
    (login.work / ".motley/submitting").symlink_to("/nowhere/at/all")  # not even root can

    done = login.run(submission.submission(str(login.work), "n", []))

    assert done.returncode != 0
    assert login.calls("sbatch") == 0


def test_a_job_is_looked_for_although_its_folder_cannot_be_seen(login):
    login.program("squeue", "echo 4711")

    done = login.run(submission.recovery(str(login.work), "n"))

    assert (done.returncode, submission.number_in(done.stdout)) == (0, "4711")


def test_a_job_is_cancelled_although_its_folder_cannot_be_made(login):
    login.work.write_text("a file is where the folder should be")

    done = login.run(submission.cancellation(str(login.work), "n", "%F"))

    assert (done.returncode, login.calls("scancel")) == (0, 1), done.stderr


@pytest.mark.parametrize("said", ["Welcome to HPC2!\njob 4711\n", "job 4711\n"])
def test_what_a_login_shell_says_is_no_job_number(said):
    assert submission.number_in(said) == "4711"
    assert submission.number_in(said.splitlines()[0].removesuffix("job 4711")) == ""


async def test_a_compilers_endless_complaints_are_cut(login, tmp_path):
    ran = {}

    class Shell:
        async def run(self, command, *, stdin, timeout_s):
            done = login.run(stdin)
            ran["bytes"] = len(done.stdout)
            return ssh.Result(done.returncode, done.stdout, done.stderr)

    (tmp_path / ".motley").mkdir()
    said = await building.build(Shell(), str(tmp_path), "echo first; seq 1000000; echo last; false")

    assert ran["bytes"] < 100_000
    assert said is not None
    assert said.startswith("first\n1\n")
    assert said.endswith("1000000\nlast")


# What Slurm says.


def test_a_job_of_another_name_by_the_same_number_is_not_ours():
    """Numbers begin anew when a controller loses its state, or the cluster is another one."""
    rows = [Row("7", name="mine.1", state="RUNNING"), Row("8", name="other", state="FAILED")]

    found = cluster.by_job(rows, {"7": "mine.1", "8": "mine.2"})

    assert list(found) == ["7"]


def test_parts_of_a_job_that_asks_for_unlike_nodes_are_one_job():
    text = "9+0\x1fn\x1fCOMPLETED\x1f0:0\x1fa\x1f1\x1f2\n9+1\x1fn\x1fFAILED\x1f3:0\x1fb\x1f1\x1f2\n"

    rows = cluster.parse_accounts(text)

    assert {row.job_id for row in rows} == {"9"}
    assert jobs.judge(rows).exit_code == 3


def test_output_that_slurm_cannot_open_is_said_in_words():
    verdict = jobs.judge([Row("1", state="FAILED", signal=53)])

    assert verdict.reason == "OutputNotOpened"
    assert "workDirectory" in verdict.message


def test_a_script_of_the_users_own_waits_for_others_and_is_an_array_all_the_same():
    own = job(script="#!/bin/sh\n#SBATCH --array=1\n", array="0-3")

    words = script.essential(own, 1, ["afterok:7"])

    assert "--dependency=afterok:7" in words
    assert "--array=0-3" in words


@pytest.mark.parametrize(
    ("metadata", "spec", "words"),
    [
        ({"name": "n" * 201}, {"command": "true"}, "metadata.name"),
        ({}, {"command": "true", "files": {"a\nb": ""}}, "'a\\nb' is no name of a file"),
    ],
)
def test_names_that_no_disk_takes_are_refused(metadata, spec, words):
    assert words in "; ".join(script.problems(job(metadata, **spec), site()))


def test_a_home_folder_may_be_written_as_people_write_it():
    assert script.directory(job(), site(workDirectory="~/motley"), 1) == "motley/lab/sum-0f2c9a7e-1"
    assert script.directory(job(), site(workDirectory="~"), 1) == "./lab/sum-0f2c9a7e-1"


def test_the_end_of_a_job_is_when_we_heard_of_it():
    """The cluster's clock is an hour behind ours, and the job is kept for ten minutes."""
    conditions = [
        {"type": "Finished", "status": "True", "lastTransitionTime": "2026-11-16T12:00:00Z"}
    ]
    ended = job(status={"completionTime": "2026-11-16T11:00:00Z", "conditions": conditions})

    assert clock.rfc3339(statuses.heard_of_end(ended)) == "2026-11-16T12:00:00Z"


def test_a_job_that_ended_takes_no_place_and_one_of_another_cluster_neither():
    ended = job(status={"attempt": 1, "phase": "Failed"})
    runs = job({"uid": "2"}, {"attempt": 1, "phase": "Running"})

    assert not jobs.is_full(1, [ended, job({"uid": "3"})], {"of another cluster"})
    assert jobs.is_full(1, [ended, runs], ())
    assert jobs.is_full(1, [job({"uid": "3"})], {"3"})
    assert not jobs.is_full(0, [runs], ())
    assert jobs.has_left(runs, None)
    assert jobs.has_left(runs, ended)
    assert not jobs.has_left(None, ended)
    assert not jobs.has_left(ended, None)


def connected(value, reason=""):
    found = {"type": "Connected", "status": value, "reason": reason, "message": "words"}
    status = {"conditions": [found] if value else []}
    return SlurmCluster.of({"metadata": {"name": "pi"}, "status": status})


@pytest.mark.parametrize(
    ("reason", "its", "said"),
    [
        ("NotReady", connected("True"), None),  # as it was when the last bridge ended
        ("NotConnected", connected(""), None),
        ("NotReady", connected("False", "NoSecret"), "NoSecret"),
        ("NotReady", None, "NoCluster"),
        ("ConnectionLost", connected("True"), "ConnectionLost"),
    ],
)
def test_a_bridge_that_has_just_begun_complains_of_nothing(reason, its, said):
    found = clusters.reason_why(ssh.Unreachable(reason, "…"), job(), its)

    assert (found.reason if found else None) == said


def test_what_fails_at_once_is_tried_again_ever_more_rarely():
    pauses = [jobs.pause_before(attempt) for attempt in (2, 3, 4, 100)]

    assert pauses == [1.0, 2.0, 4.0, 300.0]


# Files with names that nobody expects, and links that lead elsewhere.


def test_checksums_of_odd_names_are_read(tmp_path):
    odd = ["plain", "back\\slash", "a b", "-dash", "ü"]
    for name in odd:
        (tmp_path / name).write_text(name)
    listed = subprocess.run(
        ["sha256sum", "--", *odd], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    found = staging.parse_checksums(listed)

    assert found == {name: staging.checksum(name.encode()) for name in odd}


class Slow:
    """A file on the cluster, in large pieces, and what has become of it."""

    def __init__(self) -> None:
        self.pieces = 0

    def open(self, path, mode):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def stat(self, path):
        raise asyncssh.SFTPNoSuchFile("not yet")

    async def write(self, data, offset):
        self.pieces += 1

    async def read(self, size, offset):
        self.pieces += 1
        return b"x" * size


async def test_nobody_waits_for_files_of_a_deleted_job(tmp_path):
    """Of a thousand pieces either way, three go before the job is deleted."""
    up, down = Slow(), Slow()

    with pytest.raises(staging.Unwanted):
        await staging._send(None, up, "d", "f", bytes(1000 * 131072), lambda: up.pieces < 3)
    with (tmp_path / "f").open("ab") as local, pytest.raises(staging.Unwanted):
        await staging._copy(down, "f", local, lambda: down.pieces < 3)

    assert (up.pieces, down.pieces) == (3, 3)


def test_a_cancelled_job_still_brings_its_results():
    cancelled = {"annotations": {"motley.io/cancel": "true"}}
    deleted = {"deletionTimestamp": "2026-11-16T12:00:00Z"}
    ended = job(cancelled, {"phase": "Cancelled"})

    assert jobs.is_wanted(job(), job())
    assert not jobs.is_wanted(job(), job(cancelled))
    assert jobs.is_wanted(ended, ended)
    assert not jobs.is_wanted(job(), job(deleted))
    assert not jobs.is_wanted(job(), job({"uid": "another"}))
    assert not jobs.is_wanted(job(), None)


def test_results_of_any_name_have_keys_of_their_own():
    odd = ["a b.csv", "a_b.csv", "ä.csv", "ö.csv", "x/y.csv", "..", ".", "n" * 254, "a,b"]

    keys = [resultkeys.key_of(name) for name in odd]

    assert len(set(keys)) == len(odd)
    assert all(resultkeys.is_key(key) for key in keys)
    assert resultkeys.key_of("x/y.csv") == "x__y.csv"
    assert resultkeys.key_of("sum.out") == "sum.out"


def test_many_results_fit_into_an_object(tmp_path):
    files = [ResultFile(name=f"{n:0200}", bytes=0, sha256="0" * 64) for n in range(4_000)]
    for file in files:
        (tmp_path / file.name).touch()

    packed = results.packed(files, tmp_path)
    listed = results.listed(files)

    assert sum(len(key) + len(value) for key, value in packed.items()) < 1_000_000
    assert len(str(listed)) < 500_000
    assert len(listed) < len(files)


def test_links_within_an_opened_folder_do_not_lead_out_of_it(tmp_path):
    opened, outside = tmp_path / "opened", tmp_path / "outside"
    (opened / "src").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("s")
    (opened / "src/mine").write_text("m")
    (opened / "src/theirs").symlink_to(outside / "secret")
    (opened / "src/all").symlink_to(outside)
    (opened / "src/near").symlink_to("mine")

    found = localpaths.files_of(opened / "src", [localpaths.Root("D:", opened)])

    assert sorted(found) == ["mine", "near"]
    assert sorted(localpaths.files_of(opened / "src")) == ["mine", "near", "theirs"]


@pytest.mark.parametrize("trap", ["folder", "part", "file"])
def test_results_are_not_written_through_links_that_lead_out(tmp_path, trap):
    root = localpaths.Root("D:", tmp_path / "opened")
    place, outside = tmp_path / "kept", tmp_path / "outside"
    for folder in (root.path, place / "sub", outside / "sub"):
        folder.mkdir(parents=True)
    (place / "sub/r.csv").write_text("new")
    (outside / "sub/r.csv").write_text("old")
    if trap == "folder":
        (root.path / "sub").symlink_to(outside / "sub")
    else:
        (root.path / "sub").mkdir()
        name = "r.csv.part" if trap == "part" else "r.csv"
        (root.path / "sub" / name).symlink_to(outside / "sub/r.csv")

    if trap == "folder":
        with pytest.raises(OSError, match="leads out"):
            results.copy(place, "sub/r.csv", root.path, [root])
    else:
        results.copy(place, "sub/r.csv", root.path, [root])
        assert (root.path / "sub/r.csv").read_text() == "new"
        assert not (root.path / "sub/r.csv").is_symlink()
    assert (outside / "sub/r.csv").read_text() == "old"
    assert not stat.S_ISLNK((outside / "sub/r.csv").lstat().st_mode)


# Logs without an end.


class Endless:
    """A file without a line's end, whose notes are as long."""

    size = 64 * 1024 * 1024

    def __init__(self) -> None:
        self.most = 0

    async def stat(self):
        return self.size, 1.0

    async def read(self, offset, size):
        self.most = max(self.most, size)
        return b"x" * min(size, self.size - offset)


async def test_a_line_without_an_end_is_not_kept_whole():
    file, notes = Endless(), Endless()
    pieces = podlogs.read(
        [podlogs.Printed("Stdout", file, notes)],
        Options(timestamps=True, limit_bytes=8 * 1024 * 1024),
        clock.SYSTEM,
        lambda: True,
    )

    longest = max([len(piece) async for piece in pieces])

    assert longest < 2 * 1024 * 1024
    assert notes.most <= 2 * 1024 * 1024


async def test_what_an_array_has_printed_fits_into_an_object():
    """Of sixteen tasks that print without end, bytes that are no text."""
    written = {}

    class Client:
        async def patch(self, cls, name, namespace, document):
            written.update(document)

    log = results.Log(is_changed=True)
    for task in range(16):
        log.tails[f"sum_{task}.out"] = results._Tail(1000, b"\xff" * 128 * 1024)

    await log.write(Client(), job(array="0-15"))

    assert sum(len(text.encode()) for text in written["data"].values()) < 1_000_000
    start = int(written["metadata"]["annotations"]["motley.io/start.sum_3.out"])
    assert start + len(written["data"]["sum_3.out"]) == 1000 + 128 * 1024


# Command lines of runtimes.


@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
def test_apptainer_neither_evaluates_nor_splits_variables(runtime):
    """Seen with the real 1.4.5: `--env A=x,B=y` is two variables, and `$(…)` in one is run."""
    container = Container(name="m", image="i", command=["sh"], args=["$HOME"])

    text = runtimes.command(container, {"A": "x,B=$(id)"}, runtime, name="u")

    upper = runtime.upper()
    assert text == (
        f"env {upper}_NO_EVAL=1 '{upper}ENV_A=x,B=$(id)' {runtime} --quiet exec docker://i"
        " sh '$HOME'"
    )
