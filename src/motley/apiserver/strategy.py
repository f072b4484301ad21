"""What the server itself decides about an object's fields, kind by kind.

Clients propose; the server owns uid, times, generation and, on the main resource, status. Each
function takes documents and changes the new one in place: no store, no clock of its own.

Invariant: nothing a client sends can change `uid`, `creationTimestamp`, `generation` or a
deletion in progress.
"""

from collections.abc import Iterable
from typing import Any

from motley.api import defaults, scheme
from motley.api.structural.node import FRAME
from motley.apiserver import preparation
from motley.apiserver.authn.user import REQUESTER
from motley.apiserver.crds import naming

Document = dict[str, Any]

_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")

# The server owns these; what a client sends for them on an update is replaced by what is stored.
_OWNED_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_SIGNING_REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")
OWN_METADATA = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
"""The metadata that is a client's own."""
# What of the metadata a write of the status leaves as it is; of all other kinds everything that is
# a client's own may change along with it.
_KEPT_BY_STATUS: dict[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset({"ownerReferences"}),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): OWN_METADATA,
    ("apiregistration.k8s.io", "apiservices"): OWN_METADATA,
    ("apps", "deployments"): frozenset({"labels"}),
    ("certificates.k8s.io", "podcertificaterequests"): OWN_METADATA,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): OWN_METADATA,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): OWN_METADATA,
    ("networking.k8s.io", "servicecidrs"): OWN_METADATA,
    ("resource.k8s.io", "devicetaintrules"): OWN_METADATA,
    ("resource.k8s.io", "resourceclaims"): OWN_METADATA,
    ("storage.k8s.io", "csinodes"): OWN_METADATA,
    ("storage.k8s.io", "volumeattachments"): OWN_METADATA,
    ("storagemigration.k8s.io", "storageversionmigrations"): OWN_METADATA,
}
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_NAMESPACE_FINALIZER = "kubernetes"


def _id(kind: scheme.Kind) -> tuple[str, str]:
    return kind.group, kind.plural


def has_status(kind: scheme.Kind) -> bool:
    """Whether status is written only through its subresource."""
    return "status" in kind.subresources


def is_counted(kind: scheme.Kind) -> bool:
    """Whether the kind has a generation."""
    return kind.definition is not None or _id(kind) in preparation.COUNTED


