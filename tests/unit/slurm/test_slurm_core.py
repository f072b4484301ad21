"""The bridge's pure parts: scripts, verdicts, what Slurm prints, paths."""

import shlex
import subprocess
from pathlib import Path

import pytest

from motley.api.views.slurm import SlurmCluster, SlurmJob
from motley.slurm import authoring, cluster, jobs, localpaths, script, ssh, submission
from motley.slurm import status as statuses
from motley.slurm.jobs import Row, Step

FINALIZERS = {"finalizers": ["motley.io/slurm"]}


def job(metadata=None, status=None, **spec):
    meta = {"name": "sum", "namespace": "lab", "uid": "0f2c9a7e-1111", **(metadata or {})}
    return SlurmJob.of({"metadata": meta, "spec": spec, "status": status or {}})


def site(**spec):
    return SlurmCluster.of({"metadata": {"name": "pi"}, "spec": {"hosts": ["login"], **spec}})


FULL = {
    "files": {"sum.cu": "…"},
    "args": ["a b", "$HOME"],
    "numTasksPerNode": 2,
    "cpusPerTask": 4,
    "gpuResources": 1,
    "gpuType": "v100",
    "memory": "4Gi",
    "timeLimit": "1h30m",
    "array": "0-9%2",
    "environment": {"WHO": "it's me"},
    "modules": ["cuda/12", "gcc"],
    "mail": {"user": "ann", "type": "fail"},
    "buildOn": "Job",
}


def test_the_batch_script_says_all_the_job_asks_for():
    text = script.render(
        job(**FULL), site(mailDomain="x.org"), sources=["sum.cu"], dependencies=["afterok:7"]
    )

    assert text == (
        """\
#!/bin/bash -l
# SlurmJob lab/sum, written by motley.

#SBATCH --job-name=sum.0f2c9a7e-1111.1
#SBATCH --comment=motley:lab/sum
#SBATCH --partition=dgx2
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:v100:1
#SBATCH --mem=4096M
#SBATCH --time=01:30:00
#SBATCH --array=0-9%2
#SBATCH --dependency=afterok:7
#SBATCH --output=sum_%a.out
#SBATCH --error=sum_%a.err
#SBATCH --mail-type=FAIL
#SBATCH --mail-user=ann@x.org

# How it went, for clusters that keep no accounts.
echo "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" > .motley/started
trap 'echo $? > .motley/exit${SLURM_ARRAY_TASK_ID:+.$SLURM_ARRAY_TASK_ID}' EXIT

module load cuda/12 gcc

export WHO='it'"'"'s me'

if ! ( nvcc -O3 -o sum sum.cu ) > .motley/build.log 2>&1; then
  cp .motley/build.log .motley/build.failed; cat .motley/build.log >&2; exit 1
fi

srun ./sum 'a b' '$HOME'
"""
    )
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_a_sites_template_puts_the_parts_where_it_wants_them():
    template = "#!/bin/sh\n${directives}\necho $$ ${OTHER} ${name}\n${run}\n"

    text = script.render(job(command="./a"), site(scriptTemplate=template))

    assert text.startswith("#!/bin/sh\n#SBATCH --job-name=")
    assert text.endswith("echo $$ ${OTHER} sum\n./a\n")


@pytest.mark.parametrize(
    ("sources", "spec", "expected"),
    [
        (["a.cu", "b.c"], {}, "nvcc -O3 -o sum a.cu b.c"),
        (["a.c"], {"compiler": "icc", "compilerFlags": ["-fast"]}, "icc -fast -o sum a.c"),
        (["a.cc", "b.c"], {}, "c++ -O3 -o sum a.cc b.c"),
        (["Makefile", "a.cu"], {}, "make"),
        (["run.py"], {}, ""),
        (["a.cu"], {"build": "sh build.sh"}, "sh build.sh"),
    ],
)
def test_how_sources_are_built(sources, spec, expected):
    assert script.build_command(job(**spec), sources) == expected


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90", 90), ("1:30", 1.5), ("2:00:00", 120), ("1-12", 2160), ("1h30m", 90), ("45s", 0.75)],
)
def test_time_limits_are_read_in_both_spellings(text, minutes):
    assert script.minutes(text) == minutes
    assert script.minutes(script.slurm_time(text)) == minutes


