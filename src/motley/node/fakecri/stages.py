"""What simulated containers do, as data.

    - match: {pod: "web-*", container: main, image: "localhost/*"}
      pull: 2s                 # how long a pull takes
      pullErrors: ["not found"]  # the first pulls fail, one text each
      sandbox: 100ms           # likewise create, start
      runs:                    # one for each attempt, the last one also for all after it
      - {for: 3s, exitCode: 1}
      - {for: 1s, exitCode: 137, reason: OOMKilled}
      - {}                     # without `for`: until it is stopped
      stop: 200ms              # what it takes to end when asked; beyond its grace it is killed
      log: ["listening on :80"]
      exec:                    # what commands answer (probes, hooks); the first that matches
      - {command: "cat /ready", after: 5s}
      - {command: "cat /ready", exitCode: 1, output: "not yet"}

The first entry whose `match` fits says everything; without one a container starts at once, runs
until it is stopped and ends at once, and commands in it succeed.
"""

from fnmatch import fnmatchcase
from typing import Any

import msgspec
import yaml

from motley.lib import durations


class StagesError(ValueError):
    """The text does not say what containers do."""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom an entry is for; shell patterns."""

    pod: str = "*"
    container: str = "*"
    image: str = "*"


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One life of a container."""

    for_: str = msgspec.field(default="", name="for")
    exit_code: int = 0
    reason: str = ""
    error: str = ""  # it cannot be started at all

    @property
    def seconds(self) -> float | None:
        """How long it runs; None for ever."""
        return durations.seconds(self.for_) if self.for_ else None


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How a command in a container ends; `after` counts from the container's start."""

    command: str = "*"
    after: str = "0s"
    takes: str = "0s"
    exit_code: int = 0
    output: str = ""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One entry; see the module's docstring."""

    match: Match = Match()
    pull: str = "0s"
    pull_errors: list[str] = []
    sandbox: str = "0s"
    create: str = "0s"
    start: str = "0s"
    stop: str = "0s"
    runs: list[Run] = msgspec.field(default_factory=lambda: [Run()])
    log: list[str] = []
    exec: list[Answer] = []

    def run(self, attempt: int) -> Run:
        """What the container does at this attempt."""
        return self.runs[min(attempt, len(self.runs) - 1)]

    def answer(self, command: str, since_start_s: float) -> Answer:
        """How a command ends now."""
        for answer in self.exec:
            if fnmatchcase(command, answer.command) and since_start_s >= durations.seconds(
                answer.after
            ):
                return answer
        return Answer()


class Stages:
    """All entries, in order."""

    def __init__(self, entries: list[Stage] | None = None) -> None:
        self._entries = entries or []

    def of(self, *, pod: str = "", container: str = "", image: str = "") -> Stage:
        """What one container does; a part that is not known fits only `*`."""
        for entry in self._entries:
            wanted = entry.match
            if (
                fnmatchcase(pod, wanted.pod)
                and fnmatchcase(container, wanted.container)
                and fnmatchcase(image, wanted.image)
            ):
                return entry
        return Stage()


def parse(text: str) -> Stages:
    """Read YAML. Raises StagesError that says where it is wrong."""
    try:
        loaded: Any = yaml.safe_load(text) or []
        entries = msgspec.convert(loaded, list[Stage])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise StagesError(str(error)) from error
    for number, entry in enumerate(entries):
        times = [entry.pull, entry.sandbox, entry.create, entry.start, entry.stop]
        times += [run.for_ for run in entry.runs if run.for_]
        times += [text for answer in entry.exec for text in (answer.after, answer.takes)]
        for one in times:
            try:
                durations.seconds(one)
            except ValueError as error:
                raise StagesError(f"entry {number}: {error}") from error
        if not entry.runs:
            raise StagesError(f"entry {number}: runs is empty")
    return Stages(entries)
