"""Credential plugins: a real program, run through a kubeconfig, before a scripted server."""

import json
import stat
import sys
from random import Random

import pytest
import yaml
from aiohttp import web

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.client import kubeconfig
from motley.client.execplugin import Exec, Plugin, PluginError, parse
from motley.client.rest import Client
from motley.lib.clock import SYSTEM

VERSION = "client.authentication.k8s.io/v1"
# Prints a token with the number of its run, and leaves what it was told.
PROGRAM = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
runs = here / "runs"
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
(here / "told").write_text(os.environ["KUBERNETES_EXEC_INFO"])
if os.environ.get("FAIL"):
    print("log in again with: corp login", file=sys.stderr)
    sys.exit(3)
status = {{"token": f"token-{{count}}"}}
if os.environ.get("EXPIRES"):
    status["expirationTimestamp"] = os.environ["EXPIRES"]
print(json.dumps({{"apiVersion": "{version}", "kind": "ExecCredential", "status": status}}))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "login"
    path.write_text(PROGRAM.format(python=sys.executable, version=VERSION))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


@pytest.fixture
async def guarded(tmp_path):
    """A server that takes one token only; `accepted[0]` says which."""
    accepted, seen = ["token-1"], []

    async def handle(request):
        seen.append(request.headers.get("Authorization"))
        if seen[-1] != f"Bearer {accepted[0]}":
            body = {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "no"}
            return web.json_response(body, status=401)
        return web.json_response({"metadata": {"name": "a", "resourceVersion": "1"}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", accepted, seen
    await runner.cleanup()


def config(tmp_path, server, program, **exec_):
    entry = {"apiVersion": VERSION, "command": str(program), **exec_}
    document = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"exec": entry}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    return kubeconfig.load(path)


async def test_the_program_is_run_once_and_again_when_its_token_is_refused(
    tmp_path, guarded, program
):
    server, accepted, seen = guarded
    made = config(tmp_path, server, program, provideClusterInfo=True)
    async with Client(made, rng=Random(1)) as client:
        for _ in range(3):
            await client.get(ConfigMap, "a", "n")
        assert (tmp_path / "runs").read_text() == "1"
        accepted[0] = "token-2"
        await client.get(ConfigMap, "a", "n")
        assert (tmp_path / "runs").read_text() == "2"
        accepted[0] = "never"
        with pytest.raises(status.Unauthorized):
            await client.get(ConfigMap, "a", "n")
    assert seen[-2:] == ["Bearer token-2", "Bearer token-3"]
    told = json.loads((tmp_path / "told").read_text())
    assert told["spec"] == {"interactive": False, "cluster": {"server": server}}


async def test_an_expired_token_is_renewed_before_it_is_sent(tmp_path, program):
    soon = {"EXPIRES": "2026-11-16T00:00:00Z"}
    plugin = Plugin(Exec(str(program), env=soon), SYSTEM)
    assert (await plugin.credential()).token == "token-1"
    assert (await plugin.credential()).token == "token-2"
    later = Plugin(Exec(str(program), env={"EXPIRES": "2999-01-01T00:00:00Z"}), SYSTEM)
    assert await later.credential() is await later.credential()


async def test_a_program_that_fails_says_why(tmp_path, guarded, program):
    server, *_ = guarded
    failing = config(tmp_path, server, program, env=[{"name": "FAIL", "value": "1"}])
    async with Client(failing) as client:
        with pytest.raises(status.Unauthorized, match="exit 3: log in again with: corp login"):
            await client.get(ConfigMap, "a", "n")
    absent = Plugin(Exec(str(tmp_path / "absent"), install_hint="get it from corp"))
    with pytest.raises(PluginError, match=r"No such file.*; get it from corp"):
        await absent.credential()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"token", "not an ExecCredential"),
        (b"[]", "not an ExecCredential"),
        (b"{}", "not an ExecCredential"),
        (
            json.dumps({"apiVersion": "x/v9", "kind": "ExecCredential", "status": {}}).encode(),
            "another version",
        ),
        (
            json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": {}}).encode(),
            "neither a token nor",
        ),
    ],
)
def test_what_a_program_prints_is_never_repeated_in_a_complaint(output, words):
    with pytest.raises(PluginError, match=words) as raised:
        parse(output, Exec("login"))
    assert output.decode() not in str(raised.value).removeprefix("credential plugin login")


def test_a_client_certificate_may_come_from_the_program():
    status_ = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    document = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status_}
    credential = parse(json.dumps(document).encode(), Exec("login"))
    assert (credential.client_cert, credential.client_key) == (b"CERT", b"KEY")
    assert "KEY" not in repr(credential)
