"""What runs in a function's pod, as a process on this machine."""

import base64
import io
import json
import signal
import subprocess
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from motley.ops.testbed import eventually

DOCUMENT = """
def run(arg):
    return arg + " world"

def check(ret):
    return ret == "hello world"
"""


def test_the_documents_function_gets_text_and_check_gets_what_run_returned(instance):
    assert instance.specialise(DOCUMENT)[0] == 200

    code, headers, body = instance.call(b"hello")
    assert (code, body, headers["x-motley-check"]) == (200, b"hello world", "true")
    assert instance.call(b"hi")[1]["x-motley-check"] == "false"


def test_a_dict_comes_in_and_goes_out(instance):
    instance.specialise("async def run(arg, context):\n    return {'n': arg['n'] + 1}\n")

    code, headers, body = instance.call(b'{"n": 41}', Content_Type="application/json")
    assert (code, json.loads(body)) == (200, {"n": 42})
    assert headers["content-type"] == "application/json"
    assert "x-motley-check" not in headers


def test_the_context_knows_headers_and_deadline(instance):
    instance.specialise(
        "def run(arg, context):\n"
        "    return [context.headers['x-mine'], context.remaining_s, context.call_id]\n",
        timeout_s=7,
    )
    mine, remaining_s, id_ = json.loads(instance.call(X_Mine="yes", X_Motley_Call_Id="c1")[2])
    assert (mine, id_) == ("yes", "c1")
    assert 6 < remaining_s <= 7


def test_what_a_generator_yields_is_streamed(instance):
    instance.specialise("def run(arg):\n    for n in range(3):\n        yield f'{n},'\n")
    code, headers, body = instance.call()
    assert (code, body) == (200, b"0,1,2,")
    assert headers["transfer-encoding"] == "chunked"


def test_a_syntax_error_is_named_with_its_line(instance):
    code, answer = instance.specialise("def run(arg):\n    return arg\n\ndef broken(:\n    pass\n")
    assert code == 422
    assert answer["error"]["type"] == "SyntaxError"
    assert (answer["error"]["file"], answer["error"]["line"]) == ("main.py", 4)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("x = 1\n", "no function run"),
        ("import sys\nsys.exit(3)\n", "sys.exit(3)"),
        ("while True: pass\n", "did not end within 1 s"),
        ("import os\nos.kill(os.getpid(), 9)\n", "ended while it loaded"),
    ],
)
def test_code_that_cannot_be_loaded_says_why(instance, code, complaint):
    status, answer = instance.specialise(code, loadTimeout_s=1)
    assert status == 422
    assert complaint in answer["error"]["message"]
    status, error = instance.error()
    assert (status, error["type"]) == (503, "NotReady")


MISFORTUNES = """
import os, sys, time
def run(arg):
    if arg == "raise":
        raise ValueError("no such luck")
    if arg == "exit":
        sys.exit(3)
    if arg == "crash":
        os.kill(os.getpid(), 11)
    if arg == "loop":
        while True: pass
    if arg == "memory":
        return str(len(b"x" * (1 << 30)))
    if arg == "slow":
        time.sleep(0.5)
    return "fine"
"""


@pytest.mark.parametrize(
    ("arg", "status", "kind", "complaint"),
    [
        (b"raise", 500, "ValueError", "no such luck"),
        (b"exit", 500, "SystemExit", "sys.exit(3)"),
        (b"crash", 500, "Crashed", "SIGSEGV"),
        (b"loop", 504, "Timeout", "longer than 1 s"),
        (b"memory", 500, "MemoryError", ""),
    ],
)
def test_a_call_that_fails_takes_no_other_with_it(instance, arg, status, kind, complaint):
    instance.specialise(MISFORTUNES, timeout_s=1, memoryBytes=200 << 20)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(instance.call, b"slow")
        code, error = instance.error(arg)
    assert (code, error["type"]) == (status, kind)
    assert complaint in error["message"]
    assert other.result()[2] == b"fine"
    assert instance.call(b"again")[2] == b"fine"


def test_an_error_names_the_users_line(instance):
    instance.specialise(MISFORTUNES)
    _, error = instance.error(b"raise")
    assert (error["file"], error["line"]) == ("main.py", 5)
    assert error["trace"] == ["main.py:5 in run"]


def test_more_calls_than_its_concurrency_are_refused_before_they_start(instance):
    instance.specialise("import time\ndef run(arg):\n    time.sleep(0.6)\n", concurrency=2)
    with ThreadPoolExecutor(3) as pool:
        answers = [f.result() for f in [pool.submit(instance.call) for _ in range(3)]]
    assert sorted(code for code, _, _ in answers) == [200, 200, 503]
    assert [h.get("x-motley-started") for code, h, _ in answers if code == 503] == ["no"]


