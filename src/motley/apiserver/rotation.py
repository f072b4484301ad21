"""What certificates there are, new ones before the old end, and a new authority for all.

An authority is changed in two steps, between which everybody's files are brought up to date:

    begin    a new authority signs; old and new are both trusted (`ca.crt` holds both, the new one
             first). The server goes on showing its old certificate, which old kubeconfigs trust.
    finish   the old authority is dropped; what it had signed is made again by the new one.

Files are replaced one by one, each whole; the running server takes them over by itself.

Invariant: whatever moment this is stopped at, running it again ends in the same place. The new
authority lies ready under a name of its own before any file that others use is touched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml
from cryptography import x509

from motley.apiserver import tls
from motley.lib import clock


class Refused(Exception):
    """It cannot be done now; the message says what to do first."""


@dataclass(frozen=True)
class Listed:
    """A certificate, as people ask about it."""

    name: str
    file: str
    subject: str
    authority: str
    expires: datetime
    names: tuple[str, ...] = ()
    is_authority: bool = False

    def residual_s(self, now: float) -> float:
        """How long it is still good, negative when it has ended."""
        return self.expires.timestamp() - now


def listed(name: str, path: Path, pem: bytes) -> list[Listed]:
    """The certificates in a PEM file; several of them are a bundle."""
    found = x509.load_pem_x509_certificates(pem)
    return [
        Listed(
            name if not number else f"{name} (until finished)",
            str(path),
            one.subject.rfc4514_string(),
            _common_name(one.issuer),
            one.not_valid_after_utc.astimezone(UTC),
            tuple(str(n.value) for n in tls.alternative_names(one)),
            is_authority(one),
        )
        for number, one in enumerate(found)
    ]


def of_server(data_dir: Path) -> list[Listed]:
    """The certificates of an API server's directory."""
    pki = tls.load(data_dir)
    found = listed("admin.kubeconfig", pki.admin_kubeconfig, kubeconfig_pair(pki)[0])
    front = pki.directory / "front-proxy"
    for name, path in (
        ("apiserver", pki.cert_file),
        ("kubelet-client", pki.kubelet_client_cert_file),
        ("front-proxy-client", front / "client.crt"),
        ("ca", pki.ca_file),
        ("front-proxy-ca", front / "ca.crt"),
    ):
        if path.exists():
            found += listed(name, path, path.read_bytes())
    return found


def kubeconfig_pair(pki: tls.Pki) -> tuple[bytes, bytes]:
    """The administrator's certificate and key."""
    pair = tls.pair_of(pki.admin_kubeconfig)
    if pair is None:
        raise Refused(f"{pki.admin_kubeconfig} holds no certificate: start the API server once")
    return pair


def _write_admin(pki: tls.Pki, pair: tuple[bytes, bytes]) -> None:
    """The administrator's kubeconfig, which leads where it led before."""
    cluster = yaml.safe_load(pki.admin_kubeconfig.read_bytes())["clusters"][0]["cluster"]
    named = {one["name"]: one["extension"] for one in cluster.get("extensions") or ()}
    further = named.get(tls.SERVERS, {}).get("servers", [])
    text = tls.kubeconfig(cluster["server"], pki.ca_pem, *pair, further=further)
    tls.write(pki.admin_kubeconfig, text.encode())


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether a certificate may sign others."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


LEAVES = ("admin.kubeconfig", "apiserver", "kubelet-client", "front-proxy-client")


def renew(data_dir: Path, names: Iterable[str], now: clock.Clock = clock.SYSTEM) -> list[str]:
    """Make these certificates again, for the same names; which ones were made.

    Raises `Refused`.
    """
    pki = tls.load(data_dir)
    made = []
    for name in names:
        if name not in LEAVES:
            raise Refused(f"there is no certificate {name}; there are {', '.join(LEAVES)}")
        if is_under_way(pki) and name in ("apiserver", "kubelet-client"):
            raise Refused(
                f"{name} is made again when the change of the authority ends: motley certs"
                " rotate-ca --finish"
            )
        _renew(pki, name, now)
        made.append(name)
    return made


def _renew(pki: tls.Pki, name: str, now: clock.Clock) -> None:
    if name == "admin.kubeconfig":
        _write_admin(pki, tls.issue_client(pki, tls.ADMIN, (tls.MASTERS,), now=now))
    elif name == "apiserver":
        old = x509.load_pem_x509_certificate(pki.cert_file.read_bytes())
        covered = [str(n.value) for n in tls.alternative_names(old)]
        pair = tls.issue_server(pki, "kube-apiserver", covered, now=now)
        tls.write_pair(pki.cert_file, pki.key_file, pair)
    elif name == "kubelet-client":
        pair = tls.issue_client(pki, tls.KUBELET_CLIENT, now=now)
        tls.write_pair(pki.kubelet_client_cert_file, pki.kubelet_client_key_file, pair)
    else:
        tls.front_proxy(pki, now=now, anew=True)


def is_under_way(pki: tls.Pki) -> bool:
    """Whether two authorities are trusted."""
    return len(x509.load_pem_x509_certificates(pki.ca_pem)) > 1


def begin(data_dir: Path, now: clock.Clock = clock.SYSTEM) -> tls.Pki:
    """Let a new authority sign from now on, and trust both. Raises `Refused`."""
    directory = data_dir / "pki"
    next_key, next_crt = directory / "ca-next.key", directory / "ca-next.crt"
    pki = tls.load(data_dir)
    if is_under_way(pki) and not next_crt.exists():
        raise Refused(
            "the authority is being changed already: when everybody has the new kubeconfigs, end it"
            " with motley certs rotate-ca --finish"
        )
    if not (next_key.exists() and next_crt.exists()):
        stamp = datetime.fromtimestamp(now.now(), UTC).strftime("%Y%m%d%H%M%S")
        certificate, key = tls.make_authority(f"motley-ca-{stamp}", now)
        tls.write(next_key, key)
        tls.write(next_crt, certificate)
    certificate = next_crt.read_bytes()
    old = [one for one in pems(pki.ca_pem) if one not in pems(certificate)]
    # Both are trusted before anything is signed by the new one, and files of one name change whole.
    tls.write(pki.ca_file, b"".join([*pems(certificate), *old]))
    tls.write(pki.ca_key_file, next_key.read_bytes())
    pki = tls.load(data_dir)
    _renew(pki, "admin.kubeconfig", now)
    next_crt.unlink()
    next_key.unlink()
    return pki


def finish(data_dir: Path, now: clock.Clock = clock.SYSTEM) -> tls.Pki:
    """Trust the new authority alone, and make again what the old one signed. Raises `Refused`."""
    pki = tls.load(data_dir)
    if not is_under_way(pki):
        raise Refused("no change of the authority is under way: begin one: motley certs rotate-ca")
    if (data_dir / "pki" / "ca-next.crt").exists():
        raise Refused("the change was interrupted: run motley certs rotate-ca again first")
    for name in ("kubelet-client", "apiserver"):
        _renew(pki, name, now)
    tls.write(pki.ca_file, pems(pki.ca_pem)[0])
    pki = tls.load(data_dir)
    _write_admin(pki, kubeconfig_pair(pki))
    return pki


def pems(bundle: bytes) -> Sequence[bytes]:
    """The certificates of a bundle, each as PEM."""
    return [tls.pem_of(one) for one in x509.load_pem_x509_certificates(bundle)]


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()
