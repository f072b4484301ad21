"""Other people's Python clients: lightkube and kr8s create, read, change, watch and delete."""

import json
import os
import subprocess
import sys

import pytest

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "books.library.example.com"},
    "spec": {
        "group": "library.example.com",
        "scope": "Namespaced",
        "names": {"plural": "books", "kind": "Book"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "title": {"type": "string"},
                                    "pages": {"type": "integer", "default": 1},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def library(kubectl):
    """kubectl in a namespace, with a custom resource defined."""
    kubectl("apply", "-f", "-", stdin=json.dumps(CRD))
    kubectl("wait", "--for=condition=Established", "crd/books.library.example.com")
    return kubectl


LIGHTKUBE = """
import sys
from lightkube import Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

client = Client(KubeConfig.from_file(sys.argv[2]), namespace=sys.argv[1])
made = client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "1"}))
assert made.metadata.uid
client.patch(ConfigMap, "a", {"data": {"k": "2"}})
assert client.get(ConfigMap, "a").data == {"k": "2"}
assert "a" in [c.metadata.name for c in client.list(ConfigMap)]
client.delete(ConfigMap, "a")

Book = create_namespaced_resource("library.example.com", "v1", "Book", "books")
body = {"apiVersion": "library.example.com/v1", "kind": "Book", "metadata": {"name": "b"}}
client.create(Book({**body, "spec": {"title": "x"}}))
changed = client.get(Book, "b")
assert changed.spec == {"title": "x", "pages": 1}
changed.spec["pages"] = 2
client.replace(changed)
client.apply(Book({**body, "spec": {"title": "y"}}), field_manager="reader", force=True)
assert client.get(Book, "b").spec == {"title": "y", "pages": 2}
for change, found in client.watch(Book, server_timeout=5):
    assert (change, found.metadata.name) == ("ADDED", "b")
    break
client.delete(Book, "b")
assert [b.metadata.name for b in client.list(Book)] == []
print("done")
"""
KR8S = """
import sys
import kr8s
from kr8s.objects import ConfigMap, new_class

namespace = sys.argv[1]
api = kr8s.api(kubeconfig=sys.argv[2], namespace=namespace)
assert api.version()["major"] == "1"
one = ConfigMap({"metadata": {"name": "a", "namespace": namespace}, "data": {"k": "1"}}, api=api)
one.create()
one.patch({"data": {"k": "2"}})
one.refresh()
assert one.data["k"] == "2"
one.label({"x": "y"})
assert [c.name for c in api.get("configmaps", label_selector={"x": "y"})] == ["a"]
one.delete()

Book = new_class("Book", "library.example.com/v1", namespaced=True)
book = Book({"metadata": {"name": "b", "namespace": namespace}, "spec": {"title": "x"}}, api=api)
book.create()
book.refresh()
assert book.spec.pages == 1, book.spec
assert [b.name for b in api.get("books.library.example.com")] == ["b"]
for change, found in api.watch("books.library.example.com"):
    assert (change, found.name) == ("ADDED", "b")
    break
book.delete()
print("done")
"""


@pytest.mark.parametrize("script", [LIGHTKUBE, KR8S], ids=["lightkube", "kr8s"])
def test_a_client_handles_built_in_and_custom_kinds(library, tmp_path, script):
    """In a process of its own: these clients keep sockets and caches until their process ends."""
    file = tmp_path / "reader.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file), library.namespace, str(library.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )
    assert done.stdout.endswith("done\n"), done.stderr
