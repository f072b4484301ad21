"""Links in pages that come through the proxy: `/logo.png` would else leave it.

A page served at `…/pods/web/proxy/` believes it lives at `/`. Its absolute links are prefixed with
the path of the proxy, in the attributes that hold addresses and in `Location`; relative links work
as they are, and links to other hosts are meant. Pages are rewritten while they pass, piece by
piece, compressed ones too.

Invariant: what is no link of the page's own host passes byte by byte.
"""

import html
import posixpath
import re
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

_LINKS: dict[bytes, frozenset[bytes]] = {
    tag: frozenset(attributes.split())
    for tag, attributes in {
        b"a": b"href",
        b"applet": b"codebase",
        b"area": b"href",
        b"audio": b"src",
        b"base": b"href",
        b"blockquote": b"cite",
        b"body": b"background",
        b"button": b"formaction",
        b"command": b"icon",
        b"del": b"cite",
        b"embed": b"src",
        b"form": b"action",
        b"frame": b"longdesc src",
        b"head": b"profile",
        b"html": b"manifest",
        b"iframe": b"longdesc src",
        b"img": b"longdesc src usemap",
        b"input": b"formaction src usemap",
        b"ins": b"cite",
        b"link": b"href",
        b"object": b"classid codebase data usemap",
        b"q": b"cite",
        b"script": b"src",
        b"source": b"src",
        b"video": b"poster src",
    }.items()
}
# Between these and their end nothing is a tag.
_RAW = frozenset(b"iframe noembed noframes script style textarea title xmp".split())
_NAME = re.compile(rb"<([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE = re.compile(
    rb"[\s/]*+(=?[^\s/>=]++)"
    rb"(?:\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|(?![\"'])[^\s>]++|(?=>)))?+"
)
_ASSIGNED = re.compile(rb"\s*+=")
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);")
_END = re.compile(rb"[\s/]*+>")
# 64 KiB: what is longer is no tag anybody wrote, and passes as it is.
_LONGEST_TAG = 64 * 1024
_BLOCK = 256 * 1024
_GZIP_MEMBER = b"\x1f"


class Proxied(NamedTuple):
    """Where a page comes from, and how the client got there."""

    prefix: str  # the path up to and with `proxy`
    origin: str  # host:port that was called
    host: str  # what the client called this server

    def link(self, given: str) -> str:
        """A link of the page as it works for the client; others as they are."""
        try:
            parts = urlsplit(given)
        except ValueError:
            return given
        if not parts.path.startswith("/") or parts.scheme not in ("", "http", "https"):
            return given
        if parts.netloc not in ("", self.origin, self.host) or (parts.scheme and not parts.netloc):
            return given
        path = parts.path
        if not _is_below(path, self.prefix):
            path = posixpath.normpath("/" + path.lstrip("/"))
            slash = "/" if parts.path.endswith("/") and path != "/" else ""
            path = f"{self.prefix}{path}{slash}"
        is_called = parts.netloc == self.origin != self.host
        if is_called:
            parts = parts._replace(scheme="", netloc="")
        elif path == parts.path:
            return given
        return parts._replace(path=path).geturl()


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


