"""From sites to the text of nginx.conf; pure.

Invariants: the same plan makes the same text, so that a difference is a reason to reload. Whatever
comes from a user is in quotes, and `plan` has let no character through that ends them.

Requests and answers are passed on as they come, never stored on disk. A request opens a connection
of its own to the Service, so that the Service's balancing holds for every request.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from motley.network.paths.sites import DEFAULT_HOST, Location, Plan, Site

_SHUTDOWN_S = 240  # ingress-nginx' own: as long as a web socket outlives a reload


@dataclass(frozen=True)
class Listening:
    """Where nginx listens and lives."""

    directory: Path
    http: Sequence[tuple[str, int]]
    https: Sequence[tuple[str, int]]
    workers: int = 1
    user: str = ""  # of the workers; empty: as the master

    @property
    def config(self) -> Path:
        """The configuration that nginx runs with."""
        return self.directory / "nginx.conf"

    @property
    def control(self) -> Path:
        """The socket at which nginx says which configuration it runs with."""
        return self.directory / "nginx.sock"


def quoted(text: str) -> str:
    """A string as nginx reads it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def render(plan: Plan, at: Listening) -> tuple[str, str]:
    """The configuration and its generation, which it also answers on the control socket."""
    body = "\n".join(_http(plan, at))
    generation = hashlib.sha256(body.encode()).hexdigest()[:16]
    return body.replace(_GENERATION, generation), generation


_GENERATION = "@generation@"
_HEADERS = {
    "Host": "$http_host",
    "Upgrade": "$http_upgrade",
    "Connection": "$motley_connection",
    "X-Real-IP": "$remote_addr",
    "X-Forwarded-For": "$remote_addr",
    "X-Forwarded-Host": "$http_host",
    "X-Forwarded-Proto": "$scheme",
    "X-Forwarded-Prefix": "$motley_prefix",
    "X-Request-ID": "$request_id",
}


def _http(plan: Plan, at: Listening) -> Iterator[str]:
    here = at.directory
    yield "# Written by `motley gateway`, which replaces it whenever a Route or an Ingress changes."
    if at.user:
        yield f"user {at.user};"
    yield f"worker_processes {at.workers};"
    yield f"worker_shutdown_timeout {_SHUTDOWN_S}s;"
    yield f"pid {quoted(str(here / 'nginx.pid'))};"
    yield "daemon off;"
    yield "error_log stderr warn;"
    yield "events { worker_connections 4096; }"
    yield "http {"
    yield "  access_log off;"
    yield "  server_tokens off;"
    yield "  default_type text/plain;"
    yield "  server_names_hash_max_size 8192;"
    yield "  server_names_hash_bucket_size 512;"
    yield "  client_header_timeout 60s;"
    yield "  ssl_protocols TLSv1.2 TLSv1.3;"
    yield "  ssl_session_cache shared:motley:1m;"
    yield "  proxy_http_version 1.1;"
    yield "  proxy_request_buffering off;"
    yield "  proxy_max_temp_file_size 0;"
    yield '  map $http_upgrade $motley_connection { default upgrade; "" close; }'
    for name, value in _HEADERS.items():
        yield f"  proxy_set_header {name} {value};"
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        yield f"  {kind}_temp_path {quoted(str(here / 'tmp' / kind))};"
    yield (
        f"  server {{ listen {quoted(f'unix:{at.control}')};"
        f" location / {{ return 200 {_GENERATION}; }} }}"
    )
    for name, servers in sorted(_upstreams(plan).items()):
        yield f"  upstream {name} {{ {' '.join(f'server {s};' for s in servers)} }}"
    yield from _unknown(plan, at)
    for site in plan.sites:
        yield from _server(site, at)
    yield "}"
    yield ""


