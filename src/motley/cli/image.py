"""`motley image`: images made on this machine, and those of its container runtime.

Not to be confused with `motley images`, which is about what a cluster knows of images in
registries. Here nothing is known but files and a runtime: the one of the cluster under --root, or
any other by its socket.
"""

import asyncio
import shlex
import subprocess
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.cli import cluster, printers
from motley.ops import imagebuild, images, oci
from motley.ops.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_ARCHIVE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("image")
def command() -> None:
    """Make images from Debian packages, and manage those of this machine.

    What a cluster knows of images in registries is another command: motley images.
    """


def _runtime(function: F) -> F:
    option = click.option(
        "--runtime-endpoint",
        "--address",
        "endpoint",
        metavar="SOCKET",
        help="Socket of a containerd.  [default: that of the cluster under --root]",
    )
    return option(cluster.root_option(function))


def _emulated(root: Path, endpoint: str | None) -> str:
    """What a node emulates whose runtime it is; such a runtime takes images of that alone."""
    found = cluster.find(root) if endpoint is None else None
    return found.emulates if found is not None else ""


def _socket(root: Path, endpoint: str | None) -> Path:
    """The runtime's socket, or an error that says what to do."""
    if endpoint is not None:
        path = Path(endpoint.removeprefix("unix://"))
        if not path.is_socket():
            raise printers.fail(f"{path} is no socket", "Is that containerd running?")
        return path
    from motley.ops import components

    path = components.layout(cluster.require(root)).socket
    if not path.is_socket():
        advice = "Start it: motley up      Or name another: --runtime-endpoint SOCKET"
        raise printers.fail(f"the cluster in {root} does not run", advice)
    return path


# -- build ----------------------------------------------------------------------------------


@command.command("build", context_settings={"show_default": True})
@click.argument("name")
@click.option("--from", "base", type=click.Choice(list(images.BY_NAME)), default="busybox")
@click.option("--package", "packages", multiple=True, help="A Debian package, with all it needs.")
@click.option("--no-dependencies", is_flag=True, help="Exactly the packages that are named.")
@click.option("--copy", "copies", multiple=True, metavar="SRC:DST", help="A file or directory.")
@click.option("--cmd", help="What the container runs, as a shell would split it.")
@click.option("--entrypoint", help="What it runs first; --cmd is then its arguments.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE")
@click.option("--user", help="User, or user:group, by name or number.")
@click.option("--workdir", metavar="DIR")
@click.option(
    "--arch", metavar="ARCH,…", help="amd64, arm64, …; several make an index.  [default: this one]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the archive here.",
)
@click.option("--import", "must_import", is_flag=True, help="Give it to the runtime.")
@click.option(
    "--image-cache",
    "cache",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="MOTLEY_IMAGE_CACHE",
    help="Where base images are kept.  [default: that of the cluster, or below --root]",
)
@_runtime
def build(
    name: str,
    base: str,
    packages: tuple[str, ...],
    no_dependencies: bool,
    copies: tuple[str, ...],
    cmd: str | None,
    entrypoint: str | None,
    variables: tuple[str, ...],
    user: str | None,
    workdir: str | None,
    arch: str | None,
    output: Path | None,
    must_import: bool,
    cache: Path | None,
    root: Path,
    endpoint: str | None,
) -> None:
    """Make an OCI image NAME[:TAG] from Debian packages; no registry is asked.

    Without a registry in its name it is localhost/NAME:TAG, and the tag is 1 unless given: pods
    use that name, and nobody tries to pull it. The same packages and files give the same digest.

    \b
    motley image build web --from nginx --copy site:/usr/share/nginx/html --import
    motley image build tools --package curl --package jq --cmd "sleep infinity" -o tools.tar
    motley image build app --from python --copy app.py:/app.py --cmd "python3 /app.py" \\
        --arch amd64,arm64 -o app.tar
    """
    if output is None and not must_import:
        raise click.UsageError("say where it goes: -o FILE, or --import into the runtime")
    socket = _socket(root, endpoint) if must_import else None
    try:
        settings: dict[str, Any] = {"Env": _variables(variables)}
        for key, text in (("Cmd", cmd), ("Entrypoint", entrypoint)):
            if text is not None:
                settings[key] = shlex.split(text)
        settings |= {k: v for k, v in (("User", user), ("WorkingDir", workdir)) if v is not None}
        order = imagebuild.Order(
            reference=imagebuild.reference(name),
            base=base,
            packages=packages,
            copies=tuple(imagebuild.copy(text) for text in copies),
            settings=settings,
            with_dependencies=not no_dependencies,
        )
        target = _architectures(arch or _emulated(root, endpoint))
        digest = _build(order, target, output, socket, cache or _cache(root))
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None
    except ValueError as error:
        raise printers.fail(str(error)) from None
    click.echo(f"{order.reference}@{digest}")


def _build(
    order: imagebuild.Order,
    architectures: list[str],
    output: Path | None,
    socket: Path | None,
    cache: Path,
) -> str:
    import sys
    import tempfile

    from motley.ops.progress import Progress

    progress = Progress(sys.stderr)
    with tempfile.TemporaryDirectory(prefix="motley-image-") as scratch:
        target = output.absolute() if output is not None else Path(scratch, "image.tar")
        with progress.step(f"building {order.reference} for {', '.join(architectures)}"):
            digest = imagebuild.build(order, architectures, target, cache, progress.say)
        if socket is not None:
            with progress.step("importing it into the runtime"):
                _import(socket, target)
        return digest


