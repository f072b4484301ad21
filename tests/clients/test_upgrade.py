"""An API server on the store of an older version, and on one that a newer version wrote into."""

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from motley.store import sqlitelog
from motley.store.contract import Event, Revision

# How it was made is told beside it.
OLD = Path(__file__).parents[1] / "data" / "store" / "0.1.0.db.gz"
# As they were answered by the server that made them: resource, name, uid, resourceVersion.
OBJECTS = (
    ("configmap", "prices", "ff2201fb-6fe2-46fb-a766-4e086b833358", "63"),
    ("secret", "key", "8207f13f-8629-49c4-b7fc-0320d6e64824", "56"),
    ("deployment", "web", "d84b6b24-034c-4e5a-a725-ff52e81bcbbd", "57"),
    ("service", "web", "f628a24f-10cd-405f-9a3f-3032b42bb83e", "58"),
    ("fruit", "apple", "86c752cf-0487-493a-9d0e-fa69ed169b48", "62"),
)


@pytest.fixture
def old_store(tmp_path):
    """A data directory with the old store in it."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "store.db").write_bytes(gzip.decompress(OLD.read_bytes()))
    return directory


@pytest.fixture
def upgraded(old_store, make_server):
    """This version's server on the old store."""

    def start():
        server = make_server("sqlite", "--data-dir", str(old_store))
        server.kubeconfig_file = old_store / "admin.kubeconfig"
        return server

    return start


def shop(kubectl, *words):
    return json.loads(kubectl("-n", "shop", *words, "-o", "json").out)


def test_objects_of_an_older_version_are_what_they_were_and_can_be_changed(upgraded, kubectl_on):
    server = upgraded()
    kubectl = kubectl_on(server, server.kubeconfig_file)
    for resource, name, uid, version in OBJECTS:
        meta = shop(kubectl, "get", resource, name)["metadata"]
        assert (meta["uid"], meta["resourceVersion"]) == (uid, version), resource
    assert shop(kubectl, "get", "cm", "prices")["data"] == {"apple": "3", "pear": "4", "plum": "5"}
    assert shop(kubectl, "get", "fruit", "apple")["spec"] == {
        "colour": "red",
        "seeds": {"count": 5},
    }
    change = '{"data":{"fig":"6"}}'
    changed = shop(kubectl, "patch", "cm", "prices", "--type", "merge", "-p", change)
    assert changed["metadata"]["uid"] == OBJECTS[0][2]
    assert int(changed["metadata"]["resourceVersion"]) > 63
    assert changed["data"]["pear"] == "4"
    kubectl("-n", "shop", "scale", "deployment/web", "--replicas=3")
    assert shop(kubectl, "get", "deployment", "web")["spec"]["replicas"] == 3


def write_as_a_newer_version(path):
    """A ConfigMap and a Deployment with fields that this version does not know."""
    file = sqlitelog.LogFile(path)
    try:
        loaded = file.load()
        key = next(key for key in loaded.latest if key.endswith("/deployments/shop/web"))
        record = loaded.latest[key]
        document = json.loads(record.value)
        revision = Revision(loaded.revision + 1)
        document["metadata"]["resourceVersion"] = str(revision)
        document["spec"]["fromTheFuture"] = {"depth": 2}
        document["spec"]["template"]["spec"]["containers"][0]["novelty"] = ["a", "b"]
        value = json.dumps(document).encode()
        file.append([Event(revision, key, value, record, value, record.created)])
    finally:
        file.close()


def test_fields_of_a_newer_version_are_shown_and_kept(old_store, upgraded, kubectl_on):
    write_as_a_newer_version(old_store / "store.db")
    server = upgraded()
    kubectl = kubectl_on(server, server.kubeconfig_file)

    def unknown():
        raw = kubectl("get", "--raw", "/apis/apps/v1/namespaces/shop/deployments/web").out
        spec = json.loads(raw)["spec"]
        return spec.get("fromTheFuture"), spec["template"]["spec"]["containers"][0].get("novelty")

    assert unknown() == ({"depth": 2}, ["a", "b"])
    # By whoever changes something else: a label, the status, the scale.
    kubectl("-n", "shop", "label", "deployment", "web", "seen=yes")
    kubectl("-n", "shop", "scale", "deployment/web", "--replicas=5")
    status = '{"status":{"observedGeneration":1}}'
    words = ("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", status)
    kubectl("-n", "shop", *words)
    assert unknown() == ({"depth": 2}, ["a", "b"])
    assert shop(kubectl, "get", "deployment", "web")["spec"]["replicas"] == 5


def test_a_format_that_would_be_misread_ends_the_server_with_one_clear_line(old_store):
    with closing(sqlite3.connect(old_store / "store.db")) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    command = [sys.executable, "-m", "motley.cli.main", "apiserver", "--port", "16998"]
    done = subprocess.run(
        [*command, "--data-dir", str(old_store)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "has format 9, this version of Motley reads 1" in done.stderr
    assert "Traceback" not in done.stderr
