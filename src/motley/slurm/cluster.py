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
from motley.node.machine import ARCHITECTURES
from motley.slurm import runtimes, script, submission
from motley.slurm.jobs import Row, noted
from motley.slurm.ssh import Connection, Result, Unreachable

log = journal.get(__name__)

_TIMEOUT_S = 30.0
_FIELD = "\x1f"
_QUEUE = _FIELD.join(("%F", "%K", "%j", "%T", "%r", "%N", "%S", "%e"))
_ACCOUNTS = "JobID,JobName%300,State,ExitCode,NodeList,Start,End"
_DISABLED = "accounting storage is disabled"
_PREFIX = "LC_ALL=C SLURM_TIME_FORMAT=%s"


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
    architecture: str = ""


class Followed(NamedTuple):
    """A job that is followed: its folder, and its name in Slurm's queue."""

    directory: str
    name: str


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

    async def notes(self, folders: Mapping[str, str]) -> dict[str, list[Row]]:
        """What scripts themselves noted of their ends, or of their tasks' ends, by number."""
        lines = []
        for job_id, directory in folders.items():
            place = shlex.quote(f"{directory}/{script.MARKS}")
            lines.append(
                f"echo 'job {job_id}'; ( cd {place} 2>/dev/null || exit 0;"
                ' for f in exit*; do [ -e "$f" ] && echo "$f $(head -c 9 "$f")"; done )'
            )
        if not lines:
            return {}
        done = await self._run("bash -s", stdin="\n".join(lines), timeout_s=120.0)
        return parse_notes(done.out)

    async def look(self, followed: Mapping[str, Followed]) -> tuple[dict[str, list[Row]], bool]:
        """How each of these jobs fares, by number. One that nobody knows has no rows, and the
        second value says whether everybody could be asked.

        Tasks of an array leave the queue one by one, so arrays are always asked for elsewhere too.
        """
        names = {number: job.name for number, job in followed.items()}
        found = by_job(await self.queue(), names)
        ended = [i for i, rows in found.items() if all(r.phase in FINISHED for r in rows)]
        told = by_job(await self.details(ended), names) if ended else {}
        # squeue shows no exit codes, and by now the controller may have forgotten some of these or
        # of their tasks: what squeue said of them counts when nobody knows better.
        forgotten = {i: found.pop(i) for i in ended}
        found |= told
        partial = [i for i in followed if i not in found or any(r.task for r in found[i])]
        is_sure = True
        if partial:
            try:
                listed = by_job(await self.accounts(partial), names)
            except Failed as failure:
                log.warning("accounts not seen", error=str(failure))
                is_sure, listed = False, {}
            told = {i: together(found.get(i, []), listed.get(i, [])) for i in partial}
            short = {
                i
                for i, rows in told.items()
                if not listed.get(i) or {r.task for r in forgotten.get(i, ())} - _tasks(rows)
            }
            unsure = short | {i for i in partial if any(r.exit_code for r in listed.get(i, ()))}
            notes = await self.notes({i: followed[i].directory for i in partial if i in unsure})
            for job_id, rows in told.items():
                noted_rows = notes.get(job_id, [])
                rows = together(exact(rows, noted_rows), noted_rows if job_id in short else ())
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
        text = submission.submission(directory, name, options)
        done = await self._run("bash -s", timeout_s=120.0, stdin=text)
        if done.code == submission.CANCELLED:
            raise Failed("it was cancelled before it was submitted")
        found = submission.number_in(_sure(done))
        if not found:
            raise Unreachable("Unsure", f"sbatch said no job number: {_last(done)}")
        return found

    async def recover(self, directory: str, name: str) -> str:
        """The number of a job that an earlier bridge may have submitted; empty if none has."""
        text = submission.recovery(directory, name)
        done = await self._run("bash -s", timeout_s=90.0, stdin=text)
        return submission.number_in(_sure(done))

    async def cancel(self, directory: str, name: str) -> list[Row]:
        """Stop a job whether or not its submission is still under way; what is left of it."""
        text = submission.cancellation(directory, name, _QUEUE)
        done = await self._run("bash -s", timeout_s=120.0, stdin=text)
        return [row for row in parse_queue(_sure(done)) if row.name == name]

    async def remove(self, directories: Sequence[str]) -> None:
        """Remove a job's folders."""
        _good(await self._run(f"rm -rf -- {shlex.join(directories)}", timeout_s=120.0))

    async def machine(self, partition: str) -> Machine:
        """What there is; asked once per connection and now and then."""
        done = await self._run("bash -s", stdin=_MACHINE)
        return parse_machine(_good(done), partition)

    async def _run(
        self, command: str, *, timeout_s: float = _TIMEOUT_S, stdin: str | None = None
    ) -> Result:
        return await self.connection.run(f"{_PREFIX} {command}", timeout_s=timeout_s, stdin=stdin)