@pytest.mark.parametrize(
    ("spec", "limits", "words"),
    [
        ({}, {}, "spec.command is empty"),
        ({"command": "x", "environment": {"a-b": "1"}}, {}, "no name of a shell variable"),
        ({"command": "x", "outputs": ["a/../../b"]}, {}, "not within the job's folder"),
        ({"command": "x", "files": {".motley/jobid": "1"}}, {}, "not within the job's folder"),
        ({"command": "x", "gpuResources": 4}, {"maxGpus": 2}, "gives 2"),
        ({"command": "x", "partition": "big"}, {"partitions": ["dgx2"]}, "is not one of dgx2"),
        ({"command": "x", "timeLimit": "2h"}, {"maxTime": "1:00:00"}, "gives 1:00:00"),
        ({"command": "x", "mail": {"user": "a", "via": "SMTP"}}, {}, "has no spec.smtp"),
    ],
)
def test_what_cannot_be_run_is_said_in_words(spec, limits, words):
    (problem,) = script.problems(job(**spec), site(limits=limits))

    assert words in problem


def test_a_tasks_end_decides_an_arrays_end():
    done, failed = Row("7", "0", state="COMPLETED"), Row("7", "1", state="FAILED", exit_code=2)

    assert jobs.judge([done, Row("7", "1", state="PENDING")]).phase == "Running"
    verdict = jobs.judge([done, failed])
    assert (verdict.phase, verdict.exit_code) == ("Failed", 2)
    assert verdict.tasks == {"Completed": 1, "Failed": 1}


@pytest.mark.parametrize(
    ("array", "count"), [("", 1), ("0-3", 4), ("1,3,5", 3), ("0-9:2", 5), ("0-9:2,20%4", 6)]
)
def test_how_many_tasks_an_array_has(array, count):
    assert jobs.task_count(array) == count


@pytest.mark.parametrize("source", ["accounts", "note"])
async def test_a_task_that_the_controller_has_just_forgotten_has_its_exit_code(monkeypatch, source):
    """It was in the queue a moment ago, which shows no codes; others know it."""
    queue = [Row("7", "1", state="COMPLETED"), Row("7", "2", state="FAILED")]
    known = {
        "queue": queue,
        "details": queue[:1],
        "accounts": queue[:1],
        source: [Row("7", "2", state="FAILED", exit_code=3)],
    }

    async def told(name):
        return known.get(name, [])

    slurm = cluster.Slurm(None)

    async def notes(_):
        return {"7": known.get("note", [])}

    for name in ("queue", "details", "accounts"):
        monkeypatch.setattr(slurm, name, lambda *_, name=name: told(name))
    monkeypatch.setattr(slurm, "notes", notes)

    rows, is_sure = await slurm.look({"7": cluster.Followed("/work", "n")})

    assert {row.task: row.exit_code for row in rows["7"]} == {"1": 0, "2": 3}
    assert is_sure
    known[source] = []
    rows, _ = await slurm.look({"7": cluster.Followed("/work", "n")})
    assert jobs.judge(rows["7"]).phase == "Failed"


async def test_an_exit_code_that_the_accounts_cut_is_told_by_the_job(monkeypatch):
    """sacct takes 128 from larger ones, as if there had been a signal."""
    answers = {
        "queue": [],
        "accounts": [Row("7", state="FAILED", exit_code=9), Row("8", state="FAILED", exit_code=9)],
        "7": [Row("7", state="FAILED", exit_code=137)],
        "8": [Row("8", state="FAILED", exit_code=9)],
    }

    async def told(name):
        return answers[name]

    slurm = cluster.Slurm(None)
    monkeypatch.setattr(slurm, "queue", lambda: told("queue"))
    monkeypatch.setattr(slurm, "accounts", lambda _: told("accounts"))
    asked = []

    async def notes(folders):
        asked.append(list(folders))
        return {number: answers[number] for number in folders}

    monkeypatch.setattr(slurm, "notes", notes)

    rows, _ = await slurm.look({n: cluster.Followed("/work", "n") for n in ("7", "8")})

    assert {n: jobs.judge(rows[n]).exit_code for n in rows} == {"7": 137, "8": 9}
    assert asked == [["7", "8"]]  # all at once