def _variables(given: tuple[str, ...]) -> list[str]:
    for pair in given:
        if not pair.partition("=")[1]:
            raise Failure(f"--env {pair}: not of the form NAME=VALUE")
    return list(given)


def _architectures(text: str | None) -> list[str]:
    found = list(dict.fromkeys(filter(None, (text or images.architecture()).split(","))))
    for one in found:
        if one not in imagebuild.ARCHITECTURES:
            raise Failure(f"--arch {one} is none of {', '.join(imagebuild.ARCHITECTURES)}")
    return found


def _cache(root: Path) -> Path:
    found = cluster.find(root)
    return found.images if found is not None else root / "images"


# -- the runtime's images -------------------------------------------------------------------


@command.command("import")
@click.argument("files", type=_ARCHIVE, nargs=-1, required=True)
@_runtime
def import_(files: tuple[Path, ...], root: Path, endpoint: str | None) -> None:
    """Give archives (OCI, or `docker save`) to the runtime; pods use them by their names."""
    socket = _socket(root, endpoint)
    try:
        for file in files:
            for name in _import(socket, file, _emulated(root, endpoint)):
                click.echo(name)
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None


def _import(socket: Path, file: Path, arch: str = "") -> list[str]:
    """The names it brought, as far as the archive says. Raises Failure."""
    try:
        images.Imports(socket, arch).add(file)
    except subprocess.CalledProcessError as error:
        told = str(error.stderr).strip().splitlines()
        raise Failure(
            f"{file} cannot be imported: {told[-1] if told else error}",
            "An OCI archive is wanted: motley image build -o FILE, or docker save",
        ) from None
    except oci.NotAnArchive as error:
        raise Failure(str(error), "An archive of motley image build is wanted here") from None
    except FileNotFoundError:
        raise Failure("there is no ctr on this machine", "Install containerd") from None
    return oci.names(file) or [str(file)]


@command.command("list")
@click.option("-o", "--output", "form", type=click.Choice(printers.FORMATS), default="table")
@_runtime
def list_(form: str, root: Path, endpoint: str | None) -> None:
    """The images that pods of this machine can use without a pull."""
    found = _ask(_socket(root, endpoint), lambda runtime: runtime.list_images())
    shown = sorted(found, key=lambda image: (image.tags or (image.id,))[0])
    if form in ("json", "yaml"):
        documents = [
            {
                "names": list(image.tags),
                "id": image.id,
                "digests": list(image.digests),
                "sizeBytes": image.size_bytes,
            }
            for image in shown
        ]
        click.echo(printers.document(documents, form))
        return
    rows = [
        [name, image.id.removeprefix("sha256:")[:12], f"{image.size_bytes / 1e6:.1f} MB"]
        + ([(image.digests or ("-",))[0].rpartition("@")[2]] if form == "wide" else [])
        for image in shown
        for name in image.tags or ("<none>",)
    ]
    header = ["IMAGE", "ID", "SIZE", *(["DIGEST"] if form == "wide" else [])]
    click.echo(printers.table(header, rows))


@command.command("rm")
@click.argument("names", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also where a container uses it.")
@_runtime
def remove(names: tuple[str, ...], force: bool, root: Path, endpoint: str | None) -> None:
    """Remove images by name, or by the beginning of their id."""
    socket = _socket(root, endpoint)
    for name in names:
        _ask(socket, partial(_remove, socket=socket, name=name, force=force))
        click.echo(f"{name} removed")


async def _remove(runtime: Any, *, socket: Path, name: str, force: bool) -> None:
    wanted = {name, f"docker.io/library/{name}"}
    wanted |= {f"{one}:latest" for one in wanted if ":" not in one.rpartition("/")[2]}
    present = await runtime.list_images()
    found = [i for i in present if wanted & {*i.tags, *i.digests}]
    if not found and len(name) >= 6:  # shorter ones mean too much
        found = [i for i in present if i.id.removeprefix("sha256:").startswith(name)]
    if len(found) != 1:
        count = f"{len(found)} images begin so" if found else "no such image"
        raise printers.fail(f"{name}: {count}", "See what there is: motley image list")
    (image,) = found
    tag = next((t for t in image.tags if t in wanted), None)
    others = [t for t in image.tags if t != tag]
    if tag is not None and others:  # it stays, under its other names
        images.Imports(socket).untag(tag)
        return
    if not force and (user := await _user(runtime, image)):
        advice = "Delete its pods first, or say --force: they run on, but do not start again"
        raise printers.fail(f"{name} is used by {user}", advice)
    await runtime.remove_image(image.id)


async def _user(runtime: Any, image: Any) -> str:
    names = {image.id, *image.tags, *image.digests}
    if await runtime.sandbox_image() in names:
        return "every pod: it holds their namespaces"
    for containers in (await runtime.list_containers()).values():
        for container in containers:
            if names & {container.image, container.image_ref}:
                return f"container {container.name}"
    return ""


def _ask(socket: Path, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    from motley.node.cri.errors import RuntimeFailure
    from motley.node.cri.runtime import Runtime

    async def run() -> T:
        runtime = Runtime(f"unix://{socket}")
        try:
            return await work(runtime)
        finally:
            await runtime.close()

    try:
        return asyncio.run(run())
    except (RuntimeFailure, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or error
        raise printers.fail(f"the runtime at {socket}: {told}") from None
