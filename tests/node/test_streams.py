"""Logs, exec, attach and the agent's own doors, through a real kubectl and without."""

import asyncio
import json
import subprocess
import sys

import pytest

from motley.apiserver import tls

from .conftest import NODE_IP, eventually

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def chatty(rig):
    # The two streams are read apart: a pause makes their order in the log certain.
    script = "for i in 1 2 3 4 5; do echo line $i; done; sleep 0.3; echo oops >&2; "
    script += "trap 'exit 0' TERM; "
    rig.pod("chatty", "sh", "-c", script + "sleep 1000 & wait")
    rig.until_ready("chatty")
    eventually(lambda: "oops" in rig.kubectl("logs", "chatty"))
    yield "chatty"
    rig.delete("chatty")


def test_logs_can_be_cut_in_every_way(rig, chatty):
    assert rig.kubectl("logs", chatty, "--tail=2").splitlines() == ["line 5", "oops"]
    assert rig.kubectl("logs", chatty, "--limit-bytes=6") == "line 1"
    stamped = rig.kubectl("logs", chatty, "--timestamps", "--tail=1")
    assert stamped.startswith("20")
    assert "Z " in stamped
    assert rig.kubectl("logs", chatty, "--since=1h").count("line") == 5
    rig.run("sleep", "1.1")
    assert rig.kubectl("logs", chatty, "--since=1s") == ""
    assert "previous terminated container" in _error(rig, "logs", chatty, "--previous")


