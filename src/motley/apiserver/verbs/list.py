"""GET on a collection: stored bytes, joined.

Without a version a list is consistent with every write that was answered before; `0` takes what
the cache has; a number waits for it. Pages of one list show one moment: the token carries the
revision of the first. Who turns the pages so slowly that this moment is forgotten gets 410, and
with it a token for the rest as it is now.
"""

import base64
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from motley.api import codec, status
from motley.apiserver import attributes, document, tables, versions
from motley.apiserver.answer import Answer
from motley.apiserver.attributes import Attributes, Matcher
from motley.apiserver.caches import too_large_version
from motley.apiserver.core import Core
from motley.apiserver.crds import selection
from motley.apiserver.crds.shown import value as shown_value
from motley.apiserver.options import ListOptions, list_options
from motley.apiserver.verbs.call import Call, in_media_type
from motley.store.cached import Cached
from motley.store.contract import Ahead, Compacted, Record, Revision

_TOKEN_VERSION = "meta.k8s.io/v1"
_NOW = -1  # in the token that comes with a 410: whatever the rest is by then
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    """Part of a list, true at `revision`."""

    records: Sequence[Record]
    revision: int
    next_page: str = ""
    remaining: int | None = None


async def handle(core: Core, call: Call) -> Answer:
    """200 with a list, a table, or partial metadata."""
    options = list_options(call.info.query, watching=False)
    page = await select(core, call, options)
    await core.writer.conversions.prime(call.kind, (r.value for r in page.records))
    return render(call, page)


async def select(core: Core, call: Call, options: ListOptions) -> Page:
    """The objects a list means."""
    matcher = attributes.matcher(call.kind, options.label_selector, options.field_selector)
    if options.next_page:
        return await _next_page(core, call, options, matcher)
    if options.resource_version and (
        options.match == "Exact" or (options.limit and not options.match)
    ):
        return await _exact(core, call, options, matcher)
    return await _from_cache(core, call, options, matcher)


async def _from_cache(core: Core, call: Call, options: ListOptions, matcher: Matcher) -> Page:
    if options.resource_version is None:
        cache = await core.caches.fresh(call.kind)
    else:
        cache = await core.caches.not_older_than(call.kind, Revision(options.resource_version))
    limit = options.limit if options.resource_version != 0 else 0
    prefix = call.kind.prefix(call.namespace)
    name = matcher.only_name()
    if name and (call.namespace or not call.kind.namespaced):
        found = cache.get(call.kind.key(call.namespace, name))
        revision = cache.revision
        return Page(await _chosen(core, call, [found] if found else [], matcher), revision)
    if matcher.is_everything:
        listing = cache.list(prefix, limit=limit)
        records = [c.record for c in listing.items]
        token = _token(records, listing.revision, prefix) if listing.remaining else ""
        return Page(records, listing.revision, token, listing.remaining)
    listing = cache.list(prefix)
    chosen = await _chosen(core, call, listing.items, matcher)
    return _cut(chosen, limit, listing.revision, prefix)


async def _exact(core: Core, call: Call, options: ListOptions, matcher: Matcher) -> Page:
    assert options.resource_version is not None
    prefix = call.kind.prefix(call.namespace)
    try:
        found = await core.store.range(prefix, at=Revision(options.resource_version))
    except Compacted:
        raise status.Gone("The resourceVersion for the provided list is too old.") from None
    except Ahead as ahead:
        raise too_large_version(options.resource_version, ahead.current) from None
    records = await _matching(core, call, found.records, matcher)
    page = _cut(records, options.limit, found.revision, prefix)
    if matcher.is_everything and page.next_page:
        return page._replace(remaining=len(records) - len(page.records))
    return page


