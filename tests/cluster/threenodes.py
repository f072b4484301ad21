"""A cluster of three nodes on one machine, and how tests of several files ask things of it.

One cluster serves every file `test_nodes*.py`, in their order; the last one takes it down. Each pod
`web-N` is on `node-N`, behind the Service `web`. A test leaves these as it found them.
"""

import contextlib
import subprocess
import sys

import msgspec

NODES = ("node-1", "node-2", "node-3")
VIP, NODE_PORT = "10.96.0.80", 30081

# Answers with its own name and the client's address. Told to end, it goes on for a moment, as a
# server does that lets its last requests finish.
SERVER = """
import os, signal, socket, threading
signal.signal(signal.SIGTERM, lambda *_: threading.Timer(1.5, os._exit, (0,)).start())
listening = socket.create_server(("", 8080), backlog=512)
while True:
    client, (address, _) = listening.accept()
    body = f"hello from {os.environ['HOSTNAME']} {address}".encode()
    with client:
        if client.recv(4096):
            head = f"HTTP/1.0 200 OK\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
            client.sendall(head.encode() + body)
"""

# call.py COUNT HOST PORT …: [name, client address as seen there] of every answer, as JSON.
CALL = """
import json, socket, sys
def call(host, port):
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        data = b""
        while more := connection.recv(4096):
            data += more
    return data.decode().rpartition("hello from ")[2].split()
count, targets = int(sys.argv[1]), sys.argv[2:]
pairs = list(zip(targets[::2], targets[1::2]))
print(json.dumps([call(*pair) for pair in pairs for _ in range(count)]))
"""

# reach.py HOST PORT …: the name of who answers there, empty where nobody does; all at once.
REACH = """
import concurrent.futures, json, socket, sys
def call(pair):
    try:
        with socket.create_connection((pair[0], int(pair[1])), timeout=1) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            data = b""
            while more := connection.recv(4096):
                data += more
        return data.decode().rpartition("hello from ")[2].split()[0]
    except OSError:
        return ""
targets = sys.argv[1:]
pairs = list(zip(targets[::2], targets[1::2]))
with concurrent.futures.ThreadPoolExecutor(len(pairs)) as pool:
    print(json.dumps(list(pool.map(call, pairs))))
"""

# Calls without pause until its standard input closes: [seconds, name or error] of every call.
WATCH = """
import json, select, socket, sys, time
seen = []
while not select.select([sys.stdin], [], [], 0.003)[0]:
    begun = time.time()
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            name = connection.recv(4096).decode().rpartition("hello from ")[2].split()[0]
    except (OSError, IndexError) as error:
        name = f"failed: {error!r}"
    seen.append((begun, name))
print(json.dumps(seen))
"""


def pod(number, node):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number}", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 4,
            "containers": [
                {
                    "name": "server",
                    "image": "localhost/motley/python:1",
                    "command": ["python3", "-c", SERVER],
                    "ports": [{"name": "web", "containerPort": 8080}],
                    "readinessProbe": {
                        "tcpSocket": {"port": 8080},
                        "periodSeconds": 1,
                        "failureThreshold": 30,
                    },
                }
            ],
        },
    }


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {
        "type": "NodePort",
        "clusterIP": VIP,
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
    },
}


def apply(cluster, *objects):
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document).decode())


def wait_ready(cluster, *names):
    pods = [f"pod/{name}" for name in names]
    cluster.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=60s")


def serve(cluster):
    """The Service and its three pods, answering."""
    apply(cluster, SERVICE, *(pod(n, node) for n, node in enumerate(NODES, 1)))
    wait_ready(cluster, "web-1", "web-2", "web-3")


def put_right(cluster):
    """What every file counts on, after a test that ended half way."""
    cluster.kubectl("uncordon", *NODES)
    cluster.kubectl("delete", "networkpolicies,poddisruptionbudgets", "--all")
    serve(cluster)


def addresses(cluster):
    """Pod addresses by name."""
    found = cluster.get("pods", "-l", "app=web")["items"]
    return {one["metadata"]["name"]: one["status"]["podIP"] for one in found}


def call(cluster, where, *targets, count=1):
    """What a client in a pod, or on a node, is answered: names and the addresses seen there."""
    return _ask(cluster, where, CALL, count, *targets)


def reach(cluster, where, *targets):
    """Whom a client in a pod, or on a node, reaches at addresses; empty where nobody answers."""
    return _ask(cluster, where, REACH, *targets)


def _ask(cluster, where, script, *arguments):
    flat = [w for one in arguments for w in (one if isinstance(one, tuple) else (one,))]
    if not where.startswith("node-"):
        # NAMESPACE/POD, or a pod of the default one.
        namespace, _, name = where.rpartition("/")
        pod = ("-n", namespace or "default", name)
        told = cluster.kubectl("exec", *pod, "--", "python3", "-c", script, *flat)
        return msgspec.json.decode(told)
    inside = cluster.inside if where == NODES[0] else cluster.node_inside(where)
    command = [*inside, sys.executable, "-c", script, *map(str, flat)]
    return msgspec.json.decode(subprocess.check_output(command, timeout=60))


@contextlib.contextmanager
def watching(cluster, address, port):
    """Calls from the first node for as long as the block runs; the list is full afterwards."""
    seen = []
    command = [*cluster.inside, sys.executable, "-c", WATCH, address, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield seen
    finally:
        out, _ = process.communicate(timeout=60)
    seen += msgspec.json.decode(out)