COUNTING = """
import time
def run(arg):
    with open("count", "a") as file:
        file.write("x")
    time.sleep(0.3)
    with open("count") as file:
        return str(len(file.read()))
"""


def test_the_same_id_again_is_the_same_call(instance):
    instance.specialise(COUNTING)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(instance.call, X_Motley_Call_Id="one")
        second = pool.submit(instance.call, X_Motley_Call_Id="one")
    assert first.result()[2] == second.result()[2] == b"1"
    assert instance.call(X_Motley_Call_Id="one")[2] == b"1"
    assert instance.call(X_Motley_Call_Id="two")[2] == b"2"


def test_an_instance_of_v1_takes_one_call(instance):
    instance.specialise("def run(arg):\n    return arg\n", single=True)
    assert instance.call(b"a", X_Motley_Call_Id="one")[2] == b"a"
    assert instance.error(b"b")[1]["type"] == "Used"
    assert instance.call(b"a", X_Motley_Call_Id="one")[2] == b"a"


def test_a_call_can_be_cancelled(instance):
    instance.specialise("import time\ndef run(arg):\n    time.sleep(30)\n")
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(instance.error(X_Motley_Call_Id="long"))
    )
    thread.start()
    eventually(lambda: instance.request("DELETE", "/calls/long")[0] == 202, 5, 0.02)
    thread.join(5)
    assert answers[0][1]["type"] == "Cancelled"
    assert instance.request("DELETE", "/calls/long")[0] == 404


def test_lines_of_the_log_begin_with_the_calls_id(instance):
    instance.specialise("def run(arg):\n    print('first')\n    print('second', end='')\n")
    instance.call(X_Motley_Call_Id="c7")
    eventually(lambda: "[c7] second" in instance.log.read_text(), 5, 0.02)
    assert "[c7] first\n[c7] second\n" in instance.log.read_text()


def wheel(name, text):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as zipped:
        zipped.writestr(f"{name}/__init__.py", text)
        zipped.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
    return data.getvalue()


def archive(**files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name.replace("__", "."), content)
    return base64.b64encode(data.getvalue()).decode()


def test_requirements_and_prerun_make_a_layer_that_the_next_instance_gets(
    instance, second, tmp_path
):
    code = "import lucky, os\ndef run(arg):\n"
    code += "    return lucky.N + open(os.environ['MOTLEY_LAYER'] + '/made').read()\n"
    given = {
        "code": None,
        "archive": archive(main__py=code, lucky__whl=wheel("lucky", "N = '7'\n")),
        "requirements": "# a comment\nlucky.whl\n",
        "preRun": "echo hello; echo -n once > $MOTLEY_LAYER/made; touch ran",
    }
    status, answer = instance.specialise(**given)
    assert (status, answer["layer"]) == (200, True)
    assert instance.call()[2] == b"7once"
    assert "[preRun] hello" in instance.log.read_text()

    copy = base64.b64encode(instance.request("GET", "/layer")[2]).decode()
    status, answer = second.specialise(**given, layer=copy)
    assert (status, answer["layer"]) == (200, False)
    assert second.call()[2] == b"7once"
    assert list(tmp_path.rglob("ran"))
    assert not list((tmp_path / "second").rglob("ran"))


def test_a_prerun_that_fails_says_what_it_printed(instance):
    status, answer = instance.specialise("def run(a): pass", preRun="echo no luck; exit 3")
    assert (status, answer["error"]["type"]) == (422, "SetupFailed")
    assert answer["error"]["message"] == "preRun ended with 3: no luck"


def test_a_file_outside_of_the_code_is_refused(instance):
    status, answer = instance.specialise("def run(a): pass", files={"../evil.py": "x"})
    assert status == 422
    assert "leads outside" in answer["error"]["message"]


def test_it_ends_only_after_its_calls(instance):
    instance.specialise("import time\ndef run(arg):\n    time.sleep(0.5)\n    return 'done'\n")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(instance.call)
        eventually(lambda: json.loads(instance.request("GET", "/status")[2])["busy"] == 1, 5, 0.02)
        instance.process.send_signal(signal.SIGTERM)
        assert call.result()[2] == b"done"
    assert instance.process.wait(5) == 0


def test_no_process_stays_behind(instance):
    instance.specialise(MISFORTUNES)
    instance.call(b"x")
    instance.end()
    found = subprocess.run(["pgrep", "-g", str(instance.process.pid)], capture_output=True)
    assert found.stdout == b""