class Page:
    """A page on its way through; give it bytes, get what can be sent."""

    def __init__(self, link: Callable[[str], str]) -> None:
        self._link = link
        self._kept = b""  # the beginning of something that has not ended
        self._raw = b""  # the element whose content is no markup

    def feed(self, data: bytes) -> bytes:
        """Take more of the page."""
        return self._read(self._kept + data, is_last=False)

    def finish(self) -> bytes:
        """The page has ended: what is left of it."""
        return self._read(self._kept, is_last=True)

    def _read(self, data: bytes, *, is_last: bool) -> bytes:
        out: list[bytes] = []
        at = 0
        while at < len(data):
            end, piece = self._next(data, at)
            if end < 0:
                if not is_last and len(data) - at <= _LONGEST_TAG:
                    break
                end, piece = at + 1, data[at : at + 1]  # no markup after all
            out.append(piece)
            at = end
        self._kept = data[at:]
        return b"".join(out)

    def _next(self, data: bytes, at: int) -> tuple[int, bytes]:
        """The next piece and where it ends; -1 when more must be seen to know."""
        if self._raw:
            return self._raw_text(data, at)
        start = data.find(b"<", at)
        if start != at:
            end = len(data) if start < 0 else start
            return end, data[at:end]
        if data.startswith(b"<!--", at):
            end = data.find(b"-->", at + 4)
            return (end + 3, data[at : end + 3]) if end >= 0 else (-1, b"")
        if at + 4 > len(data) and b"<!--".startswith(data[at:]):
            return -1, b""
        if data[at + 1 : at + 2] in (b"!", b"?", b"/"):
            end = data.find(b">", at)
            return (end + 1, data[at : end + 1]) if end >= 0 else (-1, b"")
        return self._tag(data, at)

    def _raw_text(self, data: bytes, at: int) -> tuple[int, bytes]:
        closing = b"</" + self._raw
        found = re.compile(re.escape(closing) + rb"(?=[\s/>])", re.IGNORECASE).search(data, at)
        if found is not None:
            self._raw = b""
            if found.start() > at:
                return found.start(), data[at : found.start()]
            return self._next(data, at)
        end = len(data) - len(closing)  # its end may have begun
        return (end, data[at:end]) if end > at else (-1, b"")

    def _tag(self, data: bytes, at: int) -> tuple[int, bytes]:
        named = _NAME.match(data, at)
        if named is None:
            return at + 1, b"<"
        name = named[1].lower()
        links = _LINKS.get(name, frozenset())
        out: list[bytes] = []
        done, here = at, named.end()
        while (end := _END.match(data, here)) is None:
            found = _ATTRIBUTE.match(data, here)
            here = here + 1 if found is None else found.end()
            if here >= len(data):
                return -1, b""
            if found is None:
                continue
            if found[2] is None and _ASSIGNED.match(data, here):
                return -1, b""  # its value has not ended
            if found[1].lower() in links and found[2]:
                out += [data[done : found.start(2)], self._value(found[2])]
                done = found.end(2)
        out.append(data[done : end.end()])
        if name in _RAW:
            self._raw = name
        return end.end(), b"".join(out)

    def _value(self, given: bytes) -> bytes:
        inner = given[1:-1] if given[:1] in (b'"', b"'") else given
        # Without a semicolon `&copy=1` is a parameter, not a sign.
        written = inner.decode("utf-8", "surrogateescape")
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), written)
        link = self._link(text)
        if link == text:
            return given
        return b'"' + html.escape(link).encode("utf-8", "surrogateescape") + b'"'


class Compressed:
    """A page inside a compression: opened, rewritten, closed again."""

    def __init__(self, page: Page, encoding: str) -> None:
        self._page = page
        self._encoding = encoding
        self._wbits = 0
        self._opener: zlib._Decompress | None = None
        self._closer: zlib._Compress | None = None

    def feed(self, data: bytes) -> bytes:
        """Take more of the compressed page. Raises zlib.error where it is broken."""
        return self._closed(b"".join(map(self._page.feed, self._opened(data))))

    def finish(self) -> bytes:
        """What is left of the page, and the end of the compression."""
        if self._opener is None or self._closer is None:
            return b""
        rest = self._page.feed(self._opener.flush()) + self._page.finish()
        return self._closer.compress(rest) + self._closer.flush()

    def _opened(self, data: bytes) -> Iterator[bytes]:
        if self._opener is None:
            self._start(data)
        while data:
            assert self._opener is not None
            if self._opener.eof:
                if self._encoding != "gzip" or not data.startswith(_GZIP_MEMBER):
                    return  # padding
                self._opener = zlib.decompressobj(wbits=self._wbits)
            yield self._opener.decompress(data, _BLOCK)
            data = self._opener.unconsumed_tail or self._opener.unused_data

    def _start(self, data: bytes) -> None:
        self._wbits = 16 + zlib.MAX_WBITS if self._encoding == "gzip" else zlib.MAX_WBITS
        if self._encoding == "deflate" and data[0] & 0x0F != 8:
            self._wbits = -zlib.MAX_WBITS  # zlib's format is meant, and often the bare one is sent
        self._opener = zlib.decompressobj(wbits=self._wbits)
        self._closer = zlib.compressobj(1, wbits=self._wbits)

    def _closed(self, page: bytes) -> bytes:
        if self._closer is None or not page:
            return b""
        return self._closer.compress(page) + self._closer.flush(zlib.Z_SYNC_FLUSH)
