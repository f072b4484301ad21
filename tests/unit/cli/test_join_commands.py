"""`motley token`, `join` and `leave`, as far as they go without a cluster."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops.config import Config, current_netns

TOKEN = "abcdef.0123456789abcdef"


def motley(*arguments, **options):
    # In a thread of its own: a command runs an event loop, and pytest has one in this thread.
    with ThreadPoolExecutor(1) as thread:
        words = [str(a) for a in arguments]
        return thread.submit(CliRunner().invoke, main, words, **options).result(60)


@pytest.fixture
def joined(tmp_path):
    Config(
        root=tmp_path,
        node_name="n2",
        node_ip="127.0.0.1",
        netns=current_netns(),
        server="https://10.0.0.1:6443",
    ).save()
    return tmp_path


@pytest.fixture
def own(tmp_path):
    Config(root=tmp_path, node_name="n1", node_ip="127.0.0.1", netns=current_netns()).save()
    return tmp_path


def test_join_without_anything_says_where_the_command_comes_from(tmp_path):
    answer = motley("join", "--root", tmp_path)
    assert answer.exit_code == 1
    assert "motley token create --print-join-command" in answer.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--token", TOKEN), "--ca-hash"),
        (("--ca-hash", "sha256:" + "0" * 64), "--token"),
        (("--token", "short", "--ca-hash", "sha256:" + "0" * 64), "a token looks like"),
        (("--labels", "kubernetes.io/role=x"), "may not give itself the label"),
    ],
)
def test_join_says_what_its_command_lacks(tmp_path, given, words):
    answer = motley("join", "https://127.0.0.1:1", "--root", tmp_path, *given)
    assert answer.exit_code == 1
    assert words in answer.output
    assert not list(tmp_path.iterdir())


def test_join_on_a_control_plane_is_refused_before_anybody_is_asked(own):
    digest = "sha256:" + "0" * 64
    answer = motley(
        "join", "https://127.0.0.1:1", "--token", TOKEN, "--ca-hash", digest, "--root", own
    )
    assert answer.exit_code == 1
    assert "holds a cluster of its own" in answer.output


def test_up_on_a_joined_machine_says_join(joined):
    answer = motley("up", "--root", joined)
    assert answer.exit_code == 1
    assert f"motley join --root {joined}" in answer.output


def test_tokens_are_made_where_the_control_plane_is(joined):
    answer = motley("token", "create", "--root", joined)
    assert answer.exit_code == 1
    assert "https://10.0.0.1:6443" in answer.output


@pytest.mark.parametrize("ttl", ["", "soon", "5"])
def test_a_ttl_that_is_no_duration_is_refused(own, ttl):
    answer = motley("token", "create", "--root", own, "--ttl", ttl)
    assert answer.exit_code == 2
    assert "no duration" in answer.output


def test_leave_where_nothing_has_joined(tmp_path, own):
    assert "Nothing has joined" in motley("leave", "--root", tmp_path / "none").output
    answer = motley("leave", "--root", own, "--yes")
    assert answer.exit_code == 1
    assert f"motley down --root {own}" in answer.output


def test_leave_asks_first(joined):
    answer = motley("leave", "--root", joined, input="n\n")
    assert answer.exit_code == 1
    assert "Give up node n2" in answer.output
    assert (joined / "config.json").exists()


@pytest.mark.parametrize("component", ["node", "proxy"])
def test_a_component_without_credentials_says_how_to_join(tmp_path, component):
    command = [sys.executable, "-P", "-m", "motley.cli.main", component, "--health-port=0"]
    command += [f"--kubeconfig={tmp_path / 'k'}", f"--bootstrap-kubeconfig={tmp_path / 'b'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no bootstrap kubeconfig" in done.stderr
    assert "motley token create --print-join-command" in done.stderr
