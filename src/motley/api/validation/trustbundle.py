"""Rules for ClusterTrustBundles: whose they are, and that they hold certificates of authorities.

A bundle of a signer bears the signer's name: who may attest for a signer can be said by a prefix.
The certificates are only taken apart as far as the rules go, with no library that has opinions of
its own about serial numbers and dates: a trust anchor is believed because it is listed.
"""

from motley.api import names, pem
from motley.api.validation.errors import Document, Errors, invalid, named, too_long
from motley.api.validation.signer import signer_name

_MAX_BYTES = 1024 * 1024
_OMITTED = "<value omitted>"
_BASIC_CONSTRAINTS = bytes.fromhex("0603551d13")  # OBJECT IDENTIFIER 2.5.29.19
_SEQUENCE, _INTEGER, _BOOLEAN, _OCTETS, _BITS = 0x30, 0x02, 0x01, 0x04, 0x03
_VERSION, _EXTENSIONS = 0xA0, 0xA3  # parts of a certificate that need not be there


def check_name(name: str, signer: str) -> list[str]:
    """What is wrong with the name of a bundle of this signer; an empty signer: of nobody's."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return names.check_dns_subdomain(name)
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return names.check_dns_subdomain(name.removeprefix(prefix))


def signer_in(name: str) -> str:
    """The signer that a bundle's name speaks of; empty: none."""
    prefix, colon, _ = name.rpartition(":")
    return prefix.replace(":", "/") if colon else ""


def create(obj: Document) -> Errors:
    """A new ClusterTrustBundle."""
    yield from _named(obj)
    yield from _bundle("spec.trustBundle", (obj.get("spec") or {}).get("trustBundle", ""))


def update(new: Document, old: Document) -> Errors:
    """A changed ClusterTrustBundle belongs to the same signer; what it held is not judged again."""
    yield from _named(new)
    now, before = new.get("spec") or {}, old.get("spec") or {}
    if now.get("trustBundle", "") != before.get("trustBundle", ""):
        yield from _bundle("spec.trustBundle", now.get("trustBundle", ""))
    if now.get("signerName", "") != before.get("signerName", ""):
        yield invalid("spec.signerName", now.get("signerName", ""), "field is immutable")


def _named(obj: Document) -> Errors:
    metadata, signer = obj.get("metadata") or {}, (obj.get("spec") or {}).get("signerName", "")
    if base := metadata.get("generateName", ""):
        whole = f"{base[:-1]}a" if base.endswith("-") else base
        yield from named("metadata.generateName", base, check_name(whole, signer))
    if name := metadata.get("name", ""):
        yield from named("metadata.name", name, check_name(name, signer))
    if signer:
        yield from signer_name("spec.signerName", signer)


def _bundle(field: str, text: str) -> Errors:
    if len(text.encode()) > _MAX_BYTES:
        yield too_long(field, _MAX_BYTES)
        return
    wrong = False
    places: dict[bytes, list[int]] = {}
    for index, block in enumerate(pem.blocks(text)):
        if problem := _anchor_problem(block):
            wrong = True
            yield invalid(field, _OMITTED, f"entry {index} {problem}")
        places.setdefault(block.data, []).append(index)
    if wrong:
        return  # what else is wrong may only follow from that
    if not places:
        yield invalid(field, _OMITTED, "at least one trust anchor must be provided")
    for indices in places.values():
        if len(indices) > 1:
            listed = " ".join(map(str, indices))
            yield invalid(field, _OMITTED, f"duplicate trust anchor (indices [{listed}])")


def _anchor_problem(block: pem.Block) -> str:
    if block.kind != pem.CERTIFICATE:
        return f"has bad block type: {block.kind}"
    if block.headers:
        return "has PEM block headers"
    try:
        is_authority = _is_authority(block.data)
    except ValueError:
        return "does not parse as X.509"
    return "" if is_authority else "does not have the CA bit set"


def _is_authority(der: bytes) -> bool:
    """Whether a certificate is one of an authority. Raises ValueError when it is none at all."""
    (certificate,) = _parts(der, _SEQUENCE)
    signed, algorithm, signature = _parts(certificate[1])
    if (signed[0], algorithm[0], signature[0]) != (_SEQUENCE, _SEQUENCE, _BITS):
        raise ValueError("not a certificate")
    parts = _parts(signed[1])
    if parts and parts[0][0] == _VERSION:
        parts = parts[1:]
    # Serial number, algorithm, issuer, validity, subject, public key; then what may be left out.
    if [tag for tag, _ in parts[:6]] != [_INTEGER, *[_SEQUENCE] * 5]:
        raise ValueError("not a certificate")
    for tag, value in parts[6:]:
        if tag == _EXTENSIONS:
            (extensions,) = _parts(value, _SEQUENCE)
            for _, extension in _parts(extensions[1], _SEQUENCE):
                if extension.startswith(_BASIC_CONSTRAINTS):
                    return _says_authority(extension[len(_BASIC_CONSTRAINTS) :])
    return False


def _says_authority(extension: bytes) -> bool:
    values = [value for tag, value in _parts(extension) if tag == _OCTETS]
    if len(values) != 1:
        raise ValueError("an extension without a value")
    (constraints,) = _parts(values[0], _SEQUENCE)
    said = _parts(constraints[1])
    return bool(said) and said[0][0] == _BOOLEAN and said[0][1] == b"\xff"


def _parts(der: bytes, only: int | None = None) -> list[tuple[int, bytes]]:
    """The elements of DER, each as tag and content. Raises ValueError."""
    found = []
    at = 0
    while at < len(der):
        if at + 2 > len(der):
            raise ValueError("cut short")
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            octets = length & 0x7F
            length, at = int.from_bytes(der[at : at + octets]), at + octets
        if at + length > len(der) or (only is not None and tag != only):
            raise ValueError("cut short, or of another kind")
        found.append((tag, der[at : at + length]))
        at += length
    return found
