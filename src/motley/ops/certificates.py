"""Credentials of a cluster's components: one kubeconfig each, named as Kubernetes names them.

The authority and the API server's own certificates belong to `apiserver.tls`; here every other
component gets its identity from it, and the node agent its serving certificate. What is still good
stays, so running components keep working.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import yaml
from cryptography import x509

from motley.apiserver import tls
from motley.client import kubeconfig
from motley.lib import clock
from motley.ops.config import Config

_RENEW_BEFORE = timedelta(days=30)


class Identity(msgspec.Struct, frozen=True):
    """Who a component is to the API server."""

    user: str
    groups: tuple[str, ...] = ()


class Credentials(msgspec.Struct, frozen=True):
    """Where the files are."""

    directory: Path
    ca: Path

    def kubeconfig(self, component: str) -> Path:
        """A component's kubeconfig."""
        return self.directory / f"{component}.kubeconfig"

    @property
    def node_cert(self) -> Path:
        """The node agent's serving certificate."""
        return self.directory / "node.crt"

    @property
    def node_key(self) -> Path:
        """Its key."""
        return self.directory / "node.key"


def identities(node_name: str) -> dict[str, Identity]:
    """Kubernetes' own names for the components."""
    return {
        "controllers": Identity("system:kube-controller-manager"),
        "scheduler": Identity("system:kube-scheduler"),
        "node": Identity(f"system:node:{node_name}", ("system:nodes",)),
        "proxy": Identity("system:kube-proxy"),
        "gateway": Identity("system:motley-gateway"),
    }


def located(config: Config) -> Credentials:
    """Where a cluster's credentials are, made or not."""
    return Credentials(config.root / "pki", config.root / "apiserver" / "pki" / "ca.crt")


def ensure(
    config: Config, source: clock.Clock = clock.SYSTEM, *, anew: Collection[str] = ()
) -> Credentials:
    """Make what is missing or near its end, and the files whose names are in `anew`."""
    url = f"https://127.0.0.1:{config.api_port}"
    credentials = located(config)
    wanted = identities(config.node_name)
    _issue(_authority(config, source), config, credentials, wanted, url, anew, source)
    return credentials


def ensure_member(
    config: Config, member: Config, source: clock.Clock = clock.SYSTEM
) -> Credentials:
    """What a further node on this machine needs, from the same authority."""
    credentials = Credentials(member.root / "pki", located(config).ca)
    wanted = {
        name: one for name, one in identities(member.node_name).items() if name in ("node", "proxy")
    }
    pki = _authority(config, source)
    _issue(pki, member, credentials, wanted, member.server, (), source)
    return credentials


def _authority(config: Config, source: clock.Clock) -> tls.Pki:
    url = f"https://127.0.0.1:{config.api_port}"
    addresses = [config.node_ip, config.service_address, config.node_name]
    return tls.ensure(config.root / "apiserver", addresses=addresses, server_url=url, now=source)


def _issue(
    pki: tls.Pki,
    config: Config,
    credentials: Credentials,
    wanted: Mapping[str, Identity],
    url: str,
    anew: Collection[str],
    source: clock.Clock,
) -> None:
    """One node's kubeconfigs, and the certificate its agent serves with."""
    credentials.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for component, identity in wanted.items():
        path = credentials.kubeconfig(component)
        if path.name in anew or not _is_good_kubeconfig(path, url, pki.ca_pem, identity, source):
            pair = tls.issue_client(pki, identity.user, identity.groups, now=source)
            text = tls.kubeconfig(url, pki.ca_pem, *pair, user=identity.user)
            _write_private(path, text.encode())
    names = [config.node_name, config.node_ip, "127.0.0.1", "localhost"]
    is_good = _is_good_certificate(credentials.node_cert, pki.ca_pem, names, source)
    if credentials.node_cert.name in anew or not is_good:
        cert, key = tls.issue_server(pki, f"system:node:{config.node_name}", names, now=source)
        _write_private(credentials.node_key, key)
        _write_private(credentials.node_cert, cert)


def _is_current(pem: bytes, ca_pem: bytes, source: clock.Clock) -> x509.Certificate | None:
    """A certificate of our authority that lasts a while yet."""
    certificate = tls.issued_by_us(pem, ca_pem)
    if certificate is None:
        return None
    left = certificate.not_valid_after_utc - datetime.fromtimestamp(source.now(), UTC)
    return certificate if left > _RENEW_BEFORE else None


def _is_good_kubeconfig(
    path: Path, url: str, ca_pem: bytes, identity: Identity, source: clock.Clock
) -> bool:
    try:
        config = kubeconfig.load(path)
    except (kubeconfig.ConfigError, yaml.YAMLError):
        return False
    certificate = _is_current(config.client_cert or b"", ca_pem, source)
    if certificate is None or config.server != url or config.ca != ca_pem:
        return False
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return [name.value for name in names] == [identity.user]


def _is_good_certificate(path: Path, ca_pem: bytes, names: list[str], source: clock.Clock) -> bool:
    if not path.exists():
        return False
    certificate = _is_current(path.read_bytes(), ca_pem, source)
    if certificate is None:
        return False
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    covered = {str(name.value) for name in extension.value}
    return covered >= set(names)


def _write_private(path: Path, data: bytes) -> None:
    """A file only its owner reads, never half written."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_bytes(data)
    partial.replace(path)
