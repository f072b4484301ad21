"""Which owners the claims of a StatefulSet's pod should have, so that the garbage collector
deletes them when the retention policy says so. Pure.

| whenScaled | whenDeleted | while wanted | scaled away |
|---|---|---|---|
| Retain | Retain | nobody | nobody |
| Retain | Delete | the set | the set |
| Delete | Retain | nobody | its pod |
| Delete | Delete | the set | its pod |

A claim that another controller holds, or that an earlier set or pod of the same name owned, is left
as it is: it is not ours to delete.
"""

from typing import Any

from motley.api.views.base import Object, OwnerReference
from motley.api.views.pod import Pod
from motley.api.views.workloads import StatefulSet
from motley.controllers.workload import controller_reference, reference_documents

_RETAIN = "Retain"


def _names(reference: OwnerReference, owner: Object) -> bool:
    return (
        reference.api_version == owner.API_VERSION
        and reference.kind == owner.KIND
        and reference.name == owner.metadata.name
    )


def is_stale(claim: Object, sts: StatefulSet, pod_name: str) -> bool:
    """Is the claim still to be deleted with an earlier pod of this name? A new pod must wait: it
    would lose its disk."""
    if sts.spec.persistent_volume_claim_retention_policy.when_scaled == _RETAIN:
        return False
    return any(
        (r.api_version, r.kind, r.name) == (Pod.API_VERSION, Pod.KIND, pod_name)
        for r in claim.metadata.owner_references
    )


def is_foreign(claim: Object, sts: StatefulSet, pod: Pod | None) -> bool:
    """Does someone else control a claim that the policy would have us delete?"""
    policy = sts.spec.persistent_volume_claim_retention_policy
    if policy.when_scaled == policy.when_deleted == _RETAIN:
        return False
    ours = {sts.metadata.uid, *([pod.metadata.uid] if pod else [])}
    return any(r.controller and r.uid not in ours for r in claim.metadata.owner_references)


def owner_for(sts: StatefulSet, pod: Pod | None, *, is_wanted: bool) -> Object | None:
    """Whom the claim should go with."""
    policy = sts.spec.persistent_volume_claim_retention_policy
    if policy.when_scaled != _RETAIN and not is_wanted:
        return pod
    return sts if policy.when_deleted != _RETAIN else None


def references(
    claim: Object, sts: StatefulSet, pod: Pod | None, *, is_wanted: bool
) -> list[dict[str, Any]] | None:
    """The claim's ownerReferences as they should be; None when they are, or are not ours."""
    present = claim.metadata.owner_references
    owners: list[Object] = [sts, *([pod] if pod is not None else [])]
    if any(_names(r, o) and r.uid != o.metadata.uid for r in present for o in owners):
        return None
    ours = [r for r in present if any(r.uid == o.metadata.uid for o in owners)]
    others = reference_documents([r for r in present if r not in ours])
    if is_foreign(claim, sts, pod):
        return others if ours else None
    owner = owner_for(sts, pod, is_wanted=is_wanted)
    wanted = [owner.metadata.uid] if owner is not None else []
    if [r.uid for r in ours] == wanted and all(r.controller for r in ours):
        return None
    return [*others, *([controller_reference(owner)] if owner is not None else [])]
