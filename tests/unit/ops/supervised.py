"""A supervisor as a real process below a directory of its own, and what a test asks of it."""

import signal
import subprocess
import sys
import time

from motley.ops import processes, statefile


def eventually(check, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not: {check}"
        subprocess.run(["sleep", "0.02"], check=True)


class Rig:
    def __init__(self, root):
        self.root = root
        (root / "run").mkdir()
        (root / "logs").mkdir()
        self.supervisors = []

    def ask(self, *specs):
        statefile.write(self.root / "run" / "components.json", list(specs))

    def start(self):
        with (self.root / "logs" / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "motley.ops.supervisor", str(self.root)], stderr=log
            )
        self.supervisors.append(process)
        return process

    @property
    def state(self):
        return statefile.read_state(self.root / "run" / "state.json")

    def running(self, *names):
        state = self.state
        found = {c.name: c for c in state.components if c.state == "running"}
        return found if state.is_supervised and set(found) == set(names) else None

    def close(self):
        for process in self.supervisors:
            process.kill()
            process.wait()
        for process in list(processes.of_cluster(self.root)):
            processes.send(process, signal.SIGKILL)
            processes.wait(process, 5)
        assert processes.of_cluster(self.root) == {}
