"""`motley images`: which architectures images are built for, as the cluster knows it.

`import` writes the file that KubeHICE's tool reads into an ImageMap object, which every scheduler
follows; `list` and `show` print what objects say; `resolve` asks a registry from here and writes
nothing.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.api import status
from motley.api.views.core import Secret
from motley.api.views.motley import BY_HAND, ImageMap, MappedImage
from motley.cli import printers
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.registry import credentials, platforms, references, settings
from motley.registry.resolver import Resolution, Resolver

F = TypeVar("F", bound=Callable[..., Any])

MANAGER = "motley-images"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_RANKS = {"": 0, BY_HAND: 0, "registry": 1}
_NO_KIND = (
    "The server does not know ImageMap objects. Other clusters than Motley's learn them by:\n"
    "    motley images crd | kubectl apply -f -"
)


@click.group("images")
def command() -> None:
    """Say, and see, which architectures images are built for."""


def _kubeconfig(function: F) -> F:
    option = click.option(
        "--kubeconfig",
        "config",
        type=click.Path(path_type=Path),
        help="By default $KUBECONFIG or ~/.kube/config.",
    )
    return option(function)


def _output(function: F) -> F:
    option = click.option(
        "-o", "--output", "form", type=click.Choice(printers.FORMATS), default="table"
    )
    return option(function)


@command.command("import")
@click.argument("file", type=_FILE)
@click.option("--name", help="The ImageMap to write.  [default: the file's name]")
@_kubeconfig
def import_(file: Path, name: str | None, config: Path | None) -> None:
    """Load an image table (`list: [{name, images: [{name, arch, os}]}]`) into the cluster.

    The ImageMap then says exactly what the file says: images no longer in the file go.
    """
    from motley.scheduler import images

    name = name or re.sub(r"[^a-z0-9.-]+", "-", file.stem.lower()).strip("-.") or "images"
    try:
        table = images.load(file)
    except (OSError, ValueError) as error:
        raise printers.fail(f"{file}: {error}") from None
    entries = [
        {
            "name": image,
            "source": BY_HAND,
            "architectures": [
                {"os": p.os, "architecture": p.arch, "variant": p.variant, "image": variant}
                for p, variant in variants.items()
            ],
        }
        for image, variants in table
    ]
    body = {"metadata": {"name": name}, "spec": {"images": entries}}

    async def write(client: Client) -> None:
        await client.apply(ImageMap, body, field_manager=MANAGER, force=True)

    _with_client(config, write)
    click.echo(f"imagemap.motley.io/{name}: {len(entries)} images imported")


@command.command("list")
@_output
@_kubeconfig
def list_(form: str, config: Path | None) -> None:
    """Every image that is known, with the word that counts."""
    said = _all(config)
    best = [min(found, key=_rank) for _, found in sorted(_by_image(said).items())]
    if form in ("json", "yaml"):
        click.echo(printers.document([_document(name, one) for name, one in best], form))
        return
    header = ["IMAGE", "PLATFORMS", "SOURCE", *(["MAP", "DIGEST", "WHY"] * (form == "wide"))]
    click.echo(printers.table(header, [_row(name, one, form) for name, one in best]))


@command.command("show")
@click.argument("image")
@_output
@_kubeconfig
def show(image: str, form: str, config: Path | None) -> None:
    """Everything that is said of one image, what counts first."""
    found = sorted(_by_image(_all(config)).get(references.canonical(image), []), key=_rank)
    if not found:
        advice = f"Ask its registry: motley images resolve {image}"
        raise printers.fail(f"nothing is known of {image}", advice)
    if form in ("json", "yaml"):
        click.echo(printers.document([_document(name, one) for name, one in found], form))
        return
    rows = [
        (_platform(p), p.image or one.name, one.source or BY_HAND, name)
        for name, one in found
        for p in one.architectures
    ]
    click.echo(printers.table(("PLATFORM", "IMAGE THERE", "SOURCE", "MAP"), rows))
    for name, one in found:
        if one.message and form == "wide":
            click.echo(f"{name}: {one.message}")


@command.command("resolve")
@click.argument("image")
@click.option("--registries", type=_FILE, help="How to reach registries, as for the controllers.")
@click.option("--plain-http", is_flag=True, help="The registry does not speak TLS.")
@click.option("--ca-file", type=_FILE, help="The authority of the registry's certificate.")
@click.option("--docker-config", type=_FILE, help="Credentials, as in ~/.docker/config.json.")
@_output
def resolve(
    image: str,
    registries: Path | None,
    plain_http: bool,
    ca_file: Path | None,
    docker_config: Path | None,
    form: str,
) -> None:
    """Ask an image's registry, from here; nothing is written."""
    try:
        reference = references.parse(image)
        known = settings.load(registries) if registries else settings.Registries()
        if plain_http or ca_file:
            one = settings.Registry(
                reference.host, plain_http=plain_http, ca_file=str(ca_file or "")
            )
            known = settings.checked([one])
        secrets = [_secret(docker_config.read_bytes())] if docker_config else []
    except (OSError, ValueError) as error:
        raise printers.fail(str(error)) from None

    async def ask() -> Resolution:
        async with Resolver(known) as resolver:
            return await resolver.resolve(references.tagged(image), secrets)

    answer = asyncio.run(ask())
    if form in ("json", "yaml"):
        shown = {
            "image": image,
            "platforms": [str(p) for p in answer.platforms],
            "source": answer.source,
            **({"digest": answer.digest} if answer.digest else {}),
            **({"problem": answer.problem} if answer.problem else {}),
        }
        click.echo(printers.document(shown, form))
    else:
        rows = [(str(p), answer.source, answer.digest or "-") for p in answer.platforms]
        click.echo(printers.table(("PLATFORM", "SOURCE", "DIGEST"), rows))
        if answer.problem:
            click.echo(f"The registry did not say: {answer.problem}", err=True)


