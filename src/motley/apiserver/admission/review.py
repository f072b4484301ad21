"""A write as webhooks and policies are shown it: `AdmissionRequest`."""

from typing import Any

from motley.apiserver.admission.change import Change
from motley.apiserver.authn.user import MASTERS, User

Document = dict[str, Any]

# Who writes when nobody asked: the server at its start.
SERVER = User("system:apiserver", (MASTERS,))
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "delete": "DeleteOptions"}


def new_object(change: Change) -> Document | None:
    """The object as it is to be; a deletion has none."""
    return None if change.verb == "delete" else shown(change, change.new)


def old_object(change: Change) -> Document | None:
    """The object as it is."""
    return shown(change, change.old)


def shown(change: Change, found: Document | None) -> Document | None:
    """An object with its kind in front."""
    if found is None:
        return None
    return {"kind": change.kind.kind, "apiVersion": change.kind.api_version, **found}


def about(change: Change) -> Document:
    """Everything of the request but its uid and its objects."""
    kind = change.kind
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if change.verb == "connect":
        gvk = {"group": "", "version": "v1", "kind": (change.new or {}).get("kind", "")}
    gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    user = change.user or SERVER
    request: Document = {
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "name": change.name,
        "operation": change.operation,
        "userInfo": user.info,
        "dryRun": change.dry_run,
        "options": None,
    }
    if change.verb in _OPTIONS:  # a connection has none
        request["options"] = {
            "kind": _OPTIONS[change.verb],
            "apiVersion": "meta.k8s.io/v1",
            **({"dryRun": ["All"]} if change.dry_run else {}),
        }
    if change.subresource:
        request["subResource"] = request["requestSubResource"] = change.subresource
    if change.namespace:
        request["namespace"] = change.namespace
    return request
