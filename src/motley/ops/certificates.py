"""Credentials of a cluster's components: one kubeconfig each, named as Kubernetes names them.

The authority and the API server's own certificates belong to `apiserver.tls`; here every other
component gets its identity from it, and the node agent its serving certificate. What is still good
stays, so running components keep working.
"""

from collections.abc import Collection, Mapping, Sequence
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
        "functions": Identity("system:motley-functions"),
        "slurm": Identity("system:motley-slurm"),
    }


def located(config: Config) -> Credentials:
    """Where a cluster's credentials are, made or not."""
    return Credentials(config.root / "pki", config.root / "apiserver" / "pki" / "ca.crt")


def ensure(
    config: Config, source: clock.Clock = clock.SYSTEM, *, anew: Collection[str] = ()
) -> Credentials:
    """Make what is missing or near its end, and the files whose names are in `anew`."""
    credentials = located(config)
    wanted = identities(config.node_name)
    pki = _authority(config, source)
    _share(config)
    _issue(pki, config, credentials, wanted, config.api_servers(), anew, source)
    return credentials


def _share(config: Config) -> None:
    """Let every API server here work with the first one's authority and keys."""
    for plane in config.planes[1:]:
        directory = config.root / plane.name("apiserver")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        link = directory / "pki"
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..", "apiserver", "pki"))


def ensure_member(
    config: Config,
    member: Config,
    source: clock.Clock = clock.SYSTEM,
    *,
    anew: Collection[str] = (),
) -> Credentials:
    """What a further node on this machine needs, from the same authority."""
    credentials = of_member(config, member)
    pki = _authority(config, source)
    wanted = member_identities(member)
    _issue(pki, member, credentials, wanted, config.api_servers(config.node_ip), anew, source)
    return credentials


def of_member(config: Config, member: Config) -> Credentials:
    """Where a further node's credentials are, made or not."""
    return Credentials(member.root / "pki", located(config).ca)


def member_identities(member: Config) -> dict[str, Identity]:
    """Those of a further node: it has no control plane."""
    every = identities(member.node_name)
    return {name: every[name] for name in ("node", "proxy")}


def _authority(config: Config, source: clock.Clock) -> tls.Pki:
    first, *further = config.api_servers()
    addresses = [config.node_ip, config.service_address, config.node_name]
    return tls.ensure(
        config.root / "apiserver",
        addresses=addresses,
        server_url=first,
        further=further,
        now=source,
    )


def _issue(
    pki: tls.Pki,
    config: Config,
    credentials: Credentials,
    wanted: Mapping[str, Identity],
    servers: Sequence[str],
    anew: Collection[str],
    source: clock.Clock,
) -> None:
    """One node's kubeconfigs, and the certificate its agent serves with."""
    credentials.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for component, identity in wanted.items():
        path = credentials.kubeconfig(component)
        is_good = _is_good_kubeconfig(path, servers, pki.ca_pem, identity, source)
        if path.name in anew or not is_good:
            pair = tls.issue_client(pki, identity.user, identity.groups, now=source)
            first, *further = servers
            text = tls.kubeconfig(first, pki.ca_pem, *pair, user=identity.user, further=further)
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
    path: Path, servers: Sequence[str], ca_pem: bytes, identity: Identity, source: clock.Clock
) -> bool:
    try:
        config = kubeconfig.load(path)
    except (kubeconfig.ConfigError, yaml.YAMLError):
        return False
    certificate = _is_current(config.client_cert or b"", ca_pem, source)
    if certificate is None or config.servers != tuple(servers) or config.ca != ca_pem:
        return False
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return [name.value for name in names] == [identity.user]


def _is_good_certificate(path: Path, ca_pem: bytes, names: list[str], source: clock.Clock) -> bool:
    return path.exists() and is_good_server(path.read_bytes(), ca_pem, names, source)


def is_good_server(
    pem: bytes, ca_pem: bytes, names: Collection[str], source: clock.Clock = clock.SYSTEM
) -> bool:
    """Whether a serving certificate is of our authority, lasts a while yet, and has these names."""
    certificate = _is_current(pem, ca_pem, source)
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
