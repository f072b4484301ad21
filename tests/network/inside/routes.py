"""Sets this namespace's routes to other nodes' pods, as often as a line asks for it.

routes.py NAME; a line is {"mode": MODE, "nodes": [[name, podCIDR, address], …]}, the answer says
which nodes were left out, and why.
"""

import json
import sys

from motley.network import podroutes
from motley.network.peers import Facts, Mode

print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    options = podroutes.Options(node_name=sys.argv[1], mode=Mode(asked["mode"]))
    done = podroutes.apply([Facts(*node) for node in asked["nodes"]], options)
    print(json.dumps(done.skipped if done else None), flush=True)
