"""OCI images by hand: layers, configuration, manifest and index in one tar archive.

An OCI image is a few JSON documents and compressed tar archives named by their SHA-256. Writing
them needs no daemon, no registry and no image tool, so a machine with nothing but Debian packages
can make its own images.

Invariant: the same files give the same digests, on every machine and at every time: entries are
sorted, times are zero, owners are root.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
EPOCH = "1970-01-01T00:00:00Z"


class Descriptor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A blob by its digest, as manifests and indexes name it."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = {}
    platform: dict[str, str] = {}


class Layer(msgspec.Struct, frozen=True):
    """One compressed file system change; `diff_id` is the digest before compression."""

    data: bytes
    diff_id: str


class Image(msgspec.Struct, frozen=True):
    """What one architecture runs."""

    architecture: str
    layers: Sequence[Layer]
    config: Mapping[str, Any]


class NotAnArchive(Exception):
    """A file does not hold what it should; the message says what is wrong."""


def digest(data: bytes) -> str:
    """The name of a blob."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _plain(info: tarfile.TarInfo, name: str) -> tarfile.TarInfo:
    info.name = name
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info


def layer(tree: Path) -> Layer:
    """Everything under a directory as a layer."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree.rglob("*"), key=lambda p: p.relative_to(tree).parts):
            name = str(path.relative_to(tree))
            info = _plain(archive.gettarinfo(path, name), name)  # by which hard links know it
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
    data = raw.getvalue()
    return Layer(data=gzip.compress(data, compresslevel=6, mtime=0), diff_id=digest(data))


def extract(layer: Layer, into: Path) -> None:
    """Unpack a layer that was made here."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.data))) as archive:
        archive.extractall(into, filter="fully_trusted")


def _blob(media_type: str, data: bytes) -> tuple[Descriptor, tuple[str, bytes]]:
    described = Descriptor(media_type, digest(data), len(data))
    return described, (f"blobs/sha256/{described.digest.removeprefix('sha256:')}", data)


def _image(image: Image, files: dict[str, bytes]) -> Descriptor:
    """Add the files of one image; its manifest, with what it runs on."""

    def add(media_type: str, data: bytes) -> Descriptor:
        described, (path, content) = _blob(media_type, data)
        files[path] = content
        return described

    layers = [add(LAYER, one.data) for one in image.layers]
    document = {
        "created": EPOCH,
        "architecture": image.architecture,
        "os": "linux",
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in image.layers]},
        "history": [{"created": EPOCH, "created_by": "motley"} for _ in image.layers],
    }
    config = add(CONFIG, msgspec.json.encode(document))
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    return msgspec.structs.replace(
        add(MANIFEST, msgspec.json.encode(manifest)),
        platform={"architecture": image.architecture, "os": "linux"},
    )


def layout(images: Sequence[Image], name: str) -> dict[str, bytes]:
    """The files of an OCI layout that holds, under a full reference, one image or an index of
    several, one for each architecture."""
    files: dict[str, bytes] = {}
    described = [_image(image, files) for image in images]
    (top, *others) = described
    if others:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": described}
        top, (path, data) = _blob(INDEX, msgspec.json.encode(index))
        files[path] = data
    annotations = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    named = msgspec.structs.replace(top, annotations=annotations)
    files["index.json"] = msgspec.json.encode({"schemaVersion": 2, "manifests": [named]})
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    return files


def write(
    target: Path,
    layers: Sequence[Layer],
    *,
    name: str,
    architecture: str,
    config: Mapping[str, Any],
) -> None:
    """Write one image as a tar archive."""
    write_all(target, [Image(architecture, layers, config)], name)


def write_all(target: Path, images: Sequence[Image], name: str) -> None:
    """Write a tar archive that `ctr images import` takes, whole or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in layout(images, name).items():
            info = _plain(tarfile.TarInfo(path), path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    partial.replace(target)


def only(archive: Path, architecture: str, into: Path) -> Path:
    """An archive with one architecture of an archive that was made here. Raises NotAnArchive."""
    chosen = [image for image in read(archive) if image.architecture == architecture]
    if not chosen:
        raise NotAnArchive(f"{archive} has nothing for {architecture}")
    target = into / archive.name
    write_all(target, chosen, (*names(archive), "")[0])
    return target


def files(archive: Path) -> dict[str, bytes]:
    """An archive's files by name. Raises NotAnArchive."""
    try:
        with tarfile.open(archive) as opened:
            found = {
                member.name.removeprefix("./"): content.read()
                for member in opened
                if member.isreg() and (content := opened.extractfile(member)) is not None
            }
    except (OSError, tarfile.TarError) as error:
        raise NotAnArchive(f"{archive}: {error}") from None
    if "index.json" not in found:
        raise NotAnArchive(f"{archive} is no OCI archive: it has no index.json")
    return found


def read(archive: Path) -> list[Image]:
    """The images of an archive written here. Raises NotAnArchive."""
    found = files(archive)

    def blob(described: Descriptor) -> bytes:
        return found[f"blobs/sha256/{described.digest.removeprefix('sha256:')}"]

    try:
        (top,) = msgspec.json.decode(found["index.json"], type=Index).manifests
        listed = [top]
        if top.media_type == INDEX:
            listed = msgspec.json.decode(blob(top), type=Index).manifests
        images = []
        for manifest in listed:
            parts = msgspec.json.decode(blob(manifest), type=_Manifest)
            document = msgspec.json.decode(blob(parts.config), type=_Config)
            pairs = zip(parts.layers, document.rootfs.diff_ids, strict=True)
            layers = [Layer(blob(one), diff_id) for one, diff_id in pairs]
            images.append(Image(document.architecture, layers, document.config))
    except (LookupError, ValueError) as error:
        raise NotAnArchive(f"{archive} cannot be read: {error}") from None
    return images


class Index(msgspec.Struct, rename="camel"):
    """The part of `index.json` that says which image an archive holds."""

    manifests: list[Descriptor]


class _Manifest(msgspec.Struct):
    config: Descriptor
    layers: list[Descriptor]


class _RootFs(msgspec.Struct):
    diff_ids: list[str]


class _Config(msgspec.Struct):
    architecture: str
    rootfs: _RootFs
    config: dict[str, Any] = {}


def manifest_digest(archive: Path) -> str:
    """The manifest's digest of an archive written here: the image's identity in containerd."""
    with tarfile.open(archive) as opened:
        member = opened.extractfile("index.json")
        assert member is not None  # a plain file: `write` put it there
        return msgspec.json.decode(member.read(), type=Index).manifests[0].digest


def architectures(archive: Path) -> list[str]:
    """What the images of an archive are for, as far as it says; none of what is no archive."""
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile("index.json")
            listed = msgspec.json.decode(member.read(), type=Index).manifests if member else []
            for top in [one for one in listed if one.media_type == INDEX]:
                inner = opened.extractfile(f"blobs/sha256/{top.digest.removeprefix('sha256:')}")
                if inner is not None:
                    listed += msgspec.json.decode(inner.read(), type=Index).manifests
    except (OSError, tarfile.TarError, LookupError, msgspec.MsgspecError):
        return []
    return [one.platform["architecture"] for one in listed if "architecture" in one.platform]


def names(archive: Path) -> list[str]:
    """The full references an archive names its images by, as far as it says."""
    try:
        listed = msgspec.json.decode(files(archive)["index.json"], type=Index).manifests
    except (NotAnArchive, msgspec.MsgspecError):
        return []
    said = (one.annotations.get("io.containerd.image.name", "") for one in listed)
    return [name for name in said if name]
