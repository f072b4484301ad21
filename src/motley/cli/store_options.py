"""Where the SQLite store is, for the commands that save it and bring it back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.cli import cluster

F = TypeVar("F", bound=Callable[..., Any])


def options(function: F) -> F:
    """`--root` of a cluster, or `--data-dir` of an API server that runs without one."""
    option = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="The API server's directory; by default ROOT/apiserver.",
    )
    return cluster.root_option(option(function))


def find(root: Path, data_dir: Path | None) -> Path:
    """The store's file."""
    return (data_dir or root / "apiserver") / "store.db"
