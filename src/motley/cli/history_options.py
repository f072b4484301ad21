"""What the API server keeps of what it measures, and where it sends it."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from motley.metrics.remotewrite import Target

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--history-series",
        type=click.IntRange(0, 100_000),
        default=1000,
        show_default=True,
        help="How many series of use are kept (139 KiB each: 1 h at 10 s, 7 d at 5 min); 0: none.",
    ),
    click.option(
        "--remote-write-url",
        envvar="MOTLEY_REMOTE_WRITE_URL",
        help="Send every measurement there, by Prometheus' remote-write; also"
        " $MOTLEY_REMOTE_WRITE_URL.",
    ),
    click.option(
        "--remote-write-token-file",
        envvar="MOTLEY_REMOTE_WRITE_TOKEN_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file with the bearer token for it, read for each request.",
    ),
    click.option(
        "--remote-write-label",
        "remote_write_labels",
        multiple=True,
        metavar="NAME=VALUE",
        help="A label for every series that is sent; can be repeated.",
    ),
)


class HistoryOptions(NamedTuple):
    """What was chosen."""

    series: int
    remote: "Target | None"


def options(function: F) -> F:
    """The options; the function is given `kept` for them."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _NAMES}
        return function(*args, kept=_chosen(**given), **kwargs)

    found: Any = called
    for option in reversed(_OPTIONS):
        found = option(found)
    return found  # type: ignore[no-any-return]


_NAMES = (
    "history_series",
    "remote_write_url",
    "remote_write_token_file",
    "remote_write_labels",
)


def _chosen(
    history_series: int,
    remote_write_url: str | None,
    remote_write_token_file: Path | None,
    remote_write_labels: tuple[str, ...],
) -> HistoryOptions:
    if not remote_write_url:
        return HistoryOptions(history_series, None)
    if not remote_write_url.startswith(("http://", "https://")):
        raise click.UsageError("--remote-write-url must begin with http:// or https://")
    from motley.metrics.remotewrite import Target

    labels = []
    for text in remote_write_labels:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.UsageError(f"--remote-write-label {text!r} is not NAME=VALUE")
        labels.append((name, value))
    return HistoryOptions(
        history_series, Target(remote_write_url, remote_write_token_file, tuple(labels))
    )
