"""The cluster's certificates: one authority, made at first start, that everything else hangs on.

`ensure` is idempotent and called at every start: what exists and is still good stays, so that
kubeconfigs handed out yesterday work today; what is missing, near its end, or does not cover an
address the server now answers on is made again. Files appear whole (written aside, then renamed)
and private keys are readable by their owner only.

Several servers of one cluster may share the directory, and start together: one after the other
looks and makes what is missing.

Invariant: a private key is never written with more rights than 0600, not even for a moment.
"""

import base64
import fcntl
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from motley.lib import clock

SERVICE_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
SERVICE_ADDRESSES = ("127.0.0.1", "10.96.0.1")
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
ADMIN = "kubernetes-admin"
SERVERS = "motley.io/servers"  # the extension of a kubeconfig; see `client.kubeconfig`
MASTERS = "system:masters"

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
# Clocks of a cluster's machines are never quite equal, and one that was ahead may be put back.
_BACKDATE = timedelta(days=1)


@dataclass(frozen=True)
class Pki:
    """Where the certificates are, and the authority that signs new ones."""

    data_dir: Path
    ca_pem: bytes
    ca_key_pem: bytes

    @property
    def directory(self) -> Path:
        """The directory of the certificate files."""
        return self.data_dir / "pki"

    @property
    def ca_file(self) -> Path:
        """The authority's certificate: give it to everybody."""
        return self.directory / "ca.crt"

    @property
    def ca_key_file(self) -> Path:
        """The authority's key: give it to nobody."""
        return self.directory / "ca.key"

    @property
    def cert_file(self) -> Path:
        """The API server's serving certificate."""
        return self.directory / "apiserver.crt"

    @property
    def key_file(self) -> Path:
        """The key of the serving certificate."""
        return self.directory / "apiserver.key"

    @property
    def kubelet_client_cert_file(self) -> Path:
        """The certificate the API server shows to node agents."""
        return self.directory / "kubelet-client.crt"

    @property
    def kubelet_client_key_file(self) -> Path:
        """The key the API server uses towards node agents."""
        return self.directory / "kubelet-client.key"

    @property
    def admin_kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.data_dir / "admin.kubeconfig"


