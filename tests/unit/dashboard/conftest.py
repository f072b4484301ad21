"""A dashboard before an API server that answers what a test puts there."""

import http.client
import http.server
import json
import threading
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from motley.dashboard.kube import Endpoint
from motley.dashboard.server import COOKIE, Options, Server

NOW = 1_800_000_000.0
TOKEN = "good.token-1"


class Clock:
    def now(self):
        return NOW


class FakeApi(http.server.ThreadingHTTPServer):
    """Answers by path; remembers what it was asked, by whom, and how."""

    daemon_threads = True

    def __init__(self):
        self.documents = {"/apis": {"kind": "APIGroupList", "groups": []}}
        self.codes = {}
        self.asked = []
        self.tokens = {f"Bearer {TOKEN}"}
        super().__init__(("127.0.0.1", 0), _Answering)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        api, parts = self.server, urlsplit(self.path)
        api.asked.append((self.command, parts.path, dict(parse_qsl(parts.query))))
        code = api.codes.get(parts.path, 200)
        body = api.documents.get(parts.path)
        if self.headers.get("Authorization") not in api.tokens:
            code, body = 401, {"kind": "Status", "message": "Unauthorized"}
        elif code != 200:
            body = {"kind": "Status", "message": f"{parts.path} is not for you"}
        elif body is None:
            code, body = 404, {"kind": "Status", "message": "not found"}
        if callable(body):
            body = body(dict(parse_qsl(parts.query)))
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture
def api():
    with running(FakeApi()) as server:
        yield server


class Browser:
    """Asks the dashboard, and keeps its cookie."""

    def __init__(self, server, context=None):
        self.server, self.context, self.cookie = server, context, ""
        self.headers = {}

    def ask(self, method, path, form=None, **headers):
        host, port = self.server.server_address[:2]
        if self.context is None:
            connection = http.client.HTTPConnection(host, port, timeout=10)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=10, context=self.context)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            given["Cookie"] = self.cookie
        body = urlencode(form) if form is not None else None
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        if found := self.headers.get("set-cookie"):
            self.cookie = found.partition(";")[0]
        return answer.status, text

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def log_in(self, token=TOKEN):
        return self.ask("POST", "/login", {"token": token})


@pytest.fixture
def dashboard(api):
    with running(Server(Options(Endpoint(api.url), port=0, clock=Clock()))) as server:
        yield server


@pytest.fixture
def stranger(dashboard):
    return Browser(dashboard)


@pytest.fixture
def user(dashboard):
    made = Browser(dashboard)
    made.cookie = f"{COOKIE}={TOKEN}"
    return made
