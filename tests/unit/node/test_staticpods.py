"""Manifests of a node's own pods: what they become, and what is wrong with some."""

import pytest

from motley.api.views.pod import Pod
from motley.node import staticpods
from motley.node.staticpods import HASH, SOURCE

GOOD = b"""
apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: kube-system, labels: {tier: node}}
spec:
  hostNetwork: true
  containers: [{name: main, image: example.test/proxy}]
"""


def test_a_manifest_becomes_a_pod_of_this_node():
    pod = Pod.of(staticpods.manifest(GOOD, "n1", "proxy.yaml"))
    assert (pod.metadata.namespace, pod.metadata.name) == ("kube-system", "proxy-n1")
    assert pod.spec.node_name == "n1"
    assert pod.metadata.annotations[SOURCE] == "file"
    assert pod.metadata.annotations[HASH] == pod.metadata.uid
    assert pod.spec.containers[0].image_pull_policy == "Always"  # as the API would have set it
    assert any(t.operator == "Exists" and t.effect == "NoExecute" for t in pod.spec.tolerations)


def test_another_text_file_or_node_is_another_pod():
    uids = {
        staticpods.manifest(text, node, source)["metadata"]["uid"]
        for text, node, source in (
            (GOOD, "n1", "a.yaml"),
            (GOOD, "n1", "a.yaml"),
            (GOOD, "n2", "a.yaml"),
            (GOOD, "n1", "b.yaml"),
            (GOOD + b"# changed\n", "n1", "a.yaml"),
        )
    }
    assert len(uids) == 4


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "not YAML"),
        (b"kind: Pod\napiVersion: v2", "not a v1 Pod"),
        (b"[1]", "not a v1 Pod"),
        (b"kind: Pod\napiVersion: v1", "metadata.name is missing"),
        (b"kind: Pod\napiVersion: v1\nmetadata: {name: x}", "spec.containers"),
        (
            b"kind: Pod\napiVersion: v1\nmetadata: {name: x}\nspec: {containers: 3}",
            "containers",
        ),
    ],
)
def test_what_is_wrong_is_said(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        staticpods.manifest(text, "n1", "x.yaml")


def test_a_directory_is_read_without_hidden_and_foreign_files(tmp_path):
    (tmp_path / "good.yaml").write_bytes(GOOD)
    (tmp_path / "bad.json").write_bytes(b"[]")
    (tmp_path / ".swap.yaml").write_bytes(GOOD)
    (tmp_path / "README.md").write_bytes(GOOD)
    found = dict(staticpods.read(tmp_path, "n1"))
    assert sorted(path.name for path in found) == ["bad.json", "good.yaml"]
    assert isinstance(found[tmp_path / "bad.json"], ValueError)
    assert list(staticpods.read(tmp_path / "missing", "n1")) == []