def _upstreams(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Only where there are several servers does nginx choose among them itself."""
    several = {o.servers for site in plan.sites for o in site.locations if len(o.servers) > 1}
    return {_upstream(servers): servers for servers in several}


def _upstream(servers: Sequence[str]) -> str:
    return "motley-" + hashlib.sha256(",".join(servers).encode()).hexdigest()[:16]


def _listen(at: Listening, *, tls: bool, suffix: str = "") -> Iterator[str]:
    for address, port in at.https if tls else at.http:
        yield f"    listen {address}:{port}{' ssl http2' if tls else ''}{suffix};"


def _unknown(plan: Plan, at: Listening) -> Iterator[str]:
    """Hosts that nobody has: not found; over TLS no certificate would be the right one."""
    default = next((site for site in plan.sites if site.host == DEFAULT_HOST), None)
    if default is None:
        yield "  server {"
        yield from _listen(at, tls=False, suffix=" default_server")
        yield "    server_name _;"
        yield r'    location / { return 404 "no Route or Ingress has this host\n"; }'
        yield "  }"
    has_tls = any(site.certificate for site in plan.sites)
    if has_tls and (default is None or default.certificate is None):
        yield "  server {"
        yield from _listen(at, tls=True, suffix=" default_server")
        yield "    server_name _;"
        yield "    ssl_reject_handshake on;"
        yield "  }"


def _name(host: str) -> str:
    if host == DEFAULT_HOST:
        return "_"
    if host.startswith("*."):  # one label; nginx' own wildcards stand for several
        return f'"~^[^.]+{re.escape(host[1:])}$"'
    return host


def _server(site: Site, at: Listening) -> Iterator[str]:
    suffix = " default_server" if site.host == DEFAULT_HOST else ""
    yield "  server {"
    yield from _listen(at, tls=False, suffix=suffix)
    if site.certificate is not None:
        yield from _listen(at, tls=True, suffix=suffix)
        yield f"    ssl_certificate {quoted(site.certificate.certificate)};"
        yield f"    ssl_certificate_key {quoted(site.certificate.key)};"
    yield f"    server_name {_name(site.host)};"
    yield '    set $motley_prefix "";'
    exact = {location.path for location in site.locations if location.match == "exact"}
    for location in site.locations:
        yield from _location(location, exact, has_tls=site.certificate is not None)
    if "/" not in {o.path for o in site.locations if o.match == "prefix"}:
        yield r'    location / { return 404 "no Route or Ingress has this path\n"; }'
    yield "  }"


def _location(location: Location, exact: set[str], *, has_tls: bool) -> Iterator[str]:
    path, body = location.path, list(_body(location, has_tls=has_tls))
    if location.match == "exact":
        yield from _block(f"= {quoted(path)}", [*body, *_pass(location, "all")])
        return
    # A prefix is one of whole elements: /world has /world and /world/…, but not /worldly.
    if path == "/":
        yield from _block(quoted("/"), [*body, *_pass(location, "all")])
        return
    if path not in exact:
        yield from _block(f"= {quoted(path)}", [*body, *_pass(location, "root")])
    yield from _block(quoted(f"{path}/"), [*body, *_pass(location, "below")])


def _block(match: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"    location {match} {{"
    for line in lines:
        yield f"      {line}"
    yield "    }"


def _body(location: Location, *, has_tls: bool) -> Iterator[str]:
    settings = location.settings
    yield f"# {location.owner}"
    if has_tls and settings.ssl_redirect:
        yield 'if ($scheme = "http") { return 308 https://$host$request_uri; }'
    yield f"client_max_body_size {settings.body_size};"
    yield f"proxy_connect_timeout {settings.connect_timeout_s}s;"
    yield f"proxy_read_timeout {settings.read_timeout_s}s;"
    yield f"proxy_send_timeout {settings.read_timeout_s}s;"


def _pass(location: Location, part: str) -> Iterator[str]:
    if not location.servers:
        yield r'return 503 "the service behind this path is not there\n";'
        return
    servers = location.servers
    url = f"http://{servers[0] if len(servers) == 1 else _upstream(servers)}"
    is_whole = location.path == "/" or not location.settings.strip_prefix
    if is_whole:
        yield f"proxy_pass {url};"
        return
    yield f"set $motley_prefix {quoted(location.path)};"
    if part != "below":
        yield f"proxy_pass {url}/$is_args$args;"
        return
    # As the client wrote it, so that %2F stays %2F; a prefix that is written in another way than
    # ours is taken off what nginx made of it.
    prefix = re.escape(location.path)
    yield 'set $motley_target "";'
    # By name: numbered captures are escaped a second time.
    rest = f'"^{prefix}(?<motley_rest>/[^?]*)"'
    yield f"if ($request_uri ~ {rest}) {{ set $motley_target $motley_rest$is_args$args; }}"
    yield f'if ($motley_target = "") {{ rewrite "^{prefix}(/.*)$" $1 break; }}'
    yield f"proxy_pass {url}$motley_target;"
