"""Where the API server is and how to prove who we are, from a kubeconfig file or a pod's mount.

The file's format is kubectl's, so one file serves kubectl, the official clients and Motley.
Invariant: a `Config` holds everything inline (bytes, not paths), except a token file, which is
re-read because whoever rotates it only replaces the file.
"""

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# Where Kubernetes mounts a pod's own credentials.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(ValueError):
    """The kubeconfig cannot be used; the message says which entry of which file is wrong."""


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
    insecure: bool = False
    tls_server_name: str | None = None
    namespace: str = "default"

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

    Without a path: `$KUBECONFIG`, then `~/.kube/config`, then the credentials mounted into a pod.
    Raises ConfigError.
    """
    if path is None:
        path = _default_path()
        if path is None:
            return in_cluster()
    path = Path(path)
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: not a mapping")
    return _select(document, path, context)


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


def _default_path() -> Path | None:
    named = [p for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        return Path(named[0])
    home = Path.home() / ".kube" / "config"
    return home if home.exists() else None


def _select(document: dict[str, Any], path: Path, wanted: str | None) -> Config:
    name = wanted or document.get("current-context")
    if not name:
        raise ConfigError(f"kubeconfig {path}: no current-context and none asked for")
    context = _named(document, "contexts", "context", name, path)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), path)
    user_name = context.get("user")
    user = _named(document, "users", "user", user_name, path) if user_name else {}
    if "exec" in user or "auth-provider" in user:
        raise ConfigError(
            f"kubeconfig {path}: user {user_name!r}: credential plugins not supported"
        )
    server = cluster.get("server")
    if not server:
        raise ConfigError(f"kubeconfig {path}: cluster {context.get('cluster')!r} has no server")
    token_file = user.get("tokenFile")
    return Config(
        server=str(server).rstrip("/"),
        ca=_bytes(cluster, "certificate-authority", path),
        client_cert=_bytes(user, "client-certificate", path),
        client_key=_bytes(user, "client-key", path),
        token=user.get("token") or None,
        token_file=path.parent / token_file if token_file else None,
        username=user.get("username"),
        password=user.get("password"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name"),
        namespace=context.get("namespace") or "default",
    )


def _named(
    document: dict[str, Any], section: str, inner: str, name: str | None, path: Path
) -> dict[str, Any]:
    for entry in document.get(section) or ():
        if entry.get("name") == name:
            return entry.get(inner) or {}
    raise ConfigError(f"kubeconfig {path}: no {inner} named {name!r}")


def _bytes(entry: dict[str, Any], key: str, path: Path) -> bytes | None:
    """Inline base64 data wins over a file, as in kubectl; files are relative to the kubeconfig."""
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"kubeconfig {path}: {key}-data is not base64") from None
    name = entry.get(key)
    if not name:
        return None
    file: Path = path.parent / name
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: {key} {name}: {error.strerror or error}") from None
