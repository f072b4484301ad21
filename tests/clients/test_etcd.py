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
from concurrent.futures import ThreadPoolExecutor
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


def answered(server, method, path, body):
    """The code of a request, whichever it is."""
    try:
        with request(server, method, path, body) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


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
    assert [seen.get(timeout=30) for _ in range(20)] == [("ADDED", f"m{n}") for n in range(20)]

    # Versions are etcd's: a stale write is refused by whichever server gets it.
    read = ask(one, "GET", f"{CONFIGMAPS}/m0")
    read["data"]["k"] = "new"
    written = ask(two, "PUT", f"{CONFIGMAPS}/m0", read)
    assert int(written["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    assert refused(one, "PUT", f"{CONFIGMAPS}/m0", read) == 409
    assert seen.get(timeout=30) == ("MODIFIED", "m0")

    # etcd goes away and comes back: the watch misses nothing, writes go on.
    etcd.kill()
    cached = f"{CONFIGMAPS}?resourceVersion=0"
    assert len(ask(two, "GET", cached)["items"]) >= 20
    asyncio.run(etcd.start())
    create(one, "after")
    assert "after" in names(two)
    ask(one, "DELETE", f"{CONFIGMAPS}/m1")
    assert "m1" not in names(two)
    assert [seen.get(timeout=30) for _ in range(2)] == [("ADDED", "after"), ("DELETED", "m1")]

    # A server that is killed without warning had nothing of its own to lose.
    before = names(two)
    one.kill()
    one.start()
    assert names(one) == before
    assert two.kill(signal.SIGTERM) == 0
    watching.join(10)
    assert not watching.is_alive()


SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def service(name, **spec):
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_servers_over_one_etcd_never_give_out_an_address_or_a_port_twice(
    make_server, etcd, kubectl_on
):
    options = ("--etcd-servers", etcd.url, "--service-cluster-ip-range", "10.96.0.0/24")
    servers = [make_server("etcd", *options) for _ in range(2)]
    request(servers[0], "GET", "/version").close()  # makes the certificates
    request(servers[1], "GET", "/version").close()

    def make(number):
        kind = ("NodePort", "ClusterIP")[number % 3 == 0]
        return ask(servers[number % 2], "POST", SERVICES, service(f"s{number}", type=kind))

    with ThreadPoolExecutor(16) as pool:
        made = [one["spec"] for one in pool.map(make, range(200))]
        addresses = {spec["clusterIP"] for spec in made}
        assert len(addresses) == 200
        ports = [p["nodePort"] for spec in made for p in spec["ports"] if "nodePort" in p]
        assert len(ports) == len(set(ports)) == 133

        # Of those who ask for one address one gets it, whoever they ask.
        def clash(number):
            body = service(f"c{number}", clusterIP="10.96.0.10")
            return answered(servers[number % 2], "POST", SERVICES, body)

        assert sorted(pool.map(clash, range(10))) == [201] + [422] * 9

        listed = {i["metadata"]["name"] for i in ask(servers[1], "GET", ADDRESSES)["items"]}
        assert listed == addresses | {"10.96.0.1", "10.96.0.10"}
        kubectl = kubectl_on(servers[0])
        shown = kubectl("get", "ipaddresses", "10.96.0.1").out.splitlines()
        assert shown[0].split() == ["NAME", "PARENTREF"]
        assert shown[1].split()[:2] == ["10.96.0.1", "services/default/kubernetes"]
        shown = kubectl("get", "servicecidrs").out.splitlines()
        assert shown[0].split() == ["NAME", "CIDRS", "AGE"]
        assert shown[1].split()[:2] == ["kubernetes", "10.96.0.0/24"]

        # Deleted through either, all of it is free again.
        gone = [f"s{n}" for n in range(200)]
        list(pool.map(lambda n: ask(servers[len(n) % 2], "DELETE", f"{SERVICES}/{n}"), gone))
    listed = {i["metadata"]["name"] for i in ask(servers[0], "GET", ADDRESSES)["items"]}
    assert listed == {"10.96.0.1", "10.96.0.10"}
    again = service("again", type="NodePort", ports=[{"port": 80, "nodePort": ports[0]}])
    assert ask(servers[1], "POST", SERVICES, again)["spec"]["ports"][0]["nodePort"] == ports[0]


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
