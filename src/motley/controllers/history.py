"""The history of a StatefulSet or DaemonSet: one ControllerRevision per pod template. Pure.

A revision's data is the strategic merge patch that puts its template back, so `kubectl rollout
undo` sends it as it is. Going back does not copy: the old revision gets the highest number.
Invariant: two revisions of one owner have different data (found by comparing, not by hash), so
the newest number is always the template that is wanted.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from motley.api.views.base import Object
from motley.api.views.workloads import ControllerRevision
from motley.controllers.template import ALPHABET
from motley.controllers.workload import controller_reference

# On a pod: the revision it was made of. A DaemonSet writes the hash, a StatefulSet the name.
REVISION_LABEL = "controller-revision-hash"
# On a StatefulSet's revision: the hash in its name.
HASH_LABEL = "controller.kubernetes.io/hash"
_PREFIX_LIMIT = 223  # leaves room for the hash in a name of 253
_HASH_LENGTH = 10


def data_of(template: dict[str, Any]) -> dict[str, Any]:
    """The patch that makes `template` the template again, its keys in Go's order: kubectl
    compares bytes to say that there is nothing to undo."""
    patch = {"spec": {"template": {**template, "$patch": "replace"}}}
    ordered: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(patch, order="deterministic"))
    return ordered


def template_of(revision: ControllerRevision) -> dict[str, Any]:
    """The pod template a revision keeps."""
    template = (revision.data.get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def hash_of(data: dict[str, Any], collisions: int) -> str:
    """Characters that stand for the data; `collisions` makes others of the same."""
    encoded = msgspec.json.encode(data, order="deterministic")
    digest = hashlib.sha256(encoded + str(collisions).encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:_HASH_LENGTH])


def digest_of(revision: ControllerRevision) -> str:
    """The hash a DaemonSet's revision is known by; one without the label has it in its name."""
    labelled = revision.metadata.labels.get(REVISION_LABEL)
    return labelled or revision.metadata.name.rpartition("-")[2]


def document(
    owner: Object, template: dict[str, Any], number: int, collisions: int, label: str
) -> dict[str, Any]:
    """The revision to create for a template; its hash is also in the label `label`."""
    data = data_of(template)
    digest = hash_of(data, collisions)
    labels = (template.get("metadata") or {}).get("labels") or {}
    metadata: dict[str, Any] = {
        "name": f"{owner.metadata.name[:_PREFIX_LIMIT]}-{digest}",
        "namespace": owner.metadata.namespace,
        "labels": {**labels, label: digest},
        "ownerReferences": [controller_reference(owner)],
    }
    if owner.metadata.annotations:  # the cause of the change, for `kubectl rollout history`
        metadata["annotations"] = owner.metadata.annotations
    return {"metadata": metadata, "data": data, "revision": number}


def ordered(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Oldest first; age and name decide between equal numbers."""
    return sorted(
        revisions,
        key=lambda r: (r.revision, r.metadata.creation_timestamp or "", r.metadata.name),
    )


def equal(
    revisions: Iterable[ControllerRevision], template: dict[str, Any]
) -> list[ControllerRevision]:
    """The revisions that keep this very template, in the given order."""
    wanted = data_of(template)
    return [r for r in revisions if r.metadata.deletion_timestamp is None and r.data == wanted]


def next_number(revisions: Sequence[ControllerRevision]) -> int:
    """One more than the highest."""
    return max((r.revision for r in revisions), default=0) + 1


def to_clean(
    revisions: Iterable[ControllerRevision], limit: int, live: Collection[str] = ()
) -> list[ControllerRevision]:
    """What is beyond the limit, oldest first; what has a name in `live` stays, but counts."""
    found = ordered(revisions)
    excess = max(0, len(found) - max(0, limit))
    return [r for r in found if r.metadata.name not in live][:excess]
