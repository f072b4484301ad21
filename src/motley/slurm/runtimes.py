"""A container as a shell command, for what a site runs images with: pure.

Apptainer (or Singularity) runs an image at once. enroot imports it into a file, unpacks that under
a name, starts it, and has to be told to remove it. In both a pod's `command` stands for the image's
entrypoint and its `args` for the image's command, as everywhere in Kubernetes.
"""

import shlex
from collections.abc import Mapping

from motley.api.views.container import Container
from motley.slurm import script

ENROOT = "enroot"
_IMAGE = "image.sqsh"
# Sourced by the start script that enroot gives images, in the image's own working directory and
# before its entrypoint; the one place from which both can be replaced.
_HOOK = f"{script.MARKS}/rc.local"
_HOOK_MOUNT = f"{_HOOK}:/etc/rc.local:none:x-create=file,bind"


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
    pairs = [word for key, value in values.items() for word in ("--env", f"{key}={value}")]
    words = [*container.command, *container.args]
    if runtime == ENROOT:
        return _enroot(container, pairs, words, name, gpus)
    verb = "exec" if container.command else "run"  # `run` starts what the image says
    device = ["--nv"] if gpus else []
    place = ["--pwd", container.working_dir] if container.working_dir else []
    image = f"docker://{container.image}"
    return shlex.join([runtime, verb, *device, *place, *pairs, image, *words])


def _enroot(container: Container, pairs: list[str], words: list[str], name: str, gpus: int) -> str:
    hook = [f"cd {shlex.quote(container.working_dir)} || exit 1"] if container.working_dir else []
    hook += ['exec "$@"'] if container.command else []
    mount = ["--mount", _HOOK_MOUNT] if hook else []
    # Without this variable enroot brings no device along. Slurm says which are ours.
    device = '--env NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-all}" ' if gpus else ""
    steps = [f"printf '%s\\n' {shlex.join(hook)} > {_HOOK}"] if hook else []
    steps += [
        f"enroot import --output {_IMAGE} {shlex.quote(enroot_uri(container.image))}",
        f"enroot create --force --name {name} {_IMAGE}",
        f"enroot start --rw {device}{shlex.join([*pairs, *mount, name, *words])}",
    ]
    run = " &&\n".join(steps)
    return f"{run}\nended=$?; enroot remove --force {name}; (exit $ended)"


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
