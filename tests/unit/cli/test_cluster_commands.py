"""Commands about the local cluster, on root directories made by hand."""

import os
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import processes, statefile
from motley.ops.config import Config, current_netns
from motley.ops.statefile import ComponentState, State


@pytest.fixture
def root(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "logs").mkdir()
    Config(root=tmp_path, node_name="n1", node_ip="10.0.0.1", netns=current_netns()).save()
    return tmp_path


def motley(*arguments, **options):
    # In a thread of its own: a command runs an event loop, and pytest has one in this thread.
    with ThreadPoolExecutor(1) as thread:
        words = [str(a) for a in arguments]
        return thread.submit(CliRunner().invoke, main, words, **options).result(60)


def pretend_running(root, state="running"):
    """A cluster whose supervisor and only component is this test itself."""
    me = processes.identify(os.getpid())
    component = ComponentState("proxy", state, me.pid, me.started, 2, "2026-01-01T00:00:00Z")
    statefile.write(root / "run" / "state.json", State(me, "", [component]))


def test_status_of_no_cluster_says_how_to_start_one(tmp_path):
    answer = motley("status", "--root", tmp_path)
    assert answer.exit_code == 1
    assert "motley up" in answer.output


def test_status_as_json_lists_components_with_name_pid_and_state(root):
    pretend_running(root)
    answer = motley("status", "--root", root, "-o", "json")
    assert answer.exit_code == 0
    document = msgspec.json.decode(answer.output)
    assert document["running"] is True
    (component,) = document["components"]
    assert (component["name"], component["pid"]) == ("proxy", os.getpid())
    assert (component["state"], component["restarts"]) == ("running", 2)
    assert component["rssBytes"] > 0


def test_status_as_yaml_is_the_same_document(root):
    pretend_running(root)
    as_yaml = yaml.safe_load(motley("status", "--root", root, "-o", "yaml").output)
    as_json = msgspec.json.decode(motley("status", "--root", root, "-o", "json").output)
    for document in (as_yaml, as_json):
        document["supervisor"].pop("rssBytes")
        document["components"][0].pop("rssBytes")
    assert as_yaml == as_json


def test_status_is_a_table_for_people(root):
    pretend_running(root)
    lines = motley("status", "--root", root).output.splitlines()
    assert lines[0].split() == ["COMPONENT", "STATE", "PID", "RESTARTS", "AGE", "MEMORY"]
    assert lines[1].split()[:4] == ["proxy", "running", str(os.getpid()), "2"]
    assert "LOG" in motley("status", "--root", root, "-o", "wide").output


def test_status_of_a_cluster_with_a_crashed_component_fails(root):
    pretend_running(root, state="backoff")
    assert motley("status", "--root", root).exit_code == 1


def test_status_does_not_believe_in_a_process_that_is_gone(root):
    gone = ComponentState("proxy", "running", os.getpid(), 1)
    statefile.write(root / "run" / "state.json", State(None, "", [gone]))
    document = msgspec.json.decode(motley("status", "--root", root, "-o", "json").output)
    assert document["components"][0]["state"] == "stopped"
    assert document["components"][0]["pid"] is None
    assert document["supervisor"]["state"] == "stopped"


def test_logs_of_one_component_are_its_last_lines(root):
    (root / "logs" / "node.log").write_text("one\ntwo\nthree\n")
    assert motley("logs", "node", "--root", root, "-n", "2").output == "two\nthree\n"


def test_logs_of_all_components_say_whose_they_are(root):
    (root / "logs" / "node.log").write_text("a\n")
    (root / "logs" / "apiserver.log").write_text("b\n")
    assert motley("logs", "--root", root).output == "apiserver | b\nnode      | a\n"


def test_logs_of_an_unknown_component_name_the_known_ones(root):
    (root / "logs" / "node.log").write_text("a\n")
    answer = motley("logs", "nodes", "--root", root)
    assert answer.exit_code == 1
    assert "There are: node" in answer.output


def test_a_followed_log_goes_on_after_it_was_cut(tmp_path):
    from motley.cli.logs import Follower

    log = tmp_path / "x.log"
    log.write_text("before\n")
    follower = Follower(log, "> ")
    with log.open("a") as file:
        file.write("one\nhal")
    assert follower.new_lines() == ["> one"]
    with log.open("a") as file:
        file.write("f\n")
    assert follower.new_lines() == ["> half"]
    log.write_text("new\n")
    assert follower.new_lines() == ["> new"]


def test_kubeconfig_prints_the_path_or_the_content(root):
    assert motley("kubeconfig", "--root", root).exit_code == 1
    path = root / "apiserver" / "admin.kubeconfig"
    path.parent.mkdir()
    path.write_text("apiVersion: v1\n")
    assert motley("kubeconfig", "--path", "--root", root).output == f"{path}\n"
    assert motley("kubeconfig", "--root", root).output == "apiVersion: v1\n"


def test_down_without_a_cluster_does_nothing(tmp_path):
    answer = motley("down", "--root", tmp_path / "none")
    assert answer.exit_code == 0
    assert "no cluster" in answer.output


def test_data_is_not_deleted_without_a_yes(root):
    answer = motley("down", "--delete-data", "--root", root, input="n\n")
    assert answer.exit_code == 1
    assert (root / "config.json").exists()


def test_up_refuses_what_cannot_work(tmp_path):
    answer = motley("up", "--root", tmp_path, "--pod-cidr", "10.96.0.0/12")
    assert answer.exit_code == 1
    assert "overlap" in answer.output
