"""Mail about jobs, through a server that the cluster's object names.

Slurm can send mail itself; many sites have no mail program on their nodes, so the bridge can, too.
Every mail has an identity made from the job, so that one sent twice around a crash is recognised.
"""

import asyncio
from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from typing import NamedTuple

import aiosmtplib

from motley.api.views.slurm import SlurmCluster, SlurmJob, Smtp
from motley.slurm import jobs, script
from motley.slurm.ssh import Unreachable

_TIMEOUT_S = 20.0
_TRIES = 5
_SUBJECTS = {"begin": "began", "end": "ended", "fail": "failed"}


class Unsent(Exception):
    """The server did not take it."""


class Login(NamedTuple):
    """Who we are to the mail server."""

    username: str
    password: str


def compose(job: SlurmJob, cluster: SlurmCluster, kind: str) -> EmailMessage:
    """The mail about one thing that happened."""
    meta, status = job.metadata, job.status
    message = EmailMessage()
    message["From"] = cluster.spec.smtp.sender if cluster.spec.smtp else ""
    message["To"] = script.address(job, cluster)
    message["Subject"] = f"Slurm job {meta.name} {_SUBJECTS[kind]}"
    message["Message-ID"] = f"<{meta.uid}.{status.attempt}.{kind}@motley.io>"
    facts = {
        "Job": f"{meta.namespace}/{meta.name}",
        "Cluster": cluster.metadata.name,
        "Number": status.job_id,
        "Phase": f"{status.phase} ({status.reason})",
        "Why": status.message,
        "Started": status.start_time,
        "Ended": status.completion_time,
        "Exit code": status.exit_code,
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value not in (None, "")]
    if kind != "begin":
        lines += [f"\n{name}:\n{text}" for name, text in _printed(job) if text]
    message.set_content("\n".join(lines) + "\n")
    return message


def _printed(job: SlurmJob) -> list[tuple[str, str]]:
    out, err = script.streams(job)
    return [(out, job.status.output), (err, job.status.error)]


class Postman:
    """Sends what is due, and gives up after a few tries: the job itself matters more."""

    def __init__(self, login: Callable[[SlurmCluster], Awaitable[Login | None]]) -> None:
        self._login = login
        self._tries: dict[tuple[str, str], int] = {}

    async def deliver(
        self, job: SlurmJob, cluster: SlurmCluster, complain: Callable[[str], None]
    ) -> list[str]:
        """Send the mails that are due; those that need not be tried again."""
        server = cluster.spec.smtp
        if server is None:
            return []
        sent = []
        for kind in jobs.mails(job):
            entry = (job.metadata.uid, kind)
            try:
                await send(compose(job, cluster, kind), server, await self._login(cluster))
            except (Unsent, Unreachable) as error:
                complain(str(error))
                tries = self._tries[entry] = self._tries.get(entry, 0) + 1
                if tries < _TRIES:
                    continue
            self._tries.pop(entry, None)
            sent.append(kind)
        return sent


async def send(message: EmailMessage, server: Smtp, login: Login | None) -> None:
    """Hand a mail to the server. Raises Unsent."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await aiosmtplib.send(
                message,
                hostname=server.host,
                port=server.port,
                username=login.username if login else None,
                password=login.password if login else None,
                use_tls=server.security == "TLS",
                start_tls=server.security == "StartTLS",
                timeout=_TIMEOUT_S,
            )
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        raise Unsent(f"{server.host}:{server.port}: {error or type(error).__name__}") from error
