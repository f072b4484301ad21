"""Which form of an answer a client wants, read from its `Accept` header.

kubectl asks for `application/json;as=Table;v=v1;g=meta.k8s.io,application/json`: the first
clause the server can satisfy wins, in order of preference. Headers repeat endlessly, so the
reading of one is remembered.
"""

from dataclasses import dataclass
from functools import lru_cache

from motley.api import status

JSON = "application/json"
YAML = "application/yaml"
_SERVED = {JSON: JSON, YAML: YAML, "*/*": JSON, "": JSON}
PROTOBUF = "application/vnd.kubernetes.protobuf"
_AVAILABLE = f"{JSON}, {YAML}, {PROTOBUF}"
_TRANSFORMS = frozenset(
    {
        ("Table", "meta.k8s.io", "v1"),
        ("Table", "meta.k8s.io", "v1beta1"),
        ("PartialObjectMetadata", "meta.k8s.io", "v1"),
        ("PartialObjectMetadata", "meta.k8s.io", "v1beta1"),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1"),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1beta1"),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"),
    }
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The form to answer in."""

    media_type: str = JSON
    transform: str = ""  # Table, PartialObjectMetadata, …; empty: the object itself
    version: str = ""  # of the transform


@lru_cache(maxsize=512)
def accept(header: str, *, is_aggregated: bool = False, has_table: bool = True) -> Wanted:
    """The best form for this header; 406 when there is none.

    `is_aggregated`: the documents below `/apis` understand `application/*` as well.
    `has_table`: whether what is asked for has rows and columns.
    """
    transform_refused = is_aggregated
    takes_protobuf = False
    for media_type, parameters in _clauses(header):
        served = _SERVED.get(media_type)
        if is_aggregated and media_type == "application/*":
            served = JSON
        if served is None:
            takes_protobuf |= media_type == PROTOBUF and "as" not in parameters
            continue
        name = parameters.get("as", "")
        if not name:
            return Wanted(served)
        form = (name, parameters.get("g", ""), parameters.get("v", ""))
        if form in _TRANSFORMS and (has_table or name != "Table"):
            return Wanted(served, name, parameters["v"])
        transform_refused = True
    if takes_protobuf:  # the last resort: JSON is at hand encoded
        return Wanted(PROTOBUF)
    if transform_refused:
        raise not_acceptable()
    raise status.NotAcceptable(
        f"406: Not Acceptable\n\nAvailable representations: {_AVAILABLE}", details={}
    )


def not_acceptable() -> status.NotAcceptable:
    """The document cannot be had in that form."""
    return status.NotAcceptable(f"only the following media types are accepted: {_AVAILABLE}")


def of_errors(header: str) -> str:
    """The media type of a refusal: YAML for who wants nothing else, JSON for everybody else."""
    try:
        return accept(header).media_type
    except status.NotAcceptable:
        return JSON


def media_types(header: str) -> list[str]:
    """The media types of the header, most preferred first."""
    return [media_type for media_type, _ in _clauses(header)]


def _clauses(header: str) -> list[tuple[str, dict[str, str]]]:
    """The header's clauses, most preferred first; equal ones keep their order."""
    clauses: list[tuple[float, str, dict[str, str]]] = []
    for text in header.split(","):
        media_type, *rest = (part.strip() for part in text.split(";"))
        parameters = dict(
            (key.strip(), value.strip()) for key, _, value in (p.partition("=") for p in rest)
        )
        clauses.append((_quality(parameters.pop("q", "1")), media_type.lower(), parameters))
    clauses.sort(key=lambda clause: -clause[0])
    return [(media_type, parameters) for _, media_type, parameters in clauses]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def content_type(header: str) -> str:
    """The media type of a body, without its parameters."""
    return header.partition(";")[0].strip().lower()
