"""Log files: rotated by size and count while somebody reads along, and a full disk below them."""

import subprocess
from pathlib import Path

import pytest

from motley.node import logs

from .conftest import eventually

pytestmark = pytest.mark.root

SAYS = "echo line $i; echo $i > /tmp/count; i=$((i+1));"
COUNTS = f"i=0; while true; do {SAYS} {SAYS} {SAYS} {SAYS} sleep 0.02; done"
MAX_BYTES, MAX_FILES = 4096, 3


@pytest.fixture(scope="module")
def short_logs(rig):
    """The node with an agent that keeps three files of 4 KiB, until this module is over."""
    rig.end("node")
    flags = {
        "container_log_max_size": "4Ki",
        "container_log_max_files": MAX_FILES,
        "container_log_monitor_interval": "200ms",
    }
    rig.spawn("node", *rig.agent_command(**flags))
    yield rig
    rig.end("node")
    rig.start_agent()


def _log(rig, name):
    uid = rig.get("pod", name)["metadata"]["uid"]
    (path,) = (rig.root / "node" / "logs" / "pods").glob(f"*_{uid}/main/0.log")
    return path


def test_a_chatty_containers_log_rotates_and_who_follows_it_misses_no_line(short_logs):
    rig = short_logs
    rig.pod("talker", "sh", "-c", COUNTS)
    rig.until_ready("talker")
    path = _log(rig, "talker")
    heard = rig.root / "heard.txt"
    command = [rig.kubectl_program, "--kubeconfig", str(rig.kubeconfig), "logs", "-f", "talker"]
    with heard.open("wb") as out:
        following = subprocess.Popen([*rig.inside, *map(str, command)], stdout=out)
    try:
        # So many lines that the first files are long gone.
        eventually(lambda: heard.read_text().count("\n") > 4 * MAX_BYTES // 45)
    finally:
        following.terminate()
        following.wait(10)
    numbers = [int(line.split()[1]) for line in heard.read_text().splitlines()[:-1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] == 0
    eventually(lambda: len(logs.files(path)) == MAX_FILES)
    assert all(file.stat().st_size < 3 * MAX_BYTES for file in logs.files(path))
    kept = rig.kubectl("logs", "talker").splitlines()
    first = int(kept[0].split()[1])
    assert first > 0, "the oldest lines are gone, as the number of files wants"
    assert kept == [f"line {i}" for i in range(first, first + len(kept))]
    rig.delete("talker", "--grace-period=1")


def test_containers_outlive_a_full_log_volume_and_logs_come_back_with_room(short_logs):
    rig = short_logs
    volume = rig.root / "node" / "logs" / "pods"
    eventually(lambda: not list(volume.iterdir()))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", volume], check=True)
    try:
        _fill_and_empty(rig, volume)
        rig.delete("writer", "--grace-period=1")
        eventually(lambda: not list(volume.iterdir()))
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


def _count(rig):
    # The file is empty for the moment in which it is written.
    return int(eventually(lambda: rig.exec("writer", "cat", "/tmp/count").strip()))


def _fill_and_empty(rig, volume):
    rig.pod("writer", "sh", "-c", COUNTS)
    rig.until_ready("writer")
    before = rig.container("writer")["containerID"]
    eventually(lambda: "line" in rig.kubectl("logs", "writer", "--tail=1"))
    ballast = volume / "ballast"
    filling = f"dd if=/dev/zero of={ballast} bs=4k 2>/dev/null; exit 0"
    subprocess.run(["sh", "-c", filling], check=True)
    eventually(lambda: "logs is full" in rig.agent_log())
    full_at = _count(rig)
    lost = eventually(lambda: (n := _count(rig)) > full_at + 20 and n)
    assert rig.container("writer")["containerID"] == before
    assert rig.container("writer")["restartCount"] == 0
    Path(ballast).unlink()
    eventually(lambda: "has room again" in rig.agent_log())

    def last():
        return int(rig.kubectl("logs", "writer", "--tail=1").split()[1])

    eventually(lambda: last() > lost)
    assert rig.container("writer")["restartCount"] == 0
