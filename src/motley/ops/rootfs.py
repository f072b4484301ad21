"""An image's files from Debian packages: fetched with the machine's own apt, unpacked, trimmed.

Packages are laid over a skeleton with a merged /usr, because that is what every current system
expects; documentation, and what needs a screen or a build, stays out. Nothing is installed on the
machine: packages are only downloaded and read.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

_DOCUMENTATION = tuple(
    f"usr/share/{name}/"
    for name in ("bash-completion", "bug", "doc", "doc-base", "info", "lintian", "locale", "man")
)
_LEFT_OUT = ("usr/share/", "usr/libexec/", "usr/lib/lintian/", "usr/lib/systemd/", "etc/")
_LEFT_OUT_PARTS = frozenset({"gconv"})
# Parts of Python's library that need a screen, a build, or libraries the image leaves out.
_LEFT_OUT_PYTHON = ("idlelib", "lib2to3", "tkinter", "turtledemo", "pydoc_data", "ensurepip")
_LEFT_OUT_DYNLOAD = ("readline", "_curses", "_sqlite3", "_dbm", "_gdbm", "nis", "_tkinter")


class Unavailable(Exception):
    """A package could not be fetched or read; the message says what was tried."""


def skeleton(tree: Path) -> None:
    """Make the directories and files every image has; programs and libraries live under /usr."""
    for directory in ("etc", "root", "usr/bin", "usr/lib", "usr/lib64", "var"):
        (tree / directory).mkdir(parents=True)
    for sticky in ("tmp", "var/tmp"):
        (tree / sticky).mkdir()
        (tree / sticky).chmod(0o1777)
    for link, target in {
        "bin": "usr/bin",
        "sbin": "usr/bin",
        "usr/sbin": "bin",
        "lib": "usr/lib",
        "lib64": "usr/lib64",
        "var/run": "/run",
    }.items():
        (tree / link).symlink_to(target)
    for name, text in {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
        "etc/group": "root:x:0:\nnogroup:x:65534:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }.items():
        (tree / name).write_text(text)


def merged(name: str) -> str:
    """A path of the skeleton, below its root: programs and libraries are under /usr."""
    path = name.removeprefix("./").strip("/")
    top, _, rest = path.partition("/")
    if top in ("bin", "sbin"):
        return rest and f"usr/bin/{rest}"
    if top.startswith("lib"):
        return rest and f"usr/{path}"
    return path.replace("usr/sbin/", "usr/bin/", 1) if path.startswith("usr/sbin/") else path


def place(name: str, *, whole: bool = False) -> str | None:
    """Where a package's file goes in an image with a merged /usr; None: it is left out.

    `whole`: only documentation is left out, for packages of which nothing is known.
    """
    path = merged(name)
    parts = path.split("/")
    if whole:
        return None if f"{path}/".startswith(_DOCUMENTATION) else path or None
    if not path or f"{path}/".startswith(_LEFT_OUT) or not _LEFT_OUT_PARTS.isdisjoint(parts):
        return None
    match parts:
        case ["usr", "lib", python, part, *_] if python.startswith("python3"):
            if part in _LEFT_OUT_PYTHON:
                return None
            if part == "lib-dynload" and parts[-1].startswith(_LEFT_OUT_DYNLOAD):
                return None
    return path


def extract(deb: Path, tree: Path, *, whole: bool = False) -> None:
    """Unpack a package's files below a directory; see `place` for what is left out."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as opened:
            for member in opened:
                path = place(member.name, whole=whole)
                if path is not None:
                    _put(opened, member, tree / path, tree, whole=whole)
    if process.returncode != 0:
        raise Unavailable(f"{deb.name} cannot be unpacked")


