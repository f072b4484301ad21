"""The FlowSchemas and PriorityLevelConfigurations every cluster has, by Kubernetes' names.

Mandatory ones are always as they are here; suggested ones are kept so while their annotation
`apf.kubernetes.io/autoupdate-spec` says true, so an administrator who changes one sets it to false.
A deleted one comes back: who wants no such class gives it no shares.
"""

from typing import Any

Document = dict[str, Any]

GROUP = "flowcontrol.apiserver.k8s.io"
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
EXEMPT = "exempt"
CATCH_ALL = "catch-all"

_EVERYONE = ("system:unauthenticated", "system:authenticated")


def _level(name: str, spec: Document) -> Document:
    metadata = {"name": name, "annotations": {AUTO_UPDATE: "true"}}
    return {"metadata": metadata, "spec": spec}


def _limited(name: str, shares: int, lendable: int, queues: int = 0, hand: int = 0) -> Document:
    response: Document = {"type": "Reject"}
    if queues:
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
        response = {"type": "Queue", "queuing": queuing}
    limited = {
        "nominalConcurrencyShares": shares,
        "limitResponse": response,
        "lendablePercent": lendable,
    }
    return _level(name, {"type": "Limited", "limited": limited})


MANDATORY_LEVELS = (
    _level(
        EXEMPT,
        {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    ),
    _limited(CATCH_ALL, 5, 0),
)
SUGGESTED_LEVELS = (
    _limited("system", 30, 33, 64, 6),
    _limited("node-high", 40, 25, 64, 6),
    _limited("leader-election", 10, 0, 16, 4),
    _limited("workload-high", 40, 50, 128, 6),
    _limited("workload-low", 100, 90, 128, 6),
    _limited("global-default", 20, 50, 128, 6),
)


def _groups(*names: str) -> list[Document]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> list[Document]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


_SYSTEM_ACCOUNTS = [
    {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}
]


def _resources(
    verbs: tuple[str, ...], groups: tuple[str, ...], names: tuple[str, ...], *, cluster: bool
) -> Document:
    rule: Document = {"verbs": [*verbs], "apiGroups": [*groups], "resources": [*names]}
    return rule | ({"clusterScope": True} if cluster else {}) | {"namespaces": ["*"]}


_ALL_RESOURCES = [_resources(("*",), ("*",), ("*",), cluster=True)]
_ALL_PATHS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_EVERYTHING = {"resourceRules": _ALL_RESOURCES, "nonResourceRules": _ALL_PATHS}
_LEASES = ("coordination.k8s.io",), ("leases",)


def _schema(
    name: str, level: str, precedence: int, by: str, subjects: list[Document], rules: Document
) -> Document:
    spec: Document = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
    }
    if by:
        spec["distinguisherMethod"] = {"type": by}
    spec["rules"] = [{"subjects": subjects, **rules}]
    return {"metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}}, "spec": spec}


MANDATORY_SCHEMAS = (
    _schema(EXEMPT, EXEMPT, 1, "", _groups("system:masters"), _EVERYTHING),
    _schema(CATCH_ALL, CATCH_ALL, 10_000, "ByUser", _groups(*_EVERYONE), _EVERYTHING),
)
SUGGESTED_SCHEMAS = (
    _schema(
        "probes",
        EXEMPT,
        2,
        "",
        _groups(*_EVERYONE),
        {
            "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}
            ]
        },
    ),
    _schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        [*_users("system:kube-controller-manager", "system:kube-scheduler"), *_SYSTEM_ACCOUNTS],
        {"resourceRules": [_resources(("get", "create", "update"), *_LEASES, cluster=False)]},
    ),
    _schema(
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        _groups("system:nodes"),
        {
            "resourceRules": [
                _resources(("*",), ("",), ("nodes", "nodes/status"), cluster=True),
                _resources(("*",), *_LEASES, cluster=False),
            ]
        },
    ),
    _schema("system-nodes", "system", 500, "ByUser", _groups("system:nodes"), _EVERYTHING),
    _schema(
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        _users("system:kube-controller-manager"),
        _EVERYTHING,
    ),
    _schema(
        "kube-scheduler",
        "workload-high",
        800,
        "ByNamespace",
        _users("system:kube-scheduler"),
        _EVERYTHING,
    ),
    _schema(
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        _SYSTEM_ACCOUNTS,
        _EVERYTHING,
    ),
    _schema(
        "service-accounts",
        "workload-low",
        9000,
        "ByUser",
        _groups("system:serviceaccounts"),
        _EVERYTHING,
    ),
    _schema("global-default", "global-default", 9900, "ByUser", _groups(*_EVERYONE), _EVERYTHING),
)
