"""Images from real registries: Debian's docker-registry, in the node's network namespace.

One is open, one wants a password. Images are made and pushed with Motley's own tools; those for
another architecture hold nothing that could run, so running proves which one was pulled.
"""

import base64
import json
import sys

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops import images, oci

from .conftest import eventually

pytestmark = pytest.mark.root

OPEN, GUARDED = "127.0.0.1:5000", "127.0.0.1:5001"
# bcrypt of "secret", which is all that docker-registry takes
HTPASSWD = "puller:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
NATIVE = images.architecture()
FOREIGN = "arm64" if NATIVE == "amd64" else "amd64"
VARIANT = f"{OPEN}/app:1-{NATIVE}"  # what a placed pod has in place of the image it was given


# Pushes archives from inside the namespace, in one process.
PUSH = """
import json, sys
from pathlib import Path
from motley.ops.push import push
from motley.registry import references, settings
from motley.registry.credentials import Login
for archive, image in json.loads(sys.argv[2]):
    name = references.parse(image)
    registry = settings.Registry(name.host, plain_http=True)
    print(push([Path(archive)], name, registry, Login("puller", "secret")))
"""


def login(password="secret"):
    return {"auth": base64.b64encode(f"puller:{password}".encode()).decode()}


class Registries:
    """The two registries, and what is in them."""

    def __init__(self, rig):
        self._rig = rig
        self._directory = rig.root / "registries"
        self._directory.mkdir()
        (self._directory / "htpasswd").write_text(HTPASSWD)
        self._login = self._directory / "docker.json"
        self._login.write_text(json.dumps({"auths": {GUARDED: login()}}))
        (archive,) = images.ensure(rig.cache / "images", print, (images.BUSYBOX,)).values()
        (self._busybox,) = oci.read(archive)

    def start(self, name, host):
        settings = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(self._directory / name)}},
            "http": {"addr": host},
        }
        if host == GUARDED:
            path = str(self._directory / "htpasswd")
            settings["auth"] = {"htpasswd": {"realm": "images", "path": path}}
        file = self._directory / f"{name}.yml"
        file.write_text(json.dumps(settings))  # YAML, too
        self._rig.spawn(name, "docker-registry", "serve", file)
        eventually(
            lambda: self._rig.run("bash", "-c", f": </dev/tcp/{host.replace(':', '/')}; echo")
        )

    def push(self, *wanted):
        """Images whose file /word says a word: (image, word, architectures …), all at once.
        Returns the digests of their indexes."""
        orders = [[str(self._archive(*one)), one[0]] for one in wanted]
        said = self._rig.run(sys.executable, "-c", PUSH, self._login, json.dumps(orders))
        return said.split()

    def _archive(self, image, word, *archs):
        directory = self._directory / f"made-{len(list(self._directory.iterdir()))}"
        directory.mkdir()
        (directory / "word").write_text(f"{word}\n")
        layer = oci.layer(directory)
        made = [
            oci.Image(arch, [*self._busybox.layers, layer], {"Cmd": ["sleep", "1000"]})
            if arch == NATIVE
            else oci.Image(arch, [layer], {"Cmd": ["nothing"]})
            for arch in archs or (NATIVE,)
        ]
        oci.write_all(directory / "image.tar", made, image)
        return directory / "image.tar"


@pytest.fixture(scope="module")
def registries(rig):
    made = Registries(rig)
    # This one asks a registry that is not there yet; the last test sees what became of it.
    rig.pod("early", image=f"{OPEN}/early:1")
    eventually(lambda: waiting(rig, "early")[0] in ("ErrImagePull", "ImagePullBackOff"))
    made.start("open", OPEN)
    made.start("guarded", GUARDED)
    made.digest, *_ = made.push(
        (f"{OPEN}/team/web:1", "mine", FOREIGN, NATIVE),
        (f"{OPEN}/early:1", "late"),
        (VARIANT, "old"),
        (f"{GUARDED}/private/tool:1", "hidden"),
        (f"{GUARDED}/private/other:1", "hidden"),
    )
    yield made
    for name in ("open", "guarded"):
        if name in rig.processes:
            rig.end(name)


def waiting(rig, name):
    state = rig.container(name)["state"].get("waiting", {})
    return state.get("reason"), state.get("message", "")


def delete(rig, *names, where=()):
    """Nobody waits for it: names are used once, and the last test of all looks for leftovers."""
    rig.kubectl("delete", "pod", *names, "--wait=false", *where)


def secret(name, document, kind="dockerconfigjson"):
    data = base64.b64encode(json.dumps(document).encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": f"kubernetes.io/{kind}",
        "data": {f".{kind}": data},
    }


def pulling(*names, **spec):
    return {"imagePullSecrets": [{"name": name} for name in names], **spec}


def test_an_index_leads_to_the_image_this_machine_can_run(rig, registries):
    digest = registries.digest
    rig.pod("by-tag", image=f"{OPEN}/team/web:1")
    rig.pod("by-digest", image=f"{OPEN}/team/web@{digest}")
    mirror = rig.layout.registries / "images.example"
    mirror.mkdir(parents=True)
    (mirror / "hosts.toml").write_text(f'[host."http://{OPEN}"]\n')
    rig.pod("by-mirror", image="images.example/team/web:1")
    for name in ("by-tag", "by-digest", "by-mirror"):
        rig.until_ready(name)
        assert rig.exec(name, "cat", "/word") == "mine\n"
    container = rig.container("by-digest")
    assert container["image"].endswith(digest)
    assert container["imageID"].startswith("sha256:") or digest in container["imageID"]
    delete(rig, "by-tag", "by-digest", "by-mirror")


