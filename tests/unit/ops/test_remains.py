from pathlib import Path

from motley.ops import remains

MOUNTINFO = """\
22 1 0:20 / /proc rw - proc proc rw
50 1 0:30 / /var/lib/motley/a rw - overlay overlay rw
51 50 0:31 / /var/lib/motley/a/b\\040c rw - tmpfs shm rw
52 1 0:32 / /var/lib/motley-other/a rw - overlay overlay rw
"""


def test_only_mounts_below_the_root_are_ours_and_the_inner_ones_come_first():
    assert remains.mounts(Path("/var/lib/motley"), MOUNTINFO) == [
        "/var/lib/motley/a/b c",
        "/var/lib/motley/a",
    ]


def test_a_cgroup_is_removed_from_every_hierarchy_and_its_namesake_is_not(tmp_path):
    for hierarchy in ("cpu", "memory"):
        (tmp_path / hierarchy / "motley-1" / "pod" / "container").mkdir(parents=True)
        (tmp_path / hierarchy / "motley-10").mkdir()
    (tmp_path / "motley-1" / "pod").mkdir(parents=True)  # unified
    remains.remove_cgroups("/motley-1", tmp_path)
    assert remains.cgroups("/motley-1", tmp_path) == []
    assert len(remains.cgroups("/motley-10", tmp_path)) == 2


def test_files_of_running_containers_go_and_images_stay(tmp_path):
    task = tmp_path / "state/io.containerd.runtime.v2.task/k8s.io/abc"
    task.mkdir(parents=True)
    (task / "address").write_text("unix:///somewhere/else/socket")
    (tmp_path / "runc" / "k8s.io").mkdir(parents=True)
    (tmp_path / "root").mkdir()
    assert remains.shim_sockets(tmp_path) == set()
    remains.remove_runtime_files(tmp_path, set())
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
