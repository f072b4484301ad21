"""containerd's files for registries, made from one file."""

import tomllib

import pytest

from motley.ops import registries
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.registry.settings import Registry


@pytest.mark.parametrize(
    ("registry", "hosts"),
    [
        (Registry("r:5000", plain_http=True), {"http://r:5000": {}}),
        (Registry("r.example", ca_file="/ca.crt"), {"https://r.example": {"ca": "/ca.crt"}}),
        (
            Registry("r.example", insecure_skip_verify=True),
            {"https://r.example": {"skip_verify": True}},
        ),
        (Registry("docker.io", endpoint="http://m"), {"http://m": {}}),
    ],
)
def test_containerd_reads_how_a_registry_is_reached(registry, hosts):
    said = tomllib.loads(registries.hosts_file(registry))
    assert said == {
        "host": {url: {"capabilities": ["pull", "resolve"], **more} for url, more in hosts.items()}
    }


def test_only_files_made_here_are_changed_or_removed(tmp_path):
    directory, file = tmp_path / "certs.d", tmp_path / "registries.yaml"
    by_hand = directory / "own:5000" / "hosts.toml"
    by_hand.parent.mkdir(parents=True)
    by_hand.write_text("# mine")
    file.write_text("registries: [{host: 'own:5000', plainHTTP: true}, {host: a, plainHTTP: true}]")
    config = Config(root=tmp_path, registries=str(file))
    registries.ensure(config, directory)
    assert by_hand.read_text() == "# mine"
    assert "http://a" in (directory / "a" / "hosts.toml").read_text()
    registries.ensure(Config(root=tmp_path), directory)
    assert [path.name for path in directory.iterdir()] == ["own:5000"]


def test_a_file_that_is_wrong_is_said(tmp_path):
    file = tmp_path / "registries.yaml"
    file.write_text("registries: [{name: x}]")
    with pytest.raises(Failure, match="--registries"):
        registries.ensure(Config(root=tmp_path, registries=str(file)), tmp_path / "d")
