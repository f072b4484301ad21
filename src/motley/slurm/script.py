"""From a SlurmJob to the batch script that runs it: pure, and made to be read.

    directives    what the job asks of Slurm
    setup         the site's own commands, modules, environment
    build         when it is built within the job
    run           the command

The script's first line notes that it has begun and its last how it ended, in the job's folder, so
that a cluster without accounting can still be asked. A site's template may put the parts into
another order or among commands of its own.
Invariant: what users write reaches the shell quoted, or where a command is expected.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from motley.api import quantity
from motley.api.views.slurm import SlurmCluster, SlurmJob

MARKS = ".motley"  # the bridge's own folder within the job's
SCRIPT = f"{MARKS}/job.sh"
TIMES = f"{MARKS}/times"  # when how much was printed
BUILD_LOG = f"{MARKS}/build.log"
BUILD_FAILED = f"{MARKS}/build.failed"

_COMPILERS = {".cu": "nvcc", ".c": "cc", ".cc": "c++", ".cpp": "c++", ".cxx": "c++"}
_LAUNCHERS = ("srun", "mpirun", "mpiexec")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS = ("directives", "setup", "modules", "environment", "build", "run", "name", "directory")
_PLACE = re.compile(r"\$\{(" + "|".join(_PARTS) + r")\}")
_LONGEST = 200  # with what is added to it: 255 are the most for a file, and in Slurm's accounts
_GO = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def mark(job: SlurmJob, attempt: int) -> str:
    """The name in Slurm's queue and accounts: by it a submission is found again, whatever broke."""
    return f"{job.metadata.name}.{job.metadata.uid}.{attempt}"


def directory(job: SlurmJob, cluster: SlurmCluster, attempt: int) -> str:
    """The job's folder on the cluster; every attempt has its own."""
    written = cluster.spec.work_directory
    root = "" if written == "~" else written.removeprefix("~/")  # relative ones begin there anyway
    meta = job.metadata
    return f"{root.rstrip('/') or '.'}/{meta.namespace}/{meta.name}-{meta.uid[:8]}-{attempt}"


def attempt_directory(job: SlurmJob, attempt: int) -> str:
    """The folder of an attempt of a job that has begun; where its cluster's objects say that new
    ones go may have changed since."""
    last = job.status.attempt
    return f"{job.status.directory.removesuffix(f'-{last}')}-{attempt}"


def streams(job: SlurmJob) -> tuple[str, str]:
    """The files for what it prints, as Slurm spells them."""
    each = "_%a" if job.spec.array else ""
    return f"{job.result_name}{each}.out", f"{job.result_name}{each}.err"


def problems(job: SlurmJob, cluster: SlurmCluster, sources: Iterable[str] = ()) -> list[str]:
    """Why the job cannot be run there; each says what to do."""
    spec, limits = job.spec, cluster.spec.limits
    found = []
    if not (spec.script or run_command(job, sources)):
        found.append("spec.command is empty, and there is no source file to compile: name one")
    found += [
        f"spec.environment: {name!r} is no name of a shell variable"
        for name in spec.environment
        if not _VARIABLE.fullmatch(name)
    ]
    names = [*spec.files, *spec.outputs, *(i.name for i in spec.inputs if i.name)]
    found += [f"{name!r} is not within the job's folder" for name in names if not is_inside(name)]
    found += [f"{name!r} is no name of a file" for name in names if not name.isprintable()]
    if len(job.metadata.name) > _LONGEST:
        found.append(f"metadata.name is too long for Slurm: {_LONGEST} characters are the most")
    if limits.max_gpus and spec.gpu_resources * spec.nodes > limits.max_gpus:
        found.append(f"spec.gpuResources: cluster {cluster.metadata.name} gives {limits.max_gpus}")
    if limits.max_nodes and spec.nodes > limits.max_nodes:
        found.append(f"spec.nodes: cluster {cluster.metadata.name} gives {limits.max_nodes}")
    partition = partition_of(job, cluster)
    if limits.partitions and partition not in limits.partitions:
        allowed = ", ".join(limits.partitions)
        found.append(f"spec.partition: {partition!r} is not one of {allowed}")
    longest = minutes(limits.max_time) if limits.max_time else float("inf")
    if spec.time_limit and minutes(spec.time_limit) > longest:
        found.append(f"spec.timeLimit: cluster {cluster.metadata.name} gives {limits.max_time}")
    if spec.mail and spec.mail.via != "Slurm" and cluster.spec.smtp is None:
        found.append(f"spec.mail.via: cluster {cluster.metadata.name} has no spec.smtp")
    return found


