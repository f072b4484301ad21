"""A pod's end with the reason for it, as one item of a batch.

Who ends a pod for the sake of others says so in its status first, in a condition that its owner
reads: it was disturbed and did not fail. Those are two writes that belong together, in this order.
In a batch, a deletion of a pod that has a `condition` is both.

Invariant: the condition is written, with the right to write it, before the deletion begins; where
it cannot be written nothing is deleted.
"""

from typing import Any, Literal

import msgspec

from motley.api import codec, scheme, status
from motley.apiserver import audit, deletion, request
from motley.apiserver.core import Core
from motley.apiserver.options import delete_options, write_options
from motley.apiserver.verbs.call import Call

Document = dict[str, Any]


class Condition(msgspec.Struct, omit_defaults=True):
    """What the pod's status is to say."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""


async def announce(core: Core, call: Call, condition: Condition) -> None:
    """Write the condition into the pod that `call` deletes. Raises ApiError."""
    info, kind = call.info, call.kind
    if info.verb != "delete" or not info.name or (kind.group, kind.plural) != ("", "pods"):
        raise status.BadRequest(f"{info.method} {info.path}: a condition goes with a pod's end")
    options = delete_options(info.query, await call.options_body())
    if options.dry_run:
        return
    asked = request.parse("PATCH", f"{info.path}/status", b"")
    await core.access.authorizer.authorize(call.user, asked)
    said = {
        **msgspec.to_builtins(condition),
        "lastTransitionTime": core.writer.timestamp(),
    }

    def modify(pod: Document) -> Document:
        deletion.check_preconditions(kind, pod, options)
        return saying(pod, said)

    manager = call.manager(write_options(asked.query, "PatchOptions"))
    written = await core.writer.update(
        _pods(),
        call.namespace,
        info.name,
        modify,
        subresource="status",
        manager=manager,
        is_fresh=True,
    )
    if audit.is_audited():
        audit.part(asked, codec.encode({"status": {"conditions": [said]}}), 200, written.value)


def saying(pod: Document, said: Document) -> Document:
    """The pod with this condition; since when is kept where its status does not change."""
    state = dict(pod.get("status") or {})
    conditions = []
    for condition in state.get("conditions") or ():
        if condition.get("type") != said["type"]:
            conditions.append(condition)
        elif condition.get("status") == said["status"] and condition.get("lastTransitionTime"):
            said = {**said, "lastTransitionTime": condition["lastTransitionTime"]}
    state["conditions"] = [*conditions, said]
    metadata = {k: v for k, v in pod["metadata"].items() if k != "resourceVersion"}
    return {**pod, "metadata": metadata, "status": state}


def _pods() -> scheme.Kind:
    pods = scheme.resource("", "v1", "pods")
    assert pods is not None
    return pods
