"""Units for systemd: what they say, and what systemd says to them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import certificates, components, units
from motley.ops.config import Config
from motley.ops.supervision import Spec


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root, out = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("units")
    config = Config(root=root, node_name="n", node_ip="10.1.2.3", hosts=True)
    config.save()
    result = CliRunner().invoke(main, ["units", "--root", str(root), "--output", str(out)])
    assert result.exit_code == 0, result.output
    assert "systemctl enable --now motley.target" in " ".join(result.output.split())
    return config, {path.name: units.parse(path.read_text()) for path in out.iterdir()}, out


def test_there_is_one_unit_per_component_that_runs_the_same_command(made):
    config, found, _ = made
    specs = components.specs(config, certificates.located(config))
    assert set(found) == {units.name_of(spec.name) for spec in specs} | {"motley.target"}
    for spec in specs:
        (command,) = found[units.name_of(spec.name)]["Service"]["ExecStart"]
        words = units.words_of(command)
        assert words[0].startswith("/")
        assert words[1:] == list(spec.command[1:])


def test_components_start_in_order_and_come_back(made):
    _, found, _ = made
    unit, service = found["motley-node.service"]["Unit"], found["motley-node.service"]["Service"]
    assert "motley-containerd.service" in unit["After"][0]
    assert "motley-apiserver.service" in unit["After"][0]
    assert service["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    wanted = found["motley.target"]["Unit"]["Wants"][0].split()
    assert set(wanted) == set(found) - {"motley.target"}
    for name in wanted:
        assert found[name]["Install"]["WantedBy"] == ["motley.target"]
        assert found[name]["Unit"]["PartOf"] == ["motley.target"]


def test_what_only_talks_is_locked_in_and_what_runs_pods_is_not(made):
    config, found, _ = made
    for name in ("apiserver", "controllers", "scheduler"):
        service = found[units.name_of(name)]["Service"]
        assert service["ProtectSystem"] == ["strict"]
        assert service["ReadWritePaths"] == [str(config.root)]
        assert service["RestrictNamespaces"] == ["yes"]
    assert "CAP_NET_ADMIN" in found["motley-proxy.service"]["Service"]["CapabilityBoundingSet"][0]
    assert "/etc/hosts" in found["motley-gateway.service"]["Service"]["ReadWritePaths"][0]
    for name in ("containerd", "node"):
        service = found[units.name_of(name)]["Service"]
        assert "ProtectSystem" not in service
        assert (service["KillMode"], service["Delegate"]) == (["process"], ["yes"])


def test_only_the_first_component_prepares_the_machine(made):
    _, found, _ = made
    services = {name: unit["Service"] for name, unit in found.items() if "Service" in unit}
    prepared = [name for name, service in services.items() if "ExecStartPre" in service]
    assert prepared == ["motley-containerd.service"]
    (command,) = services[prepared[0]]["ExecStartPre"]
    assert "--prepare" in units.words_of(command)


def test_odd_characters_reach_the_command_as_they_are():
    spec = Spec("odd", ("/bin/echo", "a b", "100%", "$HOME", 'q"uote', "back\\slash", ""))
    text = units.units([spec], root=Path("/r"), environment={"A": "b c"}, prepare=())
    service = units.parse(text["motley-odd.service"])["Service"]
    assert units.words_of(service["ExecStart"][0]) == list(spec.command)
    assert '"A=b c"' in service["Environment"]


def test_without_a_cluster_there_is_nothing_to_write(tmp_path):
    words = ["units", "--root", str(tmp_path / "none"), "--output", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "motley up" in result.output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong(made):
    _, found, out = made
    paths = [str(out / name) for name in found]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],
        capture_output=True,
        text=True,
        timeout=60,
        env={"SYSTEMD_UNIT_PATH": f"{out}:", "PATH": "/usr/bin:/bin"},
    )
    about_ours = [line for line in done.stderr.splitlines() if "motley" in line]
    assert about_ours == []
