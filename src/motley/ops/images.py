"""The images Motley brings along, made from Debian packages on this machine.

`pause` holds a pod's namespaces, `busybox` is the smallest useful container, `python` runs the
examples; `nginx` and `load`, a server and a client that keeps it busy, and `dashboard` are made
when they are asked for. No registry is asked: packages come through the machine's own apt, are
unpacked beside each other and written as OCI archives (`oci`). An archive is made once and kept in
a cache directory, so everything after the first time works offline.

Invariant: an archive's file name carries a fingerprint of its recipe; a changed recipe never meets
an old archive.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from motley.ops import dashboardfiles, loadgen, nginxfiles, oci, rootfs

_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
Say = Callable[[str], None]


class Recipe(msgspec.Struct, frozen=True):
    """How one image is made. A package `a|b` is the first of both that this release has."""

    name: str
    packages: tuple[str, ...]
    config: dict[str, Any]
    base: str = ""
    version: int = 1
    files: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # path → text, laid over the packages

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
    version=2,
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
NGINX = Recipe(
    name="nginx",
    base="busybox",
    packages=(
        "nginx",
        "libc6",
        "libcrypt1",
        "libpcre2-8-0",
        "libssl3t64|libssl3",
        "zlib1g",
    ),
    config={
        # Before it has read its configuration, nginx would complain to a file.
        "Entrypoint": ["nginx", "-e", "/dev/stderr"],
        "Cmd": ["-g", "daemon off;"],
        "Env": [_PATH],
        "ExposedPorts": {"80/tcp": {}},
        "StopSignal": "SIGQUIT",
    },
    files={
        "etc/nginx/nginx.conf": nginxfiles.MAIN,
        "etc/nginx/mime.types": nginxfiles.TYPES,
        "etc/nginx/conf.d/default.conf": nginxfiles.DEFAULT_SERVER,
        "usr/share/nginx/html/index.html": nginxfiles.WELCOME,
    },
)
LOAD = Recipe(
    name="load",
    base="python",
    packages=(),
    config={
        "Entrypoint": ["load"],
        "Cmd": ["--help"],
        "Env": PYTHON.config["Env"],
    },
    files={"usr/local/bin/load": f"#!/usr/bin/python3\n{Path(loadgen.__file__).read_text()}"},
)
DASHBOARD = Recipe(
    name="dashboard",
    base="python",
    packages=(),
    config={
        "Entrypoint": ["python3", "-m", "motley.dashboard"],
        "Env": [*PYTHON.config["Env"], f"PYTHONPATH={dashboardfiles.PYTHONPATH}"],
        "ExposedPorts": {"8443/tcp": {}},
        "User": "65532:65532",  # nobody's number; what it is in other images without root
    },
    files=dashboardfiles.read(),
)
RECIPES = (PAUSE, BUSYBOX, PYTHON)  # what every cluster has
BY_NAME = {recipe.name: recipe for recipe in (*RECIPES, NGINX, LOAD, DASHBOARD)}
# OCI's names of architectures are Debian's, but for these.
_DEBIAN = {"arm": "armhf", "386": "i386", "ppc64le": "ppc64el"}


@functools.cache
def architecture() -> str:
    """This machine's architecture in the words of OCI."""
    debian = rootfs.output("dpkg", "--print-architecture").strip()
    return {theirs: ours for ours, theirs in _DEBIAN.items()}.get(debian, debian)


def apt(arch: str, directory: Path) -> rootfs.Apt:
    """The apt that brings packages of an architecture."""
    is_foreign = arch not in ("", architecture())
    return rootfs.Apt(directory, _DEBIAN.get(arch, arch) if is_foreign else "")


def archive(cache: Path, recipe: Recipe, arch: str = "") -> Path:
    """Where a recipe's archive is kept."""
    return cache / f"{recipe.name}-{arch or architecture()}-{recipe.fingerprint()}.tar"


def ensure(
    cache: Path, say: Say = print, recipes: Sequence[Recipe] = RECIPES, arch: str = ""
) -> dict[str, Path]:
    """Make the archives that are missing; reference → archive of every image."""
    cache.mkdir(parents=True, exist_ok=True)
    made = {recipe.reference: archive(cache, recipe, arch) for recipe in recipes}
    if all(path.exists() for path in made.values()):
        return made
    with _exclusive(cache / ".lock"), plain_umask():
        for recipe in recipes:
            _make(cache, recipe, arch, say)
    return made


def _make(cache: Path, recipe: Recipe, arch: str, say: Say) -> Path:
    target = archive(cache, recipe, arch)
    if not target.exists():
        below = _make(cache, BY_NAME[recipe.base], arch, say) if recipe.base else None
        kind = f" for {arch}" if arch else ""
        say(f"building image {recipe.reference}{kind} from Debian packages")
        _build(recipe, target, arch, oci.read(below)[0].layers if below else (), say)
        _forget_old(target)
    return target


