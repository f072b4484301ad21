"""`motley certs`: what ends when, new certificates, and a new authority under a running server."""

import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import pytest
from cryptography import x509

from motley.apiserver import tls
from motley.ops.testbed import eventually


def motley(*arguments, fails=False):
    line = [sys.executable, "-m", "motley.cli.main", "certs", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def shown_certificate(server):
    """The certificate a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", server.port))


def issuer(pem):
    return x509.load_pem_x509_certificate(pem.encode()).issuer.rfc4514_string()


def test_the_authority_changes_in_two_steps_while_the_server_serves(
    own_server, kubectl_on, tmp_path
):
    data = ("--data-dir", own_server.directory)
    process = own_server.process
    before = tmp_path / "old.kubeconfig"
    shutil.copy(own_server.kubeconfig, before)
    old, new = kubectl_on(own_server, before), kubectl_on(own_server)
    old("create", "configmap", "first")  # a watch with nothing to show says nothing
    watching = subprocess.Popen(
        old.command("get", "configmaps", "--watch"),
        env=old.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert watching.stdout is not None
        assert b"NAME" in watching.stdout.readline()

        # First step: both are trusted, nobody notices.
        assert "both are trusted" in motley("rotate-ca", *data)
        assert "already" in motley("rotate-ca", *data, fails=True)
        eventually(lambda: said(own_server, "certificates taken over"))
        old("create", "configmap", "by-old")
        new("create", "configmap", "by-new")
        assert own_server.kubeconfig.read_bytes() != before.read_bytes()
        assert issuer(shown_certificate(own_server)) == "CN=motley-ca"
        assert watching.poll() is None

        # Second step: what the old authority signed is refused, and trusted no longer.
        assert "refused" in motley("rotate-ca", "--finish", *data)
        eventually(lambda: "motley-ca-" in issuer(shown_certificate(own_server)))
        refused = old("get", "configmaps", fails=True)
        assert "certificate" in refused.err
        assert new("get", "configmap", "by-old", "-o", "name").out == "configmap/by-old\n"
        # Also a client that trusts everybody is refused with the old certificate.
        assert "hung up" in careless(own_server, tls.pair_of(before), tmp_path)
        assert " 200 " in careless(own_server, tls.pair_of(own_server.kubeconfig), tmp_path)
        # The watch of the old kubeconfig was ended: nothing that it was let in by counts now.
        eventually(lambda: watching.poll() is not None)
    finally:
        watching.kill()
        watching.communicate()
    assert own_server.process is process
    assert process.poll() is None
    own_server.kill(signal.SIGTERM)
    own_server.start()
    assert "by-new" in new("get", "configmaps", "-o", "name").out


def careless(server, pair, directory):
    """The first line of an answer to a client that trusts everybody, or why there is none."""
    (directory / "client.pem").write_bytes(b"".join(pair))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(directory / "client.pem")
    try:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
            context.wrap_socket(plain) as secured,
        ):
            secured.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return (secured.recv(1000).decode() or "hung up").splitlines()[0]
    except (ssl.SSLError, ConnectionError) as error:
        return f"hung up: {error}"


def said(server, text):
    return text in (server.directory / "server.log").read_text()


def test_certificates_are_listed_with_their_end_and_renewed(own_server, kubectl_on):
    data = ("--data-dir", own_server.directory)
    table = motley("list", *data)
    assert table.splitlines()[0].split() == [
        *("CERTIFICATE", "EXPIRES", "RESIDUAL", "TIME", "AUTHORITY")
    ]
    listed = {one["name"]: one for one in json.loads(motley("list", "-o", "json", *data))}
    assert {"admin.kubeconfig", "apiserver", "kubelet-client", "ca"} <= set(listed)
    assert 360 * 86_400 < listed["apiserver"]["residualSeconds"] <= 365 * 86_400
    assert "127.0.0.1" in listed["apiserver"]["names"]
    assert listed["ca"]["isAuthority"]
    assert "SUBJECT" in motley("list", "-o", "wide", *data)
    before = shown_certificate(own_server)

    assert "apiserver renewed" in motley("renew", "apiserver", *data)

    eventually(lambda: shown_certificate(own_server) != before)
    assert kubectl_on(own_server)("get", "--raw", "/readyz").out == "ok"
    assert "no certificate moon" in motley("renew", "moon", *data, fails=True)
    assert "admin.kubeconfig renewed" in motley("renew", *data)
    assert kubectl_on(own_server)("get", "--raw", "/readyz").out == "ok"


def test_there_must_be_certificates(tmp_path):
    assert "there are no certificates in" in motley("list", "--data-dir", tmp_path, fails=True)


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nrubbish\n"])
def test_half_written_certificates_do_not_harm_the_server(own_server, kubectl_on, text):
    path = own_server.directory / "pki" / "apiserver.crt"
    good = path.read_bytes()
    path.write_bytes(text)
    eventually(lambda: said(own_server, "new certificates not taken yet"))

    assert kubectl_on(own_server)("get", "--raw", "/readyz").out == "ok"

    path.write_bytes(good)
    eventually(lambda: said(own_server, "certificates taken over"))
    assert kubectl_on(own_server)("get", "--raw", "/readyz").out == "ok"
