"""Asking Slurm: the queue, the accounts, the machine; and changing its mind.

Jobs that have ended leave the queue after a while (MinJobAge), and clusters without slurmdbd have
no accounts: what neither shows is asked of `scontrol`, then of the note the job left in its folder.
All questions are for all jobs at once. Fields are separated by a control character, because job
names and reasons hold everything else.
Invariant: every command has a time limit, since Slurm's hang while slurmctld is down.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from motley.api.views.slurm import FINISHED
from motley.lib import journal
from motley.slurm import script
from motley.slurm.jobs import Row, noted
from motley.slurm.ssh import Connection, Result, Unreachable

log = journal.get(__name__)

_TIMEOUT_S = 30.0
_FIELD = "\x1f"
_QUEUE = _FIELD.join(("%F", "%K", "%j", "%T", "%r", "%N", "%S", "%e"))
_ACCOUNTS = "JobID,JobName%300,State,ExitCode,NodeList,Start,End"
_DISABLED = "accounting storage is disabled"
_PREFIX = "LC_ALL=C SLURM_TIME_FORMAT=%s"
_ID = re.compile(r"\d+")


class Failed(Exception):
    """A command of Slurm's refused; its own words."""


class Machine(NamedTuple):
    """What a cluster has, of the partition's nodes that are up."""

    version: str = ""
    partitions: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    runtime: str = ""


@dataclass
class Slurm:
    """Commands over one connection."""

    connection: Connection
    has_accounts: bool | None = field(default=None)

    async def queue(self) -> list[Row]:
        """Jobs of ours that the controller still remembers, tasks of arrays one by one."""
        done = await self._run(f'squeue -h -r -t all -u "$(id -un)" -o {shlex.quote(_QUEUE)}')
        return parse_queue(_good(done))

    async def accounts(self, job_ids: Sequence[str]) -> list[Row]:
        """What the accounts say; nothing where there are none."""
        if not job_ids or self.has_accounts is False:
            return []
        done = await self._run(
            f"sacct -nXP --delimiter={shlex.quote(_FIELD)} -o {_ACCOUNTS} -j {','.join(job_ids)}"
        )
        if done.code != 0 and _DISABLED in done.err.lower():
            self.has_accounts = False
            return []
        if done.code != 0:
            raise Failed(_last(done))
        rows = parse_accounts(done.out)
        self.has_accounts = True
        return rows

    async def details(self, job_ids: Sequence[str]) -> list[Row]:
        """What the controller says of jobs that may be over, with their exit codes."""
        asked = "\n".join(f"timeout 20 scontrol -o show job {i} 2>/dev/null" for i in job_ids)
        done = await self._run("bash -s", stdin=asked, timeout_s=120.0)
        return parse_details(done.out)

    async def note(self, directory: str, job_id: str) -> list[Row]:
        """What the script itself noted of its end, or of its tasks' ends."""
        place = shlex.quote(f"{directory}/{script.MARKS}")
        lines = (
            f'cd {place} || exit 0\nfor f in exit*; do [ -e "$f" ] && echo "$f $(cat "$f")"; done'
        )
        done = await self._run("bash -s", stdin=lines)
        return parse_notes(job_id, done.out)

    async def look(self, followed: Mapping[str, str]) -> tuple[dict[str, list[Row]], bool]:
        """How each of these jobs fares, by number; `followed` gives their folders. One that nobody
        knows has no rows, and the second value says whether everybody could be asked.

        Tasks of an array leave the queue one by one, so arrays are always asked for elsewhere too.
        """
        found = by_job(await self.queue(), followed)
        ended = [i for i, rows in found.items() if all(r.phase in FINISHED for r in rows)]
        told = by_job(await self.details(ended), ended) if ended else {}
        # squeue shows no exit codes, and by now the controller may have forgotten some of these or
        # of their tasks: what squeue said of them counts when nobody knows better.
        forgotten = {i: found.pop(i) for i in ended}
        found |= told
        partial = [i for i in followed if i not in found or any(r.task for r in found[i])]
        is_sure = True
        if partial:
            try:
                listed = by_job(await self.accounts(partial), partial)
            except Failed as failure:
                log.warning("accounts not seen", error=str(failure))
                is_sure, listed = False, {}
            for job_id in partial:
                rows = together(found.get(job_id, []), listed.get(job_id, []))
                known = {row.task for row in rows}
                if not listed.get(job_id) or {r.task for r in forgotten.get(job_id, ())} - known:
                    rows = together(rows, await self.note(followed[job_id], job_id))
                if rows:
                    found[job_id] = rows
        found |= {i: together(found.get(i, []), rows) for i, rows in forgotten.items()}
        return found, is_sure

    async def are_alive(self, job_ids: Collection[str]) -> bool:
        """Does the queue have all of them, waiting or running? Slurm takes a job that it has
        forgotten for one that went well, so nothing may be made to depend on such a one."""
        rows = [row for row in await self.queue() if row.phase not in FINISHED]
        return set(job_ids) <= {row.job_id for row in rows}

    async def submit(self, directory: str, name: str, options: Sequence[str]) -> str:
        """Submit the script of a folder, once: a second call answers with the same number."""
        done = await self._run(
            "bash -s", timeout_s=120.0, stdin=submission(directory, name, options)
        )
        if done.code == _CANCELLED:
            raise Failed("it was cancelled before it was submitted")
        if done.code == _UNSURE:
            raise Unreachable("Unsure", f"Slurm does not answer: {_last(done)}")
        found = _ID.search(_good(done))
        if found is None:
            raise Failed(f"sbatch said no job number: {_last(done)}")
        return found[0]

    async def recover(self, directory: str, name: str) -> str:
        """The number of a job that an earlier bridge may have submitted; empty if none has."""
        done = await self._run("bash -s", timeout_s=90.0, stdin=recovery(directory, name))
        if done.code == _UNSURE:
            raise Unreachable("Unsure", f"Slurm does not answer: {_last(done)}")
        found = _ID.search(_good(done))
        return found[0] if found else ""

    async def cancel(self, directory: str, name: str) -> list[Row]:
        """Stop a job whether or not its submission is still under way; what is left of it."""
        done = await self._run("bash -s", timeout_s=60.0, stdin=cancellation(directory, name))
        return [row for row in parse_queue(_good(done)) if row.name == name]

    async def remove(self, directory: str) -> None:
        """Remove a job's folder."""
        _good(await self._run(f"rm -rf -- {shlex.quote(directory)}"))

    async def machine(self, partition: str) -> Machine:
        """What there is; asked once per connection and now and then."""
        done = await self._run("bash -s", stdin=_MACHINE)
        return parse_machine(_good(done), partition)

    async def _run(
        self, command: str, *, timeout_s: float = _TIMEOUT_S, stdin: str | None = None
    ) -> Result:
        return await self.connection.run(f"{_PREFIX} {command}", timeout_s=timeout_s, stdin=stdin)