def before_create(kind: scheme.Kind, document: Document, *, uid: str, created: str) -> None:
    """Set what the server owns on a new object."""
    metadata = document["metadata"]
    for field in (*_OWNED_METADATA, "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = uid
    if kind.definition is not None or _id(kind) in preparation.NUMBERED:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = created
    if not kind.namespaced:
        metadata.pop("namespace", None)
    if kind.definition is not None:
        if has_status(kind):
            document.pop("status", None)
    elif has_status(kind) and _id(kind) not in preparation.OWN_STATUS:
        document["status"] = _initial_status(kind)
    if _id(kind) == _SIGNING_REQUESTS and (user := REQUESTER.get()) is not None:
        # Who asks for a certificate is for the server to say.
        document.setdefault("spec", {}).update(user.info)
    if (prepare := preparation.CREATE.get(_id(kind))) is not None:
        prepare(document, created)
    if _id(kind) == ("", "namespaces"):
        metadata.setdefault("labels", {})[_NAMESPACE_LABEL] = metadata.get("name", "")
        spec = document.setdefault("spec", {})
        if _NAMESPACE_FINALIZER not in spec.setdefault("finalizers", []):
            spec["finalizers"].append(_NAMESPACE_FINALIZER)


def _label_namespace(new: Document, old: Document) -> None:
    """A namespace carries its name as a label, whatever a client thinks."""
    labels = new["metadata"].get("labels") or {}
    new["metadata"]["labels"] = {**labels, _NAMESPACE_LABEL: old["metadata"]["name"]}


def _initial_status(kind: scheme.Kind) -> Document:
    return dict(preparation.INITIAL_STATUS.get(_id(kind), {}))


def before_update(kind: scheme.Kind, new: Document, old: Document) -> None:
    """Give back to the server what is its own, then count a change of the spec."""
    _keep_owned_metadata(new, old)
    if has_status(kind):
        _keep(new, old, "status")
    if _id(kind) == ("", "namespaces"):
        _keep(new.setdefault("spec", {}), old.get("spec") or {}, "finalizers")
        _label_namespace(new, old)
    if _id(kind) == _DEFINITIONS:
        naming.keep_storage_version(new)
    if (prepare := preparation.UPDATE.get(_id(kind))) is not None:
        prepare(new, old)
    count(kind, new, old)


def count(kind: scheme.Kind, new: Document, old: Document) -> None:
    """Count a change of the spec; again after admission, which may have taken it back."""
    if not is_counted(kind):
        return
    _keep(new["metadata"], old["metadata"], "generation")
    if _counted_part(kind, new) != _counted_part(kind, old):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1


def before_status_update(kind: scheme.Kind, new: Document, old: Document) -> Document:
    """The object to store when only its status (and a little metadata) may change."""
    result = dict(old)
    if kind.definition is not None:
        _keep(result, new, "status")
        if "managedFields" in (new.get("metadata") or {}):
            fields = new["metadata"]["managedFields"]
            result["metadata"] = {**old["metadata"], "managedFields": fields}
        else:
            result["metadata"] = dict(old["metadata"])
        return result
    result["metadata"] = open_metadata(new, old, _KEPT_BY_STATUS.get(_id(kind), frozenset()))
    if "status" in new:
        result["status"] = new["status"]
    else:
        result["status"] = _initial_status(kind)
    if _id(kind) == _DEFINITIONS:
        naming.keep_storage_version(result)
    if _id(kind) == ("", "namespaces"):
        _label_namespace(result, old)
    if _id(kind) in (("", "services"), ("", "nodes")):  # the kinds with defaults in their status
        defaults.apply(kind, result)
    else:
        defaults.complete(kind, result)
    return result


def open_metadata(new: Document, old: Document, kept: Iterable[str]) -> Document:
    """The metadata after a write of a part: a client's own may change, but for what is `kept`."""
    metadata = dict(new.get("metadata") or {})
    for field in (*_OWNED_METADATA, "name", "namespace", "generateName", *kept):
        _keep(metadata, old["metadata"], field)
    return metadata


def settle_status(kind: scheme.Kind, new: Document, old: Document, now: str) -> None:
    """Complete a status that was written; nobody owns what the server adds."""
    if (settle := preparation.STATUS.get(_id(kind))) is not None:
        settle(new.setdefault("status", {}), old.get("status") or {}, now)


def _counted_part(kind: scheme.Kind, document: Document) -> Any:
    """What a generation counts: the spec or, for kinds without one, everything but the frame."""
    if kind.definition is not None:
        uncounted = FRAME | {"status"} if has_status(kind) else FRAME
        return {k: v for k, v in document.items() if k not in uncounted}
    if _id(kind) == ("apps", "deployments"):  # the one kind whose annotations count too
        return document.get("spec"), document["metadata"].get("annotations") or {}
    if "spec" in document:
        return document["spec"]
    frame = ("apiVersion", "kind", "metadata", "status")
    return {k: v for k, v in document.items() if k not in frame}


def _keep_owned_metadata(new: Document, old: Document) -> None:
    metadata = new["metadata"]
    for field in _OWNED_METADATA:
        _keep(metadata, old["metadata"], field)
    # A generateName is history, and a client that forgets it does not mean to rewrite history.
    if "generateName" not in metadata and "generateName" in old["metadata"]:
        metadata["generateName"] = old["metadata"]["generateName"]


def _keep(new: Document, old: Document, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def is_released(document: Document) -> bool:
    """Whether an object being deleted has nothing left to wait for."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    if metadata.get("finalizers"):
        return False
    return not (document.get("kind") == "Namespace" and namespace_finalizers(document))


def namespace_finalizers(document: Document) -> list[str]:
    """A namespace's own finalizers, which live in its spec."""
    found: list[str] = (document.get("spec") or {}).get("finalizers") or []
    return found
