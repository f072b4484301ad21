"""The columns of each kind's table: which, what they mean, and how a row of them is filled.

`columns.txt` names the columns; `core.py`, `workloads.py`, `pods.py` and `cluster.py` fill the
rows. Kinds without columns of their own show their name and when they were made, as in Kubernetes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from motley.api import schema, scheme
from motley.apiserver.crds import columns as custom
from motley.apiserver.tables import cluster, core, pods, workloads
from motley.lib import clock

Document = dict[str, Any]
Cells = Callable[[Document, float], list[Any]]

_ROWS: dict[tuple[str, str], Cells] = {
    ("", "pods"): pods.cells,
    **core.ROWS,
    **workloads.ROWS,
    **cluster.ROWS,
}
_TYPES = {"#": "integer", "?": "boolean", "@": "date"}
_MARKS = "!#?@-+"
_PLAIN = ["Name", "@Created At"]
_META = "meta.v1.ObjectMeta"
_OWN = {
    "Name": f"={_META}.name",
    "Age": f"={_META}.creationTimestamp",
    "Created At": f"={_META}.creationTimestamp",
}
# Where the definitions of a group lie, for short names such as `core.v1.PodSpec`.
_PREFIXES = (
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
)


@dataclass(frozen=True)
class Shape:
    """Column definitions, and the function that fills a row of them."""

    definitions: list[Document]
    cells: Cells
    no_rows: list[Document] | None = None
    """What an empty table shows as its rows; Kubernetes' own converters make an empty list."""


def now() -> float:
    """The time ages are counted to."""
    return clock.SYSTEM.now()


def of(kind: scheme.Kind) -> Shape:
    """The shape of a kind's table."""
    if kind.definition is not None:
        return Shape(*custom.shape(kind.definition))
    return _built_in(kind.group, kind.plural)


@cache
def scale() -> Shape:
    """The shape of the Scale subresource, whatever it belongs to."""
    return _built_in("autoscaling", "scale")


@cache
def _built_in(group: str, plural: str) -> Shape:
    named = _columns().get((group, plural))
    cells = _ROWS.get((group, plural))
    if named is None or cells is None:
        named, cells = _PLAIN, _plain
    definitions = [_definition(line) for line in named]
    return Shape(definitions, cells, None if cells in (_plain, *cluster.GENERIC) else [])


@cache
def _columns() -> dict[tuple[str, str], list[str]]:
    text = resources.files(__package__).joinpath("columns.txt").read_text()
    found: dict[tuple[str, str], list[str]] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(" "):
            columns.append(line.strip())
        else:
            plural, _, group = line.partition(".")
            columns = found[group, plural] = []
    return found


def _definition(line: str) -> Document:
    head, colon, described = line.partition(":")
    marks = head[: len(head) - len(head.lstrip(_MARKS))]
    name = head.lstrip(_MARKS)
    return {
        "name": name,
        "type": next((_TYPES[m] for m in marks if m in _TYPES), "string"),
        "format": "name" if (name == "Name" and "-" not in marks) or "+" in marks else "",
        "description": _description(described.strip() if colon else _OWN.get(name, "")),
        "priority": 1 if "!" in marks else 0,
    }


def _description(text: str) -> str:
    if not text.startswith("="):
        return text.replace("\\n", "\n")
    definition, _, field = text[1:].rpartition(".")
    for prefix in _PREFIXES:
        found = schema.definitions().get(prefix + definition)
        if found is not None:
            return str(found["properties"][field].get("description", ""))
    raise LookupError(f"columns.txt: no definition {definition}")


def _plain(shown: Document, at: float) -> list[Any]:
    metadata = shown["metadata"]
    return [metadata.get("name", ""), metadata.get("creationTimestamp")]
