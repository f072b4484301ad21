"""Rules for requests for certificates and for bundles of trusted ones."""

import base64
import re

from motley.api import names
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    invalid,
    named,
    one_of,
    required,
    unsupported,
)

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
_SIGNER_FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
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


def signer_name(field: str, name: str) -> Errors:
    """Who shall sign: a domain and a path."""
    if not name:
        yield required(field)
        return
    domain, slash, path = name.partition("/")
    if not slash or not path or "/" in path:
        yield invalid(field, name, _SIGNER_FORM)
        return
    yield from named(field, domain, names.check_dns_subdomain(domain))
    if len(domain.split(".")) < 2:
        yield invalid(
            field, domain, "should be a domain with at least two segments separated by dots"
        )
    yield from named(field, path, names.check_dns_subdomain(path))


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


def trust_bundle(obj: Document) -> Errors:
    """A ClusterTrustBundle: certificates and nothing else."""
    spec = obj.get("spec") or {}
    name, signer = (obj.get("metadata") or {}).get("name", ""), spec.get("signerName", "")
    if signer:
        yield from signer_name("spec.signerName", signer)
        prefix = signer.replace("/", ":") + ":"
        if not name.startswith(prefix):
            detail = (
                f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            )
            yield invalid("metadata.name", name, detail)
    elif ":" in name:
        detail = 'ClusterTrustBundle without signer name must not have ":" in its name'
        yield invalid("metadata.name", name, detail)
    yield from _bundle("spec.trustBundle", spec.get("trustBundle", ""))


def _bundle(field: str, text: str) -> Errors:
    blocks = _BLOCK.findall(text)
    if not blocks:
        yield invalid(field, "<value omitted>", "at least one trust anchor must be provided")
    for index, (kind, _) in enumerate(blocks):
        if kind != "CERTIFICATE":
            detail = f"entry {index} has bad block type: {kind}"
            yield invalid(field, "<value omitted>", detail)


def trust_bundle_update(new: Document, old: Document) -> Errors:
    """A changed ClusterTrustBundle belongs to the same signer."""
    yield from trust_bundle(new)
    signers = [(o.get("spec") or {}).get("signerName", "") for o in (new, old)]
    if signers[0] != signers[1]:
        yield invalid("spec.signerName", signers[0], "field is immutable")
