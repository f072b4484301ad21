"""Where the API server is and how to prove who we are, from a kubeconfig file or a pod's mount.

The file's format is kubectl's, so one file serves kubectl, the official clients and Motley; as
with kubectl several files named in `$KUBECONFIG` are one, in which the first to say something wins.
A cluster with several API servers names the first as its `server`, as everybody understands it, and
the others in an extension that kubectl passes over and keeps.
Invariant: a `Config` holds everything inline (bytes, not paths), except a token file, which is
re-read because whoever rotates it only replaces the file.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from motley.client import execplugin
from motley.client.execplugin import Exec

# The cluster's extension that names its further API servers.
SERVERS = "motley.io/servers"
# Where Kubernetes mounts a pod's own credentials.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_SECTIONS = {"contexts": "context", "clusters": "cluster", "users": "user"}
# What names a file, relative to the kubeconfig it stands in.
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class ConfigError(ValueError):
    """The kubeconfig cannot be used; the message says which entry of which file is wrong."""


@dataclass(frozen=True)
class Impersonation:
    """Whom to act as; RBAC decides whether we may."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """As the server reads them; a name may come several times."""
        pairs = [("Impersonate-User", self.user)]
        pairs += [("Impersonate-Group", group) for group in self.groups]
        pairs += [("Impersonate-Uid", self.uid)] if self.uid else []
        for name, values in self.extra.items():
            pairs += [(f"Impersonate-Extra-{quote(name, safe='')}", value) for value in values]
        return pairs


@dataclass(frozen=True)
class Config:
    """One cluster and one user."""

    server: str
    ca: bytes | None = field(default=None, repr=False)
    client_cert: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    exec: Exec | None = None
    impersonate: Impersonation | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    namespace: str = "default"
    further: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """Every API server of the cluster; any of them will do."""
        return (self.server, *self.further)

    @property
    def authorization(self) -> str:
        """The header for credentials that do not change; empty where there are none."""
        if self.token:
            return f"Bearer {self.token}"
        if self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        return ""

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context for `server`, or None when it is plain HTTP."""
        if not self.server.startswith("https://"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ConfigError(f"cluster certificate authority is not a PEM file: {error}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert:
            self._load_pair(context)
        return context

    def _load_pair(self, context: ssl.SSLContext) -> None:
        """The `ssl` module takes the pair only as a file; it exists for the length of this call."""
        pair = b"\n".join(part for part in (self.client_cert, self.client_key) if part)
        with tempfile.NamedTemporaryFile(prefix="motley-client-") as file:
            file.write(pair)
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except (ssl.SSLError, OSError) as error:
                raise ConfigError(f"client certificate or key is not usable: {error}") from None


def load(path: str | Path | None = None, context: str | None = None) -> Config:
    """Read a kubeconfig.

    Without a path: the files of `$KUBECONFIG`, then `~/.kube/config`, then the credentials mounted
    into a pod. Raises ConfigError.
    """
    if path is not None:
        return _select(_read(Path(path)), str(path), context)
    paths = _default_paths()
    if not paths:
        return in_cluster()
    document: dict[str, Any] = {}
    for file in paths:
        _merge(document, _read(file))
    return _select(document, os.pathsep.join(map(str, paths)), context)


def parse(text: str) -> Config:
    """A kubeconfig that is not a file; it names none. Raises ConfigError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError("kubeconfig: not a mapping")
    return _select(document, "published", None)


def render(config: Config, *, user: str, cluster: str = "motley") -> str:
    """A kubeconfig file (YAML) with everything inline: what `load` reads back.

    For a user with a certificate or a token; other ways to prove oneself are people's.
    """
    server: dict[str, Any] = {"server": config.server}
    if config.ca:
        server["certificate-authority-data"] = base64.b64encode(config.ca).decode()
    if config.insecure:
        server["insecure-skip-tls-verify"] = True
    server |= {"tls-server-name": config.tls_server_name} if config.tls_server_name else {}
    server |= {"proxy-url": config.proxy_url} if config.proxy_url else {}
    if config.further:
        named = {"name": SERVERS, "extension": {"servers": list(config.further)}}
        server["extensions"] = [named]
    who: dict[str, Any] = {"token": config.token} if config.token else {}
    if config.client_cert and config.client_key:
        who["client-certificate-data"] = base64.b64encode(config.client_cert).decode()
        who["client-key-data"] = base64.b64encode(config.client_key).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": server}],
        "users": [{"name": user, "user": who}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def _read(path: Path) -> dict[str, Any]:
    """One file, with its relative paths made absolute, since they are relative to it."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: not a mapping")
    for section, inner in _SECTIONS.items():
        for entry in _entries(document, section, path):
            _resolve(entry.get(inner) or {}, path.parent)
    return document


def _entries(document: dict[str, Any], section: str, path: Path) -> Sequence[dict[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise ConfigError(f"kubeconfig {path}: {section} is not a list of named entries")
    return entries


def _resolve(entry: dict[str, Any], directory: Path) -> None:
    for key in _FILES:
        if entry.get(key):
            entry[key] = str(directory / entry[key])
    plugin = entry.get("exec")
    # As in kubectl: a command with a slash is a path, any other is looked up in $PATH.
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        plugin["command"] = str(directory / plugin["command"])


def _merge(document: dict[str, Any], later: dict[str, Any]) -> None:
    """What an earlier file said stays."""
    for section in _SECTIONS:
        known = {entry.get("name") for entry in document.setdefault(section, [])}
        document[section] += [e for e in later.get(section) or () if e.get("name") not in known]
    for key, value in later.items():
        if key not in _SECTIONS and not document.get(key):
            document[key] = value


def in_cluster(root: Path = SERVICE_ACCOUNT) -> Config:
    """The credentials Kubernetes mounts into every pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = root / "token"
    if not host or not token_file.exists():
        raise ConfigError(
            "no kubeconfig given, none in $KUBECONFIG or ~/.kube/config, not in a pod"
        )
    host = f"[{host}]" if ":" in host else host
    ca, namespace = root / "ca.crt", root / "namespace"
    return Config(
        server=f"https://{host}:{port}",
        ca=ca.read_bytes() if ca.exists() else None,
        token_file=token_file,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _default_paths() -> list[Path]:
    """Files of `$KUBECONFIG` that do not exist are passed over when others do, as by kubectl."""
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        return [path for path in named if path.exists()] or named
    home = Path.home() / ".kube" / "config"
    return [home] if home.exists() else []


def _select(document: dict[str, Any], where: str, wanted: str | None) -> Config:
    name = wanted or document.get("current-context")
    if not name:
        raise ConfigError(f"kubeconfig {where}: no current-context and none asked for")
    context = _named(document, "contexts", name, where)
    cluster = _named(document, "clusters", context.get("cluster"), where)
    user_name = context.get("user")
    user = _named(document, "users", user_name, where) if user_name else {}
    if "auth-provider" in user:
        raise ConfigError(
            f"kubeconfig {where}: user {user_name!r}: auth-provider is gone from Kubernetes;"
            " use an exec credential plugin"
        )
    server = cluster.get("server")
    if not server:
        raise ConfigError(f"kubeconfig {where}: cluster {context.get('cluster')!r} has no server")
    token_file = user.get("tokenFile")
    return Config(
        server=str(server).rstrip("/"),
        ca=_bytes(cluster, "certificate-authority", where),
        client_cert=_bytes(user, "client-certificate", where),
        client_key=_bytes(user, "client-key", where),
        token=user.get("token") or None,
        token_file=Path(token_file) if token_file else None,
        username=user.get("username"),
        password=user.get("password"),
        exec=_exec(user["exec"], cluster, f"{where}: user {user_name!r}")
        if "exec" in user
        else None,
        impersonate=_impersonation(user),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name"),
        proxy_url=cluster.get("proxy-url") or None,
        namespace=context.get("namespace") or "default",
        further=_further(cluster, str(server), where),
    )


def _further(cluster: dict[str, Any], first: str, where: str) -> tuple[str, ...]:
    """The API servers beside the first."""
    for entry in cluster.get("extensions") or ():
        if not isinstance(entry, dict) or entry.get("name") != SERVERS:
            continue
        listed = (entry.get("extension") or {}).get("servers") or []
        if not isinstance(listed, list) or not all(isinstance(url, str) for url in listed):
            raise ConfigError(f"kubeconfig {where}: {SERVERS} is not a list of addresses")
        scheme = first.partition("://")[0]
        for url in listed:
            if url.partition("://")[0] != scheme:
                raise ConfigError(f"kubeconfig {where}: {SERVERS}: {url} is not {scheme}")
        return tuple(url.rstrip("/") for url in listed)
    return ()


def _exec(entry: Any, cluster: dict[str, Any], where: str) -> Exec | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise ConfigError(f"kubeconfig {where}: exec is not a mapping")
    version = entry.get("apiVersion")
    if not entry.get("command"):
        raise ConfigError(f"kubeconfig {where}: exec has no command")
    if version not in execplugin.API_VERSIONS:
        known = " or ".join(execplugin.API_VERSIONS)
        raise ConfigError(f"kubeconfig {where}: exec.apiVersion is {version!r}, not {known}")
    if entry.get("interactiveMode") == "Always":
        raise ConfigError(
            f"kubeconfig {where}: exec needs a terminal (interactiveMode Always), and a component"
            " has none; log in with kubectl or use another credential"
        )
    info = None
    if entry.get("provideClusterInfo"):
        named = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        info = {name: cluster[name] for name in named if name in cluster}
        info |= {k: v for k, v in cluster.items() if k == "certificate-authority-data"}
    return Exec(
        command=str(entry["command"]),
        args=tuple(map(str, entry.get("args") or ())),
        env={str(one["name"]): str(one["value"]) for one in entry.get("env") or ()},
        api_version=version,
        interactive_mode=entry.get("interactiveMode") or "IfAvailable",
        install_hint=str(entry.get("installHint") or ""),
        cluster=info,
    )


def _impersonation(user: dict[str, Any]) -> Impersonation | None:
    if not user.get("as"):
        return None
    extra = user.get("as-user-extra") or {}
    return Impersonation(
        user=user["as"],
        groups=tuple(user.get("as-groups") or ()),
        uid=user.get("as-uid") or "",
        extra={name: tuple(values) for name, values in extra.items()},
    )


def _named(document: dict[str, Any], section: str, name: str | None, where: str) -> dict[str, Any]:
    inner = _SECTIONS[section]
    for entry in document.get(section) or ():
        if entry.get("name") == name:
            return entry.get(inner) or {}
    raise ConfigError(f"kubeconfig {where}: no {inner} named {name!r}")


def _bytes(entry: dict[str, Any], key: str, where: str) -> bytes | None:
    """Inline base64 data wins over a file, as in kubectl."""
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"kubeconfig {where}: {key}-data is not base64") from None
    name = entry.get(key)
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"kubeconfig {where}: {key} {name}: {error.strerror or error}") from None