def _sure(done: Result) -> str:
    """What a script of `submission` printed. Raises Unreachable when it could not find out."""
    if done.code == submission.UNSURE:
        raise Unreachable("Unsure", f"Slurm or the job's folder does not answer: {_last(done)}")
    return _good(done)


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


_MACHINE = """
echo "machine $(uname -m)"
sinfo --version
timeout 20 sinfo -h -N -o '%R|%N|%C|%m|%G|%t' || exit 1
for r in RUNTIMES; do
  command -v $r >/dev/null && { echo "runtime $r"; break; }
done
exit 0
""".replace("RUNTIMES", " ".join(runtimes.LOOKED_FOR))


def by_job(rows: Iterable[Row], wanted: Mapping[str, str]) -> dict[str, list[Row]]:
    """The rows of each job that is wanted: names by numbers. Numbers begin anew when a controller
    loses its state, so one of another name is another job."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.job_id in wanted and row.name in ("", wanted[row.job_id]):
            found.setdefault(row.job_id, []).append(row)
    return found


def together(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """Rows of one job from two sources; of a task that both know, the first knows better."""
    seen = {row.task for row in rows}
    # Accounts show tasks that have not begun as one row, `[2-9]`; the queue shows each.
    return [*rows, *(r for r in more if r.task not in seen and not (seen and "[" in r.task))]


def exact(rows: Sequence[Row], notes: Sequence[Row]) -> list[Row]:
    """Rows with the exit codes that the jobs noted themselves: sacct shows 137 as 9."""
    codes = {note.task: note.exit_code for note in notes}
    return [
        row._replace(exit_code=row.exit_code + 128)
        if row.exit_code and codes.get(row.task) == row.exit_code + 128
        else row
        for row in rows
    ]


def parse_notes(text: str) -> dict[str, list[Row]]:
    """Under `job 7`: `exit 3` of a job, `exit.2 0` of a task."""
    found: dict[str, list[Row]] = {}
    job_id = ""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "job":
            job_id = value
        elif name.startswith("exit") and value.strip().isdigit() and job_id:
            row = noted(job_id, int(value), name.partition(".")[2])
            found.setdefault(job_id, []).append(row)
    return found


def _tasks(rows: Iterable[Row]) -> set[str]:
    return {row.task for row in rows}


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
        whole, _, task = job_id.partition("+")[0].partition("_")  # `7+1`: a part of its own needs
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
    version, runtime, architecture = "", "", ""
    partitions: dict[str, None] = {}
    nodes: dict[str, tuple[int, int, int]] = {}
    for line in lines:
        if line.startswith("slurm"):
            version = line.split()[-1]
        elif line.startswith("runtime "):
            runtime = line.split()[1]
        elif line.startswith("machine "):
            architecture = ARCHITECTURES.get(line.split()[1], line.split()[1])
        elif len(fields := line.split("|")) == 6:
            queue, node, cpus, memory, gres, state = fields
            partitions[queue] = None
            is_up = not state.startswith(("down", "drain", "drng", "fail", "unk", "inval"))
            if queue == partition and is_up:
                total = cpus.split("/")[-1]
                nodes[node] = (int(total), int(memory.rstrip("+")), _gpus(gres))
    cpus_total, memory_total, gpus_total = (sum(n[i] for n in nodes.values()) for i in range(3))
    totals = (cpus_total, memory_total, gpus_total)
    return Machine(version, tuple(partitions), *totals, runtime, architecture)


def _gpus(gres: str) -> int:
    return sum(int(count) for count in re.findall(r"gpu(?::[A-Za-z][\w.-]*)?:(\d+)", gres))


def _codes(text: str) -> tuple[int, int]:
    code, _, signal = text.partition(":")
    return int(code) if code.isdigit() else 0, int(signal) if signal.isdigit() else 0


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and text != "0" else None
