"""The default roles and bindings, brought up to date at every start.

A new version of the server may know more rights than the stored role has: they are added. What an
administrator added stays, and a role annotated `autoupdate: "false"` is left alone.

Invariant: rights are only ever added here, so that a restart locks nobody out.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from motley.api import scheme, status
from motley.api.fields import tracking
from motley.apiserver import document
from motley.apiserver.authz import defaults, namespaced, rbac
from motley.apiserver.authz.rules import Rule, missing
from motley.apiserver.writer import SERVER, Writer
from motley.lib import journal

log = journal.get(__name__)

Document = dict[str, Any]
AGGREGATOR = "clusterrole-aggregation-controller"  # as the controller calls itself
Reconcile = Callable[[Document, Document], Document | None]


async def run(writer: Writer) -> None:
    """Create what is missing and complete what is there."""
    async with asyncio.TaskGroup() as group:  # side by side: their writes share commits
        for wanted, kind, reconcile in (
            (defaults.cluster_roles(), rbac.kind("clusterroles"), reconciled_role),
            (
                defaults.cluster_role_bindings(),
                rbac.kind("clusterrolebindings"),
                reconciled_binding,
            ),
            (namespaced.roles(), rbac.kind("roles"), reconciled_role),
            (namespaced.role_bindings(), rbac.kind("rolebindings"), reconciled_binding),
        ):
            stored = await _stored(writer, kind)
            for one in wanted:
                at = _place(one)
                if at not in stored:
                    group.create_task(_create(writer, kind, one))
                elif reconcile(stored[at], one) is not None:
                    group.create_task(_update(writer, kind, one, reconcile))


def _place(one: Document) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


async def _stored(writer: Writer, kind: scheme.Kind) -> dict[tuple[str, str], Document]:
    records = (await writer.store.range(kind.storage_prefix)).records
    return {_place(one): one for one in (document.decode(record.value) for record in records)}


async def _create(writer: Writer, kind: scheme.Kind, wanted: Document) -> None:
    wanted["metadata"]["managedFields"] = _owners(writer, kind, wanted)
    try:
        await writer.create(kind, _place(wanted)[0], wanted, manager=None)
    except status.AlreadyExists:
        return  # another server of the cluster was quicker
    log.debug("default policy created", kind=kind.kind, name=wanted["metadata"]["name"])


def _owners(writer: Writer, kind: scheme.Kind, wanted: Document) -> list[Document]:
    """Who owns which fields: the server all of them, save for sums that a controller writes."""
    draft = {key: value for key, value in wanted.items() if key != "metadata"}
    draft["metadata"] = dict(wanted["metadata"])
    summed = bool(draft.get("aggregationRule"))
    if summed:
        del draft["rules"]
    now = writer.timestamp()
    tracking.created(kind, draft, SERVER, now)
    owners: list[Document] = draft["metadata"]["managedFields"]
    if summed:
        owner = {"manager": AGGREGATOR, "operation": "Apply", "apiVersion": kind.api_version}
        fields = {"time": now, "fieldsType": "FieldsV1", "fieldsV1": {"f:rules": {}}}
        owners = [{**owner, **fields}, *owners]
    return owners


async def _update(
    writer: Writer, kind: scheme.Kind, wanted: Document, reconcile: Reconcile
) -> None:
    namespace, name = _place(wanted)
    await writer.update(kind, namespace, name, lambda old: reconcile(old, wanted) or old)
    log.info("default policy completed", kind=kind.kind, name=name)


def reconciled_role(stored: Document, wanted: Document) -> Document | None:
    """The stored role with every default right; None when it has them, or is not to be touched."""
    metadata = _metadata(stored, wanted)
    if metadata is None:
        return None
    rules = list(stored.get("rules") or ())
    if not wanted.get("aggregationRule"):  # the rest is the aggregation controller's
        held = [Rule.of(rule) for rule in rules]
        rules += [r for r in wanted["rules"] if missing(held, [Rule.of(r)])]
    changes: Document = {"metadata": metadata, "rules": rules}
    if wanted.get("aggregationRule"):
        changes["aggregationRule"] = stored.get("aggregationRule") or wanted["aggregationRule"]
    return _changed(stored, changes)


def reconciled_binding(stored: Document, wanted: Document) -> Document | None:
    """The stored binding with every default subject; None when nothing is to be done."""
    metadata = _metadata(stored, wanted)
    if metadata is None or stored.get("roleRef") != wanted["roleRef"]:
        return None
    subjects = list(stored.get("subjects") or ())
    have = {_subject(s) for s in subjects}
    subjects += [s for s in wanted.get("subjects") or () if _subject(s) not in have]
    return _changed(stored, {"metadata": metadata, **({"subjects": subjects} if subjects else {})})


def _changed(stored: Document, changes: Document) -> Document | None:
    had = {**stored, "metadata": {**stored["metadata"]}}
    had["metadata"].pop("resourceVersion", None)
    if all((had.get(k) or None) == (v or None) for k, v in changes.items()):
        return None
    return {**stored, **changes}


def _metadata(stored: Document, wanted: Document) -> Document | None:
    """The metadata with the default labels; None when the administrator opted out."""
    # Without its version: another server may be about the same, and then this is looked at again.
    metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
    annotations = metadata.get("annotations") or {}
    if annotations.get(defaults.AUTOUPDATE) == "false":
        return None
    metadata["annotations"] = {**wanted["metadata"]["annotations"], **annotations}
    metadata["labels"] = {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]}
    return metadata


def _subject(subject: Mapping[str, Any]) -> tuple[str, str, str]:
    return subject.get("kind", ""), subject.get("namespace", ""), subject.get("name", "")