def is_inside(name: str) -> bool:
    """Is this path within the job's folder, and none of the bridge's own?"""
    path = PurePosixPath(name)
    parts = path.parts
    return bool(parts) and not path.is_absolute() and ".." not in parts and parts[0] != MARKS


def partition_of(job: SlurmJob, cluster: SlurmCluster) -> str:
    """The queue the job goes to."""
    return job.spec.partition or cluster.spec.default_partition


def build_command(job: SlurmJob, sources: Iterable[str]) -> str:
    """How the program is built; empty when there is nothing to build."""
    spec = job.spec
    if spec.build or spec.script:
        return spec.build
    names = sorted(name for name in sources if "/" not in name)
    if not spec.compiler and any(n in ("Makefile", "makefile", "GNUmakefile") for n in names):
        return "make"
    kinds = {PurePosixPath(name).suffix for name in names} & _COMPILERS.keys()
    if not kinds:
        return ""
    # One CUDA file makes the whole a CUDA program; one C++ file makes it C++.
    kind = ".cu" if ".cu" in kinds else ".c" if kinds == {".c"} else ".cc"
    flags = ["-O3"] if spec.compiler_flags is None else spec.compiler_flags
    compiled = [name for name in names if PurePosixPath(name).suffix in _COMPILERS]
    words = [*flags, "-o", job.metadata.name, *compiled]
    return f"{spec.compiler or _COMPILERS[kind]} {shlex.join(words)}"


def run_command(job: SlurmJob, sources: Iterable[str]) -> str:
    """How the program is run."""
    spec = job.spec
    command = spec.command
    if not command and not spec.build and build_command(job, sources) not in ("", "make"):
        command = f"./{shlex.quote(job.metadata.name)}"
    if not command:
        return ""
    is_parallel = spec.nodes * spec.num_tasks_per_node > 1
    if is_parallel and command.split()[0] not in _LAUNCHERS:
        command = f"srun {command}"
    return f"{command} {shlex.join(spec.args)}".rstrip()


def render(
    job: SlurmJob,
    cluster: SlurmCluster,
    *,
    attempt: int = 1,
    sources: Sequence[str] = (),
    dependencies: Sequence[str] = (),
) -> str:
    """The batch script; `dependencies` as Slurm writes them, `afterok:17`."""
    if job.spec.script:
        return job.spec.script.rstrip("\n") + "\n"
    where = directory(job, cluster, attempt)
    build = build_command(job, sources) if job.spec.build_on == "Job" else ""
    parts = {
        "directives": "\n".join(
            f"#SBATCH {line}" for line in directives(job, cluster, attempt, dependencies)
        ),
        "setup": cluster.spec.setup.rstrip("\n"),
        "modules": _modules(job),
        "environment": _environment(job),
        "build": _build_within(build) if build else "",
        "run": run_command(job, sources),
        "name": job.metadata.name,
        "directory": where,
    }
    if cluster.spec.script_template:
        text = _PLACE.sub(lambda found: parts[found[1]], cluster.spec.script_template)
        return text.rstrip("\n") + "\n"
    return _usual(job, parts)