@contextmanager
def plain_umask() -> Iterator[None]:
    """Modes of files must not depend on who makes them."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _forget_old(current: Path) -> None:
    """Remove archives of the same image that older recipes made."""
    same = current.name.rpartition("-")[0]
    for path in current.parent.glob(f"{same}-*.tar"):
        if path != current:
            path.unlink()


def _build(recipe: Recipe, target: Path, arch: str, below: Sequence[oci.Layer], say: Say) -> None:
    with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch:
        tree = Path(scratch, "tree")
        fetcher = apt(arch, Path(scratch, "apt"))
        _unpack(recipe, tree, Path(scratch, "debs"), fetcher)
        if recipe is PYTHON:
            # What the container will see, for running its programs.
            whole = Path(scratch, "whole")
            for layer in below:
                oci.extract(layer, whole)
            if fetcher.foreign:
                _compile_alike(tree, oci.read(_make(target.parent, recipe, "", say))[0].layers)
            else:
                _finish_python(tree, whole)
        oci.write(
            target,
            [*below, oci.layer(tree)],
            name=recipe.reference,
            architecture=arch or architecture(),
            config=recipe.config,
        )


def _unpack(recipe: Recipe, tree: Path, debs: Path, fetcher: rootfs.Apt) -> None:
    tree.mkdir(parents=True)
    if not recipe.base:
        rootfs.skeleton(tree)
    if recipe.packages:
        for deb in rootfs.download(recipe.packages, debs, fetcher):
            rootfs.extract(deb, tree)
    if fetcher.foreign and (tree / "usr/bin/busybox").exists():
        native = debs.with_name("native-busybox")
        for deb in rootfs.download(BUSYBOX.packages, debs.with_name("native-debs")):
            rootfs.extract(deb, native)
        rootfs.link_applets(tree, native / "usr/bin/busybox")
    else:
        rootfs.link_applets(tree)
    for name, text in (recipe.files or {}).items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)


def _name_python(tree: Path) -> Path:
    """Give Python its usual names; its binary."""
    binary = next((tree / "usr/bin").glob("python3.[0-9]*"))
    for link, target in (("python3", binary.name), ("python", "python3")):
        (tree / "usr/bin" / link).symlink_to(target)
    return binary


def _compile_alike(tree: Path, native: Sequence[oci.Layer]) -> None:
    """Compiled code is the same for every architecture: take it from this machine's own image,
    for files that are the same there."""
    library = f"usr/lib/{_name_python(tree).name}"
    with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch:
        here = Path(scratch)
        for layer in native:
            oci.extract(layer, here)
        for compiled in (here / library).rglob("__pycache__/*.pyc"):
            source = compiled.parents[1] / f"{compiled.name.partition('.')[0]}.py"
            there = tree / source.relative_to(here)
            if there.exists() and there.read_bytes() == source.read_bytes():
                target = tree / compiled.relative_to(here)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(compiled, target)


def _finish_python(tree: Path, whole: Path) -> None:
    """Name Python and compile its library, so that containers start at once."""
    binary = _name_python(tree)
    if os.geteuid() != 0:
        return  # running the image's own Python needs chroot
    shutil.copytree(tree, whole, symlinks=True, dirs_exist_ok=True)
    library = f"usr/lib/{binary.name}"
    command = [
        "/usr/sbin/chroot",
        str(whole),
        f"/usr/bin/{binary.name}",
        "-B",  # what it imports itself would be compiled with a time
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

    def __init__(self, socket: Path, arch: str = "") -> None:
        """`arch`: what the node runs, where that is not what its machine is."""
        self._arch = arch
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
            self.add(path)
        return list(wanted)

    def add(self, path: Path) -> None:
        """Import an archive, with every architecture it has. Raises CalledProcessError.

        What this machine cannot run is kept as it is; what it can is unpacked at its first start.
        """
        found = oci.architectures(path)
        if self._arch and len(found) > 1:  # containerd would choose by the machine
            with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch:
                self.add(oci.only(path, self._arch, Path(scratch)))
            return
        has_others = set(found) - {architecture()}
        flags = ("--all-platforms", "--no-unpack") if has_others else ()
        self._run("images", "import", *flags, str(path))

    def untag(self, reference: str) -> None:
        """Take one name away. Raises CalledProcessError."""
        self._run("images", "rm", "--sync", reference)

    def _run(self, *arguments: str) -> None:
        command = [*self._ctr, *arguments]
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


if __name__ == "__main__":
    for made in ensure(Path(sys.argv[1])).values():
        print(made)
