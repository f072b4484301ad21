"""A cluster lives in one network namespace; commands about it run there as well.

Usually that is the machine's own and nothing happens. A test cluster, or one node of several on a
machine, has a namespace of its own: the command then starts itself again inside.
"""

import os
import sys

from motley.ops import processes, spawning, statefile
from motley.ops.config import Config, current_netns


def enter(config: Config) -> None:
    """Go on inside the cluster's namespace, if it is another one and still in use."""
    if config.netns in (0, current_netns()):
        return
    state = statefile.read_state(config.run / "state.json")
    known = [state.supervisor, *(c.process for c in state.components)]
    alive = [p for p in known if p and p.is_alive] or list(processes.of_cluster(config.root))
    for process in alive:
        path = f"/proc/{process.pid}/ns/net"
        if os.path.exists(path) and os.stat(path).st_ino == config.netns:
            command = ["nsenter", f"--net={path}", *spawning.motley(*sys.argv[1:])]
            os.execvp(command[0], command)
