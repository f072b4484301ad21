"""HTML that cannot be broken out of: text is escaped unless it was made here.

Names of objects, events and logs come from whoever may write to the cluster, and are shown to those
who may do more. So there is no way to put a plain string into a page unescaped.

What comes out is well-formed XML as well (but for attributes without a value), because SVG lies
inside: there the parser of HTML closes no element by itself.
"""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

Attribute: TypeAlias = "str | int | float | bool | None"
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
)
# What no document may hold, and halves of surrogate pairs, which JSON lets through and UTF-8 not.
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """A piece of a page; made by `tag`, `text` and `document` alone."""

    __slots__ = ()


Child: TypeAlias = "str | Html | Iterable[Child] | None"


def text(child: Child) -> Html:
    """A child as a piece of a page: strings escaped, sequences joined, None left out."""
    if child is None:
        return Html("")
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return Html(_escaped(child))
    return Html("".join(map(text, child)))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. Attributes are written with `_` for `-` and `class_` for `class`; those that are
    None or False are left out, and True stands for the name alone."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name_ = key.rstrip("_").replace("_", "-")
        written.append(f" {name_}" if value is True else f' {name_}="{_escaped(str(value))}"')
    head = f"<{name}{''.join(written)}"
    return Html(f"{head}/>" if name in _VOID else f"{head}>{text(children)}</{name}>")


def document(head: Child, body: Child, language: str = "en") -> Html:
    """A whole page."""
    page = tag("html", tag("head", head), tag("body", body), lang=language)
    return Html(f"<!doctype html>{page}")


def _escaped(plain: str) -> str:
    return html.escape(_UNSPEAKABLE.sub("\ufffd", plain))
