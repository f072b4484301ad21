"""Links of pages that come through the proxy."""

import gzip
import zlib

import pytest

from motley.apiserver.subresources.links import Compressed, Page, Proxied

PROXIED = Proxied("/api/v1/namespaces/d/pods/p/proxy", "10.1.1.1:80", "cluster:6443")
PREFIX = PROXIED.prefix
LINKS = {
    "/a": f"{PREFIX}/a",
    "/": f"{PREFIX}/",
    "/a/../b/": f"{PREFIX}/b/",
    "/../../secrets": f"{PREFIX}/secrets",
    "/a?x=1#y": f"{PREFIX}/a?x=1#y",
    f"{PREFIX}/a": f"{PREFIX}/a",
    "http://10.1.1.1:80/a": f"{PREFIX}/a",
    "https://cluster:6443/a": f"https://cluster:6443{PREFIX}/a",
    "a/b": "a/b",
    "../a": "../a",
    "#top": "#top",
    "": "",
    "http://example.com/a": "http://example.com/a",
    "//example.com/a": "//example.com/a",
    "mailto:a@b": "mailto:a@b",
    "javascript:/x/.test(1)": "javascript:/x/.test(1)",
    "http://[broken/": "http://[broken/",
}
PAGE = """<!DOCTYPE html><!-- <a href="/comment"> --><html manifest='/m'>
<script src=/s.js>if (a < b) x = '<a href="/no">';</script>
<A class="x" HREF = "/a?x=1&amp;y=2&copy=3" data-x="/no">1 < 2</a>
<form action=/f/><input value="/no" disabled formaction='/g'/></form>
<img alt="a > b" src="/i" srcset="/no"><p>/no</p><a href="rel"></a><a href="é/ü"><title></title>"""
WANTED = """<!DOCTYPE html><!-- <a href="/comment"> --><html manifest="#/m">
<script src="#/s.js">if (a < b) x = '<a href="/no">';</script>
<A class="x" HREF = "#/a?x=1&amp;y=2&amp;copy=3" data-x="/no">1 < 2</a>
<form action="#/f/"><input value="/no" disabled formaction="#/g"/></form>
<img alt="a > b" src="#/i" srcset="/no"><p>/no</p><a href="rel"></a><a href="é/ü"><title></title>"""


def passed(page, data: bytes, size: int) -> bytes:
    pieces = [page.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join([*pieces, page.finish()])


@pytest.mark.parametrize(("given", "wanted"), LINKS.items())
def test_a_link_of_the_page_itself_is_led_through_the_proxy(given, wanted):
    assert PROXIED.link(given) == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_a_page_comes_out_the_same_however_it_arrives(size):
    assert passed(Page(PROXIED.link), PAGE.encode(), size).decode() == WANTED.replace("#", PREFIX)


@pytest.mark.parametrize(
    "odd", ["<", "<a", '<a href="/x', "<!-- x", "<a ==b>", "<script>x</scr", "<a b=", "<3 <>"]
)
def test_what_is_no_markup_after_all_passes_as_it_is(odd):
    for size in (1, 100):
        assert passed(Page(PROXIED.link), odd.encode(), size) == odd.encode()


def test_a_tag_without_end_is_not_waited_for():
    page = Page(PROXIED.link)
    start = b'<a href="' + b"x" * 70_000

    assert page.feed(start) == start
    assert page.feed(b'"> <a href="/b">') == f'"> <a href="{PREFIX}/b">'.encode()


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack", "unpack"),
    [
        ("gzip", gzip.compress, gzip.decompress),
        ("gzip", lambda d: gzip.compress(d[:99]) + gzip.compress(d[99:]), gzip.decompress),
        ("deflate", zlib.compress, zlib.decompress),
        ("deflate", bare, lambda d: zlib.decompress(d, wbits=-15)),
    ],
)
def test_a_compressed_page_is_opened_and_closed_again(encoding, pack, unpack):
    long = PAGE * 2000  # more than what is opened at once
    found = passed(Compressed(Page(PROXIED.link), encoding), pack(long.encode()), 1000)

    assert unpack(found).decode() == WANTED.replace("#", PREFIX) * 2000


def test_an_empty_page_stays_empty():
    assert Compressed(Page(PROXIED.link), "gzip").finish() == b""
