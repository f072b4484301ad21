"""Log lines: a constant message and fields, and never a secret."""

import io
import logging

import pytest

from motley.lib import journal


@pytest.fixture
def lines():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(journal.LineFormatter())
    logger = logging.getLogger("motley.test.journal")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: stream.getvalue().splitlines()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


log = journal.get("motley.test.journal")


def test_a_line_is_time_level_logger_message_and_fields(lines):
    log.info("pod bound", pod="default/web", node="n1", took_ms=3)
    (line,) = lines()
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO test.journal pod bound pod=default/web node=n1 took_ms=3"


def test_a_value_that_would_break_the_line_is_quoted(lines):
    log.warning("odd", a="two words", b='say "x"', c="", d="new\nline", e="k=v")
    (line,) = lines()
    assert line.endswith(r'odd a="two words" b="say \"x\"" c="" d="new\nline" e="k=v"')


@pytest.mark.parametrize(
    "field", ["token", "bearer_token", "Password", "secret_value", "private_key", "Authorization"]
)
def test_a_secret_is_never_written(lines, field):
    log.error("login failed", **{field: "hunter2"}, user="ann")
    (line,) = lines()
    assert "hunter2" not in line
    assert f"{field}=<hidden>" in line
    assert "user=ann" in line


def test_an_exception_follows_its_line(lines):
    try:
        raise ValueError("why")
    except ValueError as error:
        log.error("cannot", exc_info=error, key="k")
    first, *rest = lines()
    assert first.endswith("ERROR test.journal cannot key=k")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ValueError: why"


def test_what_is_below_the_level_is_not_even_formatted(lines):
    class Expensive:
        def __str__(self):
            raise AssertionError("formatted")

    log.debug("detail", value=Expensive())
    assert lines() == []


def test_configure_sends_everything_to_standard_error_once(capsys):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        journal.configure("warning")
        journal.configure("warning")
        log.info("quiet")
        log.warning("loud", n=1)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    written = capsys.readouterr()
    assert written.out == ""
    assert [line.split(" ", 1)[1] for line in written.err.splitlines()] == [
        "WARNING test.journal loud n=1"
    ]
