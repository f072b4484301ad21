"""What is kept of what nodes and pods use, and where it is sent."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from motley.controllers.manager import Informers
    from motley.metrics.follower import Known
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


every_s = click.option(
    "--history-every-s",
    type=click.FloatRange(min=1.0),
    default=15.0,
    show_default=True,
    help="How often metrics.k8s.io is read for it.",
)


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


def known(informers: "Informers") -> "Known":
    """Whose the figures of `metrics.k8s.io` are, as shared informers know it."""
    from motley.api.views.batch import Job
    from motley.api.views.core import Node
    from motley.api.views.pod import Pod
    from motley.controllers import nodespeed
    from motley.controllers.topowner import TopOwners
    from motley.controllers.workload import ReplicaSet
    from motley.metrics.history_rollup import Fact, Owner

    pods, nodes = informers.of(Pod), informers.of(Node)
    owners = TopOwners(informers)
    # Not all there are: others may be of kinds that are not served here.
    needed = (pods, nodes, informers.of(ReplicaSet), informers.of(Job))

    def look() -> tuple[dict[tuple[str, str], Fact], dict[str, float]] | None:
        if not all(one.has_synced for one in needed):
            return None
        facts = {}
        for pod in pods.items():
            top = owners.of(pod)
            owner = Owner(*top) if top is not None else None
            facts[pod.metadata.namespace, pod.metadata.name] = Fact(pod.spec.node_name, owner)
        return facts, {n.metadata.name: nodespeed.known(n) for n in nodes.items()}

    return look
