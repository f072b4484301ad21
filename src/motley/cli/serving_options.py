"""How a server that the API server calls shows who it is: the same options for each of them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from motley.client import servingca

Certificate = servingca.Serving | servingca.GivenFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def options(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for a server whose Service has this name; the command gets `serving`."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--serving-name",
            default=f"{name}.kube-system.svc",
            show_default=True,
            help="How the API server calls: SERVICE.NAMESPACE.svc, or an address.",
        )
        @click.option(
            "--tls-cert-file",
            "certificate",
            type=_FILE,
            help="A certificate to serve with; CA bundles are then left alone.  [default: its own]",
        )
        @click.option("--tls-private-key-file", "key", type=_FILE, help="The certificate's key.")
        @functools.wraps(command)
        def with_serving(
            serving_name: str, certificate: Path | None, key: Path | None, **others: Any
        ) -> None:
            command(serving=_serving(serving_name, certificate, key), **others)

        return with_serving

    return with_options


def _serving(name: str, certificate: Path | None, key: Path | None) -> Certificate:
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
    try:
        if certificate and key:
            return servingca.GivenFiles(certificate, key)
        return servingca.authority([name])
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def failure(failures: BaseExceptionGroup[Exception]) -> click.ClickException:
    """The first thing that went wrong, in its own words: groups of tasks only count."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return click.ClickException(str(error))
