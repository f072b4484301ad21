"""Nodes of another architecture on this machine: qemu runs their programs, the kernel calls qemu.

The kernel's binfmt_misc knows programs of other machines by their first bytes and starts an
interpreter for them. Such an entry holds the interpreter open (flag F), so it also works in
containers, which have no qemu. qemu comes from a Debian package, of which one file is taken: to
install it would register every architecture for the whole machine, and for good.

Entries are the kernel's, not a node's, and live as long as binfmt_misc is mounted somewhere. Each
emulated node has a mount below its directory and an entry that carries its name; an entry that the
machine has for the same programs stays as it is and counts again when the node is gone.

Invariant: an entry never outlives `motley down --pods`, whatever else has binfmt_misc mounted, and
never means the machine's own programs.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from motley.node import speedtest
from motley.ops import config as configs
from motley.ops import images, members, oci, rootfs
from motley.ops.config import Config
from motley.ops.failure import Failure

Say = Callable[[str], None]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = ("qemu-user-static", "qemu-user")  # Debian 12; from 13 on
_FILESYSTEM = "binfmt_misc"


class Target(msgspec.Struct, frozen=True):
    """An architecture as qemu and ELF name it."""

    qemu: str
    machine: int  # e_machine


TARGETS = {"amd64": Target("x86_64", 0x3E), "arm64": Target("aarch64", 0xB7)}


# -- pure -----------------------------------------------------------------------------------


def entry(one: Config) -> str:
    """The name of a node's entry; its own, so that removing it is safe."""
    place = hashlib.sha256(str(one.root).encode()).hexdigest()[:8]
    return f"motley-{place}-{one.emulates}"


def registration(name: str, target: Target, program: Path) -> str:
    """The line that makes the kernel run a target's programs (64 bit, little-endian) by qemu.

    Flags: F opens qemu now, P leaves a program its name, O and C let set-user-ID programs work.
    """
    header = bytes([0x7F, *b"ELF", 2, 1, 1, *bytes(9), 2, 0, *target.machine.to_bytes(2, "little")])
    # Any ABI; an executable that is placed where it wants, or anywhere.
    mask = bytes([*[0xFF] * 7, 0, *[0xFF] * 8, 0xFE, *[0xFF] * 3])
    return f":{name}:M::{_escaped(header)}:{_escaped(mask)}:{program}:OCPF"


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def check(architectures: Sequence[str]) -> None:
    """Refuse what cannot be emulated here."""
    for arch in architectures:
        if arch == images.architecture():
            raise Failure(
                f"this machine is {arch} itself: there is nothing to emulate",
                "Its nodes are so without --arch.",
            )
        if arch not in TARGETS:
            raise Failure(f"{arch} cannot be emulated", f"Choose of {', '.join(TARGETS)}.")


# -- the machine ----------------------------------------------------------------------------


def program(cache: Path, arch: str, say: Say = print) -> Path:
    """A static qemu that runs programs of an architecture; fetched once. Raises Failure."""
    name = f"qemu-{TARGETS[arch].qemu}"
    found = shutil.which(f"{name}-static", path=_PATH)
    if found is not None:
        return Path(found)
    target = cache / f"{name}-static"
    if not target.exists():
        say(f"fetching {name} from Debian's packages")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="motley-qemu-") as scratch:
            _fetch(Path(scratch), name, target)
    return target


def _fetch(scratch: Path, name: str, target: Path) -> None:
    wanted = (f"usr/bin/{name}-static", f"usr/bin/{name}")
    for package in _PACKAGES:
        try:
            (deb,) = rootfs.download((package,), scratch / package)
        except rootfs.Unavailable as error:
            raise Failure(str(error)) from None
        if _take(deb, wanted, target):
            return
    raise Failure(f"Debian's packages {', '.join(_PACKAGES)} hold no {name}")


