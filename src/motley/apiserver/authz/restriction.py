"""NodeRestriction: what a node agent writes must be about itself or about a pod bound to it.

The authorizer lets agents write nodes, pods and leases; only here the object is seen. A broken
node can then lie about itself, but not about its neighbours, and cannot label or untaint itself
to attract pods that were kept away from it.
"""

from collections.abc import Mapping
from typing import Any

from motley.api import scheme, status
from motley.apiserver import document
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.authz.graph import MIRROR, references
from motley.apiserver.authz.nodes import LEASE_NAMESPACE
from motley.apiserver.authz.signers import Decides, may

Document = Mapping[str, Any]

# Labels under kubernetes.io and k8s.io that an agent knows better than anybody.
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
# Sources of a volume that need the API, and so cannot be had by a pod that is there without it.
_FOR_ORDINARY_PODS = {
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_RESTRICTED = "node-restriction.kubernetes.io"


class NodeRestriction:
    """An admission plugin that looks at what node agents write."""

    name = "NodeRestriction"
    interests = (
        interest(
            "create update delete",
            *("nodes", "pods", "serviceaccounts", "persistentvolumeclaims"),
            *("coordination.k8s.io/leases", "storage.k8s.io/csinodes"),
            "certificates.k8s.io/podcertificaterequests",
            subresources="*",
        ),
    )

    def __init__(self, lookup: Lookup, authorizer: Decides | None = None) -> None:
        self._lookup = lookup
        self._authorizer = authorizer

    async def mutate(self, change: Change) -> None:
        """403 when a node writes what is not its own; alters nothing."""
        node = change.user.node_name if change.user is not None else ""
        if not node:
            return
        kind = change.kind.group, change.kind.plural
        if kind == ("", "nodes"):
            _check_node(node, change)
        elif kind == ("", "pods"):
            await self._check_pod(node, change)
        elif kind == ("", "serviceaccounts"):
            await self._check_token(node, change)
        elif kind == ("", "persistentvolumeclaims"):
            _check_claim(change)
        elif kind == ("certificates.k8s.io", "podcertificaterequests"):
            await self._check_certificate(node, change)
        elif kind == ("coordination.k8s.io", "leases"):
            _check_lease(node, change)
        elif kind == ("storage.k8s.io", "csinodes") and change.name != node:
            raise change.forbidden(
                "can only access CSINode with the same name as the requesting node"
            )

    async def _check_pod(self, node: str, change: Change) -> None:
        bound_to = ((change.old or {}).get("spec") or {}).get("nodeName", "")
        if change.subresource == "eviction":
            if bound_to != node:
                raise change.forbidden(
                    f"node {node} can only evict pods with spec.nodeName set to itself"
                )
        elif change.subresource == "status":
            _check_pod_status(node, change, bound_to)
        elif change.subresource:
            raise change.forbidden(
                f'unexpected pod subresource "{change.subresource}", '
                "only 'status' and 'eviction' are allowed",
            )
        elif change.verb == "create":
            await self._check_mirror(node, change)
        elif change.verb != "delete":
            raise change.forbidden(
                f'unexpected operation "{change.verb.upper()}", '
                f'node "{node}" can only create and delete mirror pods',
            )
        elif bound_to != node:
            raise change.forbidden(
                f'node "{node}" can only delete pods with spec.nodeName set to itself'
            )

    async def _check_mirror(self, node: str, change: Change) -> None:
        pod = change.new or {}
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if MIRROR not in (metadata.get("annotations") or {}):
            raise change.forbidden(
                f'pod does not have "{MIRROR}" annotation, '
                f'node "{node}" can only create mirror pods',
            )
        if spec.get("nodeName") != node:
            raise change.forbidden(
                f'node "{node}" can only create pods with spec.nodeName set to itself'
            )
        owners = metadata.get("ownerReferences") or []
        stored = await self._stored("nodes", "", node)
        uid = ((stored or {}).get("metadata") or {}).get("uid", "")
        if len(owners) != 1 or not _is_node(owners[0], node, uid):
            raise change.forbidden(
                f'node "{node}" can only create pods with an owner reference set to itself'
            )
        seen = references({**pod, "metadata": {**metadata, "annotations": {}}})
        if plurals := sorted({plural for plural, _ in seen} - {"serviceaccounts"}):
            raise change.forbidden(f'node "{node}" can not create pods that reference {plurals[0]}')
        for volume in spec.get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                for part, plural in _FOR_ORDINARY_PODS.items():
                    if source.get(part) is not None:
                        raise change.forbidden(
                            f'node "{node}" can not create pods that reference {plural}'
                        )

    async def _check_token(self, node: str, change: Change) -> None:
        if change.subresource != "token" or change.new is None:
            return
        reference = (change.new.get("spec") or {}).get("boundObjectRef") or {}
        named = (reference.get("apiVersion"), reference.get("kind"))
        if named != ("v1", "Pod") or not reference.get("name"):
            raise change.forbidden("node requested token not bound to a pod")
        if not reference.get("uid"):
            raise change.forbidden("node requested token with a pod binding without a uid")
        pod = await self._stored("pods", change.namespace, reference["name"])
        if pod is None:
            raise status.not_found("", "pods", reference["name"])
        if pod["metadata"].get("uid") != reference["uid"]:
            raise change.forbidden(
                f"the UID in the bound object reference ({reference['uid']}) does not match the "
                "UID in record. The object might have been deleted and then recreated",
            )
        if (pod.get("spec") or {}).get("nodeName") != node:
            raise change.forbidden(
                "node requested token bound to a pod scheduled on a different node"
            )

    async def _check_certificate(self, node: str, change: Change) -> None:
        """What is read here is what the store has, so nothing that differs is merely late."""
        if change.verb != "create" or change.subresource or change.new is None:
            raise change.forbidden(f"unexpected operation {change.operation}")
        spec = change.new.get("spec") or {}
        if spec.get("nodeName") != node:
            raise change.forbidden(
                f'PodCertificateRequest.Spec.NodeName="{spec.get("nodeName", "")}", '
                f'which is not the requesting node "{node}"'
            )
        await self._check_uid(change, "nodes", "", node, spec.get("nodeUID"))
        name, account = spec.get("podName", ""), spec.get("serviceAccountName", "")
        pod = await self._check_uid(change, "pods", change.namespace, name, spec.get("podUID"))
        pod_spec, shown = pod.get("spec") or {}, f'pod "{change.namespace}/{name}"'
        if pod_spec.get("nodeName") != node:
            raise change.forbidden(
                f'{shown} is not running on node "{node}" named in the PodCertificateRequest'
            )
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            raise change.forbidden(f"{shown} is a mirror pod")
        if pod_spec.get("serviceAccountName", "") != account:
            raise change.forbidden(
                f'PodCertificateRequest for {shown} contains serviceAccountName ("{account}") that '
                f'differs from running pod ("{pod_spec.get("serviceAccountName", "")}")'
            )
        uid = spec.get("serviceAccountUID")
        await self._check_uid(change, "serviceaccounts", change.namespace, account, uid)
        signer = spec.get("signerName", "")
        if signer in _signers(pod_spec):
            return
        # A plugin of the node may have been given the right to ask for more than volumes do.
        verb, resource = "request-serviceaccounts-podcertificate-signer", signer.replace("/", ":")
        if not await may(
            self._authorizer, change.user, verb, resource, (account,), change.namespace
        ):
            raise change.forbidden(
                f'{shown} does not mount a podCertificate projected volume for signer "{signer}"'
            )

    async def _check_uid(
        self, change: Change, plural: str, namespace: str, name: str, uid: Any
    ) -> dict[str, Any]:
        found = await self._stored(plural, namespace, name)
        if found is None:
            raise status.not_found("", plural, name)
        if found["metadata"].get("uid") != uid:
            raise change.forbidden(
                f'PodCertificateRequest names UID "{uid}" of {plural} "{name}", '
                f'which differs from the running one ("{found["metadata"].get("uid")}")'
            )
        return found

    async def _stored(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        kind = scheme.resource("", "v1", plural)
        assert kind is not None
        record = await self._lookup.fresh(kind, namespace, name)
        return document.decode(record.value) if record is not None else None


def _signers(pod_spec: Document) -> set[str]:
    """The signers of which a pod's volumes want certificates."""
    return {
        (source.get("podCertificate") or {}).get("signerName", "")
        for volume in pod_spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    }


def _is_node(owner: Document, node: str, uid: str) -> bool:
    return (
        (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == ("v1", "Node", node)
        and owner.get("controller") is True
        and not owner.get("blockOwnerDeletion")
        and owner.get("uid") == uid
    )


def _check_pod_status(node: str, change: Change, bound_to: str) -> None:
    if bound_to != node:
        raise change.forbidden(
            f'node "{node}" can only update pod status for pods with spec.nodeName set to itself',
        )
    old, new = change.old or {}, change.new or {}
    if _labels(old) != _labels(new):
        raise change.forbidden(f'node "{node}" cannot update labels through pod status')


def _check_node(node: str, change: Change) -> None:
    if change.name != node:
        raise change.forbidden(f'node "{node}" is not allowed to modify node "{change.name}"')
    if change.new is None or change.verb == "delete":
        return
    old, new = change.old or {}, change.new
    before, after = _labels(old), _labels(new)
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    forbidden = sorted(key for key in changed if not may_label(key))
    if change.verb == "create":
        if forbidden:
            raise change.forbidden(
                f'node "{node}" is not allowed to set the following labels: {", ".join(forbidden)}',
            )
        return
    if ((old.get("spec") or {}).get("taints") or []) != (
        (new.get("spec") or {}).get("taints") or []
    ):
        raise change.forbidden(f'node "{node}" is not allowed to modify taints')
    if forbidden:
        raise change.forbidden(f"is not allowed to modify labels: {', '.join(forbidden)}")


def may_label(key: str) -> bool:
    """Whether a node may give itself this label."""
    prefix, slash, _ = key.partition("/")
    if not slash:
        return True
    if prefix == _RESTRICTED or prefix.endswith(f".{_RESTRICTED}"):
        return False
    if key in _OWN_LABELS or any(prefix == p or prefix.endswith(f".{p}") for p in _OWN_PREFIXES):
        return True
    return not any(prefix == d or prefix.endswith(f".{d}") for d in ("kubernetes.io", "k8s.io"))


def _labels(found: Document) -> Mapping[str, str]:
    labels: Mapping[str, str] = (found.get("metadata") or {}).get("labels") or {}
    return labels


def _check_claim(change: Change) -> None:
    if change.subresource != "status":
        raise change.forbidden("may only update PVC status")


def _check_lease(node: str, change: Change) -> None:
    if change.namespace != LEASE_NAMESPACE:
        raise change.forbidden(
            f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        )
    if change.name != node:
        raise change.forbidden(
            "can only access node lease with the same name as the requesting node"
        )
