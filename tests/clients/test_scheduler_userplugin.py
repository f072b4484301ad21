"""A plugin of one's own, from the skeleton to a running scheduler that reads it anew."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LABEL = "example.com/rack-first"


def motley(*arguments):
    command = [sys.executable, "-m", "motley.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What `new-plugin` writes."""
    directory = tmp_path_factory.mktemp("plugin")
    done = motley("scheduler", "new-plugin", "RackFirst", "--dir", str(directory))
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in directory.iterdir()) == [
        "rack-first.yaml",
        "rack_first.py",
        "test_rack_first.py",
    ]
    return directory


@pytest.fixture(scope="module")
def log(server, components, written):
    config = written / "rack-first.yaml"
    with components(
        server,
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "r-"],
        ["scheduler", "--health-port", "0", "--config", str(config)],
        level="info",
    ) as log:
        yield log


@pytest.fixture
def cluster(kubectl, until, log):
    until(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    for name, value in {"r-0": "1", "r-1": "7", "r-2": "3"}.items():
        kubectl("label", "--overwrite", "node", name, f"{LABEL}={value}")
    return kubectl


def make(kubectl, name):
    container = {"name": "c", "image": "app:1"}
    spec = {"schedulerName": "rack-first-scheduler", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def node_of(kubectl, name):
    return kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}").out


def replace(path: Path, *changes):
    """As editors do it: a new file in the old one's place."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def test_the_skeletons_own_test_passes(written):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_it_decides_is_read_anew_and_fails_only_the_pod_in_question(cluster, written, until, log):
    file = written / "rack_first.py"
    make(cluster, "first")
    assert until(lambda: node_of(cluster, "first"), "bound") == "r-1"

    replace(file, ("scores * 100 / highest)", "100 - scores * 100 / highest)"))
    until(lambda: "plugins reloaded" in log.read_text(), "the new version")
    make(cluster, "second")
    assert until(lambda: node_of(cluster, "second"), "bound") == "r-0"

    replace(file, ("def score(", "def score(:"))
    until(lambda: "plugins not reloaded" in log.read_text(), "the complaint")
    seen = "--field-selector=reason=PluginNotReloaded"
    until(lambda: cluster("get", "events", "-A", seen).out, "an event")
    line = file.read_text().partition("def score(:")[0].count("\n") + 1
    assert f"rack_first.py:{line}: SyntaxError" in cluster("get", "events", "-A", seen).out
    make(cluster, "third")  # the old version is still at work
    assert until(lambda: node_of(cluster, "third"), "bound") == "r-0"

    fails = 'if pod.pod.metadata.name == "bad":\n            raise RuntimeError("not that one")'
    replace(
        file,
        ("def score(:", "def score("),
        ("return _values(nodes)\n", f"{fails}\n        return _values(nodes)\n"),
        ("static = True", "static = False"),  # it goes by the pod's name: no template's matter
    )
    until(lambda: log.read_text().count("plugins reloaded") == 2, "the new version")
    make(cluster, "bad")
    words = 'plugin "RackFirst" failed at Score: RuntimeError: not that one'
    until(lambda: words in cluster("describe", "pod", "bad").out, "the event")
    make(cluster, "good")
    until(lambda: node_of(cluster, "good"), "bound")
    assert node_of(cluster, "bad") == ""

    replace(file, (fails, "pass"))  # a pod that waits is tried with the new version
    until(lambda: node_of(cluster, "bad"), "bound")
