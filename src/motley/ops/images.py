"""The images Motley brings along, made from Debian packages on this machine.

`pause` holds a pod's namespaces, `busybox` is the smallest useful container, `python` runs the
examples. No registry is asked: packages come through the machine's own apt, are unpacked beside
each other and written as OCI archives (`oci`). An archive is made once and kept in a cache
directory, so everything after the first time works offline.

Invariant: an archive's file name carries a fingerprint of its recipe; a changed recipe never meets
an old archive.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from motley.ops import oci, rootfs

_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
Say = Callable[[str], None]


class Recipe(msgspec.Struct, frozen=True):
    """How one image is made. A package `a|b` is the first of both that this release has."""

    name: str
    packages: tuple[str, ...]
    config: dict[str, Any]
    base: str = ""
    version: int = 1

    @property
    def reference(self) -> str:
        """The name pods use."""
        return f"localhost/motley/{self.name}:1"

    def fingerprint(self) -> str:
        """Changes whenever the recipe, or the recipe it builds on, does."""
        base = BY_NAME[self.base].fingerprint() if self.base else ""
        data = msgspec.json.encode([self, base], order="deterministic")
        return hashlib.sha256(data).hexdigest()[:12]


PAUSE = Recipe(
    name="pause",
    # A static init that does nothing but reap children and go away when told.
    packages=("catatonit",),
    config={"Entrypoint": ["/usr/bin/catatonit", "-P"], "User": "65535:65535"},
)
BUSYBOX = Recipe(
    name="busybox",
    packages=("busybox-static",),
    config={"Cmd": ["sh"], "Env": [_PATH]},
)
PYTHON = Recipe(
    name="python",
    base="busybox",
    packages=(
        "python3-minimal",
        "libc6",
        "libcrypt1",
        "libgcc-s1",  # glibc loads it when a thread ends early
        "libssl3t64|libssl3",
        "zlib1g",
        "libexpat1",
        "libffi8",
        "liblzma5",
        "libbz2-1.0",
        "libuuid1",
    ),
    config={
        "Cmd": ["python3"],
        "Env": [_PATH, "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
    },
)
RECIPES = (PAUSE, BUSYBOX, PYTHON)
BY_NAME = {recipe.name: recipe for recipe in RECIPES}


def architecture() -> str:
    """This machine's architecture in the words of OCI, which are Debian's where it matters."""
    debian = rootfs.output("dpkg", "--print-architecture").strip()
    return {"armhf": "arm", "i386": "386", "ppc64el": "ppc64le"}.get(debian, debian)


def archive(cache: Path, recipe: Recipe) -> Path:
    """Where a recipe's archive is kept."""
    return cache / f"{recipe.name}-{architecture()}-{recipe.fingerprint()}.tar"


def ensure(cache: Path, say: Say = print) -> dict[str, Path]:
    """Make the archives that are missing; reference → archive of every image."""
    cache.mkdir(parents=True, exist_ok=True)
    made = {recipe.reference: archive(cache, recipe) for recipe in RECIPES}
    if all(path.exists() for path in made.values()):
        return made
    with _exclusive(cache / ".lock"):
        for recipe in RECIPES:
            if not made[recipe.reference].exists():
                say(f"building image {recipe.reference} from Debian packages")
                _build(recipe, made[recipe.reference])
        _forget_old(cache, set(made.values()))
    return made


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _forget_old(cache: Path, current: set[Path]) -> None:
    for path in cache.glob("*.tar"):
        if path not in current and path.name.split("-")[0] in BY_NAME:
            path.unlink()


def _build(recipe: Recipe, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch:
        layers: list[oci.Layer] = []
        whole = Path(scratch, "whole")  # what the container will see, for running its programs
        if recipe.base:
            base = Path(scratch, "base")
            _unpack(BY_NAME[recipe.base], base, Path(scratch, "base-debs"))
            layers.append(oci.layer(base))
            shutil.copytree(base, whole, symlinks=True)
        tree = Path(scratch, "tree")
        _unpack(recipe, tree, Path(scratch, "debs"))
        if recipe is PYTHON:
            _finish_python(tree, whole)
        layers.append(oci.layer(tree))
        oci.write(
            target,
            layers,
            name=recipe.reference,
            architecture=architecture(),
            config=recipe.config,
        )


def _unpack(recipe: Recipe, tree: Path, debs: Path) -> None:
    tree.mkdir(parents=True)
    if not recipe.base:
        rootfs.skeleton(tree)
    for deb in rootfs.download(recipe.packages, debs):
        rootfs.extract(deb, tree)
    rootfs.link_applets(tree)


def _finish_python(tree: Path, whole: Path) -> None:
    """Give Python its usual names and compile its library, so that containers start at once."""
    binary = next((tree / "usr/bin").glob("python3.[0-9]*"))
    for link, target in (("python3", binary.name), ("python", "python3")):
        (tree / "usr/bin" / link).symlink_to(target)
    if os.geteuid() != 0:
        return  # running the image's own Python needs chroot
    shutil.copytree(tree, whole, symlinks=True, dirs_exist_ok=True)
    library = f"usr/lib/{binary.name}"
    command = [
        "/usr/sbin/chroot",
        str(whole),
        f"/usr/bin/{binary.name}",
        "-m",
        "compileall",
        "-q",
    ]
    # Unchecked: the files never change, and a checked one would carry a time.
    command += ["--invalidation-mode", "unchecked-hash", f"/{library}"]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    subprocess.run(command, check=True, timeout=300, env=environment, stdout=subprocess.DEVNULL)
    for compiled in (whole / library).rglob("__pycache__"):
        shutil.copytree(compiled, tree / compiled.relative_to(whole))


class Imports:
    """Images of one containerd instance, by the `ctr` that comes with it."""

    def __init__(self, socket: Path) -> None:
        self._ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io"]

    def present(self) -> dict[str, str]:
        """Reference → manifest digest of what is there."""
        done = subprocess.run(
            [*self._ctr, "images", "ls"], capture_output=True, text=True, timeout=60, check=True
        )
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        return {row[0]: row[2] for row in rows if len(row) > 2}

    def ensure(self, archives: dict[str, Path]) -> list[str]:
        """Import what is missing or outdated; the references that were."""
        present = self.present()
        wanted = {
            reference: path
            for reference, path in archives.items()
            if present.get(reference) != oci.manifest_digest(path)
        }
        for path in wanted.values():
            subprocess.run(
                [*self._ctr, "images", "import", str(path)],
                capture_output=True,
                timeout=300,
                check=True,
            )
        return list(wanted)


if __name__ == "__main__":
    for made in ensure(Path(sys.argv[1])).values():
        print(made)
