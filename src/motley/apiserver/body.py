"""Reading a request's body: bytes to a document of the expected kind, or a clear refusal.

Kubernetes' words are kept where clients look at them: what was expected, where JSON broke,
which fields nobody knows.
"""

from collections.abc import Sequence
from typing import Any

from motley.api import codec, schema, scheme, status
from motley.apiserver import answer, negotiate, protobuf

_UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
_NO_VERSION = "couldn't get version/kind"
_GO_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
_SHOWN_BYTES = 30
# The place in Kubernetes' sources is part of its message.
_NO_KIND = 'no kind "{}" is registered for version "{}" in scheme "{}"'
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
# Definitions have a small world of their own: there no other kind is known at all.
_EXTENSIONS = "apiextensions.k8s.io"
_EXTENSIONS_SCHEME = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56"


def read(
    kind: scheme.Kind, content_type: str, body: bytes, field_validation: str
) -> tuple[dict[str, Any], list[str]]:
    """The document in a body, as its kind's schema reads it, and warnings about the rest."""
    document = plain(content_type, body, kind.kind, kind.api_version)
    check_kind(kind, document)
    twice = [] if field_validation == "Ignore" else _duplicates(content_type, body, document)
    if twice and field_validation == "Strict" and is_yaml(content_type):
        twice = ["\n  ".join(["yaml: unmarshal errors:", *twice])]
    unknown = conform(kind, document)
    if twice and unknown and kind.definition is None and not is_yaml(content_type):
        # One reader of JSON finds both on its way; YAML, and the schema of a custom resource, have
        # a reader of their own.
        found = in_order(body, unknown)
    else:
        found = [*twice, *unknown]
    return document, complaints(kind, found, field_validation)


def in_order(body: bytes, unknown: Sequence[str]) -> list[str]:
    """Complaints about JSON in the order of the document: unknown fields and those given twice."""
    paths = [one.partition('"')[2][:-1] for one in unknown]
    found = codec.questionable_fields(body, paths)
    return [f'{what} field "{path}"' for what, path in found]


def conform(kind: scheme.Kind, document: dict[str, Any]) -> list[str]:
    """Bring a document, in place, to the form its schema gives it; 400 for wrong types.

    Unknown fields are dropped and named.
    """
    if kind.definition is not None:
        return [f'unknown field "{path}"' for path in kind.definition.conform(document)]
    checked = schema.check(kind, document)
    checked.raise_for(kind)
    return [f'unknown field "{path}"' for path in checked.unknown]


def conform_as(expected: str, api_version: str, document: dict[str, Any]) -> None:
    """As `conform`, for what is no kind of its own (Scale, Binding); 400 for wrong types.

    A body that says it is something else stays as it is: `check_is` says so.
    """
    if isinstance(document.get("kind"), str) and document["kind"] not in ("", expected):
        return
    checked = schema.check_as(schema.of_type(api_version, expected), document)
    if checked.errors:
        short = api_version.rpartition("/")[2]
        raise status.BadRequest(
            f'{expected} in version "{short}" cannot be handled as a {expected}: '
            f"{checked.errors[0].message}"
        )


def check_is(expected: str, api_versions: Sequence[str], document: dict[str, Any]) -> None:
    """The body of a subresource must be what it takes, or not say what it is."""
    named = str(document.get("kind") or expected)
    version = str(document.get("apiVersion") or api_versions[0])
    if named != expected or version not in api_versions:
        short, own = version.rpartition("/")[2], api_versions[0].rpartition("/")[0] or "core"
        raise status.BadRequest(
            f'{named} in version "{short}" cannot be handled as a {expected}: '
            f"converting ({short}.{named}) to ({own}.{expected}): unknown conversion"
        )


def plain(content_type: str, body: bytes, expected: str, api_version: str) -> dict[str, Any]:
    """The document in a body, whatever it is written in, before any schema looks at it."""
    media_type = negotiate.content_type(content_type)
    if media_type in ("application/json", ""):
        document = _json(expected, body)
    elif media_type == "application/yaml":
        document = _yaml(expected, body)
    elif media_type == protobuf.MEDIA_TYPE:
        document = _protobuf(expected, body, api_version)
    else:
        raise status.UnsupportedMediaType(_UNKNOWN_FORMAT)
    if document is None:
        return {}
    if not isinstance(document, dict):
        found = codec.go_type(document)
        problem = (
            f"json parse error: json: cannot unmarshal {found} into Go value of type {_GO_META}"
        )
        raise _unrecognized(expected, body, f"{_NO_VERSION}; {problem}")
    return document