def _usual(job: SlurmJob, parts: dict[str, str]) -> str:
    meta = job.metadata
    task = "${SLURM_ARRAY_TASK_ID:+.$SLURM_ARRAY_TASK_ID}"
    sections = [
        f"#!/bin/bash -l\n# SlurmJob {meta.namespace}/{meta.name}, written by motley.",
        parts["directives"],
        "# How it went, for clusters that keep no accounts.\n"
        f'echo "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}" > {MARKS}/started\n'
        f"trap 'echo $? > {MARKS}/exit{task}' EXIT",
        parts["setup"],
        parts["modules"],
        parts["environment"],
        parts["build"],
        parts["run"],
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def directives(
    job: SlurmJob, cluster: SlurmCluster, attempt: int, dependencies: Sequence[str] = ()
) -> list[str]:
    """What the job asks of Slurm, as options of sbatch."""
    spec = job.spec
    out, err = streams(job)
    lines = [
        f"--job-name={mark(job, attempt)}",
        f"--comment=motley:{job.metadata.namespace}/{job.metadata.name}",
        f"--partition={partition_of(job, cluster)}",
        f"--nodes={spec.nodes}",
        f"--ntasks-per-node={spec.num_tasks_per_node}",
        f"--cpus-per-task={spec.cpus_per_task}",
    ]
    if spec.gpu_resources:
        kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
        lines.append(f"--gres=gpu:{kind}{spec.gpu_resources}")
    optional = {
        "mem": f"{megabytes(spec.memory)}M" if spec.memory else "",
        "time": slurm_time(spec.time_limit) if spec.time_limit else "",
        "account": spec.account,
        "qos": spec.qos,
        "array": spec.array,
        "dependency": ",".join(dependencies),
    }
    lines += [f"--{name}={value}" for name, value in optional.items() if value]
    lines += [f"--output={out}", f"--error={err}"]
    if spec.mail is not None and spec.mail.via != "SMTP":
        lines.append(f"--mail-type={spec.mail.type.upper()}")
        lines.append(f"--mail-user={address(job, cluster)}")
    return lines


def essential(job: SlurmJob, attempt: int, dependencies: Sequence[str] = ()) -> list[str]:
    """Options that hold whatever a script of the user's or the site's own says."""
    out, err = streams(job)
    words = [f"--job-name={mark(job, attempt)}", f"--output={out}", f"--error={err}"]
    words += [f"--array={job.spec.array}"] if job.spec.array else []
    words += [f"--dependency={','.join(dependencies)}"] if dependencies else []
    return [*words, "--no-requeue"]


def address(job: SlurmJob, cluster: SlurmCluster) -> str:
    """To whom mail about the job goes."""
    user = job.spec.mail.user if job.spec.mail else ""
    domain = cluster.spec.mail_domain
    return user if "@" in user or not domain else f"{user}@{domain}"


def login_build(job: SlurmJob, cluster: SlurmCluster, sources: Iterable[str]) -> str:
    """What is run on the login node before the job is submitted; empty when there is nothing."""
    build = build_command(job, sources)
    if not build or job.spec.build_on == "Job":
        return ""
    parts = [cluster.spec.setup.rstrip("\n"), _modules(job), _environment(job), build]
    return "\n".join(part for part in parts if part)


def _build_within(build: str) -> str:
    return (
        f"if ! ( {build} ) > {BUILD_LOG} 2>&1; then\n"
        f"  cp {BUILD_LOG} {BUILD_FAILED}; cat {BUILD_LOG} >&2; exit 1\nfi"
    )


def _modules(job: SlurmJob) -> str:
    words = shlex.join(job.spec.modules)
    return f"module load {words}" if words else ""


def _environment(job: SlurmJob) -> str:
    pairs = job.spec.environment.items()
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in pairs)


def megabytes(memory: str) -> int:
    """Slurm's unit, rounded up. `4G` means what it means to Slurm: 4 GiB."""
    text = memory if memory[-1:] in "ik" or memory[-1:].isdigit() else f"{memory}i"
    return max(1, -(-int(quantity.parse(text)) // (1 << 20)))


def slurm_time(text: str) -> str:
    """A time limit as Slurm writes it; Go's way (`1h30m`) is read too."""
    if not text[-1:].isalpha():
        return text
    seconds = int(minutes(text) * 60)
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def minutes(text: str) -> float:
    """A time limit in minutes, however it is written: `90`, `1:30:00`, `1-12`, `1h30m`."""
    if text[-1:].isalpha():
        found = _GO.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no time limit")
        hours, mins, seconds = (int(part or 0) for part in found.groups())
        return hours * 60 + mins + seconds / 60
    days, dash, rest = text.rpartition("-")
    numbers = [int(part) for part in rest.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        numbers += [0] * (3 - len(numbers))
    elif len(numbers) == 1:  # minutes
        numbers = [0, *numbers, 0]
    elif len(numbers) == 2:  # minutes:seconds
        numbers = [0, *numbers]
    hours, mins, seconds = numbers
    return int(days or 0) * 1440 + hours * 60 + mins + seconds / 60
