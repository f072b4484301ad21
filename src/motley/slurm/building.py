"""Between the upload and the submission: links to what the cluster has, and the compiler."""

import dataclasses
import shlex
from collections.abc import Mapping

from motley.api.views.slurm import SlurmJob
from motley.slurm import script
from motley.slurm import status as statuses
from motley.slurm.jobs import Verdict
from motley.slurm.sources import Missing
from motley.slurm.ssh import Connection

_BUILD_TIMEOUT_S = 900.0


async def link(connection: Connection, directory: str, links: Mapping[str, str]) -> None:
    """Make names in the job's folder lead to files that are on the cluster. Raises Missing."""
    if not links:
        return
    lines = [f"cd {shlex.quote(directory)} || exit 1"]
    lines += [f"ln -sfn -- {shlex.join([path, name])} || exit 1" for name, path in links.items()]
    done = await connection.run("bash -s", stdin="\n".join(lines))
    if done.code != 0:
        raise Missing(done.err.strip())


async def build(connection: Connection, directory: str, commands: str) -> str | None:
    """Build on the login node; what the compiler said, if it failed."""
    text = f"cd {shlex.quote(directory)} || exit 1\n( {commands}\n) 2>&1\n"
    # A login shell has the `module` function where the site has modules.
    done = await connection.run("bash -l -s", stdin=text, timeout_s=_BUILD_TIMEOUT_S)
    return None if done.code == 0 else done.out.strip() or f"exit code {done.code}"


async def within_job(connection: Connection, job: SlurmJob, verdict: Verdict) -> Verdict:
    """The verdict over a job that is built at its start: perhaps it was the compiler who failed."""
    path = f"{job.status.directory}/{script.BUILD_FAILED}"
    done = await connection.run(f"cat {shlex.quote(path)} 2>/dev/null")
    if done.code != 0:
        return verdict
    said = statuses.shortened(done.out.strip())
    return dataclasses.replace(verdict, reason="CompileError", message=said)