def _put(
    opened: tarfile.TarFile, member: tarfile.TarInfo, target: Path, tree: Path, *, whole: bool
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
        if whole:
            target.chmod(member.mode)
    elif member.issym():
        target.unlink(missing_ok=True)
        target.symlink_to(member.linkname)
    elif member.islnk():
        linked = place(member.linkname, whole=whole)
        if linked is not None:
            target.unlink(missing_ok=True)
            target.hardlink_to(tree / linked)
    elif (content := opened.extractfile(member)) is not None:
        with target.open("wb") as out:
            shutil.copyfileobj(content, out)
        target.chmod(member.mode)


def link_applets(tree: Path, native: Path | None = None) -> None:
    """Give busybox's programs their names, as its own list says.

    `native`: one that runs on this machine, where the tree's does not.
    """
    busybox = tree / "usr/bin/busybox"
    if busybox.exists():
        for applet in output(str(native or busybox), "--list").split():
            link = busybox.with_name(applet)
            if not link.exists():
                link.symlink_to("busybox")


def output(*command: str) -> str:
    """What a command prints; nothing when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def resolve(packages: Sequence[str]) -> list[str]:
    """Package names as this Debian release spells them.

    `a|b` is the first of both that exists; python3-minimal stands for the release's own Python.
    """
    known = set(output("apt-cache", "pkgnames").split())
    found: list[str] = []
    for alternatives in packages:
        names = alternatives.split("|")
        name = next((n for n in names if n in known), names[-1])
        found += _python_packages() if name == "python3-minimal" else [name]
    return found


def _python_packages() -> list[str]:
    fields = output("apt-cache", "show", "python3-minimal")
    version = next(
        (
            word.removesuffix("-minimal")
            for word in fields.replace(",", " ").split()
            if word.startswith("python3.") and word.endswith("-minimal")
        ),
        "python3.11",
    )
    return [f"{version}-minimal", f"lib{version}-minimal", f"lib{version}-stdlib"]


class Apt(msgspec.Struct, frozen=True):
    """This machine's apt, for its own architecture or another (Debian's name); another one's
    lists are kept in `directory`."""

    directory: Path
    foreign: str = ""

    def options(self) -> list[str]:
        """What every call gets. Root may write where we download, apt's own user may not."""
        given = {"APT::Sandbox::User": "root"}
        if self.foreign:
            given |= {
                "APT::Architecture": self.foreign,
                "APT::Architectures": self.foreign,
                "Dir::State::lists": f"{self.directory}/lists",
                "Dir::State::status": "/dev/null",
                "Dir::Cache": f"{self.directory}/cache",
            }
        return [word for name, value in given.items() for word in ("-o", f"{name}={value}")]

    def refresh(self) -> None:
        """Fetch the lists of packages."""
        if self.foreign:
            for part in ("lists/partial", "cache/archives/partial"):
                (self.directory / part).mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-qq", *self.options(), "update"]
        subprocess.run(command, capture_output=True, timeout=300)


def _command(apt: Apt, packages: Sequence[str], into: Path, *, dependencies: bool) -> list[str]:
    begin = ["apt-get", "-qq", *apt.options()]
    if not dependencies:
        return [*begin, "download", *resolve(packages)]
    # As if nothing were installed: an image brings everything its programs need.
    (into / "partial").mkdir(exist_ok=True)
    for name, value in (
        ("Dir::State::status", "/dev/null"),
        ("Dir::Cache::archives", f"{into}/"),
        ("Debug::NoLocking", "true"),
    ):
        begin += ["-o", f"{name}={value}"]
    flags = ["--yes", "--no-install-recommends", "--download-only"]
    return [*begin, *flags, "install", *resolve(packages)]


def download(
    packages: Sequence[str], into: Path, apt: Apt | None = None, *, dependencies: bool = False
) -> list[Path]:
    """Fetch packages, by wish with all they depend on.

    When apt's lists are missing or stale they are refreshed once. Raises Unavailable.
    """
    into.mkdir(parents=True)
    apt = apt or Apt(into)
    failure = ""
    for refreshed in (False, True):
        if refreshed:
            apt.refresh()
        command = _command(apt, packages, into, dependencies=dependencies)
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            return sorted(into.glob("*.deb"))
        failure = (done.stderr.strip().splitlines() or [""])[-1]
    raise Unavailable(
        f"apt-get could not download {' '.join(packages)}: {failure}; "
        "the machine's Debian sources must be reachable the first time"
    )
