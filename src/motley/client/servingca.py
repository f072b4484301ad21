"""Serving HTTPS to the API server, which must know by whom our certificate is signed.

An aggregated API server or a webhook is called by the API server under the name of its Service, and
believed because the object that registers it (APIService, webhook configuration) holds a CA bundle.
Here a process makes itself an authority when it starts and keeps that bundle true: nobody makes or
renews certificates by hand, and nothing is ever called unverified.

    serving = servingca.authority(["motley-history.kube-system.svc"])
    group.create_task(serving.run())
    group.create_task(servingca.keep_told(client, APIService, NAME, "/spec/caBundle", serving))

Several replicas have an authority each: every one adds its own and leaves the others'.

Invariant: keys are in memory only; the authority's signs nothing but this process' certificates.
"""

import asyncio
import base64
import binascii
import ipaddress
import os
import ssl
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from motley.api import status
from motley.api.views.base import Object
from motley.client.informer import Change, Informer
from motley.client.rest import CONTENT_TYPES, Client, resource_path
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

_AUTHORITY_LIFE = timedelta(days=3650)
_LIFE = timedelta(days=365)
_RENEW_AFTER_S = _LIFE.total_seconds() * 2 / 3
_BACKDATE = timedelta(hours=1)  # the API server's clock may be behind
_LOOK_EVERY_S = 60.0  # at given files, and at the calendar
# Authorities that one bundle holds: more replicas than these would push each other out.
_MOST = 8
_CALM_S = 1.0  # between two writes, should somebody else keep writing the contrary
_TEXT_LIMIT = 64  # X.509's limit of a common name


class _Contexts(ABC):
    """TLS contexts with one certificate, which all of them change together."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
        self.context = self.believing("")

    def believing(self, client_ca_pem: str) -> ssl.SSLContext:
        """A context whose clients may show a certificate of one of these authorities; whoever shows
        another is not let in. Raises OSError for what is none."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if client_ca_pem:
            made.load_verify_locations(cadata=client_ca_pem)
            made.verify_mode = ssl.CERT_OPTIONAL
        self._certify(made)
        self._made.add(made)
        return made

    @abstractmethod
    def _certify(self, context: ssl.SSLContext) -> None:
        """Let a context show the certificate of now."""


class Serving(_Contexts):
    """A server's TLS context, good for as long as `run` runs; `ca_pem` is who signs for it."""

    def __init__(self, names: Sequence[str], clock: Clock = SYSTEM) -> None:
        self._names, self._clock = names, clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = _signed_authority(f"motley-serving@{names[0]}", self._key, clock)
        self.ca_pem = self._authority.public_bytes(serialization.Encoding.PEM)
        self._pem, self._due = self.issue(), clock.now() + _RENEW_AFTER_S
        super().__init__()

    def issue(self) -> bytes:
        """A new key and its certificate, as text."""
        return _issued(self._names, self._authority, self._key, self._clock)

    def renew(self) -> None:
        """Show another certificate from the next connection on."""
        self._pem, self._due = self.issue(), self._clock.now() + _RENEW_AFTER_S
        for context in self._made:
            self._certify(context)

    def _certify(self, context: ssl.SSLContext) -> None:
        _load(context, self._pem)

    async def run(self) -> None:
        """Renew in time, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            if self._clock.now() >= self._due:
                self.renew()
                log.info("serving certificate renewed", names=list(self._names))


class GivenFiles(_Contexts):
    """As `Serving`, with a certificate and a key that others put into files and replace there.

    Who signs for them is known to whoever made them: `ca_pem` is empty. Raises OSError."""

    ca_pem = b""

    def __init__(self, certificate: Path, key: Path, clock: Clock = SYSTEM) -> None:
        self._files, self._clock = (certificate, key), clock
        self._seen = self._state()
        super().__init__()

    def _state(self) -> list[tuple[int, int]]:
        found = [path.stat() for path in self._files]
        return [(one.st_ino, one.st_mtime_ns) for one in found]

    def _certify(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(*self._files)

    async def run(self) -> None:
        """Take over files that have changed, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            try:
                state = self._state()
                if state != self._seen:
                    for context in self._made:
                        self._certify(context)
                    self._seen = state
                    log.info("serving certificate taken over", file=str(self._files[0]))
            except OSError as error:  # half written, perhaps: the next look tells
                log.warning("serving certificate not taken over", error=str(error))


def authority(names: Sequence[str], clock: Clock = SYSTEM) -> Serving:
    """A new authority, and a certificate of it for these names and addresses."""
    return Serving(names, clock)