def test_tasks_that_have_left_the_queue_are_not_forgotten():
    queue = [Row("7", "2", state="RUNNING"), Row("7", "3", state="PENDING")]
    accounts = [
        Row("7", "0", state="FAILED"),
        Row("7", "2", state="PENDING"),
        Row("7", "[3-9]", state="PENDING"),
    ]

    assert cluster.together(queue, accounts) == [*queue, accounts[0]]
    assert cluster.together([], accounts) == accounts
    assert cluster.parse_notes("hello\njob 7\nexit.0 0\nexit.2 5\njob 8\n")["7"] == [
        Row("7", "0", state="COMPLETED"),
        Row("7", "2", state="FAILED", exit_code=5),
    ]


@pytest.mark.parametrize(
    ("state", "phase", "reason"),
    [
        ("PENDING", "Pending", "Queued"),
        ("CONFIGURING", "Pending", "Queued"),
        ("RUNNING", "Running", "Running"),
        ("COMPLETING", "Running", "Running"),
        ("COMPLETED", "Completed", "Completed"),
        ("FAILED", "Failed", "NonZeroExit"),
        ("TIMEOUT", "Failed", "TimeLimit"),
        ("OUT_OF_MEMORY", "Failed", "OutOfMemory"),
        ("NODE_FAIL", "Failed", "NodeFailed"),
        ("PREEMPTED", "Failed", "Preempted"),
        ("CANCELLED", "Cancelled", "Cancelled"),
    ],
)
def test_slurms_states_have_our_phases(state, phase, reason):
    verdict = jobs.judge([Row("7", state=state)])

    assert (verdict.phase, verdict.reason) == (phase, reason)


@pytest.mark.parametrize(
    ("metadata", "status", "spec", "step"),
    [
        ({}, {}, {}, Step.ADOPT),
        (FINALIZERS, {}, {}, Step.BEGIN),
        (FINALIZERS, {"attempt": 1, "phase": "Pending"}, {}, Step.SUBMIT),
        (FINALIZERS, {"attempt": 1, "phase": "Running", "jobID": "7"}, {}, Step.FOLLOW),
        (FINALIZERS, {"attempt": 1, "phase": "Completed", "jobID": "7"}, {}, Step.COLLECT),
        (FINALIZERS, {"attempt": 1, "phase": "Failed", "reason": "CompileError"}, {"retries": 1},
         Step.REST),
        (FINALIZERS, {"attempt": 1, "phase": "Failed", "reason": "SubmitRefused"}, {"retries": 1},
         Step.BEGIN),
        ({**FINALIZERS, "deletionTimestamp": "2026-01-01T00:00:00Z"}, {"attempt": 1}, {},
         Step.RELEASE),
        ({**FINALIZERS, "annotations": {"motley.io/cancel": "true"}}, {"attempt": 1}, {},
         Step.CANCEL),
    ],
)  # fmt: skip
def test_the_object_alone_says_what_comes_next(metadata, status, spec, step):
    assert jobs.next_step(job(metadata, status, **spec)) is step


@pytest.mark.parametrize(
    ("kind", "phase", "expected"),
    [
        ("afterok", "Completed", jobs.Depends()),
        ("afterok", "Failed", jobs.Depends(never="SlurmJob a is Failed, not afterok")),
        ("afternotok", "Failed", jobs.Depends()),
        ("afterany", "Cancelled", jobs.Depends()),
        ("afterok", "Running", jobs.Depends(option="afterok:7")),
    ],
)
def test_how_a_dependency_stands(kind, phase, expected):
    other = job(status={"phase": phase, "jobID": "7", "attempt": 1})

    assert jobs.depends(kind, "a", other) == expected


