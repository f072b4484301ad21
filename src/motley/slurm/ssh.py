"""One SSH connection to a cluster, for all of its jobs.

Commands are channels of that connection, eight at once, because OpenSSH allows ten; files go over
one SFTP session beside them. Where the host allows fewer, a command waits for another's end: a
channel that is refused says nothing against the connection. The connection is made when somebody
needs it. When it breaks, callers get `Unreachable`, and the next attempt waits: longer after each
failure, and at another login node where there are several.
Invariant: a host that does not show one of the keys named for it never gets to see who we are.
"""

import asyncio
import contextlib
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

import asyncssh
from asyncssh.public_key import CERT_TYPE_USER, SSHOpenSSHCertificate

from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)
_Channel = TypeVar("_Channel")
asyncssh.set_log_level("WARNING")  # every channel would be a line otherwise

# Of public keys; hosts may be called `ssh-1` or `sk-login`.
_KEY_TYPE = re.compile(r"ssh-(rsa|dss|ed25519|ed448)|ecdsa-sha2-\S+|sk-\S+@openssh\.com")
_CHANNELS = 8  # OpenSSH's MaxSessions is 10: these, the SFTP session, and one to spare
_CONNECT_TIMEOUT_S = 15.0
_CHANNEL_TIMEOUT_S = 60.0  # for the host to have room for one more
_CHANNEL_RETRY_S = 0.2
_FILES_TIMEOUT_S = 120.0
_TIMED_OUT = (124, 137, 143)  # of `timeout`: it ended the command, had to kill it; busybox
_LATE_S = 15.0  # after which a command that the host should have ended is given up
_KEEPALIVE_S = 10.0  # three without an answer end the connection


