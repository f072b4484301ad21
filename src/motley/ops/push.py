"""Images from archives to a registry: one name for several architectures.

Each archive is an OCI layout with one image, or an index of several, as `oci` writes it. Blobs and
manifests are uploaded, then an index that lists all of them by platform gets the name, so that
every machine pulls what it can run under the same name.
"""

import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import msgspec

from motley.ops import oci
from motley.ops.failure import Failure
from motley.registry.credentials import Login
from motley.registry.references import Reference
from motley.registry.settings import Registry

INDEX = oci.INDEX
_TIMEOUT_S = 60.0
_NAMED = "index.json"


class Upload:
    """One repository of one registry, for writing."""

    def __init__(self, registry: Registry, image: Reference, login: Login | None = None) -> None:
        self._base = f"{registry.addresses()[0]}/v2/{image.repository}"
        self._headers = {"Authorization": login.basic()} if login else {}
        context = registry.ssl_context()
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def blob(self, data: bytes) -> None:
        """Upload a layer or a configuration, unless it is there."""
        digest = oci.digest(data)
        if self._call("HEAD", f"{self._base}/blobs/{digest}", missing_is_fine=True):
            return
        begun = self._call("POST", f"{self._base}/blobs/uploads/", b"") or {}
        place = urljoin(self._base, begun.get("location", ""))
        place += f"{'&' if urlsplit(place).query else '?'}digest={digest}"
        self._call("PUT", place, data, "application/octet-stream")

    def manifest(self, data: bytes, kind: str, name: str) -> None:
        """Store a manifest or an index under a tag or its digest."""
        self._call("PUT", f"{self._base}/manifests/{name}", data, kind)

    def _call(
        self,
        method: str,
        url: str,
        data: bytes | None = None,
        kind: str = "",
        *,
        missing_is_fine: bool = False,
    ) -> Mapping[str, str] | None:
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and missing_is_fine:
                    return None
                told = error.read(500).decode(errors="replace").strip()
            raise Failure(f"{method} {url}: {error.code}", told) from None
        except OSError as error:
            raise Failure(f"{method} {url}: {error}") from None


def push(
    archives: Sequence[Path], image: Reference, registry: Registry, login: Login | None = None
) -> str:
    """Upload archives under one name; the digest it leads to. Raises Failure."""
    upload = Upload(registry, image, login)
    images = [image for archive in archives for image in _push_one(archive, upload)]
    index = msgspec.json.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": images})
    upload.manifest(index, INDEX, image.version)
    return oci.digest(index)


def _push_one(archive: Path, upload: Upload) -> list[oci.Descriptor]:
    """Upload the image of an archive, or its images where it holds an index."""
    files = _files(archive)
    try:
        (top,) = msgspec.json.decode(files[_NAMED], type=oci.Index).manifests
        described, manifests = [top], {top.digest}
        if top.media_type == INDEX:
            described = msgspec.json.decode(files[top.digest], type=oci.Index).manifests
            manifests |= {one.digest for one in described}
        documents = [files[one.digest] for one in described]
    except (LookupError, ValueError) as error:
        raise Failure(f"{archive} is no OCI archive with one image", str(error)) from None
    for name, data in files.items():
        if name.startswith("sha256:") and name not in manifests:
            upload.blob(data)
    for one, document in zip(described, documents, strict=True):
        upload.manifest(document, one.media_type, one.digest)
    return [msgspec.structs.replace(one, annotations={}) for one in described]


def _files(archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                content = opened.extractfile(member)
                if content is not None:
                    name = member.name.removeprefix("./")
                    found[name.replace("blobs/sha256/", "sha256:")] = content.read()
    except (OSError, tarfile.TarError) as error:
        raise Failure(f"{archive}: {error}") from None
    return found