@command.command("push")
@click.argument("image")
@click.argument("archives", type=_FILE, nargs=-1, required=True)
@click.option("--plain-http", is_flag=True, help="The registry does not speak TLS.")
@click.option("--ca-file", type=_FILE, help="The authority of the registry's certificate.")
@click.option("--docker-config", type=_FILE, help="Credentials, as in ~/.docker/config.json.")
def push_(
    image: str,
    archives: tuple[Path, ...],
    plain_http: bool,
    ca_file: Path | None,
    docker_config: Path | None,
) -> None:
    """Upload OCI archives, one for each architecture, as one image of that name."""
    from motley.ops import push
    from motley.ops.failure import Failure

    try:
        reference = references.parse(image)
        authority = str(ca_file) if ca_file else ""
        one = settings.Registry(reference.host, plain_http=plain_http, ca_file=authority)
        secrets = [_secret(docker_config.read_bytes())] if docker_config else []
        logins = credentials.logins(secrets, reference)
        digest = push.push(archives, reference, one, logins[0] if logins else None)
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None
    except (OSError, ValueError) as error:
        raise printers.fail(str(error)) from None
    click.echo(f"{image}@{digest}")


@command.command("crd")
def crd() -> None:
    """Print the CustomResourceDefinition of ImageMap, for clusters that are not Motley's."""
    from motley.api import crdmanifest, motleyio

    row = next(row for row in motleyio.rows() if row.kind == ImageMap.KIND)
    click.echo(printers.document(crdmanifest.of(row), "yaml"))


def _secret(data: bytes) -> Secret:
    encoded = base64.b64encode(data).decode()
    return Secret.of({"data": {".dockerconfigjson": encoded}})


def _all(config: Path | None) -> list[tuple[str, MappedImage]]:
    async def read(client: Client) -> list[tuple[str, MappedImage]]:
        listing = await client.list(ImageMap)
        return [(found.metadata.name, one) for found in listing.items for one in found.spec.images]

    return _with_client(config, read)


T = TypeVar("T")


def _with_client(config: Path | None, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with Client(kubeconfig.load(config)) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except status.NotFound as error:
        raise printers.fail(error.message, _NO_KIND) from None
    except (status.ApiError, kubeconfig.ConfigError, OSError) as error:
        raise printers.fail(str(error)) from None


def _by_image(said: list[tuple[str, MappedImage]]) -> dict[str, list[tuple[str, MappedImage]]]:
    found: dict[str, list[tuple[str, MappedImage]]] = {}
    for name, one in said:
        found.setdefault(references.canonical(one.name), []).append((name, one))
    return found


def _rank(said: tuple[str, MappedImage]) -> tuple[int, str]:
    return _RANKS.get(said[1].source, len(_RANKS)), said[0]


def _platform(p: Any) -> str:
    return str(platforms.normal(p.os, p.architecture, p.variant))


def _row(name: str, one: MappedImage, form: str) -> list[str]:
    row = [one.name, ",".join(_platform(p) for p in one.architectures), one.source or BY_HAND]
    return [*row, name, one.digest or "-", one.message or "-"] if form == "wide" else row


def _document(name: str, one: MappedImage) -> dict[str, Any]:
    return {
        "image": one.name,
        "map": name,
        "source": one.source or BY_HAND,
        "architectures": [
            {"platform": _platform(p), "image": p.image or one.name} for p in one.architectures
        ],
        **({"digest": one.digest} if one.digest else {}),
        **({"observedAt": one.observed_at} if one.observed_at else {}),
        **({"message": one.message} if one.message else {}),
    }
