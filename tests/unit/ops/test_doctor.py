"""The doctor: a verdict for every kind of machine, and a real look at this one."""

import json
import os
import socket
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import doctor
from motley.ops.doctor import Expiry, Facts, Port, Running

RUNS = Running("proxy", "running")


def of(**facts):
    found = doctor.examine(Facts(**facts))
    return [one for one in found if one.level != "ok"]


def test_a_healthy_machine_has_only_good_findings():
    found = doctor.examine(
        Facts(ports=(Port(6443, "apiserver"),), certificates=(Expiry("a", 300),))
    )
    assert {one.level for one in found} == {"ok"}
    assert doctor.worst(found) == "ok"
    assert all(not one.fix for one in found)


@pytest.mark.parametrize(
    ("facts", "check", "level", "said"),
    [
        ({"is_root": False}, "root", "fail", "not run by root"),
        ({"filesystems": frozenset()}, "overlay", "fail", "no overlay"),
        ({"links": {"bridge": "Unknown device type."}}, "bridge", "fail", "Unknown device"),
        ({"links": {"vxlan": "not supported"}}, "vxlan", "warn", "not supported"),
        ({"nftables": "Operation not permitted"}, "nftables", "fail", "not permitted"),
        ({"has_br_netfilter": False}, "br_netfilter", "warn", "own node"),
        ({"controllers": frozenset({"cpu", "cpuset"})}, "cgroups", "fail", "memory, pids"),
        ({"controllers": frozenset({"cpu", "memory", "pids"})}, "cpuset", "warn", "exclusive"),
        ({"cgroup_error": "Read-only file system"}, "cgroup writable", "fail", "Read-only"),
        ({"open_files": 1024}, "open files", "warn", "1024"),
        ({"inotify_instances": 128}, "inotify", "warn", "128"),
        ({"can_raise_limits": False}, "capabilities", "warn", "CAP_SYS_RESOURCE"),
        ({"programs": {"nft": "nftables"}}, "programs", "fail", "nft is missing"),
        ({"containerd": (1, 5)}, "containerd", "fail", "1.5"),
        ({"containerd_config": "bad"}, "containerd config", "fail", "bad"),
        ({"cni_plugins": frozenset({"bridge"})}, "CNI plugins", "fail", "host-local"),
        ({"cni_directory": None, "cni_plugins": frozenset()}, "CNI plugins", "fail", "bridge"),
        ({"ports": (Port(53, "dns", "x (pid 7)"),)}, "ports", "fail", "x (pid 7)"),
        ({"is_synchronised": False}, "clock", "warn", "not synchronised"),
        ({"is_synchronised": None}, "clock", "warn", "does not say"),
        ({"disk_free": 1 << 30}, "disk", "warn", "1.0 GiB"),
        ({"disk_free": 1 << 20}, "disk", "fail", "0.0 GiB"),
        ({"inodes_free": 10}, "inodes", "warn", "10 inodes"),
        ({"memory_free": 600 << 20}, "memory", "warn", "600"),
        ({"memory_free": 100 << 20}, "memory", "fail", "100"),
        ({"certificates": (Expiry("ca.crt", 12.4),)}, "certificates", "warn", "12 days"),
        ({"certificates": (Expiry("ca.crt", -1),)}, "certificates", "fail", "expired"),
        ({"is_made": True, "components": (RUNS,)}, "supervisor", "fail", "nothing is restarted"),
    ],
)
def test_each_ill_is_found_and_has_a_cure(facts, check, level, said):
    (found,) = of(**facts)
    assert (found.check, found.level) == (check, level)
    assert said in found.text
    assert found.fix


def test_a_component_that_does_not_run_is_named_with_its_reason_and_log():
    ill = Running("scheduler", "backoff", "exit code 3", "/x/scheduler.log")
    (found,) = of(is_made=True, is_supervised=True, components=(RUNS, ill))
    assert found.text == "scheduler is backoff: exit code 3"
    assert "motley logs scheduler" in found.fix


def test_inodes_are_no_matter_where_they_are_made_as_needed():
    assert of(inodes_free=None) == []


@pytest.fixture
def taken():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.root
def test_a_real_look_finds_a_taken_port_and_leaves_nothing(tmp_path, taken):
    root = tmp_path / "r"
    root.mkdir()
    config = {"root": str(root), "api_port": taken, "port_base": 61000, "node_ip": "127.0.0.1"}
    (root / "config.json").write_text(json.dumps(config))
    links = set(os.listdir("/sys/class/net"))
    result = CliRunner().invoke(main, ["doctor", "--root", str(root), "-o", "json"])
    assert result.exit_code == 1, result.output
    told = msgspec.json.decode(result.output)
    assert told["verdict"] == "fail"
    failed = [one for one in told["findings"] if one["level"] == "fail"]
    assert [one["check"] for one in failed] == ["ports"]
    assert f"port {taken} (apiserver) is taken by" in failed[0]["text"]
    assert f"(pid {os.getpid()})" in failed[0]["text"]
    well = {one["check"] for one in told["findings"] if one["level"] == "ok"}
    assert well >= {"overlay", "bridge", "veth", "vxlan", "nftables", "cgroups", "cgroup writable"}
    assert set(os.listdir("/sys/class/net")) == links
    assert not list(Path("/sys/fs/cgroup").glob(f"**/motley-doctor-{os.getpid()}"))


@pytest.mark.root
def test_the_doctor_speaks_plainly_where_there_is_no_cluster(tmp_path):
    result = CliRunner().invoke(main, ["doctor", "--root", str(tmp_path / "none")])
    assert "no cluster was made here yet: motley up" in result.output
    quiet = CliRunner().invoke(main, ["doctor", "-q", "--root", str(tmp_path / "none")])
    assert not any(line.startswith("ok") for line in quiet.output.splitlines())
