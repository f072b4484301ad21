"""Build the scheduler's image from its Dockerfile, and let it do all its work in a cluster.

No registry is asked: buildah builds, on a base made of Debian packages, and the image is handed to
a cluster's containerd as an archive. Then everything of `deploy/` that uses it runs there, from the
manifests as they are, until each has had its effect (`deployed.py`). Needs root; what it makes is
gone afterwards.

    .venv/bin/python tools/scheduler_image.py [--part NAME …] [--image FILE | --output FILE]
                                              [--build-arg NAME=VALUE] [--volume …]

`--part` chooses (all unless given); `--image` takes an archive that `--output` kept.
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
from pathlib import Path

import msgspec

from deployed import CACHE, DEPLOY, PARTS, REPOSITORY, run, timed
from motley.ops import imagebuild, images, install, remains
from motley.ops.failure import Failure

IMAGE = "docker.io/motley/scheduler:0.1.0"  # as the manifests' motley/scheduler:0.1.0 is read
CERTIFICATES = Path("/etc/ssl/certs")
BASE = imagebuild.Order(
    reference="localhost/python-venv:1",
    base="python",
    # NumPy wants C++'s library, as every base with apt in it has.
    packages=("python3-venv", "libstdc++6"),
)


def main() -> int:
    """Build, run, say how long it took; 1 when something is not as it should be."""
    arguments = _arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="motley-build-", dir="/tmp") as scratch:
            archive = arguments.image
            if archive is None:
                archive = build(Path(scratch), arguments.build_arg, arguments.volume)
            if arguments.output:
                shutil.copyfile(archive, arguments.output)
            run(archive, arguments.part or list(PARTS))
    except (Failure, AssertionError) as failure:
        print(failure, getattr(failure, "advice", ""), sep="\n", file=sys.stderr)
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="of deploy/; all otherwise")
    parser.add_argument("--image", type=Path, metavar="FILE", help="an archive instead of a build")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep the image's archive")
    for name in ("--build-arg", "--volume"):
        parser.add_argument(name, action="append", default=[], help="given to buildah as it is")
    return parser.parse_args()


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
            given += [f"--file={DEPLOY / 'scheduler/Dockerfile'}"]
            _buildah(scratch, "build", *given, str(REPOSITORY))
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


if __name__ == "__main__":
    sys.exit(main())
