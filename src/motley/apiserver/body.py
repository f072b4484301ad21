"""Reading a request's body: bytes to a document of the expected kind, or a clear refusal.

Kubernetes' words are kept where clients look at them: what was expected, where JSON broke,
which fields nobody knows.
"""

from typing import Any

from motley.api import codec, schema, scheme, status
from motley.apiserver import negotiate, protobuf

_UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)


def read(
    kind: scheme.Kind, content_type: str, body: bytes, field_validation: str
) -> tuple[dict[str, Any], list[str]]:
    """The document in a body, as its kind's schema reads it, and warnings about the rest."""
    document = plain(content_type, body, kind.kind, kind.api_version)
    check_kind(kind, document)
    repeated = [] if field_validation == "Ignore" else _duplicates(content_type, body, document)
    found = [*repeated, *conform(kind, document)]
    return document, complaints(kind, found, field_validation)


def conform(kind: scheme.Kind, document: dict[str, Any]) -> list[str]:
    """Bring a document, in place, to the form its schema gives it; 400 for wrong types.

    Unknown fields are dropped and named.
    """
    checked = schema.check(kind, document)
    checked.raise_for(kind)
    return [f'unknown field "{path}"' for path in checked.unknown]


def plain(content_type: str, body: bytes, expected: str, api_version: str) -> dict[str, Any]:
    """The document in a body, whatever it is written in, before any schema looks at it."""
    media_type = negotiate.content_type(content_type)
    if media_type in ("application/json", ""):
        document = _json(expected, body)
    elif media_type == "application/yaml":
        document = _yaml(expected, body)
    elif media_type == protobuf.MEDIA_TYPE:
        document = protobuf.decode(body, api_version, expected)
    else:
        raise status.UnsupportedMediaType(_UNKNOWN_FORMAT)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _unrecognized(expected, body, "json: the top-level value is not an object")
    return document


def _duplicates(content_type: str, body: bytes, document: dict[str, Any]) -> list[str]:
    """Keys given twice: legal in the formats, but hardly ever meant.

    Finding them costs more than reading the body, so first a look at whether any key got lost.
    """
    media_type = negotiate.content_type(content_type)
    if media_type == "application/yaml":
        return list(codec.duplicate_yaml_keys(body))
    if media_type == protobuf.MEDIA_TYPE:
        return []
    if body.count(b'":') == codec.encode(document).count(b'":'):
        return []
    return [f'duplicate field "{field}"' for field in codec.duplicate_fields(body)]


def complaints(kind: scheme.Kind, found: list[str], field_validation: str) -> list[str]:
    """Warnings for what was found, or the refusal that Strict asks for."""
    if not found or field_validation == "Ignore":
        return []
    if field_validation == "Strict":
        raise status.BadRequest(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(found)}"
        )
    return found


def check_kind(kind: scheme.Kind, document: dict[str, Any]) -> None:
    """A body may leave out its kind, but may not name another."""
    named = str(document.get("kind") or kind.kind)
    version = str(document.get("apiVersion") or kind.api_version)
    if (named, version) == (kind.kind, kind.api_version):
        return
    raise status.BadRequest(
        f'{named} in version "{version}" cannot be handled as a {kind.kind}: '
        f"converting ({version}.{named}) to ({kind.group or 'core'}.{kind.kind}): "
        "unknown conversion"
    )


def _json(expected: str, body: bytes) -> Any:
    if not body.strip():
        raise _unrecognized(expected, body, "json parse error: unexpected end of JSON input")
    try:
        return codec.decode(body)
    except status.BadRequest as error:
        raise _unrecognized(expected, body, error.message) from None


def _yaml(expected: str, body: bytes) -> Any:
    try:
        return codec.decode_yaml(body)
    except status.BadRequest as error:
        raise _unrecognized(expected, body, error.message) from None


def _unrecognized(expected: str, body: bytes, problem: str) -> status.BadRequest:
    if not body:
        shown = "<empty>"
    else:
        text = body[:30].decode("utf-8", "replace")
        shown = text if len(body) <= 30 else f"{text} ..."
    return status.BadRequest(
        f"the object provided is unrecognized (must be of type {expected}): "
        f"couldn't get version/kind; {problem} ({shown})"
    )
