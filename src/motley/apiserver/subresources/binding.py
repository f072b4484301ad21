"""`pods/binding`: the scheduler's decision, written down.

Invariant: a pod is bound at most once. The compare-and-swap of the write path makes two
schedulers that decide at the same moment disagree here, and only here.
"""

from typing import Any

from motley.api import scheme, status
from motley.apiserver import answer, body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import other_uid

Document = dict[str, Any]

SUCCESS: Document = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


async def create(core: Core, call: Call) -> Answer:
    """201 when the pod is bound; 409 when it already was, or is on its way out."""
    return await _bind(core, call, await call.document("Binding", "v1"), call.info.name)


async def create_unnamed(core: Core, call: Call) -> Answer:
    """The same by the old path, `bindings`, where only the body says which pod is meant."""
    binding = await call.document("Binding", "v1")
    name = str((binding.get("metadata") or {}).get("name") or "")
    return await _bind(core, call, binding, name)


async def _bind(core: Core, call: Call, binding: Document, name: str) -> Answer:
    body.check_is("Binding", ("v1",), binding)
    options = write_options(call.info.query, "CreateOptions")
    await bind(core, call.namespace, name, binding, dry_run=options.dry_run)
    return answer.of(SUCCESS, 201)


async def bind(
    core: Core, namespace: str, name: str, binding: Document, *, dry_run: bool = False
) -> None:
    """Write the node into the pod; returns when that is durable. Raises ApiError."""
    target = _target(binding, name)
    now = core.writer.timestamp()

    def modify(pod: Document) -> Document:
        return bound(pod, name, target, binding, now)

    await core.writer.update(
        _pods(), namespace, name, modify, subresource="binding", is_fresh=True, dry_run=dry_run
    )


def _pods() -> scheme.Kind:
    pods = scheme.resource("", "v1", "pods")
    assert pods is not None
    return pods


def _target(binding: Document, name: str) -> str:
    metadata = binding.get("metadata") or {}
    if metadata.get("name") != name:
        raise status.BadRequest("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        kind = target.get("kind")
        error = status.FieldError(
            "target.kind",
            "FieldValueNotSupported",
            f'Unsupported value: "{kind}": supported values: "Node", "<empty>"',
        )
        raise status.invalid("", "Binding", name, [error])
    if not target.get("name"):
        error = status.FieldError("target.name", "FieldValueRequired", "Required value")
        raise status.invalid("", "Binding", name, [error])
    return str(target["name"])


def bound(pod: Document, name: str, node: str, binding: Document, now: str) -> Document:
    """The pod with its node; labels and annotations of the binding come along."""
    metadata, spec = dict(pod["metadata"]), dict(pod.get("spec") or {})
    pinned = binding.get("metadata") or {}
    if pinned.get("uid") and pinned["uid"] != metadata.get("uid"):
        pods = _pods()
        key = pods.key(metadata["namespace"], name)
        raise other_uid(pods, name, key, pinned["uid"], metadata.get("uid"))
    if metadata.get("deletionTimestamp"):
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _conflict(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node
    for field in ("labels", "annotations"):
        if pinned.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **pinned[field]}
    metadata.pop("resourceVersion", None)
    return {**pod, "metadata": metadata, "spec": spec, "status": _scheduled(pod, now)}


def _scheduled(pod: Document, now: str) -> Document:
    state = dict(pod.get("status") or {})
    kept = [c for c in state.get("conditions") or () if c.get("type") != "PodScheduled"]
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    state["conditions"] = [*kept, condition]
    return state


def _conflict(name: str, problem: str) -> status.Conflict:
    return status.Conflict(
        f'Operation cannot be fulfilled on pods/binding "{name}": {problem}',
        details={"name": name, "kind": "pods/binding"},
    )
