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
_SHOWN = 16 * 1024


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
    # A compiler may complain without end: only the first and the last of it are brought here.
    text = (
        f"cd {shlex.quote(directory)} || exit 1\n( {commands}\n) > {script.BUILD_LOG} 2>&1\n"
        f"code=$?; [ $code -eq 0 ] || {{ {_ends(script.BUILD_LOG)}; }}; exit $code\n"
    )
    # A login shell has the `module` function where the site has modules.
    done = await connection.run("bash -l -s", stdin=text, timeout_s=_BUILD_TIMEOUT_S)
    said = (done.out + done.err).strip()
    return None if done.code == 0 else said or f"exit code {done.code}"


def _ends(path: str) -> str:
    """A command that prints a file, of a long one the beginning and the end."""
    place = shlex.quote(path)
    return (
        f"if [ $(stat -c %s {place}) -le {2 * _SHOWN} ]; then cat {place};"
        f" else head -c {_SHOWN} {place}; echo; echo …; tail -c {_SHOWN} {place}; fi"
    )


async def within_job(connection: Connection, job: SlurmJob, verdict: Verdict) -> Verdict:
    """The verdict over a job that is built at its start: perhaps it was the compiler who failed."""
    path = f"{job.status.directory}/{script.BUILD_FAILED}"
    done = await connection.run(f"[ -e {shlex.quote(path)} ] && {{ {_ends(path)}; }}")
    if done.code != 0:
        return verdict
    said = statuses.shortened(done.out.strip())
    return dataclasses.replace(verdict, reason="CompileError", message=said)
