import tomllib
from pathlib import Path

import pytest

from motley.ops import containerd
from motley.ops.containerd import Layout, Machine, render

LAYOUT = Layout(Path("/var/lib/motley/containerd"), Path("/var/lib/motley/cni"))


def test_a_machine_without_the_capability_gets_a_file_that_works_without_it():
    without = tomllib.loads(render(Machine(may_lower_oom_score=False), LAYOUT))
    cri = without["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["disable_apparmor"] is True
    with_ = tomllib.loads(render(Machine(has_apparmor=True), LAYOUT))
    cri = with_["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is False
    assert cri["disable_apparmor"] is False


def test_everything_lies_below_our_own_directory():
    file = tomllib.loads(render(Machine(), LAYOUT))
    cri = file["plugins"]["io.containerd.grpc.v1.cri"]
    paths = [
        file["root"],
        file["state"],
        file["grpc"]["address"],
        cri["cni"]["conf_dir"],
        cri["registry"]["config_path"],
        cri["containerd"]["runtimes"]["runc"]["options"]["Root"],
    ]
    assert all(path.startswith("/var/lib/motley/") for path in paths)
    assert cri["netns_mounts_under_state_dir"] is True
    assert "io.containerd.internal.v1.opt" in file["disabled_plugins"]


@pytest.mark.parametrize(("version", "key"), [((2, 0), "bin_dir"), ((2, 1), "bin_dirs")])
def test_containerd_2_gets_its_own_format(version, key):
    file = tomllib.loads(render(Machine(version=version), LAYOUT))
    assert file["version"] == 3
    runtime = file["plugins"]["io.containerd.cri.v1.runtime"]
    assert key in runtime["cni"]
    pinned = file["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]
    assert pinned == {"sandbox": "localhost/motley/pause:1"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", (1, 6)),
        ("containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7", (2, 1)),
        ("something else", (1, 6)),
    ],
)
def test_the_version_is_read_from_what_containerd_says(text, version):
    assert containerd.parse_version(text) == version


def test_a_capability_is_one_bit_of_the_process_status():
    status = "Name:\tx\nCapEff:\t000001fffeffffff\n"
    assert containerd.has_capability(status, 21)
    assert not containerd.has_capability(status, 24)
