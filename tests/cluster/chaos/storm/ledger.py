"""A writer that remembers every answer, and a list of every object there is.

It speaks HTTP itself: what it was told must not depend on a client library that tries again. A
write whose answer never came is in doubt: it may have happened or not, but at most once.
"""

import base64
import json
import subprocess
import sys

import msgspec
import yaml

NAMESPACE = "ledger"

_CONNECT = """
import http.client, json, os, ssl, sys, tempfile, time
def connect(path):
    where = json.load(open(path))
    context = ssl.create_default_context(cadata=where["ca"])
    with tempfile.NamedTemporaryFile("w") as pair:
        pair.write(where["pair"])
        pair.flush()
        context.load_cert_chain(pair.name)
    host, port = where["host"], where["port"]
    return lambda: http.client.HTTPSConnection(host, port, timeout=5, context=context)
def ask(connection, verb, path, body=None, kind="application/json"):
    data = None if body is None else json.dumps(body)
    connection.request(verb, path, data, {"Content-Type": kind})
    answer = connection.getresponse()
    data = answer.read()
    # What is no object (a page of metrics, say) holds none.
    return answer.status, json.loads(data) if data[:1] == b"{" else {}
"""

# Creates ConfigMaps and Pods that nobody runs, changes some, deletes some, until told to end; one
# line of JSON for each: what was asked and what was answered (null: nothing).
_WRITER = (
    _CONNECT
    + """
import select
new = connect(sys.argv[1])
home = "/api/v1/namespaces/" + sys.argv[2]
out = open(sys.argv[3], "a", buffering=1)
connection, number = None, 0
def write(op, path, name, verb, url, body=None, kind="application/json"):
    global connection
    code = said = None
    try:
        if connection is None:
            connection = new()
        code, said = ask(connection, verb, url, body, kind)
    except (OSError, http.client.HTTPException, ValueError):
        if connection is not None:
            connection.close()
        connection = None
    meta = (said or {}).get("metadata") or {}
    details = (said or {}).get("details") or {}
    out.write(json.dumps({"op": op, "resource": path, "name": name, "code": code,
        "uid": meta.get("uid") or details.get("uid"), "version": meta.get("resourceVersion"),
        "message": (said or {}).get("message", "") if code and code >= 400 else ""}) + "\\n")
    return code
while not select.select([sys.stdin], [], [], 0.05)[0]:
    number += 1
    name = f"w{number}"
    if number % 4:
        path, body = "configmaps", {"data": {"number": str(number)}}
    else:
        container = {"name": "c", "image": "none"}
        path, body = "pods", {"spec": {"schedulerName": "nobody", "containers": [container]}}
    made = {"metadata": {"name": name}, **body}
    code = write("create", path, name, "POST", f"{home}/{path}", made)
    if code == 201 and path == "configmaps":
        if number % 3 == 0:
            write("delete", path, name, "DELETE", f"{home}/{path}/{name}")
        elif number % 3 == 1:
            change = {"data": {"changed": name}}
            write("change", path, name, "PATCH", f"{home}/{path}/{name}", change,
                  "application/merge-patch+json")
"""
)

# Every object of every kind that can be listed: {resource: {namespace/name: uid}}.
_CENSUS = (
    _CONNECT
    + """
connection = connect(sys.argv[1])()
groups = ["/api/v1"] + ["/apis/" + g["preferredVersion"]["groupVersion"]
    for g in ask(connection, "GET", "/apis")[1]["groups"]]
found = {}
for base in groups:
    for one in ask(connection, "GET", base)[1]["resources"]:
        if "/" in one["name"] or "list" not in one["verbs"]:
            continue
        code, listed = ask(connection, "GET", f"{base}/{one['name']}")
        if code == 200:
            found[f"{base}/{one['name']}"] = {
                m.get("namespace", "") + "/" + m["name"]: m["uid"]
                for m in (o["metadata"] for o in listed.get("items") or ()) if "uid" in m}
print(json.dumps(found))
"""
)


def credentials(testbed):
    """The administrator's way to the API server, in a file that the programs read."""
    document = yaml.safe_load(testbed.kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    where, _, port = cluster["server"].removeprefix("https://").partition(":")
    decode = lambda text: base64.b64decode(text).decode()  # noqa: E731
    pair = user["client-certificate-data"], user["client-key-data"]
    path = testbed.root / "ledger-credentials.json"
    path.write_text(
        json.dumps(
            {
                "host": where,
                "port": int(port),
                "ca": decode(cluster["certificate-authority-data"]),
                "pair": "".join(map(decode, pair)),
            }
        )
    )
    path.chmod(0o600)
    return path


def census(testbed):
    """Every object there is, by resource and name: its uid."""
    words = (sys.executable, "-c", _CENSUS, credentials(testbed))
    return msgspec.json.decode(testbed.run(*words))


class Ledger:
    """The writer, and what it was told."""

    def __init__(self, testbed):
        self._testbed = testbed
        self._path = testbed.root / "ledger.jsonl"
        self._process = None

    def start(self):
        """Write until `stop`."""
        words = (credentials(self._testbed), NAMESPACE, self._path)
        command = [*self._testbed.inside, sys.executable, "-c", _WRITER, *map(str, words)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def stop(self):
        """End the writer; harmless to repeat."""
        if self._process is not None:
            self._process.communicate(timeout=30)
            self._process = None

    def entries(self):
        """Everything that was asked, with the answers."""
        if not self._path.exists():
            return []
        whole = self._path.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line) for line in whole.splitlines()]

    def acknowledged(self):
        """How many writes were answered with success so far."""
        return sum((one["code"] or 500) < 300 for one in self.entries())

    def problems(self, objects):
        """Where what the writer was told and what there is disagree."""
        there = {
            (resource, name): uid
            for resource in ("configmaps", "pods")
            for full, uid in objects[f"/api/v1/{resource}"].items()
            for namespace, _, name in [full.partition("/")]
            if namespace == NAMESPACE and name.startswith("w")
        }
        created, deleted, in_doubt, asked = {}, set(), set(), set()
        for one in self.entries():
            thing = (one["resource"], one["name"])
            asked.add(thing)
            is_done = one["code"] is not None and one["code"] < 300
            if one["op"] == "create" and is_done:
                created[thing] = one["uid"]
            elif one["op"] == "delete" and is_done:
                deleted.add(thing)
            elif one["op"] == "delete" and one["code"] is None:
                in_doubt.add(thing)
        kept = created.keys() - deleted - in_doubt
        return {
            "acknowledged and not there": sorted(t for t in kept if there.get(t) != created[t]),
            "deleted and still there": sorted(deleted & there.keys()),
            "there and never asked for": sorted(there.keys() - asked),
        }


def changes(before, after):
    """Objects that are gone, that are new, and that another took the place of; by resource."""
    gone, fresh, replaced = {}, {}, {}
    for resource in {*before, *after}:
        old, new = before.get(resource, {}), after.get(resource, {})
        for found, names in (
            (gone, old.keys() - new.keys()),
            (fresh, new.keys() - old.keys()),
            (replaced, {name for name in old.keys() & new.keys() if old[name] != new[name]}),
        ):
            if names:
                found[resource] = sorted(names)
    return gone, fresh, replaced
