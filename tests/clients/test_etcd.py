"""API servers over etcd: several show one state, and none of them minds when etcd restarts."""

import asyncio
import contextlib
import http.client
import json
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from queue import Queue

import pytest

from motley.apiserver import tls
from motley.ops.etcdbed import Etcd

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def etcd(tmp_path):
    server = Etcd(tmp_path, fsync=False)
    try:
        asyncio.run(server.start())
        yield server
    finally:
        server.kill()


ISSUING = threading.Lock()  # a watching thread asks beside the test


def request(server, method, path, body=None, timeout=20):
    """One request with an administrator's certificate."""
    context = ssl.create_default_context(cafile=str(server.directory / "pki/ca.crt"))
    certificate = server.directory / "test-client.pem"
    with ISSUING:
        if not certificate.exists():
            pair = tls.issue_client(tls.load(server.directory), "test", ("system:masters",))
            certificate.write_bytes(b"".join(pair))
    context.load_cert_chain(certificate)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(server.url + path, data, headers, method=method)
    return urllib.request.urlopen(asked, context=context, timeout=timeout)


def ask(server, method, path, body=None):
    with request(server, method, path, body) as reply:
        return json.load(reply)


def refused(server, method, path, body):
    """The code of a request that fails."""
    try:
        ask(server, method, path, body)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    raise AssertionError(f"{method} {path} was not refused")


def create(server, name, text="x"):
    return ask(server, "POST", CONFIGMAPS, {"metadata": {"name": name}, "data": {"k": text}})


def names(server):
    return {item["metadata"]["name"] for item in ask(server, "GET", CONFIGMAPS)["items"]}


def follow(server, version, seen):
    """Put the names of a watch's events into a queue until it ends; from a thread."""
    path = f"{CONFIGMAPS}?watch=true&resourceVersion={version}&timeoutSeconds=120"
    cut_off = (http.client.IncompleteRead, TimeoutError, ConnectionError)  # killed in the end
    with contextlib.suppress(*cut_off), request(server, "GET", path, timeout=60) as stream:
        for line in stream:
            event = json.loads(line)
            seen.put((event["type"], event["object"]["metadata"]["name"]))


def test_two_servers_over_one_etcd_are_one_api_that_survives_etcds_restart(make_server, etcd):
    one, two = (make_server("etcd", "--etcd-servers", etcd.url) for _ in range(2))

    # A list through one server shows what the other has acknowledged, at once and every time.
    start = ask(one, "GET", CONFIGMAPS)["metadata"]["resourceVersion"]
    seen: Queue = Queue()
    watching = threading.Thread(target=follow, args=(two, start, seen), daemon=True)
    watching.start()
    made = set()
    for number in range(20):
        writer, reader = (one, two) if number % 2 else (two, one)
        create(writer, f"m{number}")
        made.add(f"m{number}")
        assert made <= names(reader)
    assert [seen.get(timeout=10) for _ in range(20)] == [("ADDED", f"m{n}") for n in range(20)]

    # Versions are etcd's: a stale write is refused by whichever server gets it.
    read = ask(one, "GET", f"{CONFIGMAPS}/m0")
    read["data"]["k"] = "new"
    written = ask(two, "PUT", f"{CONFIGMAPS}/m0", read)
    assert int(written["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    assert refused(one, "PUT", f"{CONFIGMAPS}/m0", read) == 409
    assert seen.get(timeout=10) == ("MODIFIED", "m0")

    # etcd goes away and comes back: the watch misses nothing, writes go on.
    etcd.kill()
    cached = f"{CONFIGMAPS}?resourceVersion=0"
    assert len(ask(two, "GET", cached)["items"]) >= 20
    asyncio.run(etcd.start())
    create(one, "after")
    assert "after" in names(two)
    ask(one, "DELETE", f"{CONFIGMAPS}/m1")
    assert "m1" not in names(two)
    assert [seen.get(timeout=10) for _ in range(2)] == [("ADDED", "after"), ("DELETED", "m1")]

    # A server that is killed without warning had nothing of its own to lose.
    before = names(two)
    one.kill()
    one.start()
    assert names(one) == before
    assert two.kill(signal.SIGTERM) == 0
    watching.join(10)
    assert not watching.is_alive()


def test_an_object_that_is_too_large_for_etcd_is_refused_as_such(make_server, etcd):
    server = make_server("etcd", "--etcd-servers", etcd.url)
    # Within the API's limit on data, beyond etcd's on requests: quotes are escaped in JSON.
    body = {"metadata": {"name": "large"}, "data": {"k": '"' * 1_000_000}}
    assert refused(server, "POST", CONFIGMAPS, body) == 413
    create(server, "small")
    assert "small" in names(server)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--store", "etcd"], "--etcd-servers"),
        (["--etcd-servers", "ftp://x:1"], "ftp://x:1"),
        (["--etcd-servers", "https://127.0.0.1:1", "--etcd-keyfile", "/none"], "give both"),
        (["--etcd-servers", "https://127.0.0.1:1", "--etcd-cafile", "/none"], "/none"),
    ],
)
def test_a_wrong_etcd_is_one_clear_line(tmp_path, options, told):
    command = [sys.executable, "-m", "motley.cli.main", "apiserver", "--data-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--port", "1", *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr
