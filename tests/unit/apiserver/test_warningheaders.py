"""Warnings as headers: one line each, and never too many."""

from motley.apiserver import warningheaders


def test_a_text_is_quoted_on_one_line_of_ascii():
    texts = ['say "hi"\\', "two\r\nlines\x00\x7f", "é"]
    assert list(warningheaders.values(texts)) == [
        b'299 - "say \\"hi\\"\\\\"',
        b'299 - "two  lines  "',
        b'299 - "?"',
    ]


def test_many_or_long_texts_are_cut_to_what_clients_take():
    kept = list(warningheaders.values([f"unknown field {n:05}" for n in range(10_000)]))
    assert len(kept) == warningheaders.MOST
    assert kept[0] == b'299 - "unknown field 00000"'
    wide = list(warningheaders.values(["x" * 300] * 100))
    assert len(wide) == warningheaders.TOTAL / warningheaders.EACH
    (long,) = warningheaders.values(["x" * 5000])
    assert len(long) == warningheaders.EACH + len(b'299 - ""')


def test_a_long_text_alone_that_fits_stays_whole():
    (whole,) = warningheaders.values(["x" * 4000])
    assert len(whole) == 4000 + len(b'299 - ""')
