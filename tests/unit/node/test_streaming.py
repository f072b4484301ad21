"""Which streams of a command a client asks for."""

import pytest

from motley.node import streaming
from motley.node.streaming import ERROR, STDERR, STDOUT, Streams


@pytest.mark.parametrize(
    ("query", "found", "first"),
    [
        ({"stdin": "1", "stdout": "1", "stderr": "1"}, Streams(True, True, True, False), STDOUT),
        ({"stderr": "true", "stdout": "false"}, Streams(False, False, True, False), STDERR),
        ({"stdin": "true"}, Streams(True, False, False, False), ERROR),
        # The kubelet's own names, and a terminal, which has one stream for both.
        (
            {"input": "1", "output": "1", "error": "1", "tty": "1"},
            Streams(True, True, False, True),
            STDOUT,
        ),
    ],
)
def test_streams_are_those_asked_for(query, found, first):
    assert streaming.streams_of(query) == found
    assert found.first == first


@pytest.mark.parametrize("query", [{}, {"tty": "1", "stderr": "1"}, {"stdout": "0"}])
def test_a_command_without_streams_is_none(query):
    with pytest.raises(ValueError, match="at least 1 of stdin, stdout, stderr"):
        streaming.streams_of(query)
