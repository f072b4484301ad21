"""PEM is read as Go reads it, in time that grows with the text only."""

from motley.api import pem

TEXT = pem.encode("CERTIFICATE", b"x" * 100)


def test_what_is_written_is_read_again():
    assert list(pem.blocks(TEXT)) == [pem.Block("CERTIFICATE", b"x" * 100)]
    assert max(map(len, TEXT.splitlines())) == 64
    assert TEXT.endswith("-----END CERTIFICATE-----\n")


def test_remarks_and_half_blocks_are_passed_over():
    half = "-----BEGIN CERTIFICATE-----\nAAAA\n"
    wrong = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"

    found = list(
        pem.blocks(f"root of all\n{half}{TEXT}{wrong}{TEXT.replace(chr(10), chr(13) + chr(10))}")
    )

    assert [block.data for block in found] == [b"x" * 100] * 2


def test_headers_are_told_apart_from_the_data():
    head, rest = TEXT.split("\n", 1)
    (found,) = pem.blocks(f"{head}\nProc-Type: 4,ENCRYPTED\n\n{rest}")

    assert found.headers == {"Proc-Type": "4,ENCRYPTED"}
    assert found.data == b"x" * 100


def test_many_beginnings_without_an_end_are_read_once():
    assert list(pem.blocks("-----BEGIN A-----\n" * 60_000)) == []
