"""The options that say where etcd is, shared by the commands that open a store there."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from motley.store.etcd.config import DEFAULT_PREFIX, Config

_FILE = click.Path(path_type=Path)  # read only when etcd is used: the names are common ones


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the `--etcd-*` options; the command gets them as `etcd`, None when no server is named."""

    @click.option(
        "--etcd-servers",
        envvar="ETCD_SERVER",
        default="",
        help="URLs of etcd, with commas; naming one makes etcd the store. [env: ETCD_SERVER]",
    )
    @click.option(
        "--etcd-keyfile",
        type=_FILE,
        envvar="PEER_KEY",
        help="Key of the client certificate for etcd. [env: PEER_KEY]",
    )
    @click.option(
        "--etcd-certfile",
        type=_FILE,
        envvar="PEER_CRT",
        help="Client certificate for etcd. [env: PEER_CRT]",
    )
    @click.option(
        "--etcd-cafile",
        type=_FILE,
        envvar="CA_CRT",
        help="Authority that etcd's own certificate must be signed by. [env: CA_CRT]",
    )
    @click.option(
        "--etcd-prefix",
        default=DEFAULT_PREFIX,
        show_default=True,
        help="Before every key, so that clusters can share an etcd.",
    )
    @functools.wraps(command)
    def with_etcd(
        etcd_servers: str,
        etcd_keyfile: Path | None,
        etcd_certfile: Path | None,
        etcd_cafile: Path | None,
        etcd_prefix: str,
        **others: Any,
    ) -> None:
        etcd = None
        if etcd_servers:
            etcd = Config(etcd_servers, etcd_keyfile, etcd_certfile, etcd_cafile, etcd_prefix)
        command(etcd=etcd, **others)

    return with_etcd
