"""Recorded against live: the differences, by the rules of the recording.

Lists are ordered, objects are not. Exceptions are those that the recording names: `managedFields`
is a set by manager, operation and subresource; some lists have no promised order; texts that quote
Go types count as far as the first colon; a server's version and checks are compared by shape.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from . import pattern
from .answer import HEADERS, Answer, tokens
from .pattern import Bindings
from .scenario import Response, Step

Path = tuple[str, ...]

_GO_TYPES = re.compile(r"Go struct field|Go value of type|cannot unmarshal")
_UNORDERED = {"resourceRules", "nonResourceRules"}
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_AGE = re.compile(r"\d+[smh]")
_CHECKS = re.compile(r"(?:\[\+\][\w./-]+(?: excluded:)? ok\n)+\w+ check passed\n")


@dataclass(frozen=True)
class Difference:
    """One place where the answers differ."""

    path: Path
    what: str  # "missing" | "extra" | "different" | "order"
    expected: Any = None
    actual: Any = None

    @property
    def pointer(self) -> str:
        """The place, readably."""
        return "/".join(self.path)


class Comparison:
    """Compares the steps of one scenario; remembers what its placeholders stand for."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._bindings = Bindings()
        self._unstable: frozenset[Path] = frozenset()

    def step(self, step: Step, live: Answer) -> list[Difference]:
        """The differences of one answer; none if it is what was recorded."""
        assert step.response is not None
        recorded = _with_namespace(step.response, self._namespace)
        self._unstable = frozenset(tokens(pointer) for pointer in step.unstable)
        found = list(self._status(recorded, live))
        if found:
            return found
        if ("status",) in self._unstable and recorded.status != live.status:
            return []
        found += self._head(recorded, live, is_watch=step.watchCollect is not None)
        if recorded.events is not None:
            found += self._watch(step, recorded, live)
        elif recorded.binaryPrefix is not None:
            prefix = recorded.binaryPrefix.encode("latin-1")
            if not live.raw.startswith(prefix):
                found.append(Difference(("binary",), "different", prefix, live.raw[:8]))
        elif recorded.text is not None:
            found += self._text(step, recorded.text, live)
        elif recorded.body is not msgspec.UNSET:
            found += self._body(step, recorded.body, live)
        return found

    def _status(self, recorded: Response, live: Answer) -> Iterator[Difference]:
        if ("status",) in self._unstable:
            return
        if recorded.status != live.status:
            yield Difference(("status",), "different", recorded.status, live.status)
        elif recorded.status >= 400 and recorded.body is not msgspec.UNSET:
            wanted, given = reason(recorded.body), reason(live.json())
            if wanted != given and ("body", "reason") not in self._unstable:
                yield Difference(("reason",), "different", wanted, given)

    def _head(self, recorded: Response, live: Answer, *, is_watch: bool) -> Iterator[Difference]:
        if recorded.contentType != live.content_type:
            yield Difference(("contentType",), "different", recorded.contentType, live.content_type)
        yield from self._values(("warnings",), list(recorded.warnings), list(live.warnings))
        if is_watch:
            return  # of watches no other headers are recorded
        for name in HEADERS:
            wanted, given = recorded.headers.get(name), live.headers.get(name)
            if wanted is None and given is None:
                continue
            if wanted is None or given is None or not pattern.fits(wanted, given, self._bindings):
                yield Difference(("headers", name), "different", wanted, given)

    def _text(self, step: Step, recorded: str, live: Answer) -> Iterator[Difference]:
        if recorded.startswith("[+]"):  # which checks a server makes is its own affair
            fits = _CHECKS.fullmatch(live.text) is not None
        elif (wanted := _json_lines(recorded)) and (given := _json_lines(live.text)):
            # Whether it is indented counts, the order of keys does not.
            fits = recorded.strip().count("\n") == live.text.strip().count("\n")
            yield from self._values(("text",), wanted, given)
        else:
            fits = pattern.fits(recorded, live.text, self._bindings)
        if not fits:
            yield Difference(("text",), "different", recorded, live.text[:4000])

    def _body(self, step: Step, recorded: Any, live: Answer) -> Iterator[Difference]:
        given = live.json()
        if given is msgspec.UNSET:
            yield Difference(("body",), "different", recorded, live.text[:400])
        elif step.request is not None and step.request.path.rstrip("/") == "/version":
            yield from _shape(("body",), recorded, given)
        else:
            yield from self._values(("body",), recorded, given)

    def _watch(self, step: Step, recorded: Response, live: Answer) -> Iterator[Difference]:
        keep = "bookmark" in step.purpose.lower()
        wanted = [e for e in recorded.events or () if keep or not is_plain_bookmark(e)]
        given = [e for e in live.events or () if keep or not is_plain_bookmark(e)]
        shown = [_event_name(e) for e in given]
        if [_event_name(e) for e in wanted] != shown:
            names = [_event_name(e) for e in wanted]
            yield Difference(("events",), "different", names, shown)
        else:
            yield from self._values(("events",), wanted, given)
        if recorded.serverEnded is not None and recorded.serverEnded != live.server_ended:
            yield Difference(("serverEnded",), "different", recorded.serverEnded, live.server_ended)

    def _values(self, path: Path, wanted: Any, given: Any) -> Iterator[Difference]:
        """Any two values, whatever they are."""
        if path in self._unstable:
            return
        if isinstance(wanted, dict) and isinstance(given, dict):
            yield from self._objects(path, wanted, given)
        elif isinstance(wanted, list) and isinstance(given, list):
            yield from self._lists(path, wanted, given)
        elif isinstance(wanted, str):
            # A node port is a number in the answer and a placeholder, so a string, here.
            if isinstance(given, int) and pattern.has_placeholder(wanted):
                given = str(given)
            if not isinstance(given, str) or not self._strings(wanted, given):
                yield Difference(path, "different", wanted, given)
        elif type(wanted) is not type(given) or wanted != given:
            yield Difference(path, "different", wanted, given)

    def _strings(self, wanted: str, given: str) -> bool:
        if pattern.fits(wanted, given, self._bindings):
            return True
        if _GO_TYPES.search(wanted):
            return wanted.partition(":")[0] == given.partition(":")[0]
        return False

    def _objects(
        self, path: Path, wanted: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Iterator[Difference]:
        names = self._same_names(wanted, given)
        for key, value in wanted.items():
            where = (*path, key)
            if key not in names:
                if where not in self._unstable:
                    yield Difference(where, "missing", value)
            elif key == "causes" and self._same_set(value, given[names[key]]):
                continue
            elif key != "message" or not _is_reordered(wanted, given):
                yield from self._values(where, value, given[names[key]])
        taken = set(names.values())
        for key, value in given.items():
            if key not in taken and (*path, key) not in self._unstable:
                yield Difference((*path, key), "extra", None, value)

    def _same_names(self, wanted: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
        """Recorded keys to live ones; keys hold placeholders too (`k:{"uid":"<uid:1>"}`)."""
        names = {key: key for key in wanted if key in given}
        for key in wanted:
            if key in names or not pattern.has_placeholder(key):
                continue
            for other in given:
                if other not in wanted and pattern.fits(key, other, self._bindings):
                    names[key] = other
                    break
        return names

    def _lists(self, path: Path, wanted: list[Any], given: list[Any]) -> Iterator[Difference]:
        if path[-1] == "managedFields":
            yield from self._managed(path, wanted, given)
            return
        if path[-1] in _UNORDERED and self._same_set(wanted, given):
            return
        if _are_component_statuses(wanted):
            wanted, given = _by_name(wanted), _by_name(given)
        for i, (one, other) in enumerate(zip(wanted, given, strict=False)):
            if path[-1] == "cells" and _AGE.fullmatch(str(one)) and isinstance(other, str):
                one = "<age>"  # an age that the recording has not recognised as one
            yield from self._values((*path, str(i)), one, other)
        for i in range(len(given), len(wanted)):
            if (*path, str(i)) not in self._unstable:
                yield Difference((*path, str(i)), "missing", wanted[i])
        for i in range(len(wanted), len(given)):
            yield Difference((*path, str(i)), "extra", None, given[i])

    def _managed(self, path: Path, wanted: list[Any], given: list[Any]) -> Iterator[Difference]:
        left = list(given)
        for i, entry in enumerate(wanted):
            where = (*path, str(i))
            if where in self._unstable:
                continue
            match = next((e for e in left if _manager(e) == _manager(entry)), None)
            if match is None:
                yield Difference(where, "missing", entry)
                continue
            left.remove(match)
            yield from self._values(where, entry, match)
        for entry in left:
            yield Difference((*path, "+"), "extra", None, entry)

    def _same_set(self, wanted: Any, given: Any) -> bool:
        """Whether two lists hold equal items in any order."""
        if not isinstance(wanted, list) or not isinstance(given, list):
            return False
        if len(wanted) != len(given):
            return False
        tried = self._bindings
        left = list(given)
        for one in wanted:
            for other in left:
                self._bindings = tried.copy()
                if next(self._values(("",), one, other), None) is None:
                    tried.adopt(self._bindings)
                    left.remove(other)
                    break
            else:
                self._bindings = tried
                return False
        self._bindings = tried
        return True


def reason(body: Any) -> str | None:
    """The reason of a Status; None for anything else."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        return body.get("reason") or ""
    return None


def is_plain_bookmark(event: Mapping[str, Any]) -> bool:
    """A bookmark that may come at any time; one that ends the initial events may not."""
    if event.get("type") != "BOOKMARK":
        return False
    metadata = (event.get("object") or {}).get("metadata") or {}
    return _INITIAL_EVENTS_END not in (metadata.get("annotations") or {})


def _event_name(event: Mapping[str, Any]) -> str:
    metadata = (event.get("object") or {}).get("metadata") or {}
    return f"{event.get('type')} {metadata.get('name', '')}".strip()


def _manager(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return entry.get("manager"), entry.get("operation"), entry.get("subresource", "")


def _is_reordered(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether two messages list the same independent causes, in another order."""
    if wanted.get("kind") != "Status" or wanted.get("message") == given.get("message"):
        return False
    causes = (wanted.get("details") or {}).get("causes") or []
    text, other = str(wanted.get("message")), str(given.get("message"))
    if len(causes) < 2 or len(text) != len(other):
        return False
    listed = [f"{cause.get('field')}: {cause.get('message')}" for cause in causes]
    return all(one in other for one in listed) and sorted(text) == sorted(other)


def _are_component_statuses(items: Sequence[Any]) -> bool:
    return bool(items) and all(
        isinstance(one, dict) and "conditions" in one and "metadata" in one and len(one) == 2
        for one in items
    )


def _by_name(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda one: str((one.get("metadata") or {}).get("name")))


def _json_lines(text: str) -> list[Any]:
    """The values of a JSON text, or of one on every line; nothing when it is neither."""
    for pieces in ([text], text.splitlines()):
        try:
            return [msgspec.json.decode(piece) for piece in pieces]
        except msgspec.DecodeError:
            continue
    return []


def _shape(path: Path, wanted: Any, given: Any) -> Iterator[Difference]:
    """Only the keys and the types of their values."""
    if not isinstance(given, dict):
        yield Difference(path, "different", wanted, given)
        return
    for key, value in wanted.items():
        if key not in given:
            yield Difference((*path, key), "missing", value)
        elif type(value) is not type(given[key]):
            yield Difference((*path, key), "different", value, given[key])
    for key in given.keys() - wanted.keys():
        yield Difference((*path, key), "extra", None, given[key])


def _with_namespace(recorded: Response, namespace: str) -> Response:
    """The recorded answer with the live scenario's namespace in it."""
    text = msgspec.json.encode(recorded)
    if b"${NS}" not in text:
        return recorded
    return msgspec.json.decode(text.replace(b"${NS}", namespace.encode()), type=Response)
