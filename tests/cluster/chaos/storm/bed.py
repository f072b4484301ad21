"""A cluster of three nodes on this machine, and what can be done to its processes and cables.

Its store lies on a small file system of its own, so that it can run full. Processes are found by
what the supervisors wrote down, which needs no API server.
"""

import os
import re
import signal
import subprocess

import msgspec

from motley.ops import config as configs
from motley.ops import members, processes, statefile
from motley.ops.testbed import Testbed, eventually

NODES = ("node-1", "node-2", "node-3")
STORE_BYTES = 64 << 20


class Bed(Testbed):
    """See the module's docstring."""

    def start(self):
        """The cluster, with the store's directory on a file system of its own."""
        self.make_bare_namespace()
        self.store = self.root / "apiserver"
        self.store.mkdir()
        options = f"size={STORE_BYTES}"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "motley-test", self.store], check=True
        )
        self.up_nodes(len(NODES))

    def config(self, node=NODES[0]):
        """The configuration of a node's processes."""
        config = configs.load(self.root)
        return config if node == NODES[0] else members.member(config, node)

    def state(self, node=NODES[0]):
        """What a node's supervisor last wrote."""
        return statefile.read_state(self.config(node).run / "state.json")

    def specs(self, node=NODES[0]):
        """What a node's supervisor was asked for."""
        return statefile.read_specs(self.config(node).run / "components.json")

    def process(self, node, name):
        """A component's process, which must be there; `supervisor` is one, too."""
        state = self.state(node)
        found = state.supervisor if name == "supervisor" else state.component(name).process
        assert found is not None, f"{node}/{name} does not run"
        return found

    def kill(self, *victims):
        """kill -9 of components, all at one moment; given as pairs of node and name."""
        found = [self.process(node, name) for node, name in victims]
        for process in found:
            assert processes.send(process, signal.SIGKILL)
        return found

    def all_run(self):
        """Is every component of every node supervised, and ready?"""
        for node in NODES:
            state = self.state(node)
            if not state.is_supervised or not state.components:
                return False
            if not all(one.state == "running" and one.process for one in state.components):
                return False
        return True

    def wait_all_run(self, killed=(), timeout_s=60):
        """Until all components run again, and none is one of the killed."""
        for process in killed:
            eventually(lambda p=process: not p.is_alive, pause_s=0.02)
        eventually(self.all_run, timeout_s, pause_s=0.1)

    def change(self, node, name, edit):
        """Have a component run by another command: `edit` gets and returns its words."""
        config = self.config(node)
        path = config.run / "components.json"
        specs = [
            msgspec.structs.replace(spec, command=tuple(edit(spec.command)))
            if spec.name == name
            else spec
            for spec in statefile.read_specs(path)
        ]
        statefile.write(path, specs)
        wanted = next(spec.fingerprint() for spec in specs if spec.name == name)
        os.kill(self.process(node, "supervisor").pid, signal.SIGHUP)

        def is_changed():
            one = self.state(node).component(name)
            return one.state == "running" and one.fingerprint == wanted

        eventually(is_changed, 60)

    def cut(self, node, is_cut=True):
        """Pull a node's cable out of the switch, or put it back."""
        switch = members.namespace(self.config(), "switch")
        state = "down" if is_cut else "up"
        subprocess.run(["ip", "-n", switch, "link", "set", node, state], check=True)

    def node_inside(self, node):
        """What puts a command onto a node."""
        if node == NODES[0]:
            return self.inside
        return ["nsenter", f"--net=/run/netns/{self.config(node).namespace}"]

    def sends_to(self, node):
        """Everything that a node's rules name: addresses of pods that it sends requests to, too."""
        words = [*self.node_inside(node), "nft", "list", "ruleset"]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
        return set(re.findall(r"[0-9]+(?:\.[0-9]+){3}", told))

    def pods(self, *words):
        """Pods by name, those on their way out as well."""
        return {one["metadata"]["name"]: one for one in self.get("pods", *words)["items"]}
