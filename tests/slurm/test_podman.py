"""Pods on Slurm in a real container runtime: images from a real registry, run by Podman in real
jobs.

The site is set up as its administrators would: `containers.conf` and its siblings say where images
are kept, that the registry speaks plain HTTP, and which limits containers may have here.
"""

import json
import subprocess
from pathlib import Path

import pytest

from motley.ops import images, oci, push
from motley.ops.freeports import free_port
from motley.registry import references, settings

CACHE = Path(__file__).parents[2] / ".cache/images"
TOLERATIONS = [{"key": "motley.io/slurm", "operator": "Exists"}]
ROOM = {"requests": {"memory": "300Mi"}}  # Podman itself takes 70
CONFIG = {
    "Entrypoint": ["/bin/echo", "entrypoint"],
    "Cmd": ["of the image"],
    "WorkingDir": "/usr",
    "Env": ["PATH=/bin:/usr/bin", "OF_IMAGE=yes"],
}


class Site:
    """A registry with one image, and Podman's settings on the cluster."""

    def __init__(self, world, directory: Path) -> None:
        self.world, self.directory = world, directory
        self.host = f"127.0.0.1:{free_port()}"
        self.image = f"{self.host}/team/tool:1"
        self._write()

    def _write(self) -> None:
        d = self.directory
        registry = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(d / "registry")}},
            "http": {"addr": self.host},
        }
        (d / "registry.yml").write_text(json.dumps(registry))
        # What may not be raised here must not be asked for; this kernel's cgroups are runc's.
        (d / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\nruntime = "runc"\n'
        )
        (d / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{d}/graph"\nrunroot = "{d}/run"\n'
        )
        (d / "registries.conf").write_text(
            f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n'
        )

    @property
    def setup(self) -> str:
        names = {
            "CONTAINERS_CONF": "containers.conf",
            "CONTAINERS_STORAGE_CONF": "storage.conf",
            "CONTAINERS_REGISTRIES_CONF": "registries.conf",
        }
        path = f"export PATH={self.world.slurm.directory}/bin:$PATH"
        return "\n".join(
            [path, *(f"export {key}={self.directory}/{name}" for key, name in names.items())]
        )

    def podman(self, *words: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f'{self.setup}\nexec podman "$@"', "podman", *words],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def push(self) -> None:
        (archive,) = images.ensure(CACHE, print, (images.BUSYBOX,)).values()
        (busybox,) = oci.read(archive)
        made = oci.Image(images.architecture(), busybox.layers, CONFIG)
        oci.write_all(self.directory / "image.tar", [made], self.image)
        name = references.parse(self.image)
        registry = settings.Registry(name.host, plain_http=True)
        push.push([self.directory / "image.tar"], name, registry)


@pytest.fixture(scope="module")
def site(world, tmp_path_factory):
    made = Site(world, tmp_path_factory.mktemp("podman"))
    with (made.directory / "registry.log").open("wb") as log:
        registry = subprocess.Popen(
            ["docker-registry", "serve", made.directory / "registry.yml"], stdout=log, stderr=log
        )
    try:
        world.wait(lambda: world.answers(made.host), "the registry is up")
        made.push()
        world.cluster("boxed", virtualNode={"runtime": "Podman"}, setup=made.setup)
        world.until_ready("slurm-boxed")
        yield made
        world.delete("boxed", "slurmclusters")
        assert made.podman("ps", "--all", "--quiet") == ""
    finally:
        registry.terminate()
        registry.wait(10)
        made.podman("rm", "--all", "--force", "--time=0")
        for mount in (made.directory / "graph/overlay", made.directory / "graph"):
            subprocess.run(["umount", "--quiet", mount], check=False, timeout=20)


def _log(world, name):
    return world.kubectl("logs", name).out


def test_a_job_runs_an_image_of_a_registry_in_a_slurm_job(site, nodes):
    hostile = 'it\'s "$HOME" `id` $(id), a=b\nand more'
    says = 'echo "$MINE|$OF_IMAGE|$PWD|$*"; ulimit -n; cat /proc/1/comm; exit $CODE'
    container = {
        "name": "main",
        "image": site.image,
        "command": ["sh", "-c", says, "sh"],
        "args": ["a  b", "$(POD), $$(POD), $(NOBODY)"],
        "workingDir": "/etc",
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "MINE", "value": hostile.replace("$(id)", "$$(id) of $(POD)")},
            {"name": "CODE", "value": "0"},
        ],
        "resources": {"requests": {"cpu": "1500m", "memory": "300Mi"}},
    }
    template = {
        "restartPolicy": "Never",
        "nodeSelector": {"motley.io/slurm-cluster": "boxed"},
        "tolerations": TOLERATIONS,
        "containers": [container],
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "boxed"},
        "spec": {"template": {"spec": template}},
    }
    path = "/apis/batch/v1/namespaces/default/jobs"
    with nodes.components(["controllers"], ["scheduler"]):
        nodes.call("POST", path, body)
        nodes.wait(
            lambda: nodes.call("GET", f"{path}/boxed")["status"].get("succeeded"),
            "the Job succeeds",
        )

    (pod,) = nodes.call("GET", "/api/v1/namespaces/default/pods?labelSelector=job-name=boxed")[
        "items"
    ]
    name = pod["metadata"]["name"]
    said = hostile.replace("$(id)", "$(id) of default")
    assert _log(nodes, name) == (f"{said}|yes|/etc|a  b default, $(POD), $(NOBODY)\n1024\nsh\n")
    number = nodes.status(name)["jobID"]

    def is_asked():  # the accounts learn late
        asked = nodes.slurm.command("sacct", "-nXP", "-j", number, "-o", "ReqTRES").split(",")
        return "cpu=2" in asked and "mem=300M" in asked

    nodes.wait(is_asked, "the accounts show what the pod asked for")


def test_the_images_own_words_and_folder_hold_and_an_exit_code_comes_back(site, nodes):
    where = ["sh", "-c", 'pwd; echo "$# said"; exit 7']
    for name, container in {
        "own": {"image": site.image},
        "argued": {"image": site.image, "args": ["x y"]},
        "coded": {"image": site.image, "command": where},
        "absent": {"image": f"{site.host}/team/nothing:1"},
    }.items():
        nodes.pod(name, "slurm-boxed", resources=ROOM, **container)

    nodes.until_pod("own", "Succeeded")
    nodes.until_pod("argued", "Succeeded")
    coded = nodes.until_pod("coded", "Failed")
    absent = nodes.until_pod("absent", "Failed")

    assert _log(nodes, "own") == "entrypoint of the image\n"
    assert _log(nodes, "argued") == "entrypoint x y\n"
    assert _log(nodes, "coded") == "/usr\n0 said\n"
    assert coded["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert absent["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 125
    assert "manifest unknown" in _log(nodes, "absent")


def test_the_container_of_a_deleted_pod_is_gone(site, nodes):
    """Also one whose first process does not heed SIGTERM, as `sleep` in its own namespace."""
    nodes.pod("endless", "slurm-boxed", image=site.image, command=["sleep", "1000"], resources=ROOM)
    nodes.until_pod("endless", "Running")
    nodes.wait(lambda: site.podman("ps", "--quiet"), "the container runs")

    nodes.delete("endless", "pods")
    nodes.wait(lambda: nodes.is_gone("endless", "pods"), "the pod is gone")

    nodes.wait(lambda: not site.podman("ps", "--all", "--quiet"), "the container is gone", 20)
