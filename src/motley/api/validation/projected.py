"""Rules for volumes made of files: of a ConfigMap, a Secret, the pod's fields, or all in one."""

from collections.abc import Iterator
from typing import Any

from motley.api import names
from motley.api.validation import meta, trustbundle
from motley.api.validation.container import field_reference, relative_path
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    invalid,
    named,
    one_of,
    required,
)
from motley.api.validation.selector import label_selector
from motley.api.validation.signer import is_kubernetes, signer_name

KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
MIN_EXPIRATION_S = 3600
MAX_EXPIRATION_S = 91 * 24 * 3600
MAX_KUBERNETES_EXPIRATION_S = 24 * 3600  # for Kubernetes' own signers
_SOURCES = (
    *("secret", "configMap", "downwardAPI"),
    *("serviceAccountToken", "clusterTrustBundle", "podCertificate"),
)
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")


def secret(field: str, source: Document) -> Errors:
    """A Secret as files."""
    if not source.get("secretName"):
        yield required(f"{field}.secretName")
    yield from _files(field, source)


def config_map(field: str, source: Document) -> Errors:
    """A ConfigMap as files."""
    if not source.get("name"):
        yield required(f"{field}.name")
    yield from _files(field, source)


def _files(field: str, source: Document) -> Errors:
    yield from _mode(f"{field}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or ()):
        at = f"{field}.items[{index}]"
        if not item.get("key"):
            yield required(f"{at}.key")
        if not item.get("path"):
            yield required(f"{at}.path")
        else:
            yield from relative_path(f"{at}.path", item["path"])
        yield from _mode(f"{at}.mode", item.get("mode"))


def _mode(field: str, mode: Any) -> Errors:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def downward_api(field: str, source: Document) -> Errors:
    """The pod's own fields as files."""
    yield from _mode(f"{field}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or ()):
        at = f"{field}.items[{index}]"
        if not item.get("path"):
            yield required(f"{at}.path")
        else:
            yield from relative_path(f"{at}.path", item["path"])
        if item.get("fieldRef") is not None:
            yield from field_reference(f"{at}.fieldRef", item["fieldRef"])
        elif item.get("resourceFieldRef") is None:
            yield required(f"{at}", "one of fieldRef and resourceFieldRef is required")


def projected(field: str, source: Document) -> Errors:
    """Several sources in one directory: no two of them may write the same file."""
    yield from _mode(f"{field}.defaultMode", source.get("defaultMode"))
    taken: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        at = f"{field}.sources[{index}]"
        present = [name for name in _SOURCES if part.get(name) is not None]
        for name in present:
            yield from _CHECKS[name](f"{at}.{name}", part[name])
            for path, shown in _paths(name, part[name]):
                if path in taken:
                    yield invalid(field, shown, "conflicting duplicate paths")
                taken.add(path)
        if len(present) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _paths(name: str, source: Document) -> Iterator[tuple[str, str]]:
    """The files that a source names, and what an error about each shows. A token's is free."""
    if name == "clusterTrustBundle":
        yield source.get("path", ""), source.get("path", "")
    elif name == "podCertificate":
        for key in _CERTIFICATE_PATHS:
            if source.get(key):
                yield source[key], source[key]
    else:
        for item in source.get("items") or ():
            if item.get("path"):
                shown = item["path"] if name == "downwardAPI" else source.get("name", "")
                yield item["path"], shown


def _token(field: str, token: Document) -> Errors:
    if token.get("expirationSeconds", 3600) < 600:
        yield invalid(
            f"{field}.expirationSeconds",
            token["expirationSeconds"],
            "may not specify a duration less than 10 minutes",
        )
    if not token.get("path"):
        yield required(f"{field}.path")


def _trust_bundle(field: str, source: Document) -> Errors:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        yield invalid(field, source, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(f"{field}.name", "must be a valid object name")
        for wrong in trustbundle.check_name(name, trustbundle.signer_in(name)):
            yield invalid(f"{field}.name", name, f"not a valid clustertrustbundlename: {wrong}")
        if source.get("labelSelector") is not None:
            detail = "labelSelector must be unset if name is specified"
            yield invalid(f"{field}.labelSelector", source["labelSelector"], detail)
    elif signer is not None:
        if not signer:
            yield required(f"{field}.signerName", "must be a valid signer name")
        yield from signer_name(f"{field}.signerName", signer)
        yield from label_selector(f"{field}.labelSelector", source.get("labelSelector"))
    else:
        yield required(field, "either name or signerName must be specified")
    if not source.get("path"):
        yield required(f"{field}.path")
    yield from _own_path(f"{field}.path", source.get("path", ""))


def _pod_certificate(field: str, source: Document) -> Errors:
    signer = source.get("signerName", "")
    yield from signer_name(f"{field}.signerName", signer)
    yield from user_annotations(f"{field}.userAnnotations", source.get("userAnnotations"))
    yield from one_of(f"{field}.keyType", source.get("keyType", ""), KEY_TYPES)
    seconds = source.get("maxExpirationSeconds")
    if seconds is not None:
        longest = longest_s(signer)
        at = f"{field}.maxExpirationSeconds"
        if seconds < MIN_EXPIRATION_S:
            detail = f"if provided, maxExpirationSeconds must be >= {MIN_EXPIRATION_S}"
            yield invalid(at, seconds, detail)
        if seconds > longest:
            yield invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {longest}")
    paths = [key for key in _CERTIFICATE_PATHS if source.get(key)]
    for key in paths:
        yield from _own_path(f"{field}.{key}", source[key])
    if not paths:
        listed = "credentialBundlePath, keyPath, and certificateChainPath"
        yield required(field, f"specify at least one of {listed}")


def longest_s(signer: str) -> int:
    """The longest life that may be asked of a signer."""
    return MAX_KUBERNETES_EXPIRATION_S if is_kubernetes(signer) else MAX_EXPIRATION_S


def user_annotations(field: str, given: Document | None) -> Errors:
    """What a user tells a signer: keys have a domain, and all of it has a limit."""
    for key in given or {}:
        wrong = names.check_qualified_name(key.lower())
        if not key:
            yield required(field)
        elif wrong:
            yield from named(field, key.lower(), wrong)
        elif "/" not in key:
            detail = 'must be a domain-prefixed key (such as "acme.io/foo")'
            yield invalid(field, key.lower(), detail)
    yield from meta.size_of_annotations(field, given)


def _own_path(field: str, path: str) -> Errors:
    """Below the volume, and not a name that the writer of the volume uses."""
    yield from relative_path(field, path)
    if path.startswith("..") and ".." not in path.split("/"):
        yield invalid(field, path, "must not start with '..'")


_CHECKS = {
    "secret": config_map,
    "configMap": config_map,
    "downwardAPI": downward_api,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust_bundle,
    "podCertificate": _pod_certificate,
}
