"""Build the scheduler's image from its Dockerfile, and let it schedule in a cluster of its own.

No registry is asked: buildah builds, on a base made of Debian packages, and the image is handed to
a cluster's containerd as an archive. Then the manifests of `deploy/scheduler` run it there as they
are, and pods choose the schedulers by name. Needs root; what it makes is gone afterwards.

    .venv/bin/python tools/scheduler_image.py [--output FILE] [--build-arg NAME=VALUE] [--volume …]

`--build-arg PIP_INDEX_URL=…` names another package index; `--volume HOST:CONTAINER:ro` shows the
steps of the build a directory of this machine, such as a local index. They see its certificates
and variables anyway (a company's proxy signs with its own); none of that is in the image.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import yaml

from motley.lib import clock
from motley.ops import imagebuild, images, install, remains
from motley.ops.failure import Failure
from motley.ops.testbed import NODE_IP, Testbed, eventually

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = REPOSITORY / ".cache"
DEPLOY = REPOSITORY / "deploy/scheduler"
CONFIGURATION = REPOSITORY / "examples/realusage/scheduler-config.yaml"
IMAGE = "docker.io/motley/scheduler:0.1.0"  # as the manifests' motley/scheduler:0.1.0 is read
CERTIFICATES = Path("/etc/ssl/certs")
BASE = imagebuild.Order(
    reference="localhost/python-venv:1",
    base="python",
    # NumPy wants C++'s library, as every base with apt in it has.
    packages=("python3-venv", "libstdc++6"),
)
DEPLOYMENTS = ("motley-scheduler", "motley-scheduler-mem-usage")
# Who schedules, and in which Deployment it is found.
SCHEDULERS = {
    "motley-scheduler": DEPLOYMENTS[0],
    "hice-scheduler": DEPLOYMENTS[0],
    "mem-real-usage-scheduler": DEPLOYMENTS[1],
}


def main() -> int:
    """Build, run, say how long it took; 1 when something is not as it should be."""
    arguments = _arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="motley-build-", dir="/tmp") as scratch:
            archive = build(Path(scratch), arguments.build_arg, arguments.volume)
            if arguments.output:
                shutil.copyfile(archive, arguments.output)
            run(archive)
    except (Failure, AssertionError) as failure:
        print(failure, getattr(failure, "advice", ""), sep="\n", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep the image's archive")
    for name in ("--build-arg", "--volume"):
        parser.add_argument(name, action="append", default=[], help="given to buildah as it is")
    return parser.parse_args()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what was done and how long it took."""
    begun = clock.SYSTEM.monotonic()
    yield
    print(f"✓ {what}  {clock.SYSTEM.monotonic() - begun:.1f} s", flush=True)


def build(scratch: Path, build_args: Sequence[str], volumes: Sequence[str]) -> Path:
    """The image as an OCI archive below a directory that is thrown away."""
    install.further({"buildah": ("buildah",)})
    base, archive = scratch / "base.tar", scratch / "scheduler.tar"
    with timed("a base of Debian packages"):
        imagebuild.build(BASE, [images.architecture()], base, CACHE / "images", lambda _: None)
    try:
        with timed(f"image {IMAGE} from deploy/scheduler/Dockerfile"):
            _buildah(scratch, "pull", "--quiet", f"oci-archive:{base}")
            given = [f"--build-arg={one}" for one in (f"BASE={BASE.reference}", *build_args)]
            given += [f"--volume={one}" for one in (*_certificates(), *volumes)]
            # Not in containers: the steps need no more isolation than their own root.
            given += ["--isolation=chroot", "--pull-never", "--layers", f"--tag={IMAGE}"]
            _buildah(scratch, "build", *given, f"--file={DEPLOY / 'Dockerfile'}", str(REPOSITORY))
            _buildah(scratch, "push", IMAGE, f"oci-archive:{archive}:{IMAGE}")
    finally:
        remains.unmount(scratch)
    listed = msgspec.json.decode(_buildah(scratch, "images", "--json", IMAGE))
    print(f"  {listed[0]['size']} unpacked, {archive.stat().st_size / 1e6:.0f} MB as an archive")
    return archive


