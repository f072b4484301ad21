"""Logs: a constant message and fields, one line each.

`log.info("pod bound", pod=key, node=node)` can be counted, searched and filtered; a sentence
with values inside cannot. Values of fields whose name says secret are never written.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from motley.lib import clock

_SECRET = ("token", "password", "secret_value", "private_key", "authorization")


class Journal:
    """A named logger that takes fields as keyword arguments."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: Any) -> None:
        """Detail for a developer."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Something an operator may want to see."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Something that should not happen often."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        """Something that needs a person, with the exception that caused it."""
        self._write(logging.ERROR, message, fields, exc_info)

    def _write(
        self,
        level: int,
        message: str,
        fields: Mapping[str, Any],
        exc_info: BaseException | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"fields": fields}, exc_info=exc_info)


def get(name: str) -> Journal:
    """The journal of a module: `log = journal.get(__name__)`."""
    return Journal(name)


def _text(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and not any(c in ' "=' for c in text)
    return text if text and plain else msgspec.json.encode(text).decode()


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message key=value …`, readable by people and by `grep`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, with the traceback below when there is one."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        parts = [
            clock.rfc3339_micro(record.created),
            record.levelname,
            record.name.removeprefix("motley."),
            record.getMessage(),
        ]
        for key, value in fields.items():
            hidden = any(word in key.lower() for word in _SECRET)
            parts.append(f"{key}={'<hidden>' if hidden else _text(value)}")
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(level: str = "INFO") -> None:
    """Send every journal to standard error; called once, by a process's main."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
