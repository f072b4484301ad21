"""What the bridge holds of each cluster: one connection, and what was last seen there.

Secrets are read anew before every connection that is made because the last was refused, so that a
corrected key needs no restart.
Invariant: one connection per cluster; a changed address or key replaces it.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from motley.api import status
from motley.api.views.core import Secret
from motley.api.views.slurm import SecretRef, SlurmCluster
from motley.client.rest import Client
from motley.lib.clock import SYSTEM, Clock
from motley.slurm.cluster import Machine, Slurm
from motley.slurm.jobs import Row
from motley.slurm.mail import Login
from motley.slurm.ssh import Access, Connection, Credentials, Host, Unreachable

_PRIVATE_KEY, _CERTIFICATE, _PASSPHRASE = "ssh-privatekey", "ssh-certificate", "passphrase"


@dataclass
class Session:
    """One cluster."""

    name: str
    access: Access
    connection: Connection
    slurm: Slurm
    machine: Machine = field(default_factory=Machine)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)  # looks that did not find a job


class Sessions:
    """The clusters by name."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
        changed: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`changed` is told of a cluster whose connection came or went."""
        self._client = client
        self._clock = clock
        self._rng = rng or Random()
        self._changed = changed
        self._open: dict[str, Session] = {}

    def get(self, name: str) -> Session:
        """A cluster's session. Raises Unreachable."""
        found = self._open.get(name)
        if found is None:
            raise Unreachable("NotReady", f"SlurmCluster {name} is not ready")
        return found

    def find(self, name: str) -> Session | None:
        """A cluster's session, if there is one."""
        return self._open.get(name)

    async def ensure(self, cluster: SlurmCluster) -> Session:
        """The session for what the object says now. Raises Unreachable."""
        name = cluster.metadata.name
        access = await self._access(cluster)
        found = self._open.get(name)
        if found is None or found.access != access:
            if found is not None:
                await found.connection.close()
            connection = Connection(
                access, clock=self._clock, rng=self._rng, changed=lambda: self._changed(name)
            )
            found = self._open[name] = Session(name, access, connection, Slurm(connection))
        return found

    async def close(self, name: str) -> None:
        """End a cluster's session."""
        found = self._open.pop(name, None)
        if found is not None:
            await found.connection.close()

    async def close_all(self) -> None:
        """End them all."""
        for name in list(self._open):
            await self.close(name)

    async def _access(self, cluster: SlurmCluster) -> Access:
        spec = cluster.spec
        own = await self._credentials(spec.credentials_secret)
        keys = tuple(spec.host_keys)
        hosts = []
        for text in spec.hosts:
            host, port = _split(text, spec.port)
            hosts.append(Host(host, port, spec.user, keys, own))
        jump = None
        if spec.jump_host is not None:
            at = spec.jump_host
            theirs = (
                await self._credentials(at.credentials_secret) if at.credentials_secret else own
            )
            jump = Host(at.host, at.port, at.user or spec.user, tuple(at.host_keys), theirs)
        return Access(tuple(hosts), jump)

    async def _credentials(self, ref: SecretRef) -> Credentials:
        found = await self.secret(ref)
        if _PRIVATE_KEY not in found:
            raise Unreachable(
                "NoKey", f"Secret {ref.namespace}/{ref.name} has no {_PRIVATE_KEY} in it"
            )
        return Credentials(
            found[_PRIVATE_KEY],
            found.get(_CERTIFICATE, ""),
            found.get(_PASSPHRASE, "").rstrip("\r\n") or None,  # as from a file
        )

    async def secret(self, ref: SecretRef) -> dict[str, str]:
        """The texts of a Secret. Raises Unreachable when it is not there or not for us."""
        try:
            secret = await self._client.get(Secret, ref.name, ref.namespace)
        except (status.NotFound, status.Forbidden) as error:
            raise Unreachable("NoSecret", error.message) from None
        return {
            key: base64.b64decode(value).decode(errors="replace")  # others may be no text
            for key, value in secret.data.items()
        }

    async def mail_login(self, cluster: SlurmCluster) -> Login | None:
        """Who we are to the cluster's mail server."""
        ref = cluster.spec.smtp.credentials_secret if cluster.spec.smtp else None
        if ref is None:
            return None
        found = await self.secret(ref)
        return Login(found.get("username", ""), found.get("password", ""))


def _split(text: str, port: int) -> tuple[str, int]:
    """`HOST`, `HOST:PORT`, `[ADDRESS]:PORT`; an IPv6 address alone has no port."""
    host, colon, after = text.rpartition(":")
    if colon and after.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(after)
    return text.strip("[]"), port
