"""The files a job needs, from wherever its object says they are.

From the object itself, from ConfigMaps and Secrets of its namespace, and from folders of this
machine that its administrator has opened.
"""

import base64
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from motley.api import status
from motley.api.views.core import ConfigMap, Secret
from motley.api.views.slurm import JobInput, KeyRef, SlurmJob
from motley.client.rest import Client
from motley.slurm import localpaths, script
from motley.slurm.localpaths import Root
from motley.slurm.staging import Source

T = TypeVar("T", ConfigMap, Secret)


class Missing(Exception):
    """Something that the job needs is not there (yet)."""


@dataclass
class Gathered:
    """Files by their names in the job's folder, and links to what the cluster has."""

    files: dict[str, Source] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, source: Source) -> None:
        """Put one in. Raises Missing when the name leads out of the folder."""
        if not script.is_inside(name):
            raise Missing(f"{name!r} is not within the job's folder")
        self.files[name] = source


async def gather(client: Client, job: SlurmJob, roots: Sequence[Root]) -> Gathered:
    """Everything the job needs. Raises Missing, with what to do about it."""
    found = Gathered()
    if job.spec.source_path:
        _local(found, job.spec.source_path, "", roots)
    for item in job.spec.inputs:
        await _input(client, job, item, found, roots)
    for name, text in job.spec.files.items():
        found.add(name, text.encode())
    return found


async def _input(
    client: Client, job: SlurmJob, item: JobInput, found: Gathered, roots: Sequence[Root]
) -> None:
    namespace = job.metadata.namespace
    if item.content is not None:
        found.add(item.name, item.content.encode())
    elif item.config_map is not None:
        present = await _get(client, ConfigMap, item.config_map.name, namespace)
        data: dict[str, bytes] = {k: v.encode() for k, v in present.data.items()}
        data |= {k: base64.b64decode(v) for k, v in present.binary_data.items()}
        _keyed(found, item, item.config_map, data)
    elif item.secret is not None:
        secret = await _get(client, Secret, item.secret.name, namespace)
        decoded = {k: base64.b64decode(v) for k, v in secret.data.items()}
        _keyed(found, item, item.secret, decoded)
    elif item.cluster_path:
        name = item.name or posixpath.basename(item.cluster_path.rstrip("/"))
        if not script.is_inside(name):
            raise Missing(f"{name!r} is not within the job's folder")
        found.links[name] = item.cluster_path
    elif item.path:
        _local(found, item.path, item.name, roots)
    else:
        raise Missing("an input names neither content, configMap, secret, clusterPath nor path")


async def _get(client: Client, cls: type[T], name: str, namespace: str) -> T:
    try:
        return await client.get(cls, name, namespace)
    except (status.NotFound, status.Forbidden) as error:
        raise Missing(error.message) from None


def _keyed(found: Gathered, item: JobInput, ref: KeyRef, data: dict[str, bytes]) -> None:
    if not ref.key:
        folder = f"{item.name}/" if item.name else ""
        for key, value in data.items():
            found.add(folder + key, value)
    elif ref.key in data:
        found.add(item.name or ref.key, data[ref.key])
    else:
        raise Missing(f"{ref.name} has no key {ref.key}")


def _local(found: Gathered, path: str, name: str, roots: Sequence[Root]) -> None:
    place = localpaths.resolve(path, roots)
    if place is None:
        raise Missing(
            f"{path} is a file of the machine that submits, which the bridge does not reach:"
            " use `motley slurm submit`, or put it into spec.files"
        )
    if not place.exists():
        raise Missing(f"{path} does not exist")
    if place.is_file():
        found.add(name or localpaths.name_of(path), place)
        return
    folder = f"{name}/" if name else ""
    for inner, file in localpaths.files_of(place, roots).items():
        found.add(folder + inner, file)
