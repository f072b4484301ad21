"""The dashboard's web server: pages for browsers, asked of the API server in the user's name.

    browser ──cookie: the user's token──► dashboard ──Bearer: the same token──► API server

It is made of Python's own library alone, so that one set of files runs in a pod of any
architecture. A thread serves a connection; there are at most `connections` of them, and none waits
for a silent client for long.

Invariant: nothing is shown without credentials, and those are kept by the browser alone: in a
cookie that no script and no other site can use.
"""

import http.server
import re
import secrets
import signal
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus, cookies
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from motley import __version__
from motley.dashboard import routes
from motley.dashboard.asking import Asked
from motley.dashboard.kube import Api, ApiError, Endpoint
from motley.dashboard.markup import Html
from motley.dashboard.pages import frame, login
from motley.lib.clock import SYSTEM, Clock

COOKIE = "motley-dashboard"
_BODY_LIMIT = 16 * 1024  # of a login: a token has one or two KiB
_TOKEN_LIMIT = 3800  # browsers keep cookies of up to 4 KiB
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+")  # of bearer tokens, and of what a cookie may hold
_SILENCE_S = 60.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_STATIC = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Options:
    """How to serve. With `key`, the server speaks for one user (who knows the key) by what the
    endpoint itself proves; without, everybody brings a token."""

    endpoint: Endpoint
    address: str = "127.0.0.1"
    port: int = 8443
    tls: Callable[[], ssl.SSLContext] | None = None
    key: str = ""
    authorization: Callable[[], str] = field(default=lambda: "")
    connections: int = 64
    clock: Clock = SYSTEM


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """See the module's docstring; `serve_forever`, and `shutdown` from another thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: Options) -> None:
        self.options = options
        self.address_family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
        self._room = threading.BoundedSemaphore(options.connections)
        super().__init__((options.address, options.port), Handler)

    @property
    def url(self) -> str:
        """Where it is reached."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'https' if self.options.tls else 'http'}://{shown}:{port}"

    def serve_until_told(self) -> None:
        """Serve until a signal says stop; also SIGINT, which shells let their children ignore."""
        stopping = threading.Thread(target=self.shutdown, name="stopping")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.start() if not stopping.ident else None)
        with self:
            self.serve_forever(poll_interval=0.2)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, if there is room for one more."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread, where a slow handshake holds up nobody."""
        try:
            request.settimeout(_SILENCE_S)
            if self.options.tls is not None:
                try:
                    request = self.options.tls().wrap_socket(request, server_side=True)
                except OSError:  # no TLS, or a client that does not trust us: its own affair
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called in an `except`: clients that go away are no news, all else is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"motley-dashboard/{__version__}"
    sys_version = ""
    timeout = _SILENCE_S

    def setup(self) -> None:
        """A connection begins, and with it one to the API server."""
        super().setup()
        self._api: Api | None = None
        self._token = ""

    def finish(self) -> None:
        """It has ended."""
        super().finish()
        if self._api is not None:
            self._api.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing of what people look at is written down."""

    def do_HEAD(self) -> None:
        """As GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """A page, or a file that pages use."""
        parts = urlsplit(self.path)
        if parts.path == "/healthz":
            self._answer(200, b"ok", "text/plain")
        elif parts.path.startswith("/static/"):
            self._file(parts.path.removeprefix("/static/"))
        elif not self._is_for_us():
            self._page(421, frame.alone("Misdirected", "This name is not served here."))
        elif self._opens(parts.query):
            self._go("/", self._cookie(self.server.options.key))
        elif parts.path == "/login":
            self._page(200, login.page(is_open=not self.server.options.key))
        else:
            self._show(Asked(parts.path, dict(parse_qsl(parts.query)), self._now()))

    def do_POST(self) -> None:
        """Logging in and out; nothing else is ever changed."""
        given = self._form()
        if given is None or not self._is_own():
            self.close_connection = True
            self._page(400, frame.alone("Refused", "This form did not come from here."))
        elif self.path == "/logout":
            self._go("/login", self._cookie("", max_age=0))
        elif self.path == "/login" and not self.server.options.key:
            self._log_in(given.get("token", "").strip())
        else:
            self._page(404, frame.alone("Not found", "There is no such page."))

    def _show(self, asked: Asked) -> None:
        try:
            api = self._user()
            if api is None:
                self._go("/login")
                return
            api.notes.clear()
            page = routes.show(api, asked)
        except ApiError as error:
            if error.code == 401:
                told = "Your token is not, or no longer, accepted. Please log in again."
                self._page(401, login.page(told, is_open=not self.server.options.key))
                return
            code = error.code if error.code in (403, 404) else 502
            self._page(code, frame.failed(asked, code, error.message))
            return
        if page is None:
            self._page(404, frame.failed(asked, 404, "There is no such page."))
            return
        self._page(200, frame.page(asked, page, api.notes, can_leave=not self.server.options.key))

    def _log_in(self, token: str) -> None:
        if len(token) > _TOKEN_LIMIT or not _TOKEN.fullmatch(token):
            self._page(400, login.page("That is no token.", is_open=True))
            return
        api = Api(self.server.options.endpoint, f"Bearer {token}")
        try:
            # What everybody may ask who is somebody; strangers may read /version, too.
            api.get("/apis")
        except ApiError as error:
            if error.code in (401, 403):
                told = "The API server does not accept this token."
                self._page(401, login.page(told, is_open=True))
            else:
                self._page(502, login.page(error.message, is_open=True))
            return
        finally:
            api.close()
        self._go("/", self._cookie(token))

    def _user(self) -> Api | None:
        """Who asks; None for a stranger."""
        options, given = self.server.options, self._given()
        if options.key:
            if not secrets.compare_digest(given.encode(), options.key.encode()):
                return None
            token = options.authorization()
        elif given:
            token = f"Bearer {given}"
        else:
            return None
        if self._api is None or token != self._token:
            if self._api is not None:
                self._api.close()
            self._api, self._token = Api(options.endpoint, token), token
        return self._api

    def _given(self) -> str:
        jar = cookies.SimpleCookie()
        try:
            jar.load(self.headers.get("Cookie", ""))
        except cookies.CookieError:
            return ""
        found = jar.get(COOKIE)
        return found.value if found is not None else ""

    def _cookie(self, value: str, max_age: int | None = None) -> str:
        secure = "; Secure" if self.server.options.tls else ""
        age = "" if max_age is None else f"; Max-Age={max_age}"
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"

    def _opens(self, query: str) -> bool:
        """Whether somebody comes by the address that was printed, which has the key."""
        key = self.server.options.key
        given = dict(parse_qsl(query)).get("key", "")
        return bool(key and given) and secrets.compare_digest(given.encode(), key.encode())

    def _is_for_us(self) -> bool:
        """Another name that leads to loopback must not make a browser show us to its pages."""
        if not self.server.options.key:
            return True
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        return host in ("localhost", "127.0.0.1", "::1", self.server.options.address)

    def _is_own(self) -> bool:
        """Whether a form was sent by a page of ours, as every browser says by now."""
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        origin = self.headers.get("Origin")
        host = self.headers.get("Host", "")
        return site in ("same-origin", "none") and (
            origin is None or urlsplit(origin).netloc == host
        )

    def _form(self) -> dict[str, str] | None:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return None
        if not 0 <= length <= _BODY_LIMIT:
            return None
        body = self.rfile.read(length)
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))

    def _now(self) -> float:
        return self.server.options.clock.now()

    def _file(self, name: str) -> None:
        kind = _STATIC.get(name)
        if kind is None:
            self._page(404, frame.alone("Not found", "There is no such file."))
            return
        body = resources.files("motley.dashboard").joinpath("static", name).read_bytes()
        self._answer(200, body, kind, {"Cache-Control": "public, max-age=300"})

    def _go(self, where: str, cookie: str = "") -> None:
        more = {"Location": where} | ({"Set-Cookie": cookie} if cookie else {})
        self._answer(HTTPStatus.SEE_OTHER, b"", "text/plain", more)

    def _page(self, code: int, page: Html) -> None:
        self._answer(code, page.encode(), "text/html; charset=utf-8", {"Cache-Control": "no-store"})

    def _answer(
        self, code: int, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in {**_HEADERS, **(more or {}), "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