async def _next_page(core: Core, call: Call, options: ListOptions, matcher: Matcher) -> Page:
    if options.resource_version:
        raise status.BadRequest("specifying resource version is not allowed when using continue")
    token = _read_token(options.next_page)
    prefix = call.kind.prefix(call.namespace)
    limit = options.limit if options.resource_version is None else 0
    start = prefix + token.start
    at = Revision(token.rv) if token.rv != _NOW else None
    try:
        if matcher.is_everything:
            found = await core.store.range(prefix, start=start, limit=limit, at=at)
            revision = found.revision if at is None else at
            more = _token(found.records, revision, prefix) if found.more else ""
            return Page(found.records, revision, more, found.remaining)
        found = await core.store.range(prefix, start=start, at=at)
    except Compacted:
        raise status.Gone(_TOO_OLD, next_page=_encoded(token.start, _NOW)) from None
    except Ahead as ahead:
        raise too_large_version(token.rv, ahead.current) from None
    revision = found.revision if at is None else at
    return _cut(await _matching(core, call, found.records, matcher), limit, revision, prefix)


async def _matching(
    core: Core, call: Call, records: Sequence[Record], matcher: Matcher
) -> list[Record]:
    if matcher.is_everything:
        return list(records)
    read = selection.reader(call.kind.storage)
    items = [Cached(r, read(r.key, r.value)) for r in records]
    return await _chosen(core, call, items, matcher)


async def _chosen(
    core: Core, call: Call, items: Sequence[Cached[Attributes]], matcher: Matcher
) -> list[Record]:
    """The objects a selector means, as the version of the request shows them."""
    selecting = selection.of(call.kind, matcher)
    if selecting is None:
        matches = matcher.matches
        return [c.record for c in items if matches(c.attributes)]
    await core.writer.conversions.prime(call.kind, (c.record.value for c in items))
    return [
        c.record for c in items if selecting.matches(c.record.key, c.record.value, c.attributes)
    ]


def _cut(records: list[Record], limit: int, revision: int, prefix: str) -> Page:
    """One page; how many remain is not said when a selector would have to count them."""
    if not limit or len(records) <= limit:
        return Page(records, revision)
    page = records[:limit]
    return Page(page, revision, _token(page, revision, prefix))


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


_decode_token = msgspec.json.Decoder(_Token).decode


def _token(records: Sequence[Record], revision: int, prefix: str) -> str:
    return _encoded(records[-1].key.removeprefix(prefix) + "\0", revision)


def _encoded(start: str, revision: int) -> str:
    raw = codec.encode(_Token(_TOKEN_VERSION, int(revision), start))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = _decode_token(raw)
    except (ValueError, msgspec.MsgspecError) as error:
        problem = _base64_problem(text) or str(error)
        raise status.BadRequest(
            f"invalid continue token: continue key is not valid: {problem}"
        ) from None
    is_version = token.rv > 0 or token.rv == _NOW
    if token.v != _TOKEN_VERSION or not is_version or not token.start:
        raise status.BadRequest("invalid continue token: continue key is not valid")
    return token


def _base64_problem(text: str) -> str:
    """Where a text stops being base64; empty when it is."""
    wrong = next(
        (i for i, c in enumerate(text) if not (c.isascii() and (c.isalnum() or c in "-_"))), None
    )
    if wrong is None and len(text) % 4 == 1:  # six bits are no byte
        wrong = len(text) - 1
    return "" if wrong is None else f"illegal base64 data at input byte {wrong}"


def render(call: Call, page: Page) -> Answer:
    """The page in the form the client wants."""
    kind, wanted = call.kind, call.wanted
    tables.check_list_form(kind, wanted)
    values = [record.value for record in page.records]
    if wanted.transform:
        kind = versions.tabled(kind)
    if kind.definition is not None or kind.stored_as is not None:
        values = [shown_value(kind, value) for value in values]
    if not wanted.transform:
        body = document.list_body(
            kind, values, page.revision, next_page=page.next_page, remaining=page.remaining
        )
        if wanted.media_type != "application/json":
            return in_media_type(codec.decode(bytes(body)), wanted.media_type)
        if body.length <= document.BLOCK:
            return Answer(bytes(body))
        return Answer(b"", blocks=body)
    objects = [document.decode(value) for value in values]
    if wanted.transform == "Table":
        include = call.info.query.text("includeObject")
        shown = tables.of_list(kind, objects, include, wanted.version)
    else:
        shown = tables.partial_list(objects, wanted.version)
    shown["metadata"] = tables.list_metadata(page.revision, page.next_page, page.remaining)
    return in_media_type(shown, wanted.media_type)