def _certificates() -> Iterator[str]:
    if CERTIFICATES.is_dir():
        yield f"{CERTIFICATES}:{CERTIFICATES}:ro"


def _buildah(scratch: Path, *arguments: str) -> str:
    # In a mount namespace of its own: what it mounts goes with it.
    command = ["unshare", "--mount", "buildah", "--storage-driver=overlay"]
    command += [f"--root={scratch / 'storage'}", f"--runroot={scratch / 'run'}", *arguments]
    (scratch / "tmp").mkdir(exist_ok=True)
    variables = {**os.environ, "TMPDIR": str(scratch / "tmp")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables)
    if done.returncode != 0:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-30:])
        raise Failure(f"buildah {arguments[0]} failed", told)
    return done.stdout


def run(archive: Path) -> None:
    """The manifests in a cluster, and a pod for each scheduler that they describe."""
    testbed = Testbed(CACHE)
    try:
        testbed.make_namespace()
        with timed("a cluster that has the image"):
            testbed.up("--no-functions", "--no-slurm")
            testbed.motley("image", "import", archive)
        with timed("the manifests' schedulers are ready"):
            _deploy(testbed)
        with timed("pods of every scheduler run"):
            for name in SCHEDULERS:
                _place(testbed, name)
        _show(testbed)
    finally:
        testbed.destroy()


def _deploy(testbed: Testbed) -> None:
    document = yaml.safe_load((testbed.root / "pki/scheduler.kubeconfig").read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = f"https://{NODE_IP}:6443"  # loopback is the pod's own there
    kubeconfig = testbed.root / "scheduler.conf"
    kubeconfig.write_text(yaml.safe_dump(document))
    testbed.kubectl(
        *("create", "secret", "generic", "motley-scheduler-mem-secret", "-n", "kube-system"),
        f"--from-file=scheduler.conf={kubeconfig}",
        f"--from-file=scheduler-config.yaml={CONFIGURATION}",
    )
    for name in ("rbac", "deployment", "second-scheduler"):
        testbed.kubectl("apply", "-f", DEPLOY / f"{name}.yaml")
    for name in DEPLOYMENTS:
        _rolled_out(testbed, name)


def _rolled_out(testbed: Testbed, deployment: str) -> None:
    where = ("-n", "kube-system", f"deployment/{deployment}")
    try:
        testbed.kubectl("rollout", "status", *where, "--timeout=60s")
    except AssertionError as error:
        described = testbed.kubectl("describe", "pods", "-n", "kube-system")
        raise AssertionError(f"{error}\n{described}") from None


def _place(testbed: Testbed, scheduler: str) -> None:
    spec = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "sleep", "image": images.BUSYBOX.reference, "command": ["sleep", "100000"]}
        ],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": scheduler}, "spec": spec}
    testbed.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(pod).decode())
    testbed.kubectl("wait", "--for=condition=Ready", f"pod/{scheduler}", "--timeout=60s")
    selector = f"--field-selector=involvedObject.name={scheduler},reason=Scheduled"
    (event,) = eventually(lambda: testbed.get("events", selector)["items"], 20)
    by = (event.get("reportingComponent"), event.get("source", {}).get("component"))
    if scheduler not in by:
        raise AssertionError(f"{scheduler} was scheduled by {by}")


def _show(testbed: Testbed) -> None:
    print(testbed.kubectl("get", "pods", "-A").rstrip())
    columns = "POD:involvedObject.name,BY:reportingComponent,MESSAGE:message"
    chosen = ("--field-selector=reason=Scheduled", "-o", f"custom-columns={columns}")
    print(testbed.kubectl("get", "events", *chosen).rstrip())


if __name__ == "__main__":
    sys.exit(main())
