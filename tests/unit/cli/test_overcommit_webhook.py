"""`motley overcommit-webhook`: what it refuses before it serves."""

import socket

from click.testing import CliRunner

from motley.cli.main import main

NOBODY = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def run(*words):
    return CliRunner().invoke(main, ["overcommit-webhook", *words])


def test_a_certificate_and_its_key_go_together(tmp_path):
    (tmp_path / "tls.crt").touch()
    said = run("--tls-cert-file", str(tmp_path / "tls.crt"))
    assert said.exit_code == 2
    assert "go together" in said.output


def test_what_cannot_be_used_is_said_in_a_line(tmp_path):
    config = tmp_path / "config"
    said = run("--kubeconfig", str(config))
    assert (said.exit_code, len(said.output.splitlines())) == (1, 1)
    config.write_text(NOBODY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = run("--kubeconfig", str(config), "--bind-address", "127.0.0.1", "--port", port)
    assert said.exit_code == 1
    assert "address already in use" in said.output.splitlines()[-1]
