"""Who is let in, what is sent along, and what is never sent."""

import shutil
import socket
import ssl
import subprocess

import pytest

from motley.dashboard import __main__ as command
from motley.dashboard.kube import Endpoint
from motley.dashboard.server import COOKIE, Options, Server

from .conftest import TOKEN, Browser, running


def test_a_stranger_is_asked_for_a_token_and_sees_nothing(api, stranger):
    for path in ("/", "/pods", "/pods/default/web", "/kinds", "/nowhere"):
        assert stranger.get(path) == (303, "")
        assert stranger.headers["location"] == "/login"
    code, page = stranger.get("/login")
    assert code == 200
    assert 'name="token"' in page
    assert api.asked == [], "and nobody was asked in a stranger's name"


def test_who_has_a_token_is_let_in_by_a_cookie_that_only_this_site_can_use(api, stranger):
    assert stranger.log_in() == (303, "")
    assert stranger.headers["location"] == "/"
    words = stranger.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} < set(words)
    assert stranger.get("/")[0] == 200
    assert stranger.ask("POST", "/logout", {}) == (303, "")
    assert "Max-Age=0" in stranger.headers["set-cookie"]


@pytest.mark.parametrize("token", ["wrong", "", "two words", "a;b", "é", "x" * 5000, "a\r\nb: c"])
def test_what_the_api_server_does_not_take_is_refused_in_words(stranger, token):
    code, page = stranger.log_in(token)
    assert code in (400, 401)
    assert "token" in page
    assert not stranger.cookie


def test_a_token_that_is_no_longer_good_leads_back_to_the_login(api, user):
    assert user.get("/")[0] == 200
    api.tokens.clear()
    code, page = user.get("/")
    assert code == 401
    assert "log in again" in page
    assert 'name="token"' in page


def test_nothing_but_get_is_ever_sent(api, user):
    for path in (
        "/",
        "/nodes",
        "/nodes/a",
        "/pods",
        "/pods/a/b",
        "/workloads",
        "/events",
        "/kinds",
    ):
        user.get(path)
    assert api.asked
    assert {method for method, _, _ in api.asked} == {"GET"}


def test_what_may_not_be_seen_is_said_and_the_rest_is_shown(api, user):
    node = {"metadata": {"name": "node-1"}, "status": {}}
    api.documents["/api/v1/nodes"] = {"items": [node]}
    api.codes["/api/v1/pods"] = 403
    code, page = user.get("/")
    assert code == 200
    assert "/api/v1/pods is not for you" in page
    assert ">node-1</a>" in page


@pytest.mark.parametrize(("code", "shown"), [(403, 403), (404, 404), (500, 502)])
def test_a_page_that_cannot_be_made_says_why(api, user, code, shown):
    api.codes["/api/v1/nodes/node-1"] = code
    assert user.get("/nodes/node-1")[0] == shown
    assert "is not for you" in user.get("/nodes/node-1")[1]


def test_an_api_server_that_does_not_answer_is_said_too(api, user):
    api.shutdown()
    api.server_close()
    code, page = user.get("/")
    assert code == 502
    assert "cannot be reached" in page


def test_every_answer_tells_the_browser_to_be_careful(user):
    for path in ("/", "/login", "/healthz", "/static/dashboard.css", "/static/../server.py", "/x"):
        user.get(path)
        assert "default-src 'none'" in user.headers["content-security-policy"]
        assert user.headers["x-content-type-options"] == "nosniff"
        assert user.headers["x-frame-options"] == "DENY"


def test_files_are_only_those_that_pages_use(user):
    for name, kind in (("dashboard.css", "text/css"), ("dashboard.js", "text/javascript")):
        code, body = user.get(f"/static/{name}")
        assert code == 200
        assert body
        assert user.headers["content-type"].startswith(kind)
    for name in ("../server.py", "..%2fserver.py", "", "x.css"):
        assert user.get(f"/static/{name}")[0] == 404


