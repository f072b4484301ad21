"""The pod state machine, as stories: commands, a line of dashes, and everything that happens.

`UPDATE_GOLDEN=1 pytest tests/unit/node/test_pods.py` rewrites the expected parts; read the diff.
"""

import dataclasses
import os
from pathlib import Path

import pytest
import yaml

from motley.api.views.pod import Pod
from motley.lib.clock import rfc3339
from motley.node import actions, pods, podstatus
from motley.node.containerconfig import spec_hash
from motley.node.model import (
    Notes,
    Probes,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    StartFailure,
    State,
    Waiting,
)

DATA = Path(__file__).parents[2] / "data" / "node"
START = 1_800_000_000.0


class World:
    """A pod, a runtime that does what it is told, and a clock."""

    def __init__(self):
        self.now = START
        self.document = {}
        self.pod = None
        self.observed = RuntimePod("uid")
        self.notes = Notes()
        self.probes = Probes()
        self.status = {}
        self.count = 0
        self.out = []
        self.next_start_fails = ""
        self.next_sandbox_fails = False

    # -- what a story may say

    def do_pod(self, body):
        spec = yaml.safe_load(body)
        self.document = {
            "metadata": {"name": "p", "namespace": "default", "uid": "uid"},
            "spec": spec,
            "status": {},
        }
        self.pod = Pod.of(self.document)

    def do_advance(self, seconds):
        self.now += float(seconds)

    def do_exit(self, name, code, reason=""):
        self._change(name, state=State.EXITED, exit_code=int(code), reason=reason)

    def do_started(self, name):
        found = self.observed.latest(name)
        self.probes = dataclasses.replace(self.probes, started=self.probes.started | {found.id})

    def do_ready(self, name):
        found = self.observed.latest(name)
        self.probes = dataclasses.replace(self.probes, ready=self.probes.ready | {found.id})

    def do_unready(self, name):
        found = self.observed.latest(name)
        self.probes = dataclasses.replace(self.probes, ready=self.probes.ready - {found.id})

    def do_unhealthy(self, name, kind):
        found = self.observed.latest(name)
        self.probes = dataclasses.replace(
            self.probes, unhealthy={**self.probes.unhealthy, found.id: kind}
        )

    def do_delete(self, grace):
        meta = self.document["metadata"]
        meta["deletionTimestamp"] = rfc3339(self.now + float(grace))
        meta["deletionGracePeriodSeconds"] = int(grace)
        self.pod = Pod.of(self.document)

    def do_forget(self):
        self.pod = None

    def do_restart_agent(self):
        self.notes = Notes(rejected=self.notes.rejected)
        self.status = {}

    def do_sandbox_dies(self):
        first, *rest = self.observed.sandboxes
        dead = dataclasses.replace(first, is_ready=False)
        self.observed = dataclasses.replace(self.observed, sandboxes=(dead, *rest))

    def do_fail_next_start(self, *message):
        self.next_start_fails = " ".join(message)

    def do_fail_next_sandbox(self):
        self.next_sandbox_fails = True

    def do_waiting(self, name, reason, seconds):
        self.notes.waiting[name] = Waiting(reason, "because", self.now + float(seconds))

    def do_image(self, name, image):
        for container in self.document["spec"]["containers"]:
            if container["name"] == name:
                container["image"] = image
        self.pod = Pod.of(self.document)

    def do_reject(self, reason):
        self.notes.rejected = (reason, "the node said no")

    def do_report(self):
        """The API takes over what was reported."""
        self.document["status"] = _without_none(self.status)
        if self.pod is not None:
            self.pod = Pod.of(self.document)

    def do_step(self):
        """Plan and act until there is nothing more to do."""
        for _ in range(20):
            plan = pods.plan(self.pod, self.observed, self.notes, self.probes, self.now)
            if plan.failed:
                self.notes.rejected = plan.failed
                self.say(f"fail {plan.failed[0]}")
                continue
            for action in plan.actions:
                self.perform(action)
            if plan.is_done:
                self.say("done")
                return
            if not plan.actions or isinstance(plan.actions[-1], actions.DeletePod):
                break
        else:
            self.say("never rests")
        if self.pod is not None:
            self.summarise()
        if plan.wake_at is not None:
            self.say(f"wake in {plan.wake_at - self.now:g}s")

    # -- the runtime

    def say(self, text):
        self.out.append(text)

    def perform(self, action):
        match action:
            case actions.RunSandbox(attempt):
                if self.next_sandbox_fails:
                    self.next_sandbox_fails = False
                    self.say(f"run sandbox {attempt}: fails")
                    self.notes.sandbox = Waiting("Failed", "", self.now + 2)
                    self.notes.sandbox_tries = attempt + 1
                    return
                self.say(f"run sandbox {attempt}")
                self.notes.sandbox = None
                fresh = RuntimeSandbox(
                    f"s{attempt}", "uid", "default", "p", attempt, True, self.now, ("10.0.0.9",)
                )
                self.observed = dataclasses.replace(
                    self.observed, sandboxes=(fresh, *self.observed.sandboxes)
                )
            case actions.StartContainer(name, attempt, delay):
                self.start(name, attempt, delay)
            case actions.KillContainer(id_, name, grace, message):
                self.say(f"kill {name} within {grace:g}s: {message}")
                self.notes.killing[id_] = self.now + grace
            case actions.RemoveContainer(id_):
                self.say(f"remove container {id_}")
                left = tuple(c for c in self.observed.containers if c.id != id_)
                self.observed = dataclasses.replace(self.observed, containers=left)
            case actions.RemoveSandbox(id_):
                self.say(f"remove sandbox {id_}")
                left = tuple(s for s in self.observed.sandboxes if s.id != id_)
                self.observed = dataclasses.replace(self.observed, sandboxes=left)
            case actions.ReleasePod():
                self.say("release pod")
                self.notes.is_released = True
                dead = tuple(
                    dataclasses.replace(s, is_ready=False) for s in self.observed.sandboxes
                )
                self.observed = dataclasses.replace(self.observed, sandboxes=dead)
            case actions.RemovePod():
                self.say("remove pod")
                if self.pod is not None:
                    self.compute()
                self.notes.is_released = True
                self.observed = RuntimePod("uid")
            case actions.DeletePod():
                self.say("delete pod in the API")

    def start(self, name, attempt, delay):
        everyone = [*self.pod.spec.init_containers, *self.pod.spec.containers]
        spec = next(c for c in everyone if c.name == name)
        self.count += 1
        id_ = f"{name}-{self.count}"
        failed, self.next_start_fails = self.next_start_fails, ""
        self.say(f"start {name} attempt {attempt}" + (": fails" if failed else ""))
        if failed == "half-way":  # the agent dies between create and start
            state = State.CREATED
        elif failed:
            state = State.CREATED
            self.notes.failed_starts[id_] = StartFailure(failed, self.now)
        else:
            state = State.RUNNING
        fresh = RuntimeContainer(
            id=id_,
            name=name,
            attempt=attempt,
            sandbox_id=self.observed.sandbox.id,
            state=state,
            created_at=self.now,
            started_at=0.0 if failed else self.now,
            image=spec.image,
            image_ref="sha256:1",
            spec_hash=spec_hash(spec),
            restart_delay_s=delay,
            grace_s=7,
        )
        self.notes.waiting.pop(name, None)
        self.observed = dataclasses.replace(
            self.observed, containers=(fresh, *self.observed.containers)
        )

    def _change(self, name, **changes):
        target = self.observed.latest(name)
        ended = dataclasses.replace(target, finished_at=self.now, **changes)
        self.notes.killing.pop(target.id, None)
        self.observed = dataclasses.replace(
            self.observed,
            containers=tuple(ended if c is target else c for c in self.observed.containers),
        )

    # -- the status

    def compute(self):
        view = podstatus.View(
            self.pod, self.observed, self.notes, self.probes, self.now, "10.77.0.1", self.status
        )
        self.status = podstatus.compute(view)
        return self.status

    def summarise(self):
        status = self.compute()
        ready = next(c["status"] for c in status["conditions"] if c["type"] == "Ready")
        reason = f" reason={status['reason']}" if status["reason"] else ""
        self.say(f"status {status['phase']} ready={ready}{reason}")
        for container in [*status.get("initContainerStatuses", []), *status["containerStatuses"]]:
            self.say(f"  {container['name']}: {_describe(container)}")


