"""Where etcd is, and who we are to it. Needs no gRPC: servers with another store never load it."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_PREFIX = "/motley"
_DEFAULT_PORT = 2379


@dataclass(frozen=True)
class Address:
    """One server of the cluster."""

    host: str
    port: int
    tls: bool

    @property
    def target(self) -> str:
        """As gRPC wants it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Config:
    """Where etcd is, and who we are to it."""

    servers: str
    """URLs, separated by commas."""
    keyfile: Path | None = None
    certfile: Path | None = None
    cafile: Path | None = None
    prefix: str = DEFAULT_PREFIX
    """Before every key, so that several stores can share one etcd."""

    def addresses(self) -> list[Address]:
        """The servers; ValueError names one that is no address."""
        found = [self._address(text.strip()) for text in self.servers.split(",") if text.strip()]
        if not found:
            raise ValueError("etcd needs the URL of at least one server")
        if bool(self.keyfile) != bool(self.certfile):
            raise ValueError("etcd's client certificate and its key go together: give both")
        if (self.certfile or self.cafile) and not all(address.tls for address in found):
            raise ValueError("certificates for etcd are given, but not every server is https://")
        return found

    def _address(self, text: str) -> Address:
        secured = bool(self.certfile or self.cafile)
        url = urlsplit(text if "://" in text else f"{'https' if secured else 'http'}://{text}")
        try:
            port = url.port or _DEFAULT_PORT
        except ValueError:
            port = 0
        if url.scheme not in ("http", "https") or not url.hostname or not port:
            raise ValueError(f"{text!r} is no etcd server: write http(s)://HOST:PORT")
        if url.path.strip("/") or url.query or url.username:
            raise ValueError(f"{text!r}: an etcd server is only http(s)://HOST:PORT")
        return Address(url.hostname, port, url.scheme == "https")
