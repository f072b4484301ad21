"""A function's runtime as a process of its own, laid out as it is in a pod."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motley.ops.freeports import free_port
from motley.ops.testbed import eventually
from motley.serverless import runtime


class Runtime:
    """One instance on loopback."""

    def __init__(self, directory: Path, **environment: str) -> None:
        shutil.copytree(
            Path(runtime.__file__).parent,
            directory / "lib/motley_runtime",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self.port = free_port()
        self.log = directory / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-m", "motley_runtime", str(self.port)],
                cwd=directory,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(directory / "lib"),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "MOTLEY_HOST": "127.0.0.1",
                    "MOTLEY_DIRECTORY": str(directory / "work"),
                    **environment,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(lambda: self.request("GET", "/healthz")[0] == 200, 20, 0.01)

    def request(self, method, path, body=b"", **headers):
        """Status, headers in lower case, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, data

    def specialise(self, code, **settings):
        body = json.dumps({"revision": "r1", "code": code, "concurrency": 4, **settings})
        status, _, data = self.request("POST", "/specialise", body)
        return status, json.loads(data)

    def call(self, arg=b"", **headers):
        return self.request("POST", "/", arg, **headers)

    def error(self, arg=b"", **headers):
        status, _, data = self.call(arg, **headers)
        return status, json.loads(data)["error"]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


@pytest.fixture
def instance(tmp_path):
    """A generic instance."""
    made = Runtime(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def second(tmp_path):
    """Another generic instance."""
    made = Runtime(tmp_path / "second")
    try:
        yield made
    finally:
        made.end()