def _without_none(value):
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value


def _state(state):
    if "running" in state:
        return "running"
    if "waiting" in state:
        return f"waiting {state['waiting']['reason']}"
    ended = state["terminated"]
    return f"terminated {ended['exitCode']} {ended['reason']}"


def _describe(container):
    text = _state(container["state"]) + (" ready" if container["ready"] else "")
    if container["restartCount"]:
        text += f" restarts={container['restartCount']}"
    if container["lastState"]:
        text += f" (last: {_state(container['lastState'])})"
    return text


def play(text):
    """Run a story; returns it with what happened below every block of commands."""
    world, out, block, body = World(), [], [], []

    def flush_body():
        if body:
            world.do_pod("\n".join(line[2:] for line in body))
            body.clear()

    for block_text in text.split("\n\n"):
        commands = block_text.split("\n----")[0]
        block = []
        for line in commands.splitlines():
            if line.startswith("  "):
                body.append(line)
            elif line.startswith("#") or not line.strip() or line == "pod":
                flush_body()
            else:
                flush_body()
                name, *arguments = line.split()
                getattr(world, f"do_{name.replace('-', '_')}")(*arguments)
        flush_body()
        block.append(commands.rstrip("\n"))
        if world.out:
            block += ["----", *world.out]
            world.out = []
        out.append("\n".join(block))
    return "\n\n".join(out).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.txt")), ids=lambda p: p.stem)
def test_story(path):
    text = path.read_text()
    played = play(text)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(played)
    else:
        assert played == text


def test_there_are_stories():
    assert len(list(DATA.glob("*.txt"))) >= 10


@pytest.mark.parametrize(
    ("due", "is_early"),
    [(START + 5, True), (START, False), (START - 5, False), (START + 3605, False)],
)
def test_a_wait_that_was_reckoned_before_the_clock_was_put_back_is_over(due, is_early):
    assert pods.is_early(START, due, 10.0) is is_early
