"""TLS bootstrap: how an agent gets its certificates from the cluster, with nothing but a token.

A key is made and stays on this machine. What goes to the API server is a request to sign it, made
with the bootstrap kubeconfig (a join token); the cluster's controllers approve and sign, and the
result is a kubeconfig of the agent's own. From then on the agent renews by its own certificate,
and the token is needed no more.

Invariant: a file holds a certificate with its key or neither, and appears whole: an agent that is
killed at any moment finds the identity it had, or goes on asking for it.
"""

import ssl
from dataclasses import replace
from pathlib import Path
from random import Random

from motley.api import status
from motley.client import kubeconfig
from motley.client.kubeconfig import Config
from motley.client.rest import Client
from motley.lib import atomicfile, journal
from motley.lib.clock import SYSTEM, Clock
from motley.node.csr import (
    JOIN_AGAIN,
    BootstrapError,
    Wanted,
    covers,
    ensure_key,
    is_of,
    key_pem,
    obtain,
    validity,
)
from motley.node.rotation import RenewalError, Validity

log = journal.get(__name__)


class ClientIdentity:
    """A client certificate in a kubeconfig, got with another kubeconfig and kept from ending."""

    def __init__(
        self,
        path: Path,
        bootstrap: Path | None,
        wanted: Wanted,
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
        renews_itself: bool = True,
    ) -> None:
        """`renews_itself`: by its own certificate; else the bootstrap kubeconfig is used again."""
        self._path = path
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._clock = clock
        self._rng = rng or Random()
        self._renews_itself = renews_itself
        self._key_file = path.with_name(f"{path.name}.key")

    def current(self) -> Config | None:
        """The kubeconfig, if its certificate is ours and has not ended.

        A bootstrap kubeconfig that trusts another authority, or names another server, is news.
        """
        try:
            config = kubeconfig.load(self._path)
            base = self._bootstrap
            news = kubeconfig.load(base) if base is not None and base.exists() else config
        except kubeconfig.ConfigError:
            return None
        if (news.servers, news.ca) != (config.servers, config.ca):
            return None
        known = validity(config.client_cert)
        is_good = known is not None and known.ends > self._clock.now()
        return config if is_good and covers(config.client_cert or b"", self._wanted) else None

    async def ensure(self) -> Config:
        """The kubeconfig to work with; asked for where there is none. Raises BootstrapError."""
        config = self.current()
        if config is not None:
            self._key_file.unlink(missing_ok=True)  # a life before this one did not get to it
            return config
        base = self._base()
        async with Client(
            base, user_agent="motley-bootstrap", clock=self._clock, rng=self._rng
        ) as client:
            return await self._obtain(client, base)

    def _base(self) -> Config:
        if self._bootstrap is None or not self._bootstrap.exists():
            why = "has ended or cannot be read" if self._path.exists() else "is not there"
            raise BootstrapError(
                f"the certificate in {self._path} {why}, and there is no bootstrap kubeconfig "
                f"to get another: {JOIN_AGAIN}"
            )
        try:
            return kubeconfig.load(self._bootstrap)
        except kubeconfig.ConfigError as error:
            raise BootstrapError(str(error)) from None

    async def _obtain(self, client: Client, base: Config, until: float = float("inf")) -> Config:
        key = ensure_key(self._key_file)
        try:
            pem = await obtain(
                client, key, self._wanted, clock=self._clock, rng=self._rng, until=until
            )
        except status.ApiError as error:
            raise BootstrapError(f"no certificate: {error.message}") from None
        config = Config(
            server=base.server,
            further=base.further,
            ca=base.ca,
            client_cert=pem,
            client_key=key_pem(key),
            tls_server_name=base.tls_server_name,
            insecure=base.insecure,
            proxy_url=base.proxy_url,
        )
        text = kubeconfig.render(config, user=self._wanted.common_name)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        atomicfile.write(self._path, text.encode())
        self._key_file.unlink(missing_ok=True)
        return config

    async def renew(self, client: Client) -> Validity:
        """Another certificate, in the file and in the client that uses it."""
        if self._renews_itself:
            held = validity(client.config.client_cert)
            until = held.ends if held is not None else float("inf")
            config = await self._obtain(client, client.config, until)
        else:
            base = self._base()
            async with Client(base, user_agent="motley-bootstrap", clock=self._clock) as asking:
                config = await self._obtain(asking, base)
        client.recertify(
            replace(client.config, client_cert=config.client_cert, client_key=config.client_key)
        )
        known = validity(config.client_cert)
        assert known is not None
        return known


class ServingIdentity:
    """The agent's serving certificate: one file with its key, loaded into the running server."""

    def __init__(
        self,
        path: Path,
        wanted: Wanted,
        client_ca: bytes,
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._path = path
        self._wanted = wanted
        self._client_ca = client_ca
        self._clock = clock
        self._rng = rng or Random()
        self._key_file = path.with_name(f"{path.name}.key")
        # Without a certificate handshakes fail, which is what there is to say until one comes.
        self.context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cadata=client_ca.decode()
        )
        self.context.verify_mode = ssl.CERT_OPTIONAL

    def load(self) -> Validity | None:
        """Use the file of an earlier life, if it is still good for this node."""
        try:
            pem = self._path.read_bytes()
        except FileNotFoundError:
            return None
        known = validity(pem)
        if known is None or known.ends <= self._clock.now():
            return None
        if not covers(pem, self._wanted) or not is_of(pem, self._client_ca):
            return None
        try:
            self.context.load_cert_chain(self._path)
        except ssl.SSLError as error:
            log.warning("serving certificate cannot be used", path=self._path, error=error)
            return None
        self._key_file.unlink(missing_ok=True)
        return known

    async def renew(self, client: Client) -> Validity:
        """Another certificate; connections made from now on see it."""
        key = ensure_key(self._key_file)
        try:
            pem = await obtain(client, key, self._wanted, clock=self._clock, rng=self._rng)
        except status.ApiError as error:
            raise RenewalError(error.message) from None
        atomicfile.write(self._path, pem.rstrip(b"\n") + b"\n" + key_pem(key))
        known = self.load()
        if known is None:
            raise RenewalError(f"the certificate in {self._path} is not what was asked for")
        return known
