"""Who a StatefulSet's pods are: names, ordinals, host names, and the disks that are theirs. Pure.

Pod `web-3` of the set `web` is ordinal 3, answers to `web-3` in the set's Service, and mounts the
claim `data-web-3`, whichever node it runs on and however often it is made again.
"""

import re
from copy import deepcopy
from typing import Any

from motley.api.views.pod import Pod
from motley.api.views.workloads import StatefulSet
from motley.controllers.history import REVISION_LABEL
from motley.controllers.workload import controller_reference

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)")
_ORDINAL_LIMIT = 2**31


def ordinal_of(sts: StatefulSet, pod: Pod) -> int | None:
    """The pod's number in this set, None when its name is not one of the set's (`web-01`)."""
    match = _NAME.fullmatch(pod.metadata.name)
    if match is None or match[1] != sts.metadata.name:
        return None
    number = int(match[2])
    return number if str(number) == match[2] and number < _ORDINAL_LIMIT else None


def ordinals(sts: StatefulSet) -> range:
    """The numbers the set's pods should have."""
    start = sts.spec.ordinals.start
    return range(start, start + sts.spec.replicas)


def pod_name(sts: StatefulSet, ordinal: int) -> str:
    """The name of the pod with this number."""
    return f"{sts.metadata.name}-{ordinal}"


def claim_name(sts: StatefulSet, template: dict[str, Any], ordinal: int) -> str:
    """The name of the claim that this pod gets from a claim template."""
    return f"{template['metadata']['name']}-{sts.metadata.name}-{ordinal}"


def claim_names(sts: StatefulSet, ordinal: int) -> list[str]:
    """All claims of the pod with this number."""
    return [claim_name(sts, t, ordinal) for t in sts.spec.volume_claim_templates]


def claim_documents(sts: StatefulSet, ordinal: int) -> list[dict[str, Any]]:
    """The claims that must exist before the pod does."""
    documents = []
    for template in sts.spec.volume_claim_templates:
        given = template.get("metadata") or {}
        metadata: dict[str, Any] = {
            "name": claim_name(sts, template, ordinal),
            "namespace": sts.metadata.namespace,
            "labels": {**(given.get("labels") or {}), **sts.spec.selector.match_labels},
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        documents.append({"metadata": metadata, "spec": template.get("spec") or {}})
    return documents


def pod_document(
    sts: StatefulSet, template: dict[str, Any], revision: str, ordinal: int
) -> dict[str, Any]:
    """The pod with this number, of the template of a revision."""
    given = template.get("metadata") or {}
    name = pod_name(sts, ordinal)
    metadata = {k: given[k] for k in ("annotations", "finalizers") if given.get(k)}
    metadata |= {
        "name": name,
        "namespace": sts.metadata.namespace,
        "labels": {
            **(given.get("labels") or {}),
            **labels(name, ordinal),
            REVISION_LABEL: revision,
        },
        "ownerReferences": [controller_reference(sts)],
    }
    spec = deepcopy(template.get("spec") or {})
    spec["hostname"] = name
    if sts.spec.service_name:
        spec["subdomain"] = sts.spec.service_name
    own = volumes(sts, ordinal)
    if own:
        names = {volume["name"] for volume in own}
        spec["volumes"] = [*own, *(v for v in spec.get("volumes") or () if v["name"] not in names)]
    return {"metadata": metadata, "spec": spec}


def labels(name: str, ordinal: int) -> dict[str, str]:
    """The labels by which a pod says who it is."""
    return {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}


def volumes(sts: StatefulSet, ordinal: int) -> list[dict[str, Any]]:
    """The claims as the pod mounts them."""
    return [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(sts, template, ordinal)},
        }
        for template in sts.spec.volume_claim_templates
    ]


def is_right(sts: StatefulSet, pod: Pod, ordinal: int) -> bool:
    """Does the pod say who it is?"""
    return pod.metadata.labels.get(POD_NAME_LABEL) == pod_name(sts, ordinal)


def revision_of(pod: Pod) -> str:
    """The name of the revision the pod was made of."""
    return pod.metadata.labels.get(REVISION_LABEL, "")
