"""What jobs, disks and people do to the bridge, on a real Slurm."""

import pytest

ODD = r"""
touch 'a b.csv' 'ü.csv' 'back\slash.csv'
printf x > "$(printf 'latin\351.csv')"
printf x > "$(printf 'two\nlines.csv')"
ln -s /etc/hostname linked.csv
mkdir sub; echo deep > sub/deep.csv
"""
MUCH = "head -c 140000 /dev/zero | tr '\\0' x; echo end"


@pytest.fixture(scope="module")
def trouble(world):
    """All of them are begun at once."""
    world.cluster("narrow", limits={"maxJobs": 1})
    world.cluster("moving")
    world.cluster("leaving")
    world.cluster("plain-sftp", hosts=[f"127.0.0.1:{world.slurm.bare_port}"])
    for name in ("renamed", "removed"):
        world.cluster(name, virtualNode={})
    waits, world.piped = world.gate("piped")
    world.job("piped", command=f"rm piped.out; mkfifo piped.out; touch made; {waits}")
    world.job("odd", command=ODD + "true", outputs=["*.csv", "sub/*"])
    world.job("much", command=MUCH, array="0-9", outputs=["nothing-*"])
    world.job("unplaced", cluster="narrow", files={"x.c": "int main( {"})
    world.job("moved", cluster="moving", command="true")
    waits, world.left = world.gate("left")
    world.job("left", cluster="leaving", command=waits)
    files = {"say.sh": "echo said"}
    world.job("plain", cluster="plain-sftp", files=files, command="sh say.sh")
    yield world
    world.left.touch()


def test_a_pipe_in_place_of_an_output_holds_nobody_up(trouble):
    """Who opens it waits for ever, and files come over one session."""
    work = trouble.slurm.directory / "work/default"
    trouble.wait(lambda: list(work.glob("piped-*/made")), "the pipe is there")
    name = trouble.job(command="echo through")

    status = trouble.until(name, "Completed")
    trouble.piped.touch()

    assert status["output"] == "through\n"
    trouble.until("piped", "Completed")


def test_results_of_any_name_come_back_or_are_named(trouble, tmp_path):
    status = trouble.until("odd", "Completed")

    said = trouble.condition(status, "Downloaded", "message")
    brought = [file["name"] for file in status["results"]]
    good = ["a b.csv", "back\\slash.csv", "linked.csv", "sub/deep.csv", "ü.csv"]
    assert sorted(n for n in brought if n.endswith(".csv")) == good
    assert "'latin\\ufffd.csv'" in said
    assert "'two\\nlines.csv'" in said
    trouble.motley("results", "odd", "--directory", str(tmp_path))
    assert (tmp_path / "sub/deep.csv").read_text() == "deep\n"
    assert (tmp_path / "a b.csv").exists()


def test_an_array_that_prints_much_comes_to_its_end(trouble):
    trouble.until("much", "Completed")

    printed = trouble.get("much-slurm-log", "configmaps")["data"]
    assert all(printed[f"much_{task}.out"].endswith("xend\n") for task in range(3))


def test_files_arrive_where_sftp_is_of_the_plainest(trouble):
    assert trouble.until("plain", "Completed")["output"] == "said\n"


def test_a_job_that_was_never_submitted_takes_no_place(trouble):
    """The cluster takes one job at a time; the first does not compile."""
    trouble.until("unplaced", "Failed", reason="CompileError")

    trouble.job("placed", cluster="narrow", command="true")

    trouble.until("placed", "Completed")


def test_a_job_goes_with_its_folder_although_new_ones_go_elsewhere(trouble):
    folder = trouble.slurm.directory / "work/default"
    trouble.until("moved", "Completed")
    assert list(folder.glob("moved-*"))

    trouble.cluster("moving", workDirectory=str(trouble.slurm.directory / "elsewhere"))
    trouble.delete("moved")
    trouble.wait(lambda: trouble.is_gone("moved"), "the job is gone")

    assert not list(folder.glob("moved-*"))


def test_a_job_can_be_deleted_when_its_cluster_is_gone(trouble):
    trouble.until("left", "Running")

    trouble.delete("leaving", "slurmclusters")
    trouble.delete("left")

    trouble.wait(lambda: trouble.is_gone("left"), "the job is gone")


def test_nodes_that_stand_for_nothing_any_more_are_removed(trouble):
    """Also when that came about while no bridge was there."""
    for name in ("renamed", "removed"):
        trouble.until_ready(f"slurm-{name}")
    trouble.bridge.kill()
    trouble.cluster("renamed", virtualNode={"name": "other-name"})
    trouble.cluster("removed")
    trouble.bridge.start()

    for name in ("renamed", "removed"):
        trouble.wait(lambda name=name: trouble.is_gone(f"slurm-{name}", "nodes"), "it is gone")
        trouble.delete(name, "slurmclusters")
