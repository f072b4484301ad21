"""How commands print: aligned columns as kubectl does, or a document for programs."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec
import yaml

FORMATS = ("table", "wide", "json", "yaml")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, three blanks apart."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = (
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def document(value: Any, form: str) -> str:
    """A value as JSON or YAML."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    text: str = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False)
    return text.rstrip()


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / (1 << 20):.0f} MiB" if count else "-"


def age(seconds: float) -> str:
    """A duration as kubectl prints it: the two largest units at most."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    if days:
        return f"{days}d{hours}h" if days < 8 and hours else f"{days}d"
    if hours:
        return f"{hours}h{minutes}m" if hours < 8 and minutes else f"{hours}h"
    if whole >= 120:
        return f"{minutes}m{second}s" if minutes < 10 and second else f"{minutes}m"
    return f"{whole}s"


def fail(message: str, advice: str = "") -> click.ClickException:
    """An error with what to do about it, for `raise`."""
    return click.ClickException(f"{message}\n{advice}".rstrip())
