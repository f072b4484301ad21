"""Functions on a real cluster: calls, chains, load, updates, bad code, and crashes in between."""

import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from motley.lib import clock
from motley.ops.testbed import NODE_IP, eventually

pytestmark = pytest.mark.root

UP = ("--no-functions", "--no-slurm")  # the component is started, and killed, here
PORT = 10290
_CLONE_NEWNET = 0x40000000


class Answer(NamedTuple):
    code: int
    text: str
    headers: dict[str, str]

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json["error"]


class Functions:
    """The component on a cluster, and a way to call functions from the node."""

    def __init__(self, bed):
        self.bed = bed
        self.process = None
        self.log = bed.root / "logs/functions.log"

        def enter():
            # Only this thread is in the node's network from here on.
            with open(f"/run/netns/{bed.name}") as namespace:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")

        self.pool = ThreadPoolExecutor(64, initializer=enter)

    def start(self):
        self.process = self.component(PORT, 10291)
        eventually(lambda: self.ask("GET", "/healthz").code == 200, pause_s=0.05)

    def component(self, port, health_port):
        with self.log.open("a") as log:
            return subprocess.Popen(
                [
                    *self.bed.inside,
                    *(sys.executable, "-P", "-m", "motley.cli.main", "functions"),
                    *("--kubeconfig", self.bed.root / "pki" / "functions.kubeconfig"),
                    *("--listen", NODE_IP, "--port", str(port)),
                    *("--health-port", str(health_port), "--url", f"http://{NODE_IP}:{PORT}"),
                    *("--sync-wait-s", "1.5", "--pool-size", "1"),
                    *("--cache-dir", self.bed.root / "layers"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self):
        self.pool.shutdown()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def later(self, method, path, body=b"", headers=None, port=PORT):
        return self.pool.submit(self._ask, method, path, body, headers or {}, port)

    def ask(self, method, path, body=b"", headers=None):
        return self.later(method, path, body, headers).result(90)

    def call(self, name, arg="", **headers):
        return self.calling(name, arg, **headers).result(90)

    def calling(self, name, arg="", **headers):
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.later("POST", f"/functions/default/{name}", arg, given)

    def result(self, id_):
        def finished():
            found = self.ask("GET", f"/invocations/default/{id_}", headers=self.admin).json
            return found if found["phase"] in ("Succeeded", "Failed", "Cancelled") else None

        return eventually(finished, 60, 0.1)

    @property
    def admin(self):
        if not hasattr(self, "_admin"):
            kubectl = self.bed.kubectl
            kubectl("create", "serviceaccount", "admin")
            kubectl(
                *("create", "clusterrolebinding", "functions-test"),
                *("--clusterrole=cluster-admin", "--serviceaccount=default:admin"),
            )
            token = kubectl("create", "token", "admin").strip()
            self._admin = {"Authorization": f"Bearer {token}"}
        return self._admin

    def _ask(self, method, path, body, headers, port=PORT):
        connection = http.client.HTTPConnection(NODE_IP, port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Answer(answer.status, text, {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()

    def apply(self, *functions):
        self.bed.kubectl(
            "apply",
            "-f",
            "-",
            stdin=json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "List",
                    "items": list(functions),
                }
            ),
        )

    def pods(self, name):
        items = self.bed.get("pods", "-l", f"motley.io/function={name}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def function(name, code, **spec):
    return {
        "apiVersion": "motley.io/v1",
        "kind": "Function",
        "metadata": {"name": name},
        "spec": {"code": code, "public": True, **spec},
    }


@pytest.fixture(scope="module")
def functions(cluster):
    made = Functions(cluster)
    try:
        made.start()
        yield made
    finally:
        made.end()


ECHO = "def run(arg):\n    return arg + '{}'\n"


def test_a_call_wakes_an_instance_and_the_next_one_finds_it(functions):
    functions.apply(function("hello", ECHO.format(" world")))

    first = functions.call("hello", "hello", Prefer="wait=30")
    assert (first.code, first.text) == (200, "hello world")
    assert functions.call("hello", "you").text == "you world"
    (pod,) = functions.pods("hello")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Function"
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    security = spec["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert security["runAsNonRoot"]
    assert spec["containers"][0]["resources"]["limits"]["memory"] == "256Mi"
    service = functions.bed.get("service", "hello")
    assert service["spec"]["selector"] == {"motley.io/serving": "hello"}


def test_an_asynchronous_call_gives_its_id_at_once_and_its_result_later(functions):
    accepted = functions.call("hello", "async", Prefer="respond-async")
    assert accepted.code == 202
    assert functions.result(accepted.json["id"])["result"] == "async world"


def test_a_slow_call_gives_its_id_then_its_result_and_runs_once(functions):
    functions.apply(function("slow", COUNTING.replace("SECONDS", "3")))
    accepted = functions.call("slow")
    assert (accepted.code, accepted.text[:6]) == (202, '{"id":')
    assert accepted.headers["location"] == accepted.json["url"]
    assert functions.result(accepted.json["id"])["result"] == "1"


COUNTING = """
import os, time
def run(arg):
    with open("/tmp/count", "a") as file:
        file.write("x")
    time.sleep(SECONDS)
    return str(os.path.getsize("/tmp/count"))
"""


def test_a_key_makes_repeating_a_call_safe(functions):
    headers = {"Prefer": "respond-async", "Idempotency-Key": "order-7"}
    first = functions.later("POST", "/functions/default/hello", "a", headers).result()
    again = functions.later("POST", "/functions/default/hello", "a", headers).result()
    assert first.json["id"] == again.json["id"]


def test_v1_has_a_pod_for_each_call_and_calls_v2_and_the_other_way(functions):
    calling = "def run(arg, context):\n    return context.call('{}', arg) + '{}'\n"
    functions.apply(
        function("single", calling.format("hello", " by v1"), version="v1"),
        function("outer", calling.format("single", " by v2")),
    )
    answer = functions.call("outer", "hi", Prefer="wait=30")
    assert answer.text == "hi world by v1 by v2"
    eventually(lambda: not functions.pods("single"), pause_s=0.2)

    functions.apply(function("crash", "import os\ndef run(arg):\n    os.abort()\n", version="v1"))
    answer = functions.call("crash", Prefer="wait=30")
    assert (answer.code, answer.error["type"]) == (500, "Crashed")
    eventually(lambda: not functions.pods("crash"), pause_s=0.2)


def test_a_chain_takes_both_branches_and_loops_until_its_limit(functions):
    check = "def run(arg):\n    return arg\ndef check(ret):\n    return ret == 'hello'\n"
    twice = "def run(arg):\n    return arg + '!'\ndef check(ret):\n    return len(ret) < 6\n"
    functions.apply(
        function("is-hello", check, left="hello", right="twice"),
        function("twice", twice, left="twice", right="RETURN"),
        function("forever", "def run(arg):\n    return arg\n", left="forever"),
    )
    assert functions.call("is-hello", "hello", Prefer="wait=20").text == "hello world"
    assert functions.call("is-hello", "hi", Prefer="wait=20").text == "hi!!!!"

    spec = {"function": "forever", "arg": "x", "maxSteps": 5}
    functions.bed.kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps(
            {
                "apiVersion": "motley.io/v1",
                "kind": "Invocation",
                "metadata": {"name": "endless"},
                "spec": spec,
            }
        ),
    )
    ended = functions.result("endless")
    assert (ended["phase"], ended["error"]["type"]) == ("Failed", "StepLimitExceeded")
    assert len(ended["steps"]) == 5


def test_a_workflow_runs_its_steps_side_by_side_and_in_order(functions):
    steps = [
        {"name": "both", "type": "Parallel", "branches": ["one", "two"], "next": "join"},
        {"name": "one", "function": "hello"},
        {"name": "two", "function": "hello", "input": "input + '!'"},
        {"name": "join", "type": "Pass", "input": "input[0] + ' and ' + input[1]"},
    ]
    made = {"apiVersion": "motley.io/v1", "metadata": {"name": "both"}}
    workflow = {**made, "kind": "Workflow", "spec": {"start": "both", "steps": steps}}
    run = {**made, "kind": "Invocation", "spec": {"workflow": "both", "arg": "hi"}}
    functions.apply(workflow, run)
    ended = functions.result("both")
    assert (ended["phase"], ended["result"]) == ("Succeeded", "hi world and hi! world")


def test_bad_functions_say_why_and_disturb_no_other(functions):
    loop = "def run(arg):\n    while True: pass\n"
    hog = "def run(arg):\n    return len(b'x' * (1 << 30))\n"
    functions.apply(
        function("syntax", "def run(arg):\n    return (\n"),
        function("loop", loop, timeoutSeconds=1, concurrency=2),
        function("hog", hog),
    )
    waits = {"Prefer": "wait=30"}
    calls = [functions.calling(name, **waits) for name in ("syntax", "loop", "hog")]
    big = functions.calling("hello", b"x" * (10 << 20))
    assert functions.call("hello", "still").text == "still world"
    syntax, loop, hog = (call.result(60) for call in calls)
    assert (syntax.code, syntax.error["type"], syntax.error["line"]) == (500, "SyntaxError", 2)
    shown = eventually(lambda: functions.bed.get("fn", "syntax")["status"].get("message"))
    assert shown.startswith("SyntaxError")
    assert (hog.code, hog.error["type"]) == (500, "MemoryError")
    assert (loop.code, loop.error["type"]) == (504, "Timeout")
    assert big.result().code == 413
    assert "larger than 10000000 bytes" in big.result().error["message"]


def test_only_those_may_call_who_have_the_right(functions):
    kubectl = functions.bed.kubectl
    functions.apply(function("private", ECHO.format("?"), public=False))
    kubectl("create", "serviceaccount", "tenant")
    token = kubectl("create", "token", "tenant").strip()
    tenant = {"Authorization": f"Bearer {token}"}
    accepted = functions.call("hello", "secret", Prefer="respond-async").json["id"]

    assert functions.call("private").code == 401
    assert functions.call("private", **tenant).code == 403
    path = f"/invocations/default/{accepted}"
    assert functions.ask("GET", path).code == 401
    assert functions.ask("GET", path, headers=tenant).code == 403
    admin = {"Prefer": "wait=30", **functions.admin}
    assert functions.call("private", "hi", **admin).text == "hi?"


def test_a_second_router_that_does_not_lead_wakes_instances_too(functions):
    functions.apply(
        function("elsewhere", ECHO.format(" v2")),
        function("elsewhere1", ECHO.format(" v1"), version="v1"),
    )
    second = functions.component(10295, 0)
    try:
        for name, result in (("elsewhere", "hi v2"), ("elsewhere1", "hi v1")):
            path, headers = f"/functions/default/{name}", {"Prefer": "wait=30"}

            def answer(path=path, headers=headers):
                return functions.later("POST", path, "hi", headers, 10295).result(60).text

            assert eventually(answer, pause_s=0.1) == result
    finally:
        second.terminate()
        second.wait(20)


def test_an_update_replaces_instances_and_drops_no_call(functions):
    code = "import time\ndef run(arg):\n    time.sleep(0.1)\n    return '{}'\n"
    functions.apply(function("changing", code.format("old")))
    assert functions.call("changing", Prefer="wait=20").text == "old"
    answers, stop = [], threading.Event()

    def keep_calling():
        while not stop.is_set():
            answers.append(functions.call("changing", Prefer="wait=20"))

    callers = [threading.Thread(target=keep_calling) for _ in range(3)]
    for caller in callers:
        caller.start()
    functions.apply(function("changing", code.format("new")))
    try:
        eventually(lambda: answers and answers[-1].text == "new")
        eventually(lambda: len(functions.pods("changing")) == 1)
    finally:
        stop.set()
        for caller in callers:
            caller.join(30)
    assert {answer.code for answer in answers} == {200}
    assert {answer.text for answer in answers} == {"old", "new"}


def test_fifty_callers_get_more_instances_which_go_one_by_one(functions):
    code = "import time\ndef run(arg):\n    time.sleep(0.4)\n    return arg\n"
    functions.apply(function("busy", code, idleSeconds=2, maxInstances=4, concurrency=4))

    def rounds(number):
        return [
            functions._ask("POST", "/functions/default/busy", f"{number}", {"Prefer": "wait=60"})
            for _ in range(3)
        ]

    answers = [f.result(90) for f in [functions.pool.submit(rounds, n) for n in range(50)]]
    assert {a.code for each in answers for a in each} == {200}
    assert all({a.text for a in each} == {f"{n}"} for n, each in enumerate(answers))

    seen = []

    def is_gone():
        count = functions.bed.get("fn", "busy")["status"]["instances"]
        if not seen or seen[-1] != count:
            seen.append(count)
        return count == 0

    eventually(is_gone, pause_s=0.05)
    assert seen[0] > 1
    assert seen == sorted(seen, reverse=True)
    eventually(lambda: not functions.pods("busy"), pause_s=0.2)


def test_packages_and_the_prerun_are_kept_for_the_next_instance(functions):
    code = "import os\ndef run(arg):\n    return open(os.environ['MOTLEY_LAYER'] + '/x').read()\n"
    script = "cat /proc/sys/kernel/random/uuid > $MOTLEY_LAYER/x"
    functions.apply(function("layered", code, preRun=script, concurrency=1))
    made = functions.call("layered", Prefer="wait=20")
    assert made.code == 200
    functions.bed.kubectl("delete", "pod", "-l", "motley.io/function=layered")
    eventually(lambda: functions.call("layered", Prefer="wait=20").text == made.text)


@pytest.fixture
def chain(functions):
    """Two slow steps, each of which counts its runs."""
    functions.apply(
        function("first", COUNTING.replace("SECONDS", "1.5"), left="second"),
        function("second", COUNTING.replace("SECONDS", "0.3").replace("str(", "arg + str(")),
    )

    def begin():
        for name in ("first", "second"):
            functions.bed.kubectl("delete", "pod", "-l", f"motley.io/function={name}")
        id_ = functions.call("first", "x", Prefer="respond-async").json["id"]
        eventually(lambda: _steps(functions, id_), pause_s=0.05)
        return id_

    return begin


def _steps(functions, id_):
    return functions.ask("GET", f"/invocations/default/{id_}", headers=functions.admin).json.get(
        "steps"
    )


def test_a_chain_completes_once_when_the_router_is_killed_in_the_middle(functions, chain):
    id_ = chain()
    functions.kill()
    functions.start()
    ended = functions.result(id_)
    assert (ended["phase"], ended["result"]) == ("Succeeded", "11")
    assert [step["function"] for step in ended["steps"]] == ["first", "second"]


def test_a_chain_completes_when_its_pod_is_killed_in_the_middle(functions, chain):
    id_ = chain()
    pod = _steps(functions, id_)[0]["instance"]
    functions.bed.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    assert functions.result(id_)["result"] == "11"


def test_a_chain_completes_once_when_the_api_server_is_killed_in_the_middle(functions, chain):
    id_ = chain()
    pid = functions.bed.components()["apiserver"]["pid"]
    os.kill(pid, signal.SIGKILL)
    began = clock.SYSTEM.monotonic()

    def ended():
        found = functions.ask("GET", f"/invocations/default/{id_}", headers=functions.admin)
        return found.code == 200 and found.json["phase"] == "Succeeded" and found.json

    assert eventually(ended, 60, 0.2)["result"] == "11"
    assert clock.SYSTEM.monotonic() - began < 60
    # The agent and the others have to be well again for whoever comes next.
    eventually(lambda: functions.call("hello", "back").text == "back world")


def test_a_cancelled_call_ends(functions):
    functions.apply(function("long", "import time\ndef run(arg):\n    time.sleep(50)\n"))
    id_ = functions.call("long", Prefer="respond-async").json["id"]
    eventually(lambda: _steps(functions, id_), pause_s=0.05)
    gone = functions.ask("DELETE", f"/invocations/default/{id_}", headers=functions.admin)
    assert gone.code == 202
    assert functions.result(id_)["phase"] == "Cancelled"


def test_a_deleted_function_takes_its_instances_with_it(functions):
    functions.bed.kubectl("delete", "function", "hello")
    assert functions.call("hello").code in (401, 404)
    eventually(lambda: not functions.pods("hello"), pause_s=0.2)
