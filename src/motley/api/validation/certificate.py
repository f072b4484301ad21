"""Rules for requests for certificates."""

import base64
import re

from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    invalid,
    one_of,
    required,
    unsupported,
)
from motley.api.validation.signer import signer_name

_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_MIN_S = 600
_BLOCK = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]*?)-----END \1-----", re.DOTALL
)


def signing_request(obj: Document) -> Errors:
    """A CertificateSigningRequest."""
    spec = obj.get("spec") or {}
    if not _has_request(spec.get("request", "")):
        detail = "PEM block type must be CERTIFICATE REQUEST"
        yield invalid("spec.request", spec.get("request", ""), detail)
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield unsupported(f"spec.usages[{index}]", usage, _USAGES)
        if usage in usages[:index]:
            yield duplicate(f"spec.usages[{index}]", usage)
    name = spec.get("signerName", "")
    if name == _LEGACY_SIGNER:
        detail = "the legacy signerName is not allowed via this API version"
        yield invalid("spec.signerName", name, detail)
    else:
        yield from signer_name("spec.signerName", name)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_S:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, detail)
    yield from _conditions((obj.get("status") or {}).get("conditions") or [])


def _has_request(text: str) -> bool:
    try:
        found = _BLOCK.search(base64.b64decode(text).decode("ascii", "replace"))
    except ValueError:
        return False
    return found is not None and found.group(1) in ("CERTIFICATE REQUEST",)


def _conditions(conditions: list[Document]) -> Errors:
    types = [c.get("type", "") for c in conditions]
    for index, condition in enumerate(conditions):
        field = f"status.conditions[{index}]"
        kind, state = types[index], condition.get("status", "")
        if not kind:
            yield required(f"{field}.type")
        final = kind in ("Approved", "Denied", "Failed")
        if not state:
            yield required(f"{field}.status")
        else:
            allowed = ("True",) if final else ("False", "True", "Unknown")
            yield from one_of(f"{field}.status", state, allowed)
        if kind in types[:index]:
            yield duplicate(f"{field}.type", kind)
    if {"Approved", "Denied"} <= set(types):
        detail = "Approved and Denied conditions are mutually exclusive"
        last = next(t for t in reversed(types) if t in ("Approved", "Denied"))
        yield invalid("status.conditions", last, detail)


def signing_request_update(new: Document, old: Document) -> Errors:
    """A changed request asks for the same certificate."""
    yield from signing_request(new)
