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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

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
            info = _plain(archive.gettarinfo(path), str(path.relative_to(tree)))
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
    data = raw.getvalue()
    return Layer(data=gzip.compress(data, compresslevel=6, mtime=0), diff_id=digest(data))


def blobs(
    layers: Sequence[Layer], *, name: str, architecture: str, config: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """The files of an OCI layout that holds one image under a full reference."""

    def blob(media_type: str, data: bytes) -> tuple[Descriptor, tuple[str, bytes]]:
        described = Descriptor(media_type, digest(data), len(data))
        return described, (f"blobs/sha256/{described.digest.removeprefix('sha256:')}", data)

    described_layers = []
    for one in layers:
        described, file = blob(LAYER, one.data)
        described_layers.append(described)
        yield file
    document = {
        "created": EPOCH,
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        "history": [{"created": EPOCH, "created_by": "motley"} for _ in layers],
    }
    described_config, file = blob(CONFIG, msgspec.json.encode(document))
    yield file
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described_config,
        "layers": described_layers,
    }
    described_manifest, file = blob(MANIFEST, msgspec.json.encode(manifest))
    yield file
    named = msgspec.structs.replace(
        described_manifest,
        annotations={
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        },
        platform={"architecture": architecture, "os": "linux"},
    )
    yield "index.json", msgspec.json.encode({"schemaVersion": 2, "manifests": [named]})
    yield "oci-layout", b'{"imageLayoutVersion":"1.0.0"}'


def write(
    target: Path,
    layers: Sequence[Layer],
    *,
    name: str,
    architecture: str,
    config: Mapping[str, Any],
) -> None:
    """Write an image as a tar archive that `ctr images import` takes, whole or not at all."""
    partial = target.with_name(f".{target.name}.partial")
    with tarfile.open(partial, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in blobs(layers, name=name, architecture=architecture, config=config):
            info = _plain(tarfile.TarInfo(path), path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    partial.replace(target)


class Index(msgspec.Struct, rename="camel"):
    """The part of `index.json` that says which image an archive holds."""

    manifests: list[Descriptor]


def manifest_digest(archive: Path) -> str:
    """The manifest's digest of an archive written here: the image's identity in containerd."""
    with tarfile.open(archive) as opened:
        member = opened.extractfile("index.json")
        assert member is not None  # a plain file: `write` put it there
        return msgspec.json.decode(member.read(), type=Index).manifests[0].digest