def test_what_slurm_prints_is_read():
    queue = "\x1f".join(("12", "3", "n.1", "RUNNING", "None", "node7", "1700000000", "N/A"))
    assert cluster.parse_queue(queue + "\nnoise\n") == [
        Row("12", "3", "n.1", "RUNNING", "None", "node7", start=1700000000.0)
    ]
    accounts = "\x1f".join(("12_3", "n.1", "CANCELLED by 0", "0:15", "node7", "17", "18"))
    (row,) = cluster.parse_accounts(accounts)
    assert (row.job_id, row.task, row.state, row.signal) == ("12", "3", "CANCELLED", 15)
    shown = (
        "JobId=5 JobName=a b JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0 NodeList=(null)"
    )
    (row,) = cluster.parse_details(shown)
    assert (row.job_id, row.name, row.state, row.exit_code) == ("5", "a b", "FAILED", 3)
    machine = cluster.parse_machine(
        "slurm-wlm 22.05.8\ndgx2|n1|0/96/0/96|1400000|gpu:v100:16(S:0-1)|idle\n"
        "dgx2|n2|0/96/0/96|1400000|gpu:16|down*\ncpu|n3|0/40/0/40|190000|(null)|mix\n"
        "runtime apptainer\nmachine aarch64\n",
        "dgx2",
    )
    assert machine == ("22.05.8", ("dgx2", "cpu"), 96, 1400000, 16, "apptainer", "arm64")


def test_the_scripts_for_the_login_node_are_good_shell():
    for text in (
        submission.submission("/w/a b", "n.1", ["--x=1"]),
        submission.recovery("/w/a b", "n.1"),
        submission.cancellation("/w/a b", "n.1", "%F"),
    ):
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_only_opened_folders_are_reached_under_the_names_they_have(tmp_path):
    opened = tmp_path / "work"
    (opened / "cuda").mkdir(parents=True)
    (opened / "out").symlink_to(tmp_path)
    roots = [localpaths.Root.parse(f"D:\\SJTU={opened}"), localpaths.Root.parse(str(opened))]

    assert localpaths.resolve("D:\\SJTU\\cuda\\a.cu", roots) == opened / "cuda/a.cu"
    assert localpaths.resolve(str(opened / "b"), roots) == opened / "b"
    for path in ("/etc/shadow", "D:\\SJTU\\..\\x", "C:\\x", f"{opened}/../x", f"{opened}/out/x"):
        assert localpaths.resolve(path, roots) is None


def test_a_manifest_takes_its_files_along(tmp_path):
    (tmp_path / "sum.cu").write_text("text")
    (tmp_path / "data").write_bytes(b"\xff\x00")
    document = {
        "metadata": {"name": "sum"},
        "spec": {"sourcePath": "D:\\x\\sum.cu", "inputs": [{"path": "data"}, {"name": "k"}]},
    }

    whole = authoring.embed(document, tmp_path)

    assert document["spec"] == {
        "files": {"sum.cu": "text"},
        "inputs": [{"name": "k"}, {"configMap": {"name": "sum-slurm-sources"}}],
    }
    assert whole.binary == {"data": "/wA="}
    assert whole.notes == [f"D:\\x\\sum.cu is not on this machine: {tmp_path / 'sum.cu'} is taken"]
    with pytest.raises(FileNotFoundError):
        authoring.embed({"metadata": {}, "spec": {"sourcePath": "none.cu"}}, tmp_path)


def test_no_host_is_trusted_without_a_key():
    with pytest.raises(ValueError, match="no host can be trusted"):
        ssh.trusted([])


def test_conditions_keep_their_time_until_they_change():
    first = statuses.conditions([], {"Staged": (True, "A", "")}, 0.0)
    seen = job(status={"conditions": first}).status.conditions

    again = statuses.conditions(seen, {"Staged": (True, "B", "")}, 60.0)
    changed = statuses.conditions(seen, {"Staged": (False, "C", "")}, 60.0)

    assert again[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert changed[0]["lastTransitionTime"] == "1970-01-01T00:01:00Z"


def test_mail_about_the_end_is_one():
    mail = {"user": "ann", "via": "SMTP"}
    ended = {"phase": "Failed", "startTime": "2026-01-01T00:00:00Z", "mailed": ["begin"]}

    assert jobs.mails(job(status=ended, mail=mail)) == ["fail"]
    assert jobs.mails(job(status={"phase": "Running"}, mail={**mail, "type": "end"})) == []
    assert jobs.mails(job(status=ended, mail={"user": "ann"})) == []


def test_shell_words_survive_quoting():
    words = ["a b", "$x", "`y`", "it's"]

    text = script.run_command(job(command="printf '%s\\n'", args=words), [])

    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words
    assert shlex.split(text)[2:] == words
    assert Path(script.directory(job(), site(), 2)).name == "sum-0f2c9a7e-2"
