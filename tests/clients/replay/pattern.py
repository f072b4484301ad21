"""Placeholders: recorded strings as patterns that a live answer must fit.

A recorded `<time>` fits any time, `<uid:2>` any UUID that is the same wherever `<uid:2>` stands in
the scenario and different from `<uid:1>`. So nothing of the live answer is rewritten, and a value
that the recording shows as it is must come as it is.

Numbers say only what is equal and what is not: a server that writes once more in between shows
other numbers and is not wrong.
"""

import functools
import re
from dataclasses import dataclass, field

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_PLAIN = {
    "listrv": r"[1-9]\d*",
    "rv": r"\d+",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)",
    "microtime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)",
    "age": r"(?:\d+[smhdy])+|<invalid>|<unknown>|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "nodePort": r"\d{5}",
    "suffix": r"[a-z0-9]{5}",
    "continue": r"[A-Za-z0-9_=-]+",
    "jwt": r"[\w-]+\.[\w-]+\.[\w-]+",
    "pem-base64": r"[A-Za-z0-9+/=]+",
    "etag": r"\"[^\"]+\"|[^\"]+",
    "hash": r"\w+",
    "kid": r"[\w-]+",
    "modulus": r"[\w-]+",
    "serverAddress": r"[\w.\[\]:-]+:\d+",
}
_NUMBERED = {
    "uid": _UUID,
    "rv": r"[1-9]\d*",
    "clusterIP": r"10\.96\.\d{1,3}\.\d{1,3}",
    "nodePort": r"3[0-2]\d{3}",
}
_PLACEHOLDER = re.compile(
    r"<(?:(?P<numbered>uid|rv|clusterIP|nodePort):(?P<number>\d+)"
    r"|pem:(?P<pem>[A-Z ]+)"
    r"|(?P<plain>" + "|".join(map(re.escape, _PLAIN)) + r"))>"
)


@dataclass
class Bindings:
    """What the numbered placeholders of one scenario stand for, so far."""

    values: dict[str, str] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)

    def bind(self, placeholder: str, value: str) -> bool:
        """Whether a value may stand here; a contradiction is told once, and then believed."""
        kind = placeholder.partition(":")[0]
        known = self.values.get(placeholder)
        holder = self.holders.get(f"{kind} {value}")
        if known == value:
            return True
        agrees = known is None and holder is None
        if known is not None:
            self.holders.pop(f"{kind} {known}", None)
        if holder is not None:
            self.values.pop(holder, None)
        self.values[placeholder] = value
        self.holders[f"{kind} {value}"] = placeholder
        return agrees

    def copy(self) -> "Bindings":
        """For trying a match that may fail."""
        return Bindings(dict(self.values), dict(self.holders))

    def adopt(self, other: "Bindings") -> None:
        """Take over what a successful try has bound."""
        self.values, self.holders = other.values, other.holders


@functools.lru_cache(maxsize=50_000)
def _compiled(expected: str) -> tuple[re.Pattern[str], tuple[str, ...]] | None:
    """The expression of a recorded string and the placeholders of its groups."""
    parts: list[str] = []
    names: list[str] = []
    end = 0
    pem = ""
    for found in _PLACEHOLDER.finditer(expected):
        between = expected[end : found.start()]
        end = found.end()
        if found["pem"]:
            # How many certificates a bundle holds is the server's own affair.
            if not between and pem == found["pem"]:
                continue
            pem = found["pem"]
            parts.append(re.escape(between))
            parts.append(rf"(?:-----BEGIN {pem}-----[A-Za-z0-9+/=\s]+-----END {pem}-----\n?)+")
            continue
        pem = ""
        parts.append(re.escape(between))
        if found["numbered"]:
            names.append(f"{found['numbered']}:{found['number']}")
            parts.append(f"({_NUMBERED[found['numbered']]})")
        else:
            parts.append(f"(?:{_PLAIN[found['plain']]})")
    if not parts:
        return None
    parts.append(re.escape(expected[end:]))
    return re.compile("".join(parts), re.DOTALL), tuple(names)


def fits(expected: str, actual: str, bindings: Bindings) -> bool:
    """Whether a live string is what was recorded."""
    compiled = _compiled(expected)
    if compiled is None:
        return expected == actual
    expression, names = compiled
    found = expression.fullmatch(actual)
    if found is None:
        return False
    agreed = [bindings.bind(name, found[i + 1]) for i, name in enumerate(names)]
    return all(agreed)


def has_placeholder(expected: str) -> bool:
    """Whether a recorded string stands for more than itself."""
    return _compiled(expected) is not None