def test_the_pull_policy_decides_also_for_the_name_of_a_variant(rig, registries):
    rig.pod("first", image=VARIANT, imagePullPolicy="IfNotPresent")
    rig.until_ready("first")
    registries.push((VARIANT, "new"))
    rig.pod("present", image=VARIANT, imagePullPolicy="IfNotPresent")
    rig.pod("never", image=VARIANT, imagePullPolicy="Never")
    for name in ("present", "never"):
        rig.until_ready(name)
        assert rig.exec(name, "cat", "/word") == "old\n"
    rig.pod("always", image=VARIANT, imagePullPolicy="Always")
    rig.until_ready("always")
    assert rig.exec("always", "cat", "/word") == "new\n"
    delete(rig, "first", "present", "never", "always")


def test_credentials_come_from_the_pod_or_its_account_and_the_most_exact_ones_win(rig, registries):
    image = f"{GUARDED}/private/tool:1"
    rig.create(
        secret("exact", {"auths": {GUARDED: login("no"), f"{GUARDED}/private": login()}}),
        secret("legacy", {f"http://{GUARDED}/v2/": login()}, "dockercfg"),
        secret("elsewhere", {"auths": {"registry.example": login()}}),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "builder"},
            "imagePullSecrets": [{"name": "legacy"}],
        },
    )
    always = {"image": image, "imagePullPolicy": "Always"}
    rig.pod("exact", pod_spec=pulling("exact"), **always)
    rig.pod("legacy", pod_spec=pulling("elsewhere", "missing", "legacy"), **always)
    rig.pod("account", pod_spec={"serviceAccountName": "builder"}, **always)
    for name in ("exact", "legacy", "account"):
        rig.until_ready(name)
        assert rig.exec(name, "cat", "/word") == "hidden\n"
    told = rig.kubectl("get", "events", "--field-selector=involvedObject.name=legacy")
    assert "Unable to retrieve some image pull secrets (missing)" in told
    delete(rig, "exact", "legacy", "account")


def test_a_refused_pull_says_why_and_a_corrected_secret_is_used_at_once(rig, registries):
    image = f"{GUARDED}/private/other:1"
    rig.create(secret("pull", {"auths": {GUARDED: login("wrong")}}))
    rig.pod("nobody", image=image)
    rig.pod("wrong", image=image, pod_spec=pulling("pull"))
    for name, words in (
        ("nobody", f"no credentials: the pod has no imagePullSecrets for {GUARDED}"),
        ("wrong", "credentials of imagePullSecrets pull were refused"),
    ):
        eventually(lambda name=name: waiting(rig, name)[0] == "ImagePullBackOff")
        assert words in waiting(rig, name)[1]
        assert "wrong" not in waiting(rig, name)[1].replace(name, "")
    right = secret("pull", {"auths": {GUARDED: login()}})["data"]
    rig.kubectl("patch", "secret", "pull", "-p", json.dumps({"data": right}))
    rig.until_ready("wrong", timeout_s=8)  # not after a back-off of ten seconds
    assert rig.exec("wrong", "cat", "/word") == "hidden\n"
    # Who has no credentials does not get it from who has, though it is here now.
    rig.pod("thief", image=image)
    eventually(lambda: waiting(rig, "thief")[0] in ("ErrImagePull", "ImagePullBackOff"))
    delete(rig, "wrong", "nobody", "thief")


def test_a_pod_whose_registry_was_away_starts_by_itself_when_it_is_back(rig, registries):
    rig.until_ready("early")
    assert rig.exec("early", "cat", "/word") == "late\n"
    told = rig.kubectl("get", "events", "--field-selector=involvedObject.name=early")
    assert "connection refused" in told
    assert "Successfully pulled image" in told
    delete(rig, "early")


def test_images_are_made_listed_and_removed_by_the_command(rig, tmp_path):
    runtime = ("--runtime-endpoint", f"unix://{rig.socket}")
    page = tmp_path / "page.html"
    page.write_text("made here\n")

    def motley(*arguments, fails=False):
        done = CliRunner().invoke(main, ["image", *map(str, arguments)])
        assert (done.exit_code != 0) == fails, done.output
        return done.stderr if fails else done.stdout.strip()

    def names():
        listed = json.loads(motley("list", "-o", "json", *runtime))
        return {name: one for one in listed for name in one["names"]}

    order = ["demo", "--copy", f"{page}:/www/index.html", "--cmd", "httpd -f -p 8080 -h /www"]
    order += ["--image-cache", str(rig.cache / "images")]
    built = motley("build", *order, "--import", *runtime)
    assert built == motley("build", *order, "-o", tmp_path / "demo.tar")
    assert built.startswith("localhost/demo:1@sha256:")
    rig.pod("demo", image="localhost/demo:1")
    rig.until_ready("demo")
    assert rig.exec("demo", "wget", "-qO-", "http://127.0.0.1:8080/") == "made here\n"
    assert names()["localhost/demo:1"]["sizeBytes"] > 100_000
    assert "localhost/demo:1 is used by container main" in motley(
        "rm", "localhost/demo:1", *runtime, fails=True
    )
    assert "no such image" in motley("rm", "demo:2", *runtime, fails=True)
    rig.delete("demo")
    motley("rm", "localhost/demo:1", *runtime)
    eventually(lambda: "localhost/demo:1" not in names())
    assert motley("import", tmp_path / "demo.tar", *runtime) == "localhost/demo:1"
    eventually(lambda: "localhost/demo:1" in names())
    (tmp_path / "page.tar").write_text("no archive")
    told = motley("import", tmp_path / "page.tar", *runtime, fails=True)
    assert "page.tar cannot be imported" in told
    assert "An OCI archive is wanted" in told
    motley("rm", "localhost/demo:1", *runtime)
