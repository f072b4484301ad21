"""A server killed without warning has lost nothing that it had answered."""

import json
import signal
import ssl
import urllib.request

import yaml

from motley.apiserver import tls


def request(server, method: str, path: str, body: object = None, timeout: float = 10):
    """One request with the administrator's certificate."""
    context = ssl.create_default_context(cafile=str(server.directory / "pki/ca.crt"))
    certificate = server.directory / "test-client.pem"
    if not certificate.exists():
        pair = tls.issue_client(tls.load(server.directory), "test", ("system:masters",))
        certificate.write_bytes(b"".join(pair))
    context.load_cert_chain(certificate)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(server.url + path, data, headers, method=method)
    return urllib.request.urlopen(asked, context=context, timeout=timeout)


def put(server, name: str) -> str:
    body = {"metadata": {"name": name}, "data": {"k": name}}
    with request(server, "POST", "/api/v1/namespaces/default/configmaps", body) as reply:
        return json.load(reply)["metadata"]["resourceVersion"]


def test_objects_and_watches_survive_kill_minus_nine(own_server):
    versions = {f"m{number}": put(own_server, f"m{number}") for number in range(20)}
    with request(own_server, "GET", "/api/v1/namespaces") as reply:
        before = json.load(reply)["items"]

    own_server.kill(signal.SIGKILL)
    own_server.start()

    with request(own_server, "GET", "/api/v1/namespaces/default/configmaps") as reply:
        listed = json.load(reply)
    found = {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in listed["items"]}
    assert found == versions
    with request(own_server, "GET", "/api/v1/namespaces") as reply:
        assert json.load(reply)["items"] == before
    # A watch resumes in the middle of what happened before the kill, then follows what is new.
    put(own_server, "after")
    url = f"/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={versions['m17']}"
    with request(own_server, "GET", url) as stream:
        names = [json.loads(stream.readline())["object"]["metadata"]["name"] for _ in range(3)]
    assert names == ["m18", "m19", "after"]


def test_certificates_and_kubeconfig_stay_the_same_over_restarts(own_server):
    before = own_server.kubeconfig.read_bytes()
    serving = (own_server.directory / "pki/apiserver.crt").read_bytes()

    assert own_server.kill(signal.SIGTERM) == 0
    own_server.start()

    assert own_server.kubeconfig.read_bytes() == before
    assert (own_server.directory / "pki/apiserver.crt").read_bytes() == serving
    assert own_server.kubeconfig.stat().st_mode & 0o777 == 0o600
    server_url = yaml.safe_load(before)["clusters"][0]["cluster"]["server"]
    assert server_url == own_server.url


def test_a_stop_ends_watches_and_exits_zero_soon(own_server):
    stream = request(own_server, "GET", "/api/v1/namespaces?watch=true&resourceVersion=0")
    with stream:
        for _ in range(4):
            stream.readline()

        code = own_server.kill(signal.SIGTERM)

        assert code == 0
        assert stream.read() == b""  # a clean end of the chunked body, not a cut connection