def test_forms_of_other_sites_do_nothing(stranger):
    form = {"token": TOKEN}
    foreign = (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    )
    for headers in foreign:
        assert stranger.ask("POST", "/login", form, **headers)[0] == 400
        assert not stranger.cookie
    assert stranger.ask("POST", "/login", {"token": "x" * 20_000})[0] == 400
    assert stranger.ask("POST", "/elsewhere", form)[0] == 404


def test_it_lives_without_a_login(stranger):
    assert stranger.get("/healthz") == (200, "ok")
    assert stranger.ask("HEAD", "/healthz") == (200, "")


def test_connections_are_bounded(api):
    with running(Server(Options(Endpoint(api.url), port=0, connections=2))) as server:
        held = [socket.create_connection(server.server_address, timeout=10) for _ in range(2)]
        refused = socket.create_connection(server.server_address, timeout=10)
        assert refused.recv(1) == b"", "one too many is let go at once"
        held[0].close()
        browser = Browser(server)

        def served():
            try:
                return browser.get("/healthz") == (200, "ok")
            except OSError:
                return False

        assert any(served() for _ in range(500)), "there is room again"
        for one in (held[1], refused):
            one.close()


# For one person on this machine


@pytest.fixture
def own(api):
    api.tokens = {"Bearer mine"}
    options = Options(Endpoint(api.url), port=0, key="the-key", authorization=lambda: "Bearer mine")
    with running(Server(options)) as server:
        yield Browser(server)


def test_only_who_has_the_printed_address_gets_in(own):
    for path in ("/", "/?key=wrong", "/?key="):
        assert own.get(path)[0] == 303
        assert own.headers["location"] == "/login"
    assert "open the address" in own.get("/login")[1]
    assert own.ask("POST", "/login", {"token": "mine"})[0] == 404
    assert own.get("/?key=the-key")[0] == 303
    assert own.cookie == f"{COOKIE}=the-key"
    assert own.get("/")[0] == 200
    assert "Log out" not in own.get("/")[1]


def test_a_name_that_only_leads_to_loopback_is_not_served(own):
    assert own.get("/?key=the-key", Host="evil.example")[0] == 421
    assert not own.cookie


# TLS


def certificate(directory, name):
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-keyout", directory / "tls.key"),
            *("-out", directory / "tls.crt", *subject),
        ],
        check=True,
        capture_output=True,
    )


def test_a_renewed_certificate_is_used_for_new_connections(api, tmp_path):
    mounted, first, second = (tmp_path / n for n in ("mounted", "first", "second"))
    for directory, name in ((first, "one.example"), (second, "two.example")):
        directory.mkdir()
        certificate(directory, name)
    mounted.symlink_to(first)
    arguments = ["--port", "0", "--bind", "127.0.0.1", "--tls-dir", str(mounted)]
    with running(Server(command.options([*arguments, "--api", api.url]))) as server:

        def shown(trusted):
            context = ssl.create_default_context(cafile=trusted / "tls.crt")
            context.check_hostname = False
            browser = Browser(server, context)
            browser.log_in()
            assert "Secure" in browser.headers["set-cookie"]
            return browser.get("/healthz")

        assert shown(first) == (200, "ok")
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(second)
        mounted.unlink()
        mounted.symlink_to(second)
        assert shown(second) == (200, "ok")


def test_without_tls_only_loopback_is_served(api, capsys):
    with pytest.raises(SystemExit):
        command.options(["--api", api.url, "--bind", "0.0.0.0"])
    assert "in the clear" in capsys.readouterr().err
    assert command.options(["--api", api.url]).address == "127.0.0.1"


def test_outside_a_pod_the_api_server_has_to_be_named(capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SystemExit):
        command.options([])
    assert "--api" in capsys.readouterr().err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert command.options([]).endpoint.url == "https://[fd00::1]:6443"


def test_a_missing_certificate_is_said(tmp_path, capsys):
    assert shutil.which("openssl")
    with pytest.raises(SystemExit):
        command.options(["--tls-dir", str(tmp_path), "--api", "https://x"])
    assert "certificates" in capsys.readouterr().err
