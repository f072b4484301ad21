"""Pods of the node's own: manifests in a directory, run whether or not there is an API server.

Each gets the node's name behind its own and a uid made from what its file says, so that a changed
file is another pod. The API shows it by a mirror, which the agent makes and nobody can change: a
mirror that is deleted comes back, one whose pod is gone goes.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from motley.api import defaults, scheme, validation
from motley.api import status as api_status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock

log = journal.get(__name__)

Document = dict[str, Any]

SOURCE = "kubernetes.io/config.source"
HASH = "kubernetes.io/config.hash"
MIRROR = "kubernetes.io/config.mirror"
LOOK_S = 2.0
_SUFFIXES = (".yaml", ".yml", ".json")


def is_mirror(pod: Pod) -> bool:
    """Is it only the API's picture of a static pod?"""
    return MIRROR in pod.metadata.annotations


def manifest(text: bytes, node: str, source: str) -> Document:
    """A file as the pod it means. Raises ValueError that says what is wrong."""
    try:
        found = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != ("v1", "Pod"):
        raise ValueError("not a v1 Pod")
    meta = found.setdefault("metadata", {})
    spec = found.setdefault("spec", {})
    if not meta.get("name"):
        raise ValueError("metadata.name is missing")
    digest = hashlib.md5(f"{node}\0{source}\0".encode() + text, usedforsecurity=False).hexdigest()
    meta |= {"name": f"{meta['name']}-{node}", "namespace": meta.get("namespace") or "default"}
    meta["uid"] = digest
    meta["annotations"] = {**(meta.get("annotations") or {}), SOURCE: "file", HASH: digest}
    spec["nodeName"] = node
    spec["tolerations"] = [
        *(spec.get("tolerations") or []),
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    kind = scheme.resource("", "v1", "pods")
    assert kind is not None
    Pod.of(found)  # of the right types, or nothing below makes sense
    defaults.apply(kind, found)
    wrong = validation.create(kind, found)
    if wrong:
        raise ValueError("; ".join(str(error) for error in wrong[:3]))
    return found


def read(directory: Path, node: str) -> Iterator[tuple[Path, Document | ValueError]]:
    """Every manifest of a directory, or what is wrong with it. Hidden files are left alone."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    for path in paths:
        if path.name.startswith(".") or path.suffix not in _SUFFIXES or not path.is_file():
            continue
        try:
            yield path, manifest(path.read_bytes(), node, path.name)
        except ValueError as error:
            yield path, error
        except FileNotFoundError:
            continue


class StaticPods:
    """The static pods of one node; `run` it in a task group."""

    def __init__(
        self,
        directory: Path,
        name: str,
        client: Client,
        clock: Clock,
        *,
        begin: Callable[[Pod], None],
        end: Callable[[str], None],
        shown: Callable[[Key], Pod | None],
        node: Callable[[], Node | None],
    ) -> None:
        self._directory = directory
        self._name = name
        self._client = client
        self._clock = clock
        self._begin = begin
        self._end = end
        self._shown = shown
        self._node = node
        self._documents: dict[str, Document] = {}  # by uid
        self._complained: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._mirrored: dict[Key, str] = {}  # mirrors seen or made, with their pods' uids

    @property
    def uids(self) -> set[str]:
        """The pods that are wanted."""
        return set(self._documents)

    def wake(self) -> None:
        """A mirror changed."""
        self._woken.set()

    def as_shown(self, pod: Pod) -> Pod | None:
        """The pod the API has for it; a static pod's mirror, None while there is none."""
        if pod.metadata.annotations.get(SOURCE) != "file":
            return pod
        mirror = self._shown(pod.key)
        if mirror is None or mirror.metadata.annotations.get(MIRROR) != pod.metadata.uid:
            return None
        return mirror

    def look(self) -> None:
        """Read the directory; begin what is new, end what is gone."""
        found: dict[str, Document] = {}
        complaints = {}
        for path, answer in read(self._directory, self._name):
            if isinstance(answer, ValueError):
                complaints[path.name] = str(answer)
            else:
                found[answer["metadata"]["uid"]] = answer
        for name, complaint in complaints.items():
            if self._complained.get(name) != complaint:
                log.error("static pod not understood", file=name, why=complaint)
        self._complained = complaints
        before, self._documents = self._documents, found
        for uid in before.keys() - found.keys():
            log.info("static pod is gone", uid=uid)
            self._end(uid)
        for uid in found.keys() - before.keys():
            pod = Pod.of(found[uid])
            log.info("static pod", pod=pod.key)
            self._begin(pod)

    async def run(self) -> None:
        """Follow the directory and keep the mirrors until cancelled."""
        while True:
            self.look()
            try:
                await self._reflect()
            except api_status.ApiError as error:
                log.debug("mirror pods not kept", error=error.message)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()

    async def _reflect(self) -> None:
        node = self._node()
        if node is None:
            return
        wanted = {_key(d): d for d in self._documents.values()}
        for key, document in wanted.items():
            mirror = self._shown(key)
            uid = document["metadata"]["uid"]
            if mirror is not None:
                is_current = mirror.metadata.annotations.get(MIRROR) == uid
                if is_current and mirror.metadata.deletion_timestamp is None:
                    self._mirrored[key] = uid
                    continue
                await self._remove(mirror)
            await self._create(document, node)
            self._mirrored[key] = uid
        for key in self._mirrored.keys() - wanted.keys():
            mirror = self._shown(key)
            if mirror is not None and is_mirror(mirror):
                await self._remove(mirror)
            del self._mirrored[key]

    def adopt(self, mirror: Pod) -> None:
        """A mirror of an earlier agent: it goes with its pod."""
        self._mirrored[mirror.key] = mirror.metadata.annotations[MIRROR]

    async def _create(self, document: Document, node: Node) -> None:
        body = msgspec.json.decode(msgspec.json.encode(document))
        meta = body["metadata"]
        meta["annotations"][MIRROR] = meta.pop("uid")
        meta["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": node.metadata.name,
                "uid": node.metadata.uid,
                "controller": True,
            }
        ]
        try:
            await self._client.create(Pod, body)
        except api_status.AlreadyExists:
            log.debug("mirror is there already", pod=_key(document))

    async def _remove(self, mirror: Pod) -> None:
        meta = mirror.metadata
        try:
            await self._client.delete(
                Pod, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid
            )
        except (api_status.NotFound, api_status.Conflict):
            log.debug("mirror is gone already", pod=mirror.key)


def _key(document: Document) -> Key:
    return Key(document["metadata"]["namespace"], document["metadata"]["name"])
