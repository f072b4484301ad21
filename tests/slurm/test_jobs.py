"""Jobs on a real Slurm: what becomes of them, and what their objects say.

All of them are submitted at once by a fixture; each test waits for its own.
"""

import email
import hashlib
import json
import subprocess

import pytest

SUM_C = r"""
#include <stdio.h>
int main(int argc, char **argv) {
  long total = 0;
  for (int i = 1; i < argc; i++) { long v; sscanf(argv[i], "%ld", &v); total += v; }
  printf("%ld\n", total);
  return 0;
}
"""
MIB = 1 << 20
PATTERN = bytes(range(256)) * 4096  # a mebibyte


class Inbox:
    """A mail server that keeps what it is given."""

    def __init__(self) -> None:
        import socketserver
        import threading

        mails = self.mails = []

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                say = lambda text: self.wfile.write(text.encode() + b"\r\n")  # noqa: E731
                say("220 inbox")
                for line in self.rfile:
                    word = line.split()[0].upper() if line.split() else b""
                    if word == b"DATA":
                        say("354 go on")
                        body = b""
                        while (part := self.rfile.readline()) != b".\r\n":
                            body += part
                        mails.append(email.message_from_bytes(body))
                    if word == b"QUIT":
                        say("221 bye")
                        return
                    say("250 ok")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def inbox():
    made = Inbox()
    yield made
    made.close()


@pytest.fixture(scope="module")
def fleet(world, inbox):
    """Every job of this module, under way."""
    smtp = {"host": "127.0.0.1", "port": inbox.port, "from": "slurm@test", "security": "None"}
    world.cluster("default", smtp=smtp, mailDomain="example.com")
    bare = [f"127.0.0.1:{world.slurm.bare_port}"]
    world.cluster("bare", hosts=bare)
    world.job("limited", command="sleep 100", timeLimit="1", mail={"user": "ann", "type": "fail"})
    world.job(
        "greedy",
        memory="50M",
        command="python3 -c \"x=b'1'*200000000\nimport time; time.sleep(20)\"",
    )
    world.job("hello", command="echo hello; echo oops >&2; echo 1,2 > table.csv", outputs=["*.csv"])
    world.job("failing", command="echo before; exit 3")
    world.job("sum", files={"sum.c": SUM_C}, args=["20", "22"])
    world.job("wrong", files={"wrong.c": "int main( { return nonsense; }"})
    world.job("wrong-there", files={"wrong.c": "int main( {"}, buildOn="Job")
    world.job(
        "array",
        array="0-3",
        command="echo task $SLURM_ARRAY_TASK_ID; [ $SLURM_ARRAY_TASK_ID != 2 ]",
    )
    world.job("first", command="sleep 1; date +%s%N > stamp", outputs=["stamp"])
    world.job("second", command="date +%s%N > stamp", outputs=["stamp"],
              dependencies=[{"job": "first"}])  # fmt: skip
    world.job("doomed", command="true", dependencies=[{"job": "failing"}])
    world.job("mailed", command="true", mail={"user": "bob", "type": "all", "via": "Both"})
    world.job("again", retries=1, command='[ "$(basename $PWD | tail -c 2)" = 2 ]')
    world.job("unaccounted", cluster="bare", command="exit 4")
    world.job("short-lived", command="true", ttlSecondsAfterFinished=0)
    # Slurm counts in minutes and looks every 30 s: this one's minute is over now.
    number = world.until("limited", "Running")["jobID"]
    world.slurm.command("scontrol", "update", f"jobid={number}", "EndTime=now")
    return world


def test_a_job_runs_and_its_output_comes_back(fleet):
    status = fleet.until("hello", "Completed")

    assert (status["reason"], status["exitCode"], status["state"]) == ("Completed", 0, "COMPLETED")
    assert (status["output"], status["error"]) == ("hello\n", "oops\n")
    files = fleet.results("hello")
    assert files == {"hello.out": b"hello\n", "hello.err": b"oops\n", "table.csv": b"1,2\n"}
    listed = {f["name"]: (f["bytes"], f["sha256"]) for f in status["results"]}
    assert listed == {n: (len(d), hashlib.sha256(d).hexdigest()) for n, d in files.items()}
    times = [status[k] for k in ("submitTime", "startTime", "completionTime")]
    assert times == sorted(times)
    kinds = [c["type"] for c in status["conditions"]]
    assert {"Staged", "Submitted", "Finished", "Downloaded"} <= set(kinds)
    reasons = {e["reason"] for e in fleet.events("hello")}
    assert {"Submitted", "Completed", "Downloaded"} <= reasons


