"""A container as a shell command, for what a site runs images with: pure.

Apptainer (or Singularity) and Podman run an image at once. enroot imports it into a file, unpacks
that under a name, starts it, and has to be told to remove it. In all a pod's `command` stands for
the image's entrypoint and its `args` for the image's command, as everywhere in Kubernetes, and what
the runtime itself has to say is no part of the pod's log unless it fails.
Invariant: variables and words reach the container as they are, whatever characters they hold.
"""

import json
import shlex
from collections.abc import Mapping

from motley.api.views.container import Container
from motley.slurm import script

ENROOT, PODMAN = "enroot", "podman"
# In the order in which they are looked for. Podman has to be asked for: many login nodes have it
# where jobs cannot use it.
LOOKED_FOR = ("apptainer", "singularity", ENROOT)
_IMAGE = "image.sqsh"
_IMAGE_LOG = f"{script.MARKS}/image.log"
# Sourced by the start script that enroot gives images, in the image's own working directory and
# before its entrypoint; the one place from which both can be replaced.
_HOOK = f"{script.MARKS}/rc.local"
_HOOK_MOUNT = f"{_HOOK}:/etc/rc.local:none:x-create=file,bind"
# Slurm's own is 30 s; two are left for cleaning up.
_GRACE = """\
grace() {
  wait_s=$(timeout 5 scontrol show config | sed -n 's/^KillWait *= *\\([0-9]*\\).*/\\1/p')
  echo $(( ${wait_s:-30} > 2 ? ${wait_s:-30} - 2 : 0 ))
}"""


def problems(values: Mapping[str, str], runtime: str) -> list[str]:
    """What the runtime cannot do for a container with these variables."""
    lines = [name for name, value in values.items() if "\n" in value]
    if runtime == ENROOT and lines:
        return [f"enroot takes no variables of several lines ({', '.join(lines)})"]
    return []


def command(
    container: Container, values: Mapping[str, str], runtime: str, *, name: str, gpus: int = 0
) -> str:
    """What runs a container, with these variables; `name` is its own on its machine."""
    if runtime == ENROOT:
        return _enroot(container, values, name, gpus)
    if runtime == PODMAN:
        return _podman(container, values, name, gpus)
    return _apptainer(container, values, runtime, gpus)


def _apptainer(container: Container, values: Mapping[str, str], runtime: str, gpus: int) -> str:
    # `--env` would take a comma for the next variable, and without NO_EVAL the shell in the
    # container would expand `$` and backquotes in variables and words.
    prefix = runtime.upper()
    variables = [f"{prefix}_NO_EVAL=1"]
    variables += [f"{prefix}ENV_{key}={value}" for key, value in values.items()]
    verb = "exec" if container.command else "run"  # `run` starts what the image says
    device = ["--nv"] if gpus else []
    place = ["--pwd", container.working_dir] if container.working_dir else []
    words = [f"docker://{container.image}", *container.command, *container.args]
    return shlex.join(["env", *variables, runtime, "--quiet", verb, *device, *place, *words])


def _podman(container: Container, values: Mapping[str, str], name: str, gpus: int) -> str:
    options = [
        "--rm",
        "--quiet",
        "--replace",
        "--name",
        name,
        "--network=host",
        "--log-driver=none",
    ]
    if gpus:  # by the site's CDI files; Slurm says which are ours
        options += ["--device", "nvidia.com/gpu=all", "--env", "CUDA_VISIBLE_DEVICES"]
    if container.working_dir:
        options += ["--workdir", container.working_dir]
    if container.command:
        options += ["--entrypoint", json.dumps(container.command)]
    options += [word for key, value in values.items() for word in ("--env", f"{key}={value}")]
    # In the job's own cgroup, where Slurm's limits are; runc cannot do that.
    cgroups = (
        "cgroups=\n"
        "[ \"$(podman info --format '{{.Host.OCIRuntime.Name}}')\" = crun ]"
        " && cgroups=--cgroups=disabled"
    )
    words = shlex.join([*options, container.image, *container.args])
    run = _stoppable(
        f"podman run $cgroups {words}", f'podman stop --time "$(grace)" {name} > /dev/null'
    )
    return f"{cgroups}\n{run}\n(exit $ended)"


def _enroot(container: Container, values: Mapping[str, str], name: str, gpus: int) -> str:
    pairs = [word for key, value in values.items() for word in ("--env", f"{key}={value}")]
    hook = [f"cd {shlex.quote(container.working_dir)} || exit 1"] if container.working_dir else []
    hook += ['exec "$@"'] if container.command else []
    mount = ["--mount", _HOOK_MOUNT] if hook else []
    # Without this variable enroot brings no device along. Slurm says which are ours.
    device = '--env NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-all}" ' if gpus else ""
    words = shlex.join([*pairs, *mount, name, *container.command, *container.args])
    wrote = f"printf '%s\\n' {shlex.join(hook)} > {_HOOK}\n" if hook else ""
    kill = '{ sleep "$(grace)"; kill -KILL $main; } & wait $main'
    return f"""\
{wrote}if {{
  enroot import --output {_IMAGE} {shlex.quote(enroot_uri(container.image))} &&
    enroot create --force --name {name} {_IMAGE}
}} > {_IMAGE_LOG} 2>&1; then
rm -f {_IMAGE}
{_stoppable(f"enroot start --rw {device}{words}", kill)}
enroot remove --force {name}
(exit $ended)
else
cat {_IMAGE_LOG}; rm -f {_IMAGE}
(exit 1)
fi"""


def _stoppable(run: str, stop: str) -> str:
    """A command after which `stop` is done when Slurm ends the job; `$ended` is its exit code.
    In the background, because a shell that waits for a command does not hear signals."""
    return f"""\
{_GRACE}
{run} &
main=$!
trap {shlex.quote(stop)} TERM
wait $main
ended=$?
trap - TERM"""


def enroot_uri(image: str) -> str:
    """An image as enroot names it: a `#` after the registry, of which Docker's own has none."""
    registry, slash, rest = image.partition("/")
    if not slash or not (registry == "localhost" or "." in registry or ":" in registry):
        return f"docker://{image}"
    return f"docker://{rest}" if registry == "docker.io" else f"docker://{registry}#{rest}"


def noted(run: str, out: str) -> str:
    """A command whose errors are printed among the rest, in their order, and beside it a note of
    when how much was printed, which is what `kubectl logs --since` and `--timestamps` go by."""
    note = f"stat -c '%.3Y %s' {shlex.quote(out)}"
    return f"""\
# When how much was printed, for kubectl logs: every second, of long jobs every minute.
( seen=; while :; do
    now=$({note})
    [ "$now" = "$seen" ] || echo "$now"
    seen=$now
    sleep $((SECONDS < 212400 ? 1 + SECONDS / 3600 : 60))
  done > {script.TIMES} 2> /dev/null ) &
notes=$!
code=0
{{
{run}
}} 2>&1 || code=$?
{{ kill $notes; wait $notes; {note} >> {script.TIMES}; }} 2> /dev/null || true
(exit $code)"""
