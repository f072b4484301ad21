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
_AVAILABLE = "application/json, application/yaml"
_TRANSFORMS = frozenset(
    {
        ("Table", "meta.k8s.io", "v1"),
        ("Table", "meta.k8s.io", "v1beta1"),
        ("PartialObjectMetadata", "meta.k8s.io", "v1"),
        ("PartialObjectMetadata", "meta.k8s.io", "v1beta1"),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1"),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1beta1"),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1"),
    }
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The form to answer in."""

    media_type: str = JSON
    transform: str = ""  # Table, PartialObjectMetadata, …; empty: the object itself
    version: str = ""  # of the transform


@lru_cache(maxsize=512)
def accept(header: str) -> Wanted:
    """The best form for this header; 406 when there is none."""
    transform_refused = False
    for media_type, parameters in _clauses(header):
        served = _SERVED.get(media_type)
        if served is None:
            continue
        name = parameters.get("as", "")
        if not name:
            return Wanted(served)
        if (name, parameters.get("g", ""), parameters.get("v", "")) in _TRANSFORMS:
            return Wanted(served, name, parameters["v"])
        transform_refused = True
    if transform_refused:
        raise status.NotAcceptable(f"only the following media types are accepted: {_AVAILABLE}")
    raise status.NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {_AVAILABLE}")


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
