"""Scripts for the login node that submit a job once, find it again, and stop it: pure.

They run where the job's folder is, because only there two of them can be kept apart: by a lock, and
by the mark `submitting`, which says that an earlier one may have come so far that the job has to be
looked for. A disk that is full, or a folder that cannot be seen, must neither hide a job that Slurm
has nor keep one from being stopped.
Invariant: sbatch is not called unless the mark has been made, and not while a job may be there.
"""

import re
import shlex
from collections.abc import Sequence

from motley.slurm import script

CANCELLED, UNSURE = 95, 96  # exit codes of these scripts
_NUMBER = re.compile(r"^job (\d+)$", re.MULTILINE)
# `found` prints the number of a job of this name, if the queue, the accounts or the job itself know
# one, and fails when that cannot be known now.
_FOUND = """
found() {
  id=$(timeout 20 squeue -h -t all -u "$(id -un)" --name="$name" -o %F) || return 1
  if [ -z "$id" ]; then
    id=$(timeout 20 sacct -nXP --name="$name" -S now-30days -o JobID 2>&1) || {
      echo "$id" | grep -qi 'storage is disabled' || return 1
    }
    id=$(echo "$id" | grep '^[0-9]')
  fi
  if [ -z "$id" ] && [ -n "$here" ] && [ -s .motley/started ]; then id=$(cat .motley/started); fi
  echo "$id" | head -n 1 | tr -c '0-9\\n' '\\n' | head -n 1
}
"""
_LOCK = f"{{ exec 9>.motley/lock && flock -w 60 9; }} || exit {UNSURE}"
# Told whether or not it can be written down: what is not, is looked for the next time.
_TELL = """\
if [ -n "$here" ]; then echo "$id" > .motley/jobid.new && mv .motley/jobid.new .motley/jobid; fi
echo "job $id\""""


def number_in(text: str) -> str:
    """The job's number in what a script printed; empty if there is none. Login shells of some sites
    print words of their own, with numbers in them."""
    found = _NUMBER.findall(text)
    return found[-1] if found else ""


def submission(directory: str, name: str, options: Sequence[str]) -> str:
    """A script that submits once; a second run of it answers with the same number."""
    words = shlex.join(["sbatch", "--parsable", *options, script.SCRIPT])
    return f"""name={shlex.quote(name)} here=1
cd {shlex.quote(directory)} || exit 1
{_FOUND}
{_LOCK}
[ -e .motley/cancelled ] && exit {CANCELLED}
if [ -s .motley/jobid ]; then echo "job $(cat .motley/jobid)"; exit; fi
id=
if [ -e .motley/submitting ]; then id=$(found) || exit {UNSURE}; fi
if [ -z "$id" ]; then
  : > .motley/submitting || exit {UNSURE}
  answer=$({words} 2>&1)
  code=$?
  if [ $code -ne 0 ]; then
    echo "$answer" >&2
    echo "$answer" | grep -qiE 'timed out|unable to contact|connection refused' && exit {UNSURE}
    rm -f .motley/submitting
    exit $code
  fi
  id=$(echo "$answer" | grep -E '^[0-9]+(;|$)' | tail -n 1 | cut -d';' -f1)
  if [ -z "$id" ]; then echo "$answer" >&2; exit {UNSURE}; fi
fi
{_TELL}
"""


def recovery(directory: str, name: str) -> str:
    """A script that finds what an earlier submission came to; says nothing if there was none."""
    return f"""name={shlex.quote(name)} here=
{_FOUND}
if cd {shlex.quote(directory)}/.motley 2>/dev/null && cd ..; then
  here=1
  {_LOCK}
  if [ -s .motley/jobid ]; then echo "job $(cat .motley/jobid)"; exit; fi
  [ -e .motley/submitting ] || exit 0
fi
id=$(found) || exit {UNSURE}
[ -n "$id" ] || exit 0
{_TELL}
"""


def cancellation(directory: str, name: str, form: str) -> str:
    """A script that stops a job and keeps it from being submitted; prints what the queue shows of
    it, in squeue's `form`."""
    show = f'squeue -h -r -u "$(id -un)" --name="$name" -o {shlex.quote(form)}'
    return f"""name={shlex.quote(name)}
if mkdir -p {shlex.quote(directory)}/.motley && cd {shlex.quote(directory)}; then
  {_LOCK}
  : > .motley/cancelled
fi
timeout 20 scancel -u "$(id -un)" --name="$name" || exit 1
timeout 20 {show}
"""
