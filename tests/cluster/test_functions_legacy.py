"""Functions as a person meets them: `motley func`, the document's files, scripts and URLs, paths.

The component is the one that `motley up` starts, with the identity and the certificates it gives.
"""

import json
import sys
from pathlib import Path

import pytest

from motley.ops import config as configs
from motley.ops.testbed import NODE_IP, CommandFailed, eventually

pytestmark = pytest.mark.root

UP = ("--compat", "minik8s", "--no-slurm")
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "minik8s" / "script"
FILES = ROOT / "examples" / "minik8s" / "func"
URL = "http://127.0.0.1:8080/api/funcs"


@pytest.fixture(scope="module")
def motley(cluster):
    """`motley` with the administrator's kubeconfig."""

    def run(*arguments):
        words = (sys.executable, "-P", "-m", "motley.cli.main", *arguments)
        return cluster.run(*words, "--kubeconfig", cluster.kubeconfig).strip()

    return run


def script(cluster, name, *arguments):
    """One of the document's scripts, run where its paths are meant from."""
    place = f'cd {ROOT} && exec {SCRIPTS / name} "$@"'
    return cluster.run("bash", "-c", place, name, *arguments).strip()


def curl(cluster, method, path, body=None):
    words = ["curl", "-s", "-w", "\n%{http_code}", "-X", method, f"{URL}/{path}"]
    words += ["--data-binary", body] if body is not None else []
    text, _, code = cluster.run(*words).rpartition("\n")
    return int(code), text


def test_the_documents_example_is_uploaded_called_changed_and_deleted_by_its_scripts(cluster):
    for name in ("is_hello", "append_world", "append_branch"):
        told = json.loads(script(cluster, "uploader.sh", FILES / f"{name}.env"))
        assert (told["kind"], told["spec"]["name"]) == ("Func", name)
    assert "is-hello" in cluster.kubectl("get", "func")
    assert script(cluster, "call.sh", "is_hello", "hello") == "hello world"
    assert script(cluster, "call.sh", "is_hello", "hi") == "hi (not a greeting)"
    script(cluster, "updater.sh", FILES / "is_hello_modify.env")

    def turned():
        return script(cluster, "call.sh", "is_hello", "hello") == "hello (not a greeting)"

    eventually(turned)
    cluster.kubectl("delete", "func", "append-branch")
    assert curl(cluster, "GET", "template/append_branch")[0] == 404


def test_templates_are_listed_and_what_is_wrong_with_one_is_said(cluster):
    code, text = curl(cluster, "GET", "template")
    assert (code, [one["spec"]["name"] for one in json.loads(text)["items"]]) == (
        200,
        ["append_world", "is_hello"],
    )
    for method, path, body, code, said in (
        ("POST", "template", "{", 400, "the body is no JSON"),
        ("POST", "template", '{"apiVersion": "v9"}', 400, "apiVersion: 'v9' is none of v1, v2"),
        ("PUT", "template/absent", "{}", 404, "there is no function 'absent'"),
        ("POST", "absent", "x", 404, "there is no function 'absent'"),
        ("GET", "no-such-id", None, 404, "no-such-id"),
        ("PATCH", "template", None, 404, "is not one of the document's requests"),
    ):
        found, text = curl(cluster, method, path, body)
        assert found == code, text
        assert said in text
    with pytest.raises(CommandFailed, match="would be the same Function"):
        cluster.run(
            *("curl", "-s", "--fail-with-body", "-X", "POST", f"{URL}/template", "--data"),
            '{"apiVersion": "v2", "spec": {"name": "is-hello", "function": "eA=="}}',
        )


def test_a_step_goes_on_by_its_id_and_return_stores_a_result(cluster):
    code, id_ = curl(cluster, "PUT", "append_world/call-1", "brave new")
    assert (code, id_) == (202, "call-1")
    # The same again is the same call; another under its id is refused.
    assert curl(cluster, "PUT", "append_world/call-1", "brave new")[0] == 202
    assert curl(cluster, "PUT", "append_world/call-1", "other")[0] == 409
    eventually(lambda: curl(cluster, "GET", "call-1") == (200, "brave new world"))
    assert script(cluster, "get-result.sh", "call-1") == "brave new world"
    slow = "import time\ndef run(arg):\n    time.sleep(30)\n"
    body = {"apiVersion": "motley.io/v1", "kind": "Function", "metadata": {"name": "slow"}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**body, "spec": {"code": slow}}))
    eventually(lambda: curl(cluster, "PUT", "slow/call-2", "")[0] == 202)
    assert curl(cluster, "PUT", "RETURN/call-2", "given up")[0] == 200
    assert curl(cluster, "GET", "call-2") == (200, "given up")