def _take(deb: Path, wanted: Sequence[str], target: Path) -> bool:
    """Copy one file of a package, whole or not at all; whether it is there."""
    command = ["dpkg-deb", "--fsys-tarfile", str(deb)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as opened:
            for member in opened:
                if member.isreg() and member.name.removeprefix("./") in wanted:
                    content = opened.extractfile(member)
                    assert content is not None  # a regular file
                    beside = target.with_name(f".{target.name}.{os.getpid()}")
                    with beside.open("wb") as written:
                        shutil.copyfileobj(content, written)
                    beside.chmod(0o755)
                    beside.replace(target)
                    process.kill()  # the rest is of no interest
                    return True
    return False


def _place(one: Config) -> Path:
    return one.root / _FILESYSTEM


def _mount(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", _FILESYSTEM, _FILESYSTEM, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise Failure(
            f"programs of other architectures cannot be run: {done.stderr.strip()}",
            f"The kernel must have {_FILESYSTEM}: modprobe {_FILESYSTEM}",
        )


def _unmount(place: Path) -> None:
    subprocess.run(["umount", str(place)], capture_output=True, timeout=20, check=True)


def ensure(one: Config) -> None:
    """Make the kernel run programs of a node's architecture for as long as the node is."""
    qemu = program(one.images, one.emulates)
    place = _place(one)
    if not (place / "register").exists():
        _mount(place)
    known = place / entry(one)
    if known.exists():
        if f"interpreter {qemu}\n" in known.read_text():
            return
        known.write_text("-1")
    (place / "register").write_text(registration(known.name, TARGETS[one.emulates], qemu))


def remove(one: Config) -> None:
    """Take a node's entry away, also one that a killed cluster left."""
    with mounted() as place:
        known = place / entry(one)
        if known.exists():
            known.write_text("-1")
        if (_place(one) / "register").exists():
            _unmount(_place(one))


@contextmanager
def mounted() -> Iterator[Path]:
    """The kernel's entries for as long as the block runs; nothing at all where it has none."""
    with tempfile.TemporaryDirectory(prefix="motley-binfmt-") as directory:
        place = Path(directory)
        if _FILESYSTEM not in Path("/proc/filesystems").read_text().split():
            yield place
            return
        _mount(place)
        try:
            yield place
        finally:
            _unmount(place)


def fetch(config: Config, say: Say = print) -> Config:
    """What emulated nodes need from elsewhere, before anything is started. Raises Failure.

    The cluster with the speed of its machine, by which theirs is seen in proportion.
    """
    with tempfile.TemporaryDirectory(prefix="motley-binfmt-") as tried:
        _mount(Path(tried))
        _unmount(Path(tried))
    for arch in sorted({*members.architectures(config).values()}):
        prefetch(config.images, arch, say)
    if config.speed:
        return config
    return msgspec.structs.replace(config, speed=round(speedtest.measure(), 3))


def prefetch(cache: Path, arch: str, say: Say = print) -> None:
    """qemu and the images of an architecture, kept in a cache directory. Raises Failure."""
    program(cache, arch, say)
    try:
        images.ensure(cache, say, arch=arch)
    except rootfs.Unavailable as error:
        raise Failure(str(error)) from None


def prepare(one: Config) -> Config:
    """All that an emulated node needs before it starts; the node with its own speed."""
    ensure(one)
    known = configs.load(one.root)
    measured = known.speed if known is not None and known.emulates == one.emulates else 0.0
    return msgspec.structs.replace(one, speed=measured or speed(one))


def problem(one: Config) -> str:
    """Why a node's programs would not run now; empty: they do."""
    known = _place(one) / entry(one)
    try:
        said = known.read_text()
    except OSError:
        return f"the kernel does not know {one.emulates} programs"
    interpreter = next((w for w in said.split() if w.startswith("/")), "")
    if not said.startswith("enabled"):
        return f"the kernel's entry {known.name} is switched off"
    return "" if os.access(interpreter, os.X_OK) else f"{interpreter} is gone"


def speed(one: Config) -> float:
    """How fast a core of an emulated node is: the agent's own test, run by the node's Python."""
    (archive,) = images.ensure(one.images, recipes=(images.PYTHON,), arch=one.emulates).values()
    with tempfile.TemporaryDirectory(prefix="motley-speed-") as scratch:
        tree = Path(scratch, "tree")
        (python,) = oci.read(archive)
        for layer in python.layers:
            oci.extract(layer, tree)
        shutil.copyfile(speedtest.__file__, tree / "speedtest.py")
        done = subprocess.run(
            ["/usr/sbin/chroot", str(tree), "/usr/bin/python3", "-E", "/speedtest.py"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    try:
        return float(done.stdout)
    except ValueError:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Failure(f"{one.emulates} programs do not run on this machine: {told}") from None