class Unreachable(Exception):
    """The cluster cannot be talked to just now; `reason` is one word for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Credentials:
    """Who we are: a private key, perhaps with a certificate for it."""

    key: str = field(repr=False)
    certificate: str = ""
    passphrase: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Host:
    """One machine to log in to, and by which keys it is known."""

    name: str
    port: int
    user: str
    host_keys: tuple[str, ...]
    credentials: Credentials


@dataclass(frozen=True)
class Access:
    """How a cluster is reached: login nodes in turn, perhaps through another host."""

    hosts: tuple[Host, ...]
    jump: Host | None = None


class Result(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class Connection:
    """See the module's docstring; `close` it at the end."""

    def __init__(
        self,
        access: Access,
        *,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
        backoff: Backoff | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when the connection comes or goes."""
        self._access = access
        self._clock = clock
        self._backoff = backoff or Backoff(base_s=0.5, cap_s=60.0, rng=rng or Random())
        self._changed = changed
        self._channels = asyncio.Semaphore(_CHANNELS)
        self._lock = asyncio.Lock()
        self._open: contextlib.AsyncExitStack | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._sftp: asyncssh.SFTPClient | None = None
        self._not_before = 0.0
        self._turn = 0
        self.host = ""
        self.failure: Unreachable | None = Unreachable("NotConnected", "not connected yet")
        self.connects = 0

    @property
    def retry_after_s(self) -> float:
        """How long the next attempt has to wait."""
        return max(0.0, self._not_before - self._clock.monotonic())

    async def run(
        self, command: str, *, timeout_s: float = 60.0, stdin: str | None = None
    ) -> Result:
        """Run a command and wait for its end. Raises Unreachable, also when it takes too long."""
        # The host itself ends it: a command that nobody waits for would keep its channel.
        bounded = f"exec timeout -k 5 {timeout_s:g} sh -c {shlex.quote(command)}"
        begun = 0.0
        async with self._channels, self._using() as connection:

            async def opened() -> asyncssh.SSHClientProcess[str]:
                nonlocal begun
                begun = self._clock.monotonic()  # not before: it may have waited for its turn
                return await connection.create_process(bounded, input=stdin, errors="replace")

            process = await self._channel(connection, opened)
            try:
                async with asyncio.timeout(timeout_s + _LATE_S):
                    done = await process.wait()
            except TimeoutError:
                raise self._too_long(command, timeout_s) from None
            finally:
                if not process.is_closing():
                    process.kill()  # which a host may not do for everyone
                    process.close()
        if done.exit_status is None:
            raise Unreachable("ConnectionLost", f"{self.host}: a command was cut off")
        if done.exit_status in _TIMED_OUT and self._clock.monotonic() - begun >= timeout_s:
            raise self._too_long(command, timeout_s)
        return Result(done.exit_status, _text(done.stdout), _text(done.stderr))

    def _too_long(self, command: str, timeout_s: float) -> Unreachable:
        program = next(word for word in command.split() if "=" not in word)
        late = f"{program} on {self.host} did not end in {timeout_s:g} s"
        return Unreachable("CommandTimeout", late)

    @contextlib.asynccontextmanager
    async def sftp(
        self, *, timeout_s: float | None = _FILES_TIMEOUT_S
    ) -> AsyncIterator[asyncssh.SFTPClient]:
        """The SFTP session; what breaks it is raised as Unreachable. Servers do one thing after the
        other, so that one file which does not answer would keep everybody from all others: what
        takes longer than `timeout_s` ends the connection."""
        async with self._using() as connection:
            async with self._lock:
                if self._sftp is None:
                    self._sftp = await self._channel(connection, partial(_files, connection))
                session = self._sftp
            async with asyncio.timeout(timeout_s):
                yield session

    async def _channel(
        self, connection: asyncssh.SSHClientConnection, opened: Callable[[], Awaitable[_Channel]]
    ) -> _Channel:
        """One more channel, as soon as the host has room for it. Raises Unreachable."""
        deadline = self._clock.monotonic() + _CHANNEL_TIMEOUT_S
        while True:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    return await opened()
            except asyncssh.ChannelOpenError as error:
                if connection.is_closed():
                    raise
                if self._clock.monotonic() >= deadline:
                    raise Unreachable(
                        "NoChannel",
                        f"{self.host} opens no further session on a connection ({_said(error)});"
                        " its sshd must allow two at least (MaxSessions)",
                    ) from error
            except TimeoutError:  # whether the connection is dead, its keep-alive finds out
                late = f"{self.host} opened no session in {_CONNECT_TIMEOUT_S:g} s"
                raise Unreachable("NoChannel", late) from None
            await self._clock.sleep(_CHANNEL_RETRY_S)

    async def close(self) -> None:
        """End the connection; the next use makes another."""
        self._connection = self._sftp = None
        if self._open is not None:
            stack, self._open = self._open, None
            with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
                async with asyncio.timeout(2.0):
                    await stack.aclose()

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[asyncssh.SSHClientConnection]:
        connection = await self._connected()
        try:
            yield connection
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
            raise await self._lost(connection, error) from error
        except asyncssh.SFTPNoSuchFile:
            raise  # an answer, which callers expect
        except asyncssh.SFTPError as error:
            raise Unreachable("FileRefused", f"{self.host}: {_said(error)}") from error
        # Other errors of the system are about files of this machine.
        except (asyncssh.Error, ConnectionError, TimeoutError) as error:
            raise await self._lost(connection, error) from error

    async def _lost(
        self, connection: asyncssh.SSHClientConnection, error: Exception
    ) -> Unreachable:
        failure = Unreachable("ConnectionLost", f"{self.host}: {_said(error)}")
        if connection is self._connection:
            log.info("ssh connection lost", host=self.host, error=_said(error))
            self.failure = failure
            await self.close()
            self._changed()
        return failure

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._lock:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            await self.close()
            if self.retry_after_s > 0 and self.failure is not None:
                raise self.failure
            try:
                connection = await self._connect()
            except Unreachable as failure:
                self.failure = failure
                self._turn += 1
                self._not_before = self._clock.monotonic() + self._backoff.next()
                self._changed()
                raise
            self._connection, self.failure = connection, None
            self._backoff.reset()
            self.connects += 1
            self._changed()
            return connection

    async def _connect(self) -> asyncssh.SSHClientConnection:
        host = self._access.hosts[self._turn % len(self._access.hosts)]
        stack = contextlib.AsyncExitStack()
        at = self._access.jump or host
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                tunnel = None
                if self._access.jump is not None:
                    tunnel = await stack.enter_async_context(_open(self._access.jump, None))
                at = host
                connection = await stack.enter_async_context(_open(host, tunnel))
        except BaseException as error:
            await stack.aclose()
            if not isinstance(error, OSError | asyncssh.Error | ValueError | TimeoutError):
                raise
            raise _failure(at, error) from error
        self._open, self.host = stack, host.name
        log.info("ssh connection made", host=host.name, port=host.port, user=host.user)
        return connection


async def _files(connection: asyncssh.SSHClientConnection) -> asyncssh.SFTPClient:
    """A session for files; names that are no UTF-8 must not break it."""
    return await connection.start_sftp_client(path_errors="surrogateescape")


def _open(
    host: Host, tunnel: asyncssh.SSHClientConnection | None
) -> contextlib.AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    return asyncssh.connect(
        host.name,
        host.port,
        tunnel=tunnel,
        config=None,  # nothing of the user's or the machine's own settings
        username=host.user,
        client_keys=[_own_key(host.credentials)],
        agent_path=None,
        known_hosts=trusted(host.host_keys),
        preferred_auth="publickey",
        keepalive_interval=_KEEPALIVE_S,
        keepalive_count_max=3,
        login_timeout=_CONNECT_TIMEOUT_S,
    )


def _own_key(
    mine: Credentials,
) -> asyncssh.SSHKey | tuple[asyncssh.SSHKey, asyncssh.SSHCertificate]:
    key = asyncssh.import_private_key(mine.key, mine.passphrase)
    if not mine.certificate:
        return key
    return key, asyncssh.import_certificate(mine.certificate)


def trusted(
    lines: Sequence[str],
) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
    """Host keys and authorities for host certificates, as asyncssh takes them. Raises ValueError
    (asyncssh.KeyImportError is one): no line may be left out in silence."""
    keys: list[asyncssh.SSHKey] = []
    authorities: list[asyncssh.SSHKey] = []
    revoked: list[asyncssh.SSHKey] = []
    for line in (line for text in lines for line in text.splitlines()):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marked = {"@cert-authority": authorities, "@revoked": revoked}.get(words[0], keys)
        marked.append(asyncssh.import_public_key(" ".join(_key_of(words))))
    if not keys and not authorities:
        raise ValueError("hostKeys names no key: no host can be trusted")
    return keys, authorities, revoked


def _key_of(words: Sequence[str]) -> Sequence[str]:
    """The key within a line that may begin with host names, as in a known_hosts file."""
    for index, word in enumerate(words):
        if _KEY_TYPE.fullmatch(word):
            return words[index : index + 2]
    return words


def _failure(host: Host, error: BaseException) -> Unreachable:
    where = f"{host.user}@{host.name}:{host.port}"
    if isinstance(error, asyncssh.HostKeyNotVerifiable) and "ertificate" in str(error):
        words = f"{where} shows a certificate that does not hold: {error}; ask its administrators"
        return Unreachable("HostKeyRefused", words)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return Unreachable(
            "HostKeyRefused",
            f"{where} shows a host key that is not among hostKeys; if the machine has a new key,"
            " ask its administrators for it, and put it there",
        )
    if isinstance(error, asyncssh.PermissionDenied) and host.credentials.certificate:
        return Unreachable(
            "PermissionDenied",
            f"{where} does not let us in with the certificate of the Secret: "
            f"{_objection(host)}; `ssh-keygen -L` shows for whom and until when it is",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return Unreachable(
            "PermissionDenied",
            f"{where} does not let us in with the key of the Secret: is its public half among"
            " the user's authorized keys?",
        )
    if isinstance(error, asyncssh.KeyImportError | asyncssh.KeyEncryptionError):
        return Unreachable("InvalidKey", f"{where}: a key cannot be read: {error}")
    if isinstance(error, TimeoutError):
        return Unreachable("Unreachable", f"{where} does not answer in {_CONNECT_TIMEOUT_S:g} s")
    return Unreachable("Unreachable", f"{where}: {_said(error)}")


def _objection(host: Host) -> str:
    """What there is to say against our own certificate."""
    certificate = asyncssh.import_certificate(host.credentials.certificate)
    if isinstance(certificate, SSHOpenSSHCertificate):
        try:
            certificate.validate(CERT_TYPE_USER, host.user)
        except ValueError as error:
            return f"{error} (user {host.user})"
    return "does the host trust the authority that signed it (TrustedUserCAKeys)?"


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