def _duplicates(content_type: str, body: bytes, document: dict[str, Any]) -> list[str]:
    """Keys given twice: legal in the formats, but hardly ever meant.

    Finding them costs more than reading the body, so first a look at whether any key got lost.
    """
    if is_yaml(content_type):
        return list(codec.duplicate_yaml_keys(body))
    if negotiate.content_type(content_type) == protobuf.MEDIA_TYPE:
        return []
    return [f'duplicate field "{field}"' for field in repeated(body, document)]


def is_yaml(content_type: str) -> bool:
    """Whether a body says it is YAML."""
    return negotiate.content_type(content_type) == "application/yaml"


def repeated(body: bytes, decoded: Any) -> list[str]:
    """The keys that JSON gives twice."""
    if body.count(b'":') == codec.encode(decoded).count(b'":'):
        return []
    return codec.duplicate_fields(body)


def complaints(kind: scheme.Kind, found: list[str], field_validation: str) -> list[str]:
    """Warnings for what was found, or the refusal that Strict asks for."""
    if not found or field_validation == "Ignore":
        return []
    if field_validation == "Strict":
        raise status.BadRequest(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(found)}"
        )
    answer.warn(found)
    return found


def check_kind(kind: scheme.Kind, document: dict[str, Any]) -> None:
    """A body may leave out its kind, but may not name another."""
    named = str(document.get("kind") or kind.kind)
    version = str(document.get("apiVersion") or kind.api_version)
    if (named, version) == (kind.kind, kind.api_version):
        return
    if kind.definition is not None:
        raise _other_kind(kind, document, named, version)
    if kind.group == _EXTENSIONS:
        problem = _NO_KIND.format(named, version, _EXTENSIONS_SCHEME)
    elif not _is_known(version, named):
        problem = _NO_KIND.format(named, version, _SCHEME)
    else:
        own = kind.group.partition(".")[0] or "core"
        problem = f"converting ({version}.{named}) to ({own}.{kind.kind}): unknown conversion"
    short = version.rpartition("/")[2]
    raise status.BadRequest(
        f'{named} in version "{short}" cannot be handled as a {kind.kind}: {problem}'
    )


def _is_known(api_version: str, named: str) -> bool:
    """Whether anything goes by that name: a kind, a list of one, or a list of anything."""
    if (api_version, named) == ("v1", "List"):
        return True
    return scheme.by_kind(api_version, named.removesuffix("List")) is not None


def _other_kind(
    kind: scheme.Kind, document: dict[str, Any], named: str, version: str
) -> status.ApiError:
    """Custom resources are told apart by their version first, then checked like any field."""
    if version != kind.api_version:
        return status.BadRequest(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    metadata = document.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    message = f'Invalid value: "{named}": must be {kind.kind}'
    return status.invalid(
        kind.group, named, name, [status.FieldError("kind", "FieldValueInvalid", message)]
    )


def _json(expected: str, body: bytes) -> Any:
    try:
        return codec.decode(body)
    except status.BadRequest as error:
        raise _unrecognized(expected, body, f"{_NO_VERSION}; {error.message}") from None


def _protobuf(expected: str, body: bytes, api_version: str) -> Any:
    try:
        return protobuf.decode(body, api_version, expected)
    except status.BadRequest as error:
        raise _unrecognized(expected, body, error.message) from None


def _yaml(expected: str, body: bytes) -> Any:
    try:
        return codec.decode_yaml(body)
    except status.BadRequest as error:
        raise _unrecognized(expected, body, error.message) from None


def _unrecognized(expected: str, body: bytes, problem: str) -> status.BadRequest:
    if expected == "DeleteOptions":
        return status.BadRequest(problem)
    return status.BadRequest(
        f"the object provided is unrecognized (must be of type {expected}): {problem} "
        f"({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    """The beginning of a body: as text where it looks like JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    head = body[:_SHOWN_BYTES]
    text = head.decode("utf-8", "replace") if body[:1] == b"{" else head.hex()
    return text if len(body) <= _SHOWN_BYTES else f"{text} ..."