def _good(done: Result) -> str:
    if done.code != 0:
        said = _last(done)
        if any(words in said for words in ("Unable to contact", "timed out", "Connection refused")):
            raise Unreachable("SlurmDown", said)
        raise Failed(said)
    return done.out


def _last(done: Result) -> str:
    lines = (done.err or done.out).strip().splitlines()
    return "; ".join(lines[-4:]) or f"exit code {done.code}"


_CANCELLED, _UNSURE = 95, 96
# Shell functions of both scripts below. `found` prints the number of a job of this name, if the
# queue, the accounts or the job itself know one, and fails when that cannot be known now.
_FOUND = """
found() {
  id=$(timeout 20 squeue -h -t all -u "$(id -un)" --name="$name" -o %F) || return 1
  if [ -z "$id" ]; then
    id=$(timeout 20 sacct -nXP --name="$name" -S now-30days -o JobID 2>.motley/sacct.err) \\
      || grep -qi 'storage is disabled' .motley/sacct.err || return 1
  fi
  if [ -z "$id" ] && [ -s .motley/started ]; then id=$(cat .motley/started); fi
  echo "$id" | head -n 1 | cut -d_ -f1
}
exec 9>.motley/lock
"""


def submission(directory: str, name: str, options: Sequence[str]) -> str:
    """A script that submits once. The lock keeps two of it apart; the mark `submitting` says that
    an earlier one may have come so far that the job has to be looked for."""
    words = shlex.join(["sbatch", "--parsable", *options, script.SCRIPT])
    return f"""name={shlex.quote(name)}
cd {shlex.quote(directory)} || exit 1
{_FOUND}
flock -w 60 9 || exit {_UNSURE}
[ -e .motley/cancelled ] && exit {_CANCELLED}
if [ -s .motley/jobid ]; then cat .motley/jobid; exit; fi
id=
if [ -e .motley/submitting ]; then id=$(found) || exit {_UNSURE}; fi
if [ -z "$id" ]; then
  : > .motley/submitting
  answer=$({words} 2>.motley/sbatch.err)
  code=$?
  if [ $code -ne 0 ]; then
    cat .motley/sbatch.err >&2
    grep -qiE 'timed out|unable to contact|connection refused' .motley/sbatch.err && exit {_UNSURE}
    rm -f .motley/submitting
    exit $code
  fi
  id=${{answer%%;*}}
fi
echo "$id" > .motley/jobid.new && mv .motley/jobid.new .motley/jobid && cat .motley/jobid
"""


def recovery(directory: str, name: str) -> str:
    """A script that finds what an earlier submission came to; says nothing if there was none."""
    return f"""name={shlex.quote(name)}
cd {shlex.quote(directory)}/.motley 2>/dev/null && cd .. || exit 0
{_FOUND}
flock -w 60 9 || exit {_UNSURE}
if [ -s .motley/jobid ]; then cat .motley/jobid; exit; fi
[ -e .motley/submitting ] || exit 0
id=$(found) || exit {_UNSURE}
[ -n "$id" ] || exit 0
echo "$id" > .motley/jobid.new && mv .motley/jobid.new .motley/jobid && cat .motley/jobid
"""