def ensure(
    data_dir: Path,
    *,
    addresses: Sequence[str],
    server_url: str = "https://127.0.0.1:6443",
    further: Sequence[str] = (),
    now: clock.Clock = clock.SYSTEM,
) -> Pki:
    """Make what is missing under `data_dir` and return it.

    `addresses` are the addresses and names, beyond the usual ones, that clients reach the server
    by; `server_url` is what the administrator's kubeconfig points to, `further` the cluster's other
    servers.
    """
    directory = data_dir / "pki"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _turn(directory):
        ca_pem, ca_key_pem = _ensure_ca(directory, now)
        pki = Pki(data_dir, ca_pem, ca_key_pem)
        wanted = serving_names(addresses)
        if not is_good(pki.cert_file, pki.key_file, pki, now, wanted):
            write_pair(
                pki.cert_file, pki.key_file, issue_server(pki, "kube-apiserver", wanted, now=now)
            )
        client = (pki.kubelet_client_cert_file, pki.kubelet_client_key_file)
        if not is_good(*client, pki, now):
            write_pair(*client, issue_client(pki, KUBELET_CLIENT, now=now))
        _ensure_admin(pki, server_url, further, now)
    return pki


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Let others that share the directory wait."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def load(data_dir: Path) -> Pki:
    """The authority of a server that has started before; FileNotFoundError if none has."""
    directory = data_dir / "pki"
    return Pki(data_dir, (directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())


def serving_names(addresses: Iterable[str]) -> list[str]:
    """Every name and address the serving certificate must cover, without repeats."""
    given = (a for a in addresses if a and not _is_wildcard(a))
    every = [*SERVICE_ADDRESSES, *SERVICE_NAMES, socket.gethostname(), *given]
    return list(dict.fromkeys(every))


def issue_client(
    pki: Pki,
    common_name: str,
    organizations: Sequence[str] = (),
    *,
    now: clock.Clock = clock.SYSTEM,
) -> tuple[bytes, bytes]:
    """A client certificate (PEM) and its key (PEM), for this user in these groups."""
    return _issue(pki, common_name, organizations, [], [ExtendedKeyUsageOID.CLIENT_AUTH], now)


def front_proxy(
    pki: Pki, *, now: clock.Clock = clock.SYSTEM, anew: bool = False
) -> tuple[Path, Path]:
    """The certificate and key by which aggregated API servers know this one.

    It has an authority of its own: whoever holds it is believed about who everybody else is.
    """
    directory = pki.directory / "front-proxy"
    directory.mkdir(mode=0o700, exist_ok=True)
    cert_file, key_file = directory / "client.crt", directory / "client.key"
    with _turn(directory):
        authority = Pki(pki.data_dir, *_ensure_ca(directory, now))
        if anew or not is_good(cert_file, key_file, authority, now):
            write_pair(cert_file, key_file, issue_client(authority, "front-proxy-client", now=now))
    return cert_file, key_file


def separate_authority(directory: Path, now: clock.Clock = clock.SYSTEM) -> Pki:
    """An authority in a directory of its own, for what the cluster's must not open."""
    with _turn(directory):
        return Pki(directory, *_ensure_ca(directory, now))


def issue_server(
    pki: Pki, common_name: str, addresses: Sequence[str], *, now: clock.Clock = clock.SYSTEM
) -> tuple[bytes, bytes]:
    """A serving certificate (PEM) for these addresses and names, and its key (PEM)."""
    return _issue(pki, common_name, (), addresses, [ExtendedKeyUsageOID.SERVER_AUTH], now)


def issue_peer(
    pki: Pki, common_name: str, addresses: Sequence[str], *, now: clock.Clock = clock.SYSTEM
) -> tuple[bytes, bytes]:
    """A certificate (PEM) and its key (PEM) for one of several equals: serves, and asks others."""
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issue(pki, common_name, (), addresses, usages, now)


def kubeconfig(
    server_url: str,
    ca_pem: bytes,
    cert_pem: bytes,
    key_pem: bytes,
    *,
    user: str = "admin",
    cluster: str = "motley",
    further: Sequence[str] = (),
) -> str:
    """A kubeconfig (YAML) with everything inline, so that one file can be copied anywhere.

    `further`: other servers of the cluster, where Motley's clients look for them.
    """

    def inline(data: bytes) -> str:
        return base64.b64encode(data).decode()

    server = {"server": server_url, "certificate-authority-data": inline(ca_pem)}
    extension = {"name": SERVERS, "extension": {"servers": list(further)}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {**server, **({"extensions": [extension]} if further else {})},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(cert_pem),
                    "client-key-data": inline(key_pem),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def _is_wildcard(address: str) -> bool:
    return address in ("0.0.0.0", "::")


def _ensure_ca(directory: Path, now: clock.Clock) -> tuple[bytes, bytes]:
    cert_file, key_file = directory / "ca.crt", directory / "ca.key"
    if cert_file.exists() and key_file.exists():
        return cert_file.read_bytes(), key_file.read_bytes()
    pair = make_authority("motley-ca", now)
    write_pair(cert_file, key_file, pair)
    return pair


def make_authority(common_name: str, now: clock.Clock = clock.SYSTEM) -> tuple[bytes, bytes]:
    """A new authority: certificate (PEM) and key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    begin = _utc(now) - _BACKDATE
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return pem_of(certificate), _key_pem(key)


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _issue(
    pki: Pki,
    common_name: str,
    organizations: Sequence[str],
    addresses: Sequence[str],
    usages: Sequence[x509.ObjectIdentifier],
    now: clock.Clock,
) -> tuple[bytes, bytes]:
    authority = x509.load_pem_x509_certificate(pki.ca_pem)
    signer = serialization.load_pem_private_key(pki.ca_key_pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations),
        x509.NameAttribute(NameOID.COMMON_NAME, common_name),
    ]
    begin = _utc(now) - _BACKDATE
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(min(begin + _LEAF_LIFE, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if addresses:
        names = x509.SubjectAlternativeName([_general_name(a) for a in addresses])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _utc(now: clock.Clock) -> datetime:
    return datetime.fromtimestamp(int(now.now()), UTC)


def is_good(
    cert_file: Path, key_file: Path, pki: Pki, now: clock.Clock, names: Iterable[str] = ()
) -> bool:
    """Whether a stored pair is ours, lasts a while yet, and covers every name."""
    if not (cert_file.exists() and key_file.exists()):
        return False
    return _is_current(cert_file.read_bytes(), pki, now, names)


def _is_current(pem: bytes, pki: Pki, now: clock.Clock, names: Iterable[str] = ()) -> bool:
    certificate = issued_by_us(pem, pki.ca_pem)
    if certificate is None:
        return False
    if certificate.not_valid_after_utc - _utc(now) < _RENEW_BEFORE:
        return False
    wanted = {_general_name(n) for n in names}
    return not wanted or wanted <= set(alternative_names(certificate))


def issued_by_us(pem: bytes, ca_pem: bytes) -> x509.Certificate | None:
    """The certificate, if one of the trusted authorities made it: there are two while one takes
    the other's place."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        authorities = x509.load_pem_x509_certificates(ca_pem)
    except ValueError:  # unreadable: it is made again
        return None
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return certificate
    return None


def alternative_names(certificate: x509.Certificate) -> Iterable[x509.GeneralName]:
    """The names and addresses a certificate is good for."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


def _ensure_admin(pki: Pki, server_url: str, further: Sequence[str], now: clock.Clock) -> None:
    pair = _admin_pair(pki, now)
    if pair is None:
        pair = issue_client(pki, ADMIN, (MASTERS,), now=now)
    text = kubeconfig(server_url, pki.ca_pem, *pair, further=further).encode()
    path = pki.admin_kubeconfig
    if not path.exists() or path.read_bytes() != text:
        write(path, text)


def _admin_pair(pki: Pki, now: clock.Clock) -> tuple[bytes, bytes] | None:
    """The administrator's pair from the kubeconfig of an earlier start, if it is still good."""
    pair = pair_of(pki.admin_kubeconfig)
    return pair if pair is not None and _is_current(pair[0], pki, now) else None


def pair_of(path: Path) -> tuple[bytes, bytes] | None:
    """The certificate and key in a kubeconfig; None when it holds none."""
    try:
        user = yaml.safe_load(path.read_bytes())["users"][0]["user"]
        cert = base64.b64decode(user["client-certificate-data"])
        key = base64.b64decode(user["client-key-data"])
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
        return None
    return cert, key


def write_pair(cert_file: Path, key_file: Path, pair: tuple[bytes, bytes]) -> None:
    """Replace a certificate (first of the pair) and its key."""
    write(key_file, pair[1])
    write(cert_file, pair[0])


def write(path: Path, data: bytes) -> None:
    """Replace a file, at once and for its owner's eyes only."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
