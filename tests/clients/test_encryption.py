"""Encryption at rest, seen from outside: the file, etcd, kubectl, a change of keys, a wrong key."""

import asyncio
import base64
import json
import signal
import sqlite3
import subprocess
import sys

import pytest

from motley.ops.etcdbed import Etcd
from motley.store.etcd.config import Config
from motley.store.etcd.store import EtcdStore

PASSWORD = "correct-horse-battery"
ENCODED = base64.b64encode(PASSWORD.encode())
KEY = "/registry/secrets/default/db"


@pytest.fixture
def etcd(tmp_path):
    server = Etcd(tmp_path, fsync=False)
    try:
        asyncio.run(server.start())
        yield server
    finally:
        server.kill()


def configuration(path, *keys, identity=True):
    """Write an EncryptionConfiguration whose first key writes."""
    listed = [
        {"name": name, "secret": base64.b64encode(bytes([fill]) * 32).decode()}
        for name, fill in keys
    ]
    providers = [{"aesgcm": {"keys": listed}}] + ([{"identity": {}}] if identity else [])
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    path.write_text(json.dumps(document))
    return path


def latest(server, key):
    """The bytes of a key as they lie in the file."""
    with sqlite3.connect(f"file:{server.directory / 'store.db'}?mode=ro", uri=True) as db:
        ((value,),) = db.execute(
            "SELECT value FROM log WHERE key = ? ORDER BY id DESC LIMIT 1", (key,)
        )
    return bytes(value)


def on_disk(server):
    return b"".join(p.read_bytes() for p in server.directory.glob("store.db*"))


def make_secret(kubectl, name="db"):
    kubectl("create", "secret", "generic", name, f"--from-literal=password={PASSWORD}")


def read_secret(kubectl, name="db"):
    shown = kubectl("get", "secret", name, "-o", "jsonpath={.data.password}").out
    return base64.b64decode(shown).decode()


def restart(server, *options):
    assert server.kill(signal.SIGTERM) == 0
    server.options = options
    server.start()


def refusal(server, *options):
    """What a server that does not start says."""
    command = [sys.executable, "-m", "motley.cli.main", "apiserver", "--data-dir"]
    command += [str(server.directory), "--port", str(server.port), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_secrets_are_unreadable_in_the_file_and_keys_change_by_replacing(
    make_server, kubectl_on, tmp_path
):
    file = configuration(tmp_path / "encryption.yaml", ("key1", 1))
    option = ("--encryption-provider-config", str(file))
    server = make_server("sqlite")
    kubectl = kubectl_on(server)
    make_secret(kubectl, "early")
    assert ENCODED in on_disk(server)

    restart(server, *option)
    make_secret(kubectl)
    assert latest(server, KEY).startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert latest(server, "/registry/secrets/default/early").startswith(b"{")
    assert latest(server, "/registry/namespaces/default").startswith(b"{")
    assert [read_secret(kubectl), read_secret(kubectl, "early")] == [PASSWORD, PASSWORD]

    # A new key writes, the old one still reads; replacing every Secret moves them over.
    configuration(file, ("key2", 2), ("key1", 1))
    restart(server, *option)
    assert read_secret(kubectl) == PASSWORD
    everything = kubectl("get", "secrets", "-A", "-o", "json").out
    kubectl("replace", "-f", "-", stdin=everything)
    for name in ("db", "early"):
        kept = latest(server, f"/registry/secrets/default/{name}")
        assert kept.startswith(b"k8s:enc:aesgcm:v1:key2:")
    again = latest(server, KEY)
    kubectl("replace", "-f", "-", stdin=kubectl("get", "secrets", "-A", "-o", "json").out)
    assert latest(server, KEY) == again

    # Then the old key is no longer needed, and a backup is as sealed as the store.
    configuration(file, ("key2", 2), identity=False)
    restart(server, *option)
    assert [read_secret(kubectl), read_secret(kubectl, "early")] == [PASSWORD, PASSWORD]
    backup = tmp_path / "backup"
    motley(server, "backup", str(backup))
    assert PASSWORD.encode() not in backup.read_bytes()
    kubectl("delete", "secret", "db")
    assert server.kill(signal.SIGTERM) == 0
    motley(server, "restore", "--force", str(backup))
    server.start()
    assert read_secret(kubectl) == PASSWORD


def motley(server, command, *arguments):
    line = [sys.executable, "-m", "motley.cli.main", command, "--data-dir", str(server.directory)]
    done = subprocess.run([*line, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_wrong_key_and_a_wrong_file_are_refused_at_the_start(make_server, kubectl_on, tmp_path):
    file = configuration(tmp_path / "encryption.yaml", ("key1", 1))
    option = ("--encryption-provider-config", str(file))
    server = make_server("sqlite", *option)
    make_secret(kubectl_on(server))
    assert server.kill(signal.SIGTERM) == 0

    assert f"{KEY} is encrypted with the aesgcm key 'key1'" in refusal(server)
    configuration(file, ("key1", 9))
    assert "cannot be decrypted with the aesgcm key 'key1'" in refusal(server, *option)
    file.write_text(file.read_text().replace('"name"', '"title"'))
    said = refusal(server, *option)
    assert "resources[0].providers[0].aesgcm.keys[0].title: unknown field" in said
    assert "Traceback" not in said


def test_secrets_in_etcd_are_sealed_for_their_key(make_server, kubectl_on, tmp_path, etcd):
    file = configuration(tmp_path / "encryption.yaml", ("key1", 1))
    option = ("--encryption-provider-config", str(file))
    server = make_server("etcd", "--etcd-servers", etcd.url, *option)
    kubectl = kubectl_on(server)
    make_secret(kubectl)

    async def kept():
        store = await EtcdStore.open(Config(etcd.url))
        try:
            return (await store.get(KEY)).value
        finally:
            await store.close()

    first = asyncio.run(kept())
    assert first.startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert ENCODED not in first
    assert read_secret(kubectl) == PASSWORD
    labelled = kubectl("label", "secret", "db", "a=b", "-o", "json").json
    assert labelled["metadata"]["labels"] == {"a": "b"}

    # A second server with another key alone says so, and does not start.
    configuration(file, ("key2", 2))
    said = refusal(server, "--etcd-servers", etcd.url, *option, "--port", "1")
    assert f"{KEY} is encrypted with the aesgcm key 'key1'" in said
    configuration(file, ("key2", 2), ("key1", 1))
    restart(server, "--etcd-servers", etcd.url, *option)
    kubectl("replace", "-f", "-", stdin=kubectl("get", "secrets", "-A", "-o", "json").out)
    assert asyncio.run(kept()).startswith(b"k8s:enc:aesgcm:v1:key2:")
    configuration(file, ("key2", 2))
    restart(server, "--etcd-servers", etcd.url, *option)
    assert read_secret(kubectl) == PASSWORD