def cancellation(directory: str, name: str) -> str:
    """A script that stops a job and keeps it from being submitted; prints what the queue shows."""
    show = f'squeue -h -r -u "$(id -un)" --name="$name" -o {shlex.quote(_QUEUE)}'
    return f"""name={shlex.quote(name)}
mkdir -p {shlex.quote(directory)}/.motley && cd {shlex.quote(directory)} || exit 1
{_FOUND}
flock -w 50 9 || exit {_UNSURE}
: > .motley/cancelled
timeout 20 scancel -u "$(id -un)" --name="$name" || exit 1
timeout 20 {show}
"""


_MACHINE = """
sinfo --version
timeout 20 sinfo -h -N -o '%R|%N|%C|%m|%G|%t' || exit 1
for r in apptainer singularity enroot; do
  command -v $r >/dev/null && { echo "runtime $r"; break; }
done
exit 0
"""


def by_job(rows: Iterable[Row], wanted: Collection[str]) -> dict[str, list[Row]]:
    """The rows of each job that is wanted."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.job_id in wanted:
            found.setdefault(row.job_id, []).append(row)
    return found


def together(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """Rows of one job from two sources; of a task that both know, the first knows better."""
    seen = {row.task for row in rows}
    # Accounts show tasks that have not begun as one row, `[2-9]`; the queue shows each.
    return [*rows, *(r for r in more if r.task not in seen and not (seen and "[" in r.task))]


def parse_notes(job_id: str, text: str) -> list[Row]:
    """`exit 3` of a job, `exit.2 0` of a task."""
    rows = []
    for line in text.splitlines():
        name, _, code = line.partition(" ")
        if code.strip().isdigit():
            rows.append(noted(job_id, int(code), name.partition(".")[2]))
    return rows


def parse_queue(text: str) -> list[Row]:
    """Rows of squeue."""
    rows = []
    for line in text.splitlines():
        fields = line.split(_FIELD)
        if len(fields) != 8:
            continue
        job_id, task, name, state, reason, node, start, end = fields
        task = "" if task == "N/A" else task
        times = (_time(start), _time(end))
        rows.append(Row(job_id, task, name, state, reason, node, 0, 0, *times))
    return rows


def parse_accounts(text: str) -> list[Row]:
    """Rows of sacct; `CANCELLED by 1000` is CANCELLED."""
    rows = []
    for line in text.splitlines():
        fields = line.split(_FIELD)
        if len(fields) != 7:
            continue
        job_id, name, state, code, node, start, end = fields
        whole, _, task = job_id.partition("_")
        state = state.split(" ")[0]
        codes = _codes(code)
        rows.append(Row(whole, task, name, state, "", node, *codes, _time(start), _time(end)))
    return rows


def parse_details(text: str) -> list[Row]:
    """Rows of `scontrol -o show job`, whose values may hold blanks."""
    rows = []
    for line in text.splitlines():
        pairs: dict[str, str] = dict(re.findall(r"(\w+)=(.*?)(?=\s\w+=|$)", line))
        if "JobId" not in pairs:
            continue
        job_id = pairs.get("ArrayJobId") or pairs["JobId"]
        codes = _codes(pairs.get("ExitCode", ""))
        times = (_time(pairs.get("StartTime", "")), _time(pairs.get("EndTime", "")))
        rows.append(
            Row(
                job_id,
                pairs.get("ArrayTaskId", ""),
                pairs.get("JobName", ""),
                pairs.get("JobState", ""),
                pairs.get("Reason", ""),
                pairs.get("NodeList", "").replace("(null)", ""),
                *codes,
                *times,
            )
        )
    return rows


def parse_machine(text: str, partition: str) -> Machine:
    """What `sinfo` and the search for a container runtime printed."""
    lines = text.splitlines()
    version, runtime = "", ""
    partitions: dict[str, None] = {}
    nodes: dict[str, tuple[int, int, int]] = {}
    for line in lines:
        if line.startswith("slurm"):
            version = line.split()[-1]
        elif line.startswith("runtime "):
            runtime = line.split()[1]
        elif len(fields := line.split("|")) == 6:
            queue, node, cpus, memory, gres, state = fields
            partitions[queue] = None
            is_up = not state.startswith(("down", "drain", "drng", "fail", "unk", "inval"))
            if queue == partition and is_up:
                total = cpus.split("/")[-1]
                nodes[node] = (int(total), int(memory.rstrip("+")), _gpus(gres))
    cpus_total, memory_total, gpus_total = (sum(n[i] for n in nodes.values()) for i in range(3))
    return Machine(version, tuple(partitions), cpus_total, memory_total, gpus_total, runtime)


def _gpus(gres: str) -> int:
    return sum(int(count) for count in re.findall(r"gpu(?::[A-Za-z][\w.-]*)?:(\d+)", gres))


def _codes(text: str) -> tuple[int, int]:
    code, _, signal = text.partition(":")
    return int(code) if code.isdigit() else 0, int(signal) if signal.isdigit() else 0


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and text != "0" else None
