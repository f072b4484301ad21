"""Asking the cluster for a certificate: the key, the request, and the wait for an answer.

Invariants: a private key is never readable by others nor sent anywhere; who is killed while it
waits comes back with the same key, so that the request a person may be looking at is still the one
it waits for; a certificate that is not for our key is never used.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from motley.api import status
from motley.api.views.certificates import CertificateSigningRequest
from motley.client.rest import Client
from motley.lib import atomicfile, journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.node.rotation import RenewalError, Validity

log = journal.get(__name__)

NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVING = "kubernetes.io/kubelet-serving"
API_CLIENT = "kubernetes.io/kube-apiserver-client"
_SAY_EVERY_S = 30.0
JOIN_AGAIN = (
    "on the control plane run `motley token create --print-join-command`, and here what it prints"
)


class BootstrapError(RenewalError):
    """There will be no certificate by waiting; the message says what to do."""


@dataclass(frozen=True)
class Wanted:
    """A certificate as it is asked for."""

    common_name: str
    signer: str
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # what a serving certificate is good for

    @property
    def usages(self) -> list[str]:
        """What the certificate is for."""
        role = "server auth" if self.signer == NODE_SERVING else "client auth"
        return ["digital signature", role]


def node_client(name: str) -> Wanted:
    """The identity of a node agent."""
    return Wanted(f"system:node:{name}", NODE_CLIENT, ("system:nodes",))


def node_serving(name: str, addresses: Sequence[str]) -> Wanted:
    """What the agent's own server shows: good for its name and addresses, nothing else."""
    return Wanted(f"system:node:{name}", NODE_SERVING, ("system:nodes",), (name, *addresses))


def proxy_client() -> Wanted:
    """The identity of the service proxy beside an agent, vouched for by that agent."""
    return Wanted("system:kube-proxy", API_CLIENT)


def ensure_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key of a request under way, or a new one."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    except FileNotFoundError:
        log.debug("a key is made", path=path)
    except ValueError:
        log.warning("key cannot be read, another is made", path=path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = ec.generate_private_key(ec.SECP256R1())
    atomicfile.write(path, key_pem(made))
    return made


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as files hold it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key's DER: what identifies it."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def request_name(key: ec.EllipticCurvePrivateKey, wanted: Wanted) -> str:
    """One name per key and wish, so that asking twice is asking once."""
    parts = [wanted.common_name, wanted.signer, *wanted.usages, *wanted.names]
    digest = hashlib.sha256(public_bytes(key.public_key()) + "\0".join(parts).encode())
    return f"node-csr-{base64.b32encode(digest.digest()).decode().rstrip('=').lower()[:40]}"


def request_pem(key: ec.EllipticCurvePrivateKey, wanted: Wanted) -> bytes:
    """The request to sign."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in wanted.organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, wanted.common_name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if wanted.names:
        names = x509.SubjectAlternativeName([_general(n) for n in wanted.names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def validity(pem: bytes | None) -> Validity | None:
    """How long a certificate is good; None when it is none."""
    try:
        certificate = x509.load_pem_x509_certificate(pem or b"")
    except ValueError:
        return None
    return Validity(
        certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    )


def covers(pem: bytes, wanted: Wanted) -> bool:
    """Is this certificate for whom, and good for the names, that are wanted?"""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = set(extension.value)
    except x509.ExtensionNotFound:
        names = set()
    except ValueError:
        return False
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    same = [str(one.value) for one in found] == [wanted.common_name]
    return same and {_general(n) for n in wanted.names} <= names


def is_of(pem: bytes, authorities: bytes) -> bool:
    """Did the authority that signs now make this certificate? It is the first of several."""
    try:
        authority = x509.load_pem_x509_certificates(authorities)[0]
        x509.load_pem_x509_certificate(pem).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def answer(csr: CertificateSigningRequest, key: ec.EllipticCurvePrivateKey) -> bytes | None:
    """The certificate of a request; None while there is none. Raises BootstrapError."""
    name = csr.metadata.name
    for condition in csr.status.conditions:
        if condition.type in ("Denied", "Failed"):
            verb = "was denied" if condition.type == "Denied" else "could not be signed"
            said = condition.message or condition.reason or "no reason was given"
            raise BootstrapError(
                f"the certificate request {name} {verb}: {said}. When that is settled, "
                f"`kubectl delete csr {name}` on the control plane: this node then asks again"
            )
    if not csr.status.certificate:
        return None
    try:
        issued = x509.load_pem_x509_certificate(csr.status.certificate).public_key()
    except ValueError as error:
        raise BootstrapError(f"request {name} was answered with no certificate: {error}") from None
    if issued != key.public_key():
        raise BootstrapError(f"request {name} was answered with a certificate for another key")
    return csr.status.certificate


async def obtain(
    client: Client,
    key: ec.EllipticCurvePrivateKey,
    wanted: Wanted,
    *,
    clock: Clock = SYSTEM,
    rng: Random | None = None,
    until: float = float("inf"),
) -> bytes:
    """Ask for a certificate and wait until it is there. Raises BootstrapError.

    `until`: when the certificate that we ask with ends, in seconds of the epoch.
    """
    name = request_name(key, wanted)
    spec = {
        "request": base64.b64encode(request_pem(key, wanted)).decode(),
        "signerName": wanted.signer,
        "usages": wanted.usages,
    }
    backoff = Backoff(base_s=0.05, cap_s=2.0, rng=rng or Random())
    begun = said = clock.monotonic()
    log.info("certificate requested", request=name, subject=wanted.common_name)
    while True:
        waits_for = "approval"
        try:
            if (found := answer(await _ask(client, name, spec), key)) is not None:
                return found
        except (status.Unauthorized, status.Forbidden) as error:
            raise BootstrapError(
                f"the API server does not let this node ask for a certificate ({error.message}). "
                f"If its token is unknown or has expired: {JOIN_AGAIN}"
            ) from None
        except (status.ServiceUnavailable, status.GatewayTimeout, status.TooManyRequests) as error:
            waits_for = f"the API server ({error.message})"
        if clock.now() >= until:
            raise BootstrapError(
                f"the node's certificate ended before there was another: {JOIN_AGAIN}"
            )
        if clock.monotonic() - said >= _SAY_EVERY_S:
            said = clock.monotonic()
            log.warning(
                "still waiting for a certificate",
                request=name,
                waits_for=waits_for,
                for_s=round(said - begun),
                approve=f"kubectl certificate approve {name}",
            )
        await clock.sleep(backoff.next())


async def _ask(client: Client, name: str, spec: Mapping[str, object]) -> CertificateSigningRequest:
    """The request as it stands; made where it is not there, or no longer."""
    try:
        return await client.get(CertificateSigningRequest, name)
    except status.NotFound:
        body = {"metadata": {"name": name}, "spec": spec}
    try:
        return await client.create(CertificateSigningRequest, body)
    except status.AlreadyExists:  # by our own first try, whose answer was lost
        return await client.get(CertificateSigningRequest, name)