def test_an_exit_code_that_is_not_zero_is_a_failure(fleet):
    status = fleet.until("failing", "Failed")

    assert (status["reason"], status["exitCode"]) == ("NonZeroExit", 3)
    assert status["message"] == "ended with exit code 3"
    assert fleet.results("failing")["failing.out"] == b"before\n"


def test_sources_are_compiled_and_run_with_arguments(fleet):
    status = fleet.until("sum", "Completed")

    assert status["output"] == "42\n"
    assert fleet.condition(status, "Built") == "True"


@pytest.mark.parametrize("name", ["wrong", "wrong-there"])
def test_the_compilers_text_is_in_the_status(fleet, name):
    status = fleet.until(name, "Failed", reason="CompileError")

    assert "wrong.c:1:" in status["message"]
    assert "error:" in status["message"]
    assert fleet.slurm.submissions("wrong.") == []


def test_of_an_array_every_task_counts(fleet):
    status = fleet.until("array", "Failed")

    assert status["tasks"] == {"Completed": 3, "Failed": 1}
    assert status["message"] == "task 2: ended with exit code 1"
    outputs = {f"array_{i}.out": f"task {i}\n".encode() for i in range(4)}
    assert {k: v for k, v in fleet.results("array").items() if k.endswith("out")} == outputs


def test_a_dependency_is_waited_for(fleet):
    fleet.until("second", "Completed")

    first, second = (int(fleet.results(name)["stamp"]) for name in ("first", "second"))
    assert first < second


def test_what_depends_on_a_failed_job_fails_without_running(fleet):
    status = fleet.until("doomed", "Failed")

    assert status["reason"] == "DependencyNeverSatisfied"
    assert "startTime" not in status


def test_mail_goes_through_slurm_and_through_smtp(fleet, inbox):
    fleet.until("mailed", "Completed")
    mails = lambda: [m for m in inbox.mails if "mailed" in m["Subject"]]  # noqa: E731
    fleet.wait(lambda: len(mails()) >= 2, "two mails")

    assert [m["Subject"] for m in mails()] == ["Slurm job mailed began", "Slurm job mailed ended"]
    assert {m["To"] for m in mails()} == {"bob@example.com"}
    assert "Phase: Completed" in mails()[1].get_payload()
    sent = fleet.wait(
        lambda: fleet.slurm.mails.exists() and fleet.slurm.mails.read_text(), "Slurm's mail"
    )
    uid = fleet.get("mailed")["metadata"]["uid"]
    assert any(uid in line and "bob@example.com" in line for line in sent.splitlines())


def test_a_failed_job_is_tried_again_as_often_as_it_says(fleet):
    status = fleet.until("again", "Completed")

    assert status["attempt"] == 2
    assert len(fleet.submissions("again", 2)) == 2


def test_a_cluster_without_accounting_still_tells_the_exit_code(fleet):
    status = fleet.until("unaccounted", "Failed")

    assert (status["reason"], status["exitCode"]) == ("NonZeroExit", 4)


def test_a_finished_job_goes_when_its_time_is_over(fleet):
    fleet.wait(lambda: fleet.is_gone("short-lived"), "the job is deleted")

    left = list((fleet.slurm.directory / "work/default").glob("short-lived-*"))
    assert left == []


def test_a_job_that_uses_too_much_memory_says_so(fleet):
    status = fleet.until("greedy", "Failed")

    assert (status["reason"], status["exitCode"]) == ("OutOfMemory", 137)
    assert "raise spec.memory" in status["message"]


def test_a_running_job_cannot_be_edited_and_stops_when_deleted(fleet):
    name = fleet.job(command="echo alive; sleep 100", array="0-1")
    number = fleet.until(name, "Running")["jobID"]

    with pytest.raises(fleet.refused, match="delete the job and create it anew") as refused:
        fleet.patch(name, {"spec": {"command": "echo other"}})
    assert refused.value.code == 422
    fleet.delete(name)
    fleet.wait(lambda: fleet.is_gone(name), "the job is gone")
    assert fleet.slurm.command("squeue", "-h", "-j", number) == ""
    shown = ("sacct", "-nXP", "-j", number, "-o", "State")
    fleet.wait(lambda: "CANCELLED" in fleet.slurm.command(*shown), "it was cancelled")


