"""One's own image: a recipe's image, with packages and files laid over it.

For `motley image build`. Only two things can be added, packages and files, and one thing said: how
the container starts. Nothing is run while an image is made, so it is the same for every
architecture and for everyone who makes it; packages' own installation scripts do not run, either.

Invariant: the same order, from the same packages, has the same digest.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from motley.ops import images, oci, rootfs
from motley.ops.failure import Failure
from motley.registry import references

ARCHITECTURES = ("386", "amd64", "arm", "arm64", "ppc64le", "riscv64", "s390x")


class Copy(msgspec.Struct, frozen=True):
    """A file or directory of this machine, and where it goes."""

    source: Path
    target: str


class Order(msgspec.Struct, frozen=True):
    """What is to be made. `settings` are laid over the base's (`Cmd`, `Env`, …)."""

    reference: str
    base: str = "busybox"
    packages: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    settings: Mapping[str, Any] = {}
    with_dependencies: bool = True


def reference(name: str) -> str:
    """The full name of an image: no registry has it, and its tag is 1 unless another is given.

    Without a tag it would be `latest`, and pods would ask a registry for it at every start.
    """
    first, slash, _ = name.partition("/")
    has_host = slash and ("." in first or ":" in first or first == "localhost")
    full = name if has_host else f"localhost/{name}"
    if ":" not in full.rpartition("/")[2]:
        full += ":1"
    try:
        parsed = references.parse(full)
    except ValueError as error:
        raise Failure(
            str(error), "An image name looks like web:1 or localhost/team/web:1"
        ) from None
    if parsed.digest:
        raise Failure(f"{name}: the digest is what comes out, not what is given")
    return str(parsed)


def copy(text: str) -> Copy:
    """`SRC:DST` of the command line: a file to a name or into `DIRECTORY/`, or all that is in a
    directory into another. Raises Failure."""
    source, colon, target = text.rpartition(":")
    if not colon or not source or not target.startswith("/"):
        raise Failure(f"--copy {text}: not of the form SRC:/ABSOLUTE/DST")
    path = Path(source)
    if not path.exists():
        raise Failure(f"--copy {text}: {source} does not exist")
    is_below = target.endswith("/") and not path.is_dir()
    into = f"{target}{path.resolve().name}" if is_below else target
    if ".." in Path(into).parts:
        raise Failure(f"--copy {text}: the target must not contain ..")
    return Copy(path, into)


def config(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the container starts: what is not said is as in the base.

    An entry point of one's own makes the base's arguments meaningless; variables are added.
    """
    merged = {**base, **{name: value for name, value in settings.items() if name != "Env"}}
    if "Entrypoint" in settings and "Cmd" not in settings:
        merged.pop("Cmd", None)
    if "Cmd" in settings and "Entrypoint" not in settings:
        merged.pop("Entrypoint", None)
    variables = dict(pair.partition("=")[::2] for pair in base.get("Env", ()))
    variables |= dict(pair.partition("=")[::2] for pair in settings.get("Env", ()))
    merged["Env"] = [f"{name}={value}" for name, value in variables.items()]
    return {name: merged[name] for name in sorted(merged) if merged[name] not in ([], None, "")}


def build(
    order: Order, architectures: Sequence[str], target: Path, cache: Path, say: images.Say = print
) -> str:
    """Write the archive, an index where there are several architectures; its digest.

    `cache` keeps the base images. Raises Failure.
    """
    recipe = images.BY_NAME[order.base]
    made = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for arch in architectures:
            native = "" if arch == images.architecture() else arch
            (archive,) = images.ensure(cache, say, (recipe,), native).values()
            (below,) = oci.read(archive)
            layers = [*below.layers, *_layer(order, arch, say)]
            made.append(oci.Image(arch, layers, config(recipe.config, order.settings)))
        oci.write_all(target, made, order.reference)
    except rootfs.Unavailable as error:
        advice = "Is the name right, and does this Debian release have it for that architecture?"
        raise Failure(
            str(error), f"{advice}  apt-cache policy {' '.join(order.packages)}"
        ) from None
    except oci.NotAnArchive as error:
        raise Failure(str(error), f"Remove it and try again; it is made anew: {cache}") from None
    except OSError as error:
        raise Failure(f"{error.filename or target}: {error.strerror}") from None
    return oci.manifest_digest(target)


def _layer(order: Order, arch: str, say: images.Say) -> list[oci.Layer]:
    """What the order adds for one architecture; nothing when it only says how to start."""
    if not order.packages and not order.copies:
        return []
    with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch, images.plain_umask():
        tree = Path(scratch, "tree")
        tree.mkdir()
        if order.packages:
            say(f"fetching {' '.join(order.packages)} for {arch}")
            apt = images.apt(arch, Path(scratch, "apt"))
            debs = rootfs.download(
                order.packages, Path(scratch, "debs"), apt, dependencies=order.with_dependencies
            )
            for deb in debs:
                rootfs.extract(deb, tree, whole=True)
        for one in order.copies:
            _copy(one, tree)
        return [oci.layer(tree)]


def _copy(one: Copy, tree: Path) -> None:
    target = tree / rootfs.merged(one.target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if one.source.is_dir():
        shutil.copytree(one.source, target, symlinks=True, dirs_exist_ok=True)
        return
    target.unlink(missing_ok=True)
    shutil.copyfile(one.source, target)
    is_program = os.access(one.source, os.X_OK)
    target.chmod(0o755 if is_program else 0o644)
