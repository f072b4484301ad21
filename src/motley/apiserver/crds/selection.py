"""Which custom objects a selector means, as the version it was asked in shows them.

Beside each object the cache keeps what the kept version's selectors look at, so a request in that
version costs comparisons. Another version has selectable fields of its own, may default them
otherwise, and a webhook may have put them, and the labels, together from anything: there the
selector is held against the object as that version shows it. Such views are remembered, so that
many watchers of one change look at it once. When what selectors depend on changes, the cache is
made anew and its watches end.

Invariant: what a list or watch selects is what a client would select itself from all that the
version shows.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from motley.api import scheme, status
from motley.api.structural.definition import Definition
from motley.apiserver import attributes, document
from motley.apiserver.attributes import Attributes, Matcher
from motley.apiserver.crds import rows, shown

Document = dict[str, object]

_views: WeakKeyDictionary[Definition, dict[bytes, Attributes]] = WeakKeyDictionary()


def reader(kind: scheme.Kind) -> Callable[[str, bytes], Attributes]:
    """The function that reads, from key and bytes, what the cache of a kind keeps."""
    definition = kind.definition
    if definition is None or not definition.selectable:
        return attributes.reader(kind)

    def read(key: str, value: bytes) -> Attributes:
        # What a webhook must translate is not judged by what is kept here.
        if shown.is_as_kept(kind, value) or shown.is_foreign(kind, value):
            return _attributes(kind, key, document.decode(value))
        return _attributes(kind, key, shown.read(kind, value))

    return read


def _attributes(kind: scheme.Kind, key: str, found: Document) -> Attributes:
    assert kind.definition is not None
    rest, _, name = key.rpartition("/")
    namespace = rest.rpartition("/")[2] if kind.namespaced else ""
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return Attributes(
        namespace, name, metadata.get("labels") or {}, kind.definition.selected(found)
    )


def current(kind: scheme.Kind) -> scheme.Kind:
    """The kind as its definition is now; itself when it is served no longer."""
    if kind.definition is None or not kind.definition.is_custom:
        return kind
    return scheme.resource(kind.group, kind.version, kind.plural) or kind


def check_current(kind: scheme.Kind) -> None:
    """Refuse a request that was begun under a definition with other fields: 503."""
    now = current(kind)
    if now is not kind and _kept_form(now) != _kept_form(kind):
        raise status.ServiceUnavailable(
            f"the definition of {kind.qualified} has just changed; try again", retry_after_s=1
        )


def _kept_form(kind: scheme.Kind) -> tuple[str, tuple[str, ...]]:
    kept = kind.storage
    assert kept.definition is not None
    return kept.version, kept.definition.selectable


def of(kind: scheme.Kind, matcher: Matcher) -> "Selection | None":
    """How to judge objects by a matcher; None when what the cache keeps beside them says it."""
    definition = kind.definition
    if definition is None or not definition.is_custom:
        return None
    if not definition.convertible:
        is_needed = matcher.labels is not None or matcher.has_fields
    elif kind.stored_as is None or not matcher.has_fields:
        is_needed = False
    else:
        kept = kind.storage.definition
        assert kept is not None
        is_one_schema = definition.since != rows.NEVER
        is_needed = not is_one_schema or kept.selectable != definition.selectable
    return Selection(kind, matcher) if is_needed else None


class Selection:
    """A request's selectors in a version that the cache does not answer for.

    What a webhook must translate has to be translated (`Conversions.prime`) before it is judged.
    """

    def __init__(self, kind: scheme.Kind, matcher: Matcher) -> None:
        assert kind.definition is not None
        self._kind = kind
        self._matcher = matcher
        self._views = _views.setdefault(kind.definition, {})

    def can_judge(self, value: bytes) -> bool:
        """Whether `matches` may be asked without waiting for a webhook."""
        return value in self._views or not shown.is_unknown(self._kind, value)

    def matches(self, key: str, value: bytes, kept: Attributes) -> bool:
        """Whether an object is selected; `kept` is what the cache has beside it."""
        kind = self._kind
        if kind.stored_as is None and not shown.is_foreign(kind, value):
            return self._matcher.matches(kept)
        found = self._views.get(value)
        if found is None:
            found = self._views[value] = _attributes(kind, key, shown.read(kind, value))
            if len(self._views) > shown.REMEMBERED:
                del self._views[next(iter(self._views))]
        return self._matcher.matches(found)
