"""The default roles within namespaces, as in Kubernetes.

Extension API servers (a metrics server's chart, say) bind themselves to the first of them, to learn
whose word about users to take; the others are what Kubernetes' own components lead by.
"""

from typing import Any

from motley.apiserver.authz.defaults import AUTOUPDATE, BOOTSTRAPPING, GROUP, rules

Document = dict[str, Any]

SYSTEM, PUBLIC = "kube-system", "kube-public"
_READER = "extension-apiserver-authentication-reader"
_SIGNER, _CLEANER = "system:controller:bootstrap-signer", "system:controller:token-cleaner"
_MANAGER, _SCHEDULER = (
    f"system::leader-locking-{name}" for name in ("kube-controller-manager", "kube-scheduler")
)
_EVENTS = "create patch update | core events.k8s.io | events"
_LEADING = rules("get watch list create update | coordination.k8s.io | leases leasecandidates")
_ROLES = (
    (
        *(SYSTEM, _READER),
        rules("get list watch | core | configmaps | extension-apiserver-authentication"),
    ),
    (SYSTEM, _SIGNER, rules("get list watch | core | secrets")),
    (SYSTEM, _CLEANER, rules("get list watch delete | core | secrets", _EVENTS)),
    (SYSTEM, _MANAGER, _LEADING),
    (SYSTEM, _SCHEDULER, _LEADING),
    (
        *(PUBLIC, _SIGNER),
        rules("get list watch | core | configmaps", "update | core | configmaps | cluster-info")
        + rules(_EVENTS),
    ),
)
_BINDINGS = (
    (
        *(SYSTEM, f"system::{_READER}", _READER),
        ("User system:kube-controller-manager", "User system:kube-scheduler"),
    ),
    (SYSTEM, _SIGNER, _SIGNER, ("ServiceAccount bootstrap-signer",)),
    (SYSTEM, _CLEANER, _CLEANER, ("ServiceAccount token-cleaner",)),
    (
        *(SYSTEM, _MANAGER, _MANAGER),
        ("User system:kube-controller-manager", "ServiceAccount kube-controller-manager"),
    ),
    (
        *(SYSTEM, _SCHEDULER, _SCHEDULER),
        ("User system:kube-scheduler", "ServiceAccount kube-scheduler"),
    ),
    (PUBLIC, _SIGNER, _SIGNER, ("ServiceAccount bootstrap-signer",)),
)


def roles() -> list[Document]:
    """Every default Role."""
    return [
        {"metadata": _metadata(namespace, name), "rules": listed}
        for namespace, name, listed in _ROLES
    ]


def role_bindings() -> list[Document]:
    """Every default RoleBinding."""
    return [
        {
            "metadata": _metadata(namespace, name),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
            "subjects": [_subject(*each.split(" ")) for each in who],
        }
        for namespace, name, role, who in _BINDINGS
    ]


def _metadata(namespace: str, name: str) -> Document:
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(BOOTSTRAPPING),
        "annotations": {AUTOUPDATE: "true"},
    }


def _subject(kind: str, name: str) -> Document:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": SYSTEM}
    return {"kind": kind, "name": name, "apiGroup": GROUP}
