"""Credentials that a program hands out: kubeconfig's `user.exec`.

Clouds and single sign-on give kubectl short-lived credentials through a program that prints an
`ExecCredential`. It is run when first needed, again shortly before what it printed expires, and
again after the server refused it.
Invariant: the program's output never reaches the journal or an error message; what it says on
standard error does, for that is where it explains itself.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from motley.lib import clock as clocks
from motley.lib.clock import SYSTEM, Clock

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_TIMEOUT_S = 60.0
_EARLY_S = 30.0  # renewed before it expires, so that no request carries a token about to die
_EXPLANATION_MAX = 500


class PluginError(Exception):
    """The program gave no credential; the message says how it failed and what may help."""


@dataclass(frozen=True)
class Exec:
    """The `exec` entry of a kubeconfig's user."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = API_VERSIONS[0]
    interactive_mode: str = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    """What the program is told of the cluster, when `provideClusterInfo` asks for it."""


@dataclass(frozen=True)
class Credential:
    """What one run of the program gave."""

    token: str | None = field(default=None, repr=False)
    client_cert: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    expires: float | None = None


class Plugin:
    """Runs the program and remembers what it said; callers at the same time share one run."""

    def __init__(self, exec_: Exec, clock: Clock = SYSTEM) -> None:
        self._exec = exec_
        self._clock = clock
        self._held: Credential | None = None
        self._lock = asyncio.Lock()

    async def credential(self) -> Credential:
        """A credential that is valid now. Raises PluginError."""
        async with self._lock:
            held = self._held
            if held is None or self._is_old(held):
                held = self._held = await self._run()
            return held

    def forget(self, refused: Credential) -> None:
        """The server did not take this credential: the next call runs the program again."""
        if self._held is refused:
            self._held = None

    def _is_old(self, held: Credential) -> bool:
        return held.expires is not None and self._clock.now() > held.expires - _EARLY_S

    async def _run(self) -> Credential:
        command = self._exec.command
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *self._exec.args,
                env={**os.environ, **self._exec.env, "KUBERNETES_EXEC_INFO": self._information()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self._exec.install_hint.strip()}" if self._exec.install_hint else ""
            raise PluginError(f"credential plugin {command}: {error.strerror}{hint}") from None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                output, explanation = await process.communicate()
        except TimeoutError:
            raise PluginError(
                f"credential plugin {command}: no answer in {_TIMEOUT_S:g} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            said = explanation.decode(errors="replace").strip()[-_EXPLANATION_MAX:]
            raise PluginError(f"credential plugin {command}: exit {process.returncode}: {said}")
        return parse(output, self._exec)

    def _information(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._exec.cluster is not None:
            spec["cluster"] = self._exec.cluster
        document = {"apiVersion": self._exec.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(document).decode()


def parse(output: bytes, exec_: Exec) -> Credential:
    """Read an `ExecCredential`. Raises PluginError, without a word of the output."""
    where = f"credential plugin {exec_.command}"
    try:
        document = msgspec.json.decode(output)
        status = document["status"]
        kind, version = document["kind"], document["apiVersion"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise PluginError(f"{where}: its output is not an ExecCredential with a status") from None
    if (kind, version) != ("ExecCredential", exec_.api_version):
        raise PluginError(f"{where}: it answered in another version than {exec_.api_version}")
    token = status.get("token")
    cert, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not token and not (cert and key):
        raise PluginError(f"{where}: neither a token nor a client certificate with its key")
    expires = status.get("expirationTimestamp")
    try:
        until = clocks.parse_rfc3339(expires) if expires else None
    except ValueError:
        raise PluginError(f"{where}: expirationTimestamp is not a time") from None
    return Credential(
        token=token or None,
        client_cert=cert.encode() if cert else None,
        client_key=key.encode() if key else None,
        expires=until,
    )
