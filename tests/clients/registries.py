"""Real registries on loopback: Debian's docker-registry, in the clear and guarded.

The guarded one has TLS under an authority of its own, and wants a password. Images are made and
pushed with Motley's own tools.
"""

import base64
import contextlib
import json
import os
import socket
import subprocess

from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import oci
from motley.ops.freeports import free_port

# bcrypt of "secret", which is all that docker-registry takes
HTPASSWD = "puller:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
LOGIN = {"auth": base64.b64encode(b"puller:secret").decode()}

PROXIES = [name for name in os.environ if name.lower().endswith("_proxy")]


def environment():
    return {k: v for k, v in os.environ.items() if k not in PROXIES}


@contextlib.contextmanager
def running(commands, log):
    with log.open("wb") as out:
        made = [
            subprocess.Popen(command, stdout=out, stderr=out, env=environment())
            for command in commands
        ]
        try:
            yield
        finally:
            for process in made:
                process.terminate()
            for process in made:
                process.wait(30)


class Site:
    """Two registries; where their files are."""

    def __init__(self, directory):
        self.directory = directory
        self.ca = directory / "ca.crt"
        self.login = directory / "docker.json"
        self.plain, self.guarded = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.archives = {}

    def prepare(self):
        key = self.directory / "ca.key"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-keyout", str(key), "-out", str(self.ca), "-days", "2"]
        made += ["-subj", "/CN=images", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(made, check=True, capture_output=True, timeout=30)
        (self.directory / "htpasswd").write_text(HTPASSWD)
        self.login.write_text(json.dumps({"auths": {self.guarded: LOGIN}}))
        (self.directory / "registries.yaml").write_text(
            f"registries:\n- {{host: '{self.guarded}', caFile: '{self.ca}'}}\n"
        )
        tls = {"certificate": str(self.ca), "key": str(key)}
        auth = {"htpasswd": {"realm": "images", "path": str(self.directory / "htpasswd")}}
        return [
            self._registry("plain", {"http": {"addr": self.plain}}),
            self._registry("guarded", {"http": {"addr": self.guarded, "tls": tls}, "auth": auth}),
        ]

    def _registry(self, name, settings):
        storage = {"filesystem": {"rootdirectory": str(self.directory / name)}}
        file = self.directory / f"{name}.yml"
        whole = {"version": "0.1", "log": {"level": "error"}, "storage": storage, **settings}
        file.write_text(json.dumps(whole))  # YAML, too
        return ["docker-registry", "serve", str(file)]

    def archive(self, arch):
        if arch not in self.archives:
            tree = self.directory / f"tree-{arch}"
            tree.mkdir()
            (tree / "arch").write_text(arch)
            self.archives[arch] = self.directory / f"{arch}.tar"
            layers = [oci.layer(tree)]
            oci.write(self.archives[arch], layers, name="x:1", architecture=arch, config={})
        return str(self.archives[arch])

    def push(self, image, *archs):
        flags = ["--plain-http"] if image.startswith(self.plain) else []
        if image.startswith(self.guarded):
            flags = ["--ca-file", str(self.ca), "--docker-config", str(self.login)]
        done = motley("images", "push", *flags, image, *(self.archive(arch) for arch in archs))
        return done.stdout.strip().partition("@")[2]


def motley(*arguments, fails=False):
    done = CliRunner(env=dict.fromkeys(PROXIES)).invoke(main, arguments)
    assert (done.exit_code != 0) == fails, done.output
    return done


def is_up(host):
    with contextlib.suppress(OSError), socket.create_connection(host.split(":"), timeout=1):
        return True
    return False