async def keep_told(
    client: Client,
    cls: type[Object],
    name: str,
    place: str,
    serving: Serving,
    *,
    clock: Clock = SYSTEM,
) -> None:
    """Keep the authority in an object's CA bundle until cancelled: from the start, when the object
    is made anew, and when somebody else writes there.

    `place` is a JSON pointer; `*` in it is every item of a list, as in
    `/webhooks/*/clientConfig/caBundle`. Needed are get, list, watch and patch, which may be
    limited to the object's name.
    """
    due = asyncio.Event()

    def changed(change: Change[Object]) -> None:
        if change.new is not None:
            due.set()

    informer = Informer(client, cls, field_selector=f"metadata.name={name}", clock=clock)
    informer.add_handler(changed)
    backoff = Backoff(base_s=0.2, cap_s=10.0)
    async with asyncio.TaskGroup() as group:
        group.create_task(informer.run(), name=f"watch {cls.PLURAL}/{name}")
        while True:
            await due.wait()
            due.clear()
            try:
                await _tell(client, resource_path(cls, name=name), place, serving.ca_pem, clock)
            except status.NotFound:
                continue  # it comes back with an event
            except status.ApiError as error:
                log.warning("CA bundle not written", kind=cls.KIND, name=name, error=error.message)
                due.set()
                await clock.sleep(backoff.next())
            else:
                backoff.reset()
                await clock.sleep(_CALM_S)


async def _tell(client: Client, path: str, place: str, ca_pem: bytes, clock: Clock) -> None:
    operations = told(await client.raw("GET", path), place, ca_pem, clock.now())
    if operations:
        await client.raw("PATCH", path, body=operations, content_type=CONTENT_TYPES["json"])
        log.info("CA bundle written", path=path)


def told(document: Mapping[str, Any], place: str, ca_pem: bytes, now: float) -> list[Any]:
    """The JSON patch that puts an authority where it belongs; empty where it is there. Pure."""
    found = []
    for pointer, current in _places(document, [""], place.split("/")[1:]):
        wanted = bundle(_decoded(current), ca_pem, now)
        if wanted is not None:
            value = base64.b64encode(wanted).decode()
            found.append({"op": "add", "path": pointer, "value": value})
    if not found:
        return []
    # Only if it is still the object that was read: an item of a list may have moved.
    revision = document["metadata"]["resourceVersion"]
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": revision}, *found]


def _places(value: Any, before: list[str], rest: list[str]) -> Iterator[tuple[str, Any]]:
    if not rest:
        yield "/".join(before), value
    elif rest[0] == "*":
        for index, item in enumerate(value or ()):
            yield from _places(item, [*before, str(index)], rest[1:])
    elif isinstance(value, Mapping):
        yield from _places(value.get(rest[0]), [*before, rest[0]], rest[1:])


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def bundle(current: bytes, ca_pem: bytes, now: float) -> bytes | None:
    """A CA bundle with an authority in it, None where it is right as it is. Pure.

    Other replicas' authorities, which have the same name, stay while they are good; the one that
    came first goes when there are too many. Anything else does not belong there.
    """
    ours = x509.load_pem_x509_certificate(ca_pem)
    try:
        have = x509.load_pem_x509_certificates(current)
    except ValueError:  # empty, or no certificates
        have = []
    moment = datetime.fromtimestamp(now, UTC)
    kept = [one for one in have if one.subject == ours.subject and one.not_valid_after_utc > moment]
    if ours not in kept:
        kept = [*kept[-(_MOST - 1) :], ours]
    if kept == have:
        return None
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in kept)


def _signed_authority(name: str, key: ec.EllipticCurvePrivateKey, clock: Clock) -> x509.Certificate:
    subject = _name(name)
    begin = datetime.fromtimestamp(int(clock.now()), UTC) - _BACKDATE
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _issued(
    names: Sequence[str],
    signer: x509.Certificate,
    signing: ec.EllipticCurvePrivateKey,
    clock: Clock,
) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    begin = datetime.fromtimestamp(int(clock.now()), UTC) - _BACKDATE
    public = signing.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(names[0]))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(min(begin + _LIFE, signer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """From memory: a pod's root is read-only, and a key has no business on a disk."""
    held = os.memfd_create("serving", os.MFD_CLOEXEC)
    try:
        os.write(held, pem)
        context.load_cert_chain(f"/proc/self/fd/{held}")
    finally:
        os.close(held)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_TEXT_LIMIT])])


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