def test_the_documents_own_manifest_runs_with_windows_paths(fleet):
    source = fleet.local / "cuda" / "sum_matrix.cu"
    source.parent.mkdir()
    source.write_text(SUM_C)
    nvcc = fleet.slurm.directory / "bin" / "nvcc"  # there is no GPU here, and the code is plain C
    nvcc.write_text('#!/bin/sh\nshift\nexec cc -x c "$@"\n')
    nvcc.chmod(0o755)
    document = {
        "apiVersion": "v1",
        "kind": "Job",
        "metadata": {"name": "matrix-sum", "namespace": "default"},
        "spec": {
            "cuFilePath": "D:\\work\\cuda\\sum_matrix.cu",
            "resultFileName": "sum_matrix",
            "resultFilePath": "D:\\work\\results",
            "args": {"numTasksPerNode": 1, "cpusPerTask": 2},
        },
    }
    fleet.kubectl("create", "-f", "-", stdin=json.dumps(document))

    status = fleet.until("matrix-sum", "Completed")

    assert (fleet.local / "results/sum_matrix.out").read_text() == "0\n"
    assert status["resultPath"] == str(fleet.local / "results")
    shown = fleet.motley("script", "matrix-sum")
    for line in (
        "--partition=dgx2",
        "--cpus-per-task=2",
        "--gres=gpu:1",
        "--output=sum_matrix.out",
    ):
        assert f"#SBATCH {line}\n" in shown


def test_a_file_outside_the_opened_folders_is_not_read(fleet):
    name = fleet.job(sourcePath="/etc/shadow", command="cat shadow")

    status = fleet.until(name, "Pending", reason="SourceMissing")

    assert "motley slurm submit" in status["message"]
    fleet.delete(name)


def test_submit_brings_files_along_and_results_come_back(fleet, tmp_path):
    (tmp_path / "data.bin").write_bytes(PATTERN[:1000])
    (tmp_path / "sum.c").write_text(SUM_C)
    (tmp_path / "job.yaml").write_text(json.dumps({
        "apiVersion": "motley.io/v1", "kind": "SlurmJob", "metadata": {"name": "brought"},
        "spec": {"sourcePath": "sum.c", "inputs": [{"path": "data.bin"}], "resultFilePath": ".",
                 "command": "./brought 1 2; cp data.bin copy.bin", "outputs": ["copy.bin"]},
    }))  # fmt: skip

    said = fleet.motley("submit", str(tmp_path / "job.yaml"), "--wait", cwd=tmp_path)

    assert "slurmjob.motley.io/brought created" in said
    assert "brought: Completed (ended well)" in said
    assert (tmp_path / "brought.out").read_text() == "3\n"
    assert (tmp_path / "copy.bin").read_bytes() == PATTERN[:1000]
    assert "brought" in fleet.motley("list")
    assert fleet.motley("logs", "brought") == "3\n"


def test_logs_are_followed_while_the_job_runs_and_it_can_be_cancelled(fleet):
    name = fleet.job(command="for i in 1 2 3; do echo line $i; sleep 0.4; done; sleep 100")
    process = subprocess.Popen(
        fleet.command("logs", "-f", name), stdout=subprocess.PIPE, env=fleet.environment
    )
    lines = [process.stdout.readline() for _ in range(3)]

    assert lines == [b"line 1\n", b"line 2\n", b"line 3\n"]
    assert fleet.status(name)["phase"] == "Running"
    fleet.motley("cancel", name)
    assert process.wait(20) == 0
    process.stdout.close()
    status = fleet.until(name, "Cancelled")
    assert status["state"] == "CANCELLED"
    assert fleet.results(name)[f"{name}.out"] == b"line 1\nline 2\nline 3\n"


def test_a_job_that_runs_into_its_time_limit_says_so(fleet):
    status = fleet.until("limited", "Failed")

    assert (status["reason"], status["state"]) == ("TimeLimit", "TIMEOUT")