def test_a_loop_without_end_is_ended(cluster):
    loop = {
        "apiVersion": "motley.io/v1",
        "kind": "Function",
        "metadata": {"name": "again"},
        "spec": {"code": "def run(arg):\n    return arg\n", "left": "again", "right": "again"},
    }
    call = {
        "apiVersion": "motley.io/v1",
        "kind": "Invocation",
        "metadata": {"name": "round"},
        "spec": {"function": "again", "arg": "x", "maxSteps": 5},
    }
    documents = {"apiVersion": "v1", "kind": "List", "items": [loop, call]}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(documents))

    def ended():
        found = cluster.get("invocation", "round").get("status", {})
        return found if found.get("phase") == "Failed" else None

    status = eventually(ended)
    assert len(status["steps"]) == 5
    assert "more than 5 steps" in json.dumps(status)


def test_a_function_goes_from_an_empty_folder_to_its_result(cluster, motley, tmp_path):
    folder = tmp_path / "greet"
    words = (sys.executable, "-P", "-m", "motley.cli.main")
    told = cluster.run(*words, "func", "new", folder)
    assert f"next: motley func deploy {folder}" in told
    assert motley("func", "deploy", folder) == "function/greet deployed"
    assert motley("func", "call", "greet", "Anna") == "hello, Anna"
    assert "greet" in motley("func", "list")
    (folder / "main.py").write_text(
        "def run(arg):\n    print('was called')\n    return {'twice': arg['n'] * 2}\n"
    )
    motley("func", "deploy", folder)
    eventually(lambda: motley("func", "call", "greet", '{"n": 4}') == '{"twice":8}')
    assert "was called" in motley("func", "logs", "greet")
    id_ = motley("func", "call", "greet", '{"n": 5}', "--async")
    assert motley("func", "result", id_) == '{"twice":10}'
    with pytest.raises(CommandFailed, match=r"there is no|not found"):
        motley("func", "call", "absent")
    # Whoever has no right to call is told so: the router asks the API server.
    code, out, _ = cluster.answer("curl", "-sk", "-X", "POST", _url(cluster, "greet"), "-d", "x")
    assert (code, "say who you are" in out) == (0, True)
    assert motley("func", "rm", "greet") == "function/greet deleted"


def _url(cluster, name):
    port = configs.load(cluster.root).functions_port
    return f"https://{NODE_IP}:{port}/functions/default/{name}"


def test_a_workflow_runs_and_is_shown_as_a_tree(cluster, motley):
    examples = ROOT / "examples" / "functions"
    told = cluster.run(
        *(sys.executable, "-P", "-m", "motley.cli.main", "workflow", "check"),
        examples / "order.yaml",
    )
    assert "nothing is wrong with it" in told
    cluster.kubectl("apply", "-f", examples / "price.yaml", "-f", examples / "order.yaml")
    result = motley("workflow", "run", "order", '{"items": ["tea", "cake", "cake"]}')
    assert json.loads(result) == {"total": 11, "discount": True}
    assert json.loads(motley("workflow", "run", "order", '{"items": ["tea"]}')) == {"total": 3}
    (row,) = [line for line in motley("workflow", "list").splitlines() if line.endswith("5")]
    shown = motley("workflow", "show", row.split()[0])
    assert "├─ 1.prices" in shown
    assert "│  ├─ branch 0" in shown
    assert "4.reduce" in shown
    assert shown.endswith('result: {"total":11,"discount":true}')
    sorry = motley("workflow", "run", "order", '{"items": ["gold"]}')
    assert "no price for gold" in sorry


def test_a_path_leads_to_a_function_and_a_change_calls_one(cluster):
    echo = "def run(arg):\n    return f\"seen {arg['object']['metadata']['name']}\"\n"
    shout = "def run(arg):\n    return arg.upper()\n"
    objects = [
        _object("Function", "shout", {"code": shout, "public": True}),
        _object("Function", "saw", {"code": echo}),
        _object("Trigger", "loud", {"function": "shout", "http": {"path": "/loud"}}),
        _object(
            "Trigger",
            "maps",
            {"function": "saw", "event": {"kind": "ConfigMap", "types": ["ADDED"]}},
        ),
    ]
    documents = {"apiVersion": "v1", "kind": "List", "items": objects}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(documents))
    port = configs.load(cluster.root).functions_port

    def answered():
        url = f"https://{NODE_IP}:{port}/loud/er"
        return cluster.run("curl", "-sk", "-X", "POST", url, "-d", "hey") == "HEY"

    eventually(answered)

    def watches():
        found = cluster.get("trigger", "maps").get("status", {})
        return found.get("resourceVersion")

    eventually(watches)
    cluster.kubectl("create", "configmap", "new-one")

    def called():
        found = cluster.get("invocations", "-l", "triggers.motley.io/name=maps")["items"]
        return [one["status"].get("result") for one in found] == ["seen new-one"]

    eventually(called)


def _object(kind, name, spec):
    return {
        "apiVersion": "motley.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
