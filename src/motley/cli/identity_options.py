"""How a component of a node comes by its certificates, for `motley node` and `motley proxy`; names
are the kubelet's."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from motley.client.kubeconfig import Config
    from motley.client.rest import Client
    from motley.node.bootstrap import ClientIdentity, ServingIdentity

F = TypeVar("F", bound=Callable[..., Any])

_CLIENT = (
    click.option(
        "--bootstrap-kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        help="With what to ask for a client certificate when --kubeconfig holds none that is "
        "good; --kubeconfig is then written.",
    ),
    click.option(
        "--rotate-certificates/--no-rotate-certificates",
        default=None,
        help="Renew the client certificate before it ends.  [default: with --bootstrap-kubeconfig]",
    ),
)
_SERVING = (
    click.option(
        "--rotate-server-certificates",
        is_flag=True,
        help="Get the serving certificate from the cluster, and renew it; in place of --client-ca, "
        "--tls-cert and --tls-key.",
    ),
    click.option(
        "--cert-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the serving certificate is kept.  [default: pki below --root]",
    ),
)


def client_options(function: F) -> F:
    """The options of a client certificate."""
    for option in reversed(_CLIENT):
        function = option(function)
    return function


def node_options(function: F) -> F:
    """Those, and the options of a serving certificate."""
    for option in reversed(_SERVING):
        function = option(function)
    return client_options(function)


class Identities:
    """The certificates of one process; what was not asked for is not there."""

    def __init__(self, kubeconfig: str | None, given: Mapping[str, Any]) -> None:
        """Raises UsageError, and ConfigError when the kubeconfig cannot be used."""
        from motley.client import kubeconfig as kubeconfigs

        self._bootstrap: Path | None = given["bootstrap_kubeconfig"]
        rotates: bool | None = given["rotate_certificates"]
        self._rotates = self._bootstrap is not None if rotates is None else rotates
        self._path = Path(kubeconfig) if kubeconfig else None
        self._serves: bool = given.get("rotate_server_certificates", False)
        self._client: ClientIdentity | None = None
        self._serving: ServingIdentity | None = None
        if (self._bootstrap or self._rotates) and self._path is None:
            raise click.UsageError(
                "--bootstrap-kubeconfig and --rotate-certificates need --kubeconfig"
            )
        # One that is not got or renewed here is read now, so that a mistake is told at once.
        own = self._bootstrap is not None or self._rotates
        self._given: Config | None = None if own else kubeconfigs.load(kubeconfig)

    @property
    def serves(self) -> bool:
        """Does the serving certificate come from the cluster?"""
        return self._serves

    async def node(self, name: str) -> "Config":
        """The agent's kubeconfig, once there is one. Raises BootstrapError."""
        from motley.node import bootstrap, csr

        if self._given is None:
            assert self._path is not None
            wanted = csr.node_client(name)
            self._client = bootstrap.ClientIdentity(self._path, self._bootstrap, wanted)
        return await self._ensure()

    async def proxy(self) -> "Config":
        """The proxy's kubeconfig; its bootstrap kubeconfig is the agent's, at every renewal."""
        from motley.node import bootstrap, csr

        if self._given is None:
            assert self._path is not None
            wanted = csr.proxy_client()
            self._client = bootstrap.ClientIdentity(
                self._path, self._bootstrap, wanted, renews_itself=False
            )
        return await self._ensure()

    async def _ensure(self) -> "Config":
        if self._client is None:
            assert self._given is not None
            return self._given
        return await self._client.ensure()

    def serving(
        self, name: str, addresses: Sequence[str], directory: Path, client_ca: bytes
    ) -> ssl.SSLContext:
        """TLS for the agent's server, which has a certificate as soon as the cluster gave one."""
        from motley.node import bootstrap, csr

        wanted = csr.node_serving(name, addresses)
        path = directory / "node-serving.pem"
        self._serving = bootstrap.ServingIdentity(path, wanted, client_ca)
        return self._serving.context

    @asynccontextmanager
    async def kept(self, client: "Client") -> AsyncIterator[None]:
        """Renew what is to be renewed while the block runs."""
        from motley.node import csr, rotation

        held, serving = self._client, self._serving
        async with asyncio.TaskGroup() as group:
            tasks = []
            if held is not None and self._rotates:
                known = csr.validity(client.config.client_cert)
                work = rotation.keep(known, lambda: held.renew(client), what="client certificate")
                tasks.append(group.create_task(work))
            if serving is not None:
                work = rotation.keep(
                    serving.load(), lambda: serving.renew(client), what="serving certificate"
                )
                tasks.append(group.create_task(work))
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