def _error(rig, *arguments):
    command = [rig.kubectl_program, "--kubeconfig", str(rig.kubeconfig), *arguments]
    done = subprocess.run([*rig.inside, *command], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    return done.stderr


def test_logs_are_followed_to_the_end_of_the_container(rig):
    script = "for i in 1 2 3; do echo tick $i; sleep 0.3; done"
    rig.pod("ticker", "sh", "-c", script, pod_spec={"restartPolicy": "Never"})
    eventually(lambda: rig.container("ticker").get("containerID"))
    assert rig.kubectl("logs", "-f", "ticker", timeout_s=15) == "tick 1\ntick 2\ntick 3\n"
    rig.delete("ticker")


def test_exec_gives_output_error_and_exit_code(rig, chatty):
    command = [rig.kubectl_program, "--kubeconfig", str(rig.kubeconfig), "exec", chatty, "--"]
    done = subprocess.run(
        [*rig.inside, *command, "sh", "-c", "echo out; echo err >&2; exit 42"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout, done.returncode) == ("out\n", 42)
    assert done.stderr.startswith("err\n")
    assert rig.exec(chatty, "echo", "a" * 20_000) == "a" * 20_000 + "\n"


def test_exec_with_stdin_ends_when_the_input_does(rig, chatty):
    text = "".join(f"{i} the quick brown fox\n" for i in range(20_000))
    out = rig.kubectl("exec", "-i", chatty, "--", "cat", input=text, timeout_s=30)
    assert out == text
    counted = rig.kubectl("exec", "-i", chatty, "--", "wc", "-l", input=text, timeout_s=30)
    assert counted.strip() == "20000"
    eventually(lambda: not list((rig.root / "node" / "exec").glob("*")))


def test_exec_with_stdin_of_a_missing_program_says_so(rig, chatty):
    said = _error(rig, "exec", "-i", chatty, "--", "/no/such/program")
    assert "no such file" in said


def test_what_is_piped_into_a_container_comes_to_its_end(rig, identities):
    script = "(while sleep 0.1; do echo tick; done) & cat; echo closed; kill $!"
    once = {"stdin": True, "stdinOnce": True}
    rig.pod("reader", "sh", "-c", script, pod_spec={"restartPolicy": "Never"}, **once)
    rig.until_ready("reader")
    path, v4 = "/attach/default/reader/main?stdout=true", "v4.channel.k8s.io"
    watched = _call(rig, path, who="as-apiserver", subprotocol=v4, flags=["--until-data"])
    assert bytes.fromhex(watched["frames"][-1]) == b"\x01tick\n"  # who only reads ends nothing
    text = "".join(f"{i} the quick brown fox\n" for i in range(2_000))
    out = rig.kubectl("attach", "-i", "reader", input=text, timeout_s=30)
    assert out.replace("tick\n", "") == f"{text}closed\n"
    rig.until_phase("reader", "Succeeded")
    rig.delete("reader")


def test_an_input_that_stays_open_is_there_for_the_next_client(rig):
    rig.pod("listener", "sh", "-c", "cat && echo closed", stdin=True)
    rig.until_ready("listener")
    for word in ("one", "two"):
        rig.kubectl("attach", "-i", "listener", input=f"{word}\n", timeout_s=30)
    eventually(lambda: rig.kubectl("logs", "listener") == "one\ntwo\n")
    assert "running" in rig.container("listener")["state"]
    rig.delete("listener")


def test_kubectl_cp_carries_a_file_both_ways(rig, chatty):
    source = rig.root / "source.txt"
    source.write_text("precious\n" * 1000)
    rig.kubectl("cp", source, f"{chatty}:/tmp/copied.txt")
    back = rig.root / "back.txt"
    rig.kubectl("cp", f"{chatty}:/tmp/copied.txt", back)
    assert back.read_text() == source.read_text()


CALL = """
import asyncio, json, ssl, sys
import aiohttp

async def main():
    ca, cert, key, url, subprotocol = sys.argv[1:6]
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    if cert:
        context.load_cert_chain(cert, key)
    tokens = [a.removeprefix("--token=") for a in sys.argv[6:] if a.startswith("--token=")]
    headers = {"Authorization": "Bearer " + tokens[0]} if tokens else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        try:
            if not subprotocol:
                async with http.get(url, ssl=context) as answer:
                    print(json.dumps({"status": answer.status, "body": await answer.text()}))
                return
            frames = []
            url = url.replace("https://", "wss://")
            async with http.ws_connect(url, ssl=context, protocols=[subprotocol]) as socket:
                for line in sys.stdin.read().split():
                    await socket.send_bytes(bytes.fromhex(line))
                async with asyncio.timeout(10):
                    async for message in socket:
                        frames.append(message.data.hex())
                        if "--until-data" in sys.argv and len(message.data) > 3:
                            break
            print(json.dumps({"protocol": socket.protocol, "frames": frames}))
        except aiohttp.ClientError as error:
            print(json.dumps({"status": 0, "body": str(error)}))

asyncio.run(main())
"""


def _call(rig, path, *, who="", subprotocol="", stdin="", flags=()):
    pair = (rig.root / f"{who}.crt", rig.root / f"{who}.key") if who else ("", "")
    ca = rig.root / "apiserver" / "pki" / "ca.crt"
    url = f"https://{NODE_IP}:10250{path}"
    arguments = [sys.executable, "-c", CALL, ca, *pair, url, subprotocol, *flags]
    return json.loads(rig.run(*arguments, input=stdin))


@pytest.fixture(scope="module")
def identities(rig):
    for name, common_name, groups in (
        ("as-apiserver", "kube-apiserver-kubelet-client", []),
        ("as-admin", "someone", ["system:masters"]),
        ("as-user", "mallory", ["system:authenticated"]),
    ):
        certificate, key = tls.issue_client(rig.pki, common_name, groups)
        (rig.root / f"{name}.crt").write_bytes(certificate)
        (rig.root / f"{name}.key").write_bytes(key)


def test_only_those_may_ask_of_whom_the_api_server_says_so(rig, identities):
    assert _call(rig, "/healthz") == {"status": 200, "body": "ok"}
    assert _call(rig, "/pods", who="as-apiserver")["status"] == 200
    assert _call(rig, "/pods", who="as-admin")["status"] == 200
    assert _call(rig, "/pods", who="as-user")["status"] == 403
    assert _call(rig, "/pods")["status"] == 401
    assert _call(rig, "/pods", flags=["--token=guessed"])["status"] == 401


def test_a_collector_with_a_token_reads_figures_and_nothing_else(rig, chatty):
    for name in ("collector", "stranger"):
        rig.kubectl("create", "serviceaccount", name)
    # Somebody else, because the agent remembers for a while whom the API server refused.
    stranger = rig.kubectl("create", "token", "stranger").strip()
    assert _call(rig, "/stats/summary", flags=[f"--token={stranger}"])["status"] == 403
    token = rig.kubectl("create", "token", "collector").strip()
    flags = [f"--token={token}"]
    rule = ["--verb=get", "--resource=nodes/metrics,nodes/stats"]
    rig.kubectl("create", "clusterrole", "figures", *rule)
    account = "--serviceaccount=default:collector"
    rig.kubectl("create", "clusterrolebinding", "figures", "--clusterrole=figures", account)
    found = json.loads(
        eventually(lambda: (a := _call(rig, "/stats/summary", flags=flags))["status"] == 200 and a)[
            "body"
        ]
    )
    pod = next(p for p in found["pods"] if p["podRef"]["name"] == chatty)
    assert pod["containers"][0]["memory"]["workingSetBytes"] > 0
    assert pod["network"]["name"] == "eth0"
    assert found["node"]["fs"]["capacityBytes"] > 0
    text = _call(rig, "/metrics/cadvisor", flags=flags)["body"]
    assert f'node="node-1",namespace="default",pod="{chatty}",container="main"' in text
    assert _call(rig, "/pods", flags=flags)["status"] == 403
    path = f"/exec/default/{chatty}/main?command=id&stdout=true"
    assert _call(rig, path, flags=flags)["status"] == 403


def test_pods_of_the_node_are_listed(rig, identities, chatty):
    body = json.loads(_call(rig, "/pods", who="as-apiserver")["body"])
    assert chatty in [p["metadata"]["name"] for p in body["items"]]


def test_a_v5_client_without_stdin_is_translated_for_the_runtime(rig, identities, chatty):
    path = f"/exec/default/{chatty}/main?command=echo&command=hi&stdout=true&stderr=true"
    answer = _call(rig, path, who="as-apiserver", subprotocol="v5.channel.k8s.io")
    assert answer["protocol"] == "v5.channel.k8s.io"
    frames = [bytes.fromhex(f) for f in answer["frames"]]
    assert b"\x01hi\n" in frames
    assert any(f[0] == 3 and b'"Success"' in f for f in frames)


@pytest.mark.parametrize("stdin", ["", "&stdin=true"])
def test_only_the_streams_asked_for_come_after_an_empty_message(rig, identities, chatty, stdin):
    script = "echo%20out;%20echo%20err%20%3E%262"
    path = f"/exec/default/{chatty}/main?command=sh&command=-c&command={script}&stderr=true"
    answer = _call(rig, path + stdin, who="as-apiserver", subprotocol="v4.channel.k8s.io")
    first, *others = [bytes.fromhex(f) for f in answer["frames"]]
    assert first == b"\x02"
    assert [f for f in others if f[0] != 3] == [b"\x02err\n"]
    assert b'"Success"' in others[-1]


def test_a_port_is_forwarded_into_the_pod(rig, identities):
    rig.pod("portal", "sh", "-c", "while true; do echo knock | nc -l -p 7000; done")
    rig.until_ready("portal")
    eventually(lambda: "7000" in rig.exec("portal", "netstat", "-ltn"))
    answer = _call(
        rig,
        "/portForward/default/portal?port=7000",
        who="as-apiserver",
        subprotocol="v4.channel.k8s.io",
        flags=["--until-data"],
    )
    frames = [bytes.fromhex(f) for f in answer["frames"]]
    assert b"\x00knock\n" in frames
    rig.delete("portal")


def test_a_terminal_echoes_and_ends(rig, identities, chatty):
    path = f"/exec/default/{chatty}/main?command=sh&stdin=true&stdout=true&tty=true"
    typed = (b"\x00" + b"echo $((6*7)); exit 3\n").hex()
    resized = (b"\x04" + b'{"Width":100,"Height":40}').hex()
    answer = _call(
        rig,
        path,
        who="as-apiserver",
        subprotocol="v5.channel.k8s.io",
        stdin=f"{resized}\n{typed}",
    )
    frames = [bytes.fromhex(f) for f in answer["frames"]]
    assert b"42" in b"".join(f[1:] for f in frames if f[0] == 1)
    assert any(f[0] == 3 and b'"3"' in f for f in frames)


def test_logs_rotate_by_size_and_nothing_is_lost(rig):
    from motley.lib.clock import SYSTEM
    from motley.node import logrotate, logs
    from motley.node.cri.runtime import Runtime

    rig.pod("flood", "sh", "-c", "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.02; done")
    rig.until_ready("flood")
    uid = rig.get("pod", "flood")["metadata"]["uid"]

    async def rotate_while_following():
        runtime = Runtime(f"unix://{rig.socket}")
        observed = await runtime.pod(uid)
        path = logs.Path(observed.containers[0].log_path)
        seen, rotations = b"", 0
        async with asyncio.timeout(20):
            async for piece in logs.read(path, logs.Options(follow=True), SYSTEM, lambda: False):
                seen += piece
                if rotations < 2 and seen.count(b"\n") > 30 * (rotations + 1):
                    rotations += await logrotate.rotate(
                        runtime, observed.containers, SYSTEM, max_bytes=100, max_files=5
                    )
                if seen.count(b"\n") > 100:
                    break
        await runtime.close()
        return path, seen

    path, seen = asyncio.run(rotate_while_following())
    assert len(logs.files(path)) == 3
    numbers = [int(line.split()[1]) for line in seen.splitlines()]
    assert numbers == list(range(len(numbers)))
    everything = rig.kubectl("logs", "flood").splitlines()
    assert everything[:90] == [f"line {i}" for i in range(90)]
    rig.delete("flood", "--grace-period=1")


def test_a_port_is_forwarded_by_kubectl(rig):
    serve = "echo forwarded > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
    rig.pod("web", "sh", "-c", serve)
    rig.until_ready("web")
    command = [rig.kubectl_program, "--kubeconfig", str(rig.kubeconfig)]
    forward = subprocess.Popen(
        [*rig.inside, *command, "port-forward", "pod/web", ":8080"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = forward.stdout.readline()  # Forwarding from 127.0.0.1:PORT -> 8080
        address = said.split("from ")[1].split(" ")[0]
        fetch = f"import urllib.request as r; print(r.urlopen('http://{address}/').read().decode())"
        for _ in range(3):  # each request is a stream of its own
            assert "forwarded" in rig.run(sys.executable, "-c", fetch)
    finally:
        forward.terminate()
        forward.wait(10)
        forward.stdout.close()
    rig.delete("web")
