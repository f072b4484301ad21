"""The roles and bindings every cluster has: Kubernetes' names and rights, written compactly.

People and tools rely on these names: `view`, `edit`, `admin` are bound by hand, `system:discovery`
lets every client find its way, and the components of the cluster work by the rest. Where one of
Motley's processes does what several do in Kubernetes, its role has the rights of all of them; the
lines that are Motley's own say so.

A line is `verbs | groups | resources [| names]`; the core group is written `core`.
"""

from typing import Any

from motley.api import scheme

Document = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"

_VERBS = {
    "READ": "get list watch",
    "WRITE": "create delete deletecollection patch update",
    "ALL": "create delete deletecollection get list patch update watch",
    "OWN": "create delete get patch update",
}
_EVENTS = "create patch update | core events.k8s.io | events"


def rule(line: str) -> Document:
    """One rule from its line."""
    verbs, groups, resources, *names = (part.split() for part in line.split("|"))
    listed: Document = {
        "verbs": " ".join(_VERBS.get(v, v) for v in verbs).split(),
        "apiGroups": ["" if g == "core" else g for g in groups],
        "resources": resources,
    }
    if names:
        listed["resourceNames"] = names[0]
    return listed


def rules(*lines: str) -> list[Document]:
    """Several rules."""
    return [rule(line) for line in lines]


def urls(verb: str, *paths: str) -> list[Document]:
    """One rule on paths that are no resources."""
    return [{"verbs": [verb], "nonResourceURLs": list(paths)}]


VIEW = rules(
    "READ | core | configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods"
    " replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
    "READ | core | bindings limitranges namespaces/status pods/log pods/status"
    " replicationcontrollers/status resourcequotas resourcequotas/status",
    "READ | core | namespaces",
    "READ | core events.k8s.io | events",
    "READ | discovery.k8s.io | endpointslices",
    "READ | apps | controllerrevisions daemonsets daemonsets/status deployments deployments/scale"
    " deployments/status replicasets replicasets/scale replicasets/status statefulsets"
    " statefulsets/scale statefulsets/status",
    "READ | autoscaling | horizontalpodautoscalers horizontalpodautoscalers/status",
    "READ | batch | cronjobs cronjobs/status jobs jobs/status",
    "READ | extensions | daemonsets daemonsets/status deployments deployments/scale"
    " deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale"
    " replicasets/status replicationcontrollers/scale",
    "READ | policy | poddisruptionbudgets poddisruptionbudgets/status",
    "READ | networking.k8s.io | ingresses ingresses/status networkpolicies",
    "READ | resource.k8s.io | resourceclaims resourceclaims/status resourceclaimtemplates",
)
# Motley's own kinds, for whoever may see everything; left out where their group is not served.
MOTLEY_VIEW = rules(
    "READ | motley.io | decisions functions invocations routes triggers workflows",
    "READ | autoscaling.k8s.io | verticalpodautoscalers",
)
MOTLEY_EDIT = rules(
    "WRITE | motley.io | functions invocations routes triggers workflows",
    "create | motley.io | functions/call",
    "WRITE | autoscaling.k8s.io | verticalpodautoscalers",
)
EDIT = rules(
    "READ | core | pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
    "impersonate | core | serviceaccounts",
    "WRITE | core | pods pods/attach pods/exec pods/portforward pods/proxy",
    "create | core | pods/eviction",
    "WRITE | core | configmaps persistentvolumeclaims replicationcontrollers"
    " replicationcontrollers/scale secrets serviceaccounts services services/proxy",
    "create | core | serviceaccounts/token",
    "WRITE | core events.k8s.io | events",
    "WRITE | apps | daemonsets deployments deployments/rollback deployments/scale replicasets"
    " replicasets/scale statefulsets statefulsets/scale",
    "WRITE | autoscaling | horizontalpodautoscalers",
    "WRITE | batch | cronjobs jobs",
    "WRITE | extensions | daemonsets deployments deployments/rollback deployments/scale ingresses"
    " networkpolicies replicasets replicasets/scale replicationcontrollers/scale",
    "WRITE | policy | poddisruptionbudgets",
    "WRITE | networking.k8s.io | ingresses networkpolicies",
    "ALL | coordination.k8s.io | leases",
    "WRITE | resource.k8s.io | resourceclaims resourceclaimtemplates",
)
ADMIN = rules(
    "create | authorization.k8s.io | localsubjectaccessreviews",
    "ALL | rbac.authorization.k8s.io | rolebindings roles",
)
NODE_RULES = rules(
    "create | authentication.k8s.io | tokenreviews",
    "create | authorization.k8s.io | localsubjectaccessreviews subjectaccessreviews",
    "READ | core | services",
    "create get list watch | core | nodes",
    "patch update | core | nodes/status",
    "patch update | core | nodes",
    _EVENTS,
    "READ | core | pods",
    "create delete | core | pods",
    "patch update | core | pods/status",
    "create | core | pods/eviction",
    "READ | core | configmaps secrets",
    "get | core | persistentvolumeclaims persistentvolumes",
    "get | core | endpoints",
    "create get list watch | certificates.k8s.io | certificatesigningrequests",
    "OWN | coordination.k8s.io | leases",
    "get | storage.k8s.io | volumeattachments",
    "create | core | serviceaccounts/token",
    "get patch update | core | persistentvolumeclaims/status",
    "READ | storage.k8s.io | csidrivers",
    "OWN | storage.k8s.io | csinodes",
    "READ | node.k8s.io | runtimeclasses",
    "get | resource.k8s.io | resourceclaims",
    "deletecollection | resource.k8s.io | resourceslices",
    "READ | certificates.k8s.io | clustertrustbundles",
    "get | core | serviceaccounts",
    "create get list watch | certificates.k8s.io | podcertificaterequests",
)
_SCHEDULER = rules(
    _EVENTS,
    "create | coordination.k8s.io | leases",
    "get list update watch | coordination.k8s.io | leases | kube-scheduler",
    "READ | core | nodes",
    "delete get list watch | core | pods",
    "create | core | bindings pods/binding",
    "patch update | core | pods/status",
    "READ | core | replicationcontrollers services",
    "READ | apps extensions | replicasets",
    "READ | apps | statefulsets",
    "READ | policy | poddisruptionbudgets",
    "READ | core | persistentvolumeclaims persistentvolumes",
    "create | authentication.k8s.io | tokenreviews",
    "create | authorization.k8s.io | subjectaccessreviews",
    "READ | storage.k8s.io | csinodes",
    "READ | storage.k8s.io | volumeattachments",
    "READ | core | namespaces",
    "READ | storage.k8s.io | csidrivers",
    "READ | storage.k8s.io | csistoragecapacities",
    # Motley: the image and the CPU for the chosen node are written before the binding; two
    # schedulers of one cluster may have leases of other names; priorities are read by name.
    "patch | core | pods pods/resize",
    "get patch update | coordination.k8s.io | leases",
    "READ | scheduling.k8s.io | priorityclasses",
    "READ | apps | deployments daemonsets",
    "READ | scheduling.x-k8s.io | podgroups elasticquotas",
    "READ | motley.io | imagemaps",
    # Why a pod is where it is, or nowhere.
    "create get list patch | motley.io | decisions",
    # Many writes at once; each is also checked as if it were made alone.
    "create | motley.io | batches bindings",
    # Plugins go by what nodes use, and by how far apart they are.
    "READ | metrics.k8s.io | nodes",
    "READ | motley.io | callgraphs networktopologies",
)
# All controllers run as one process under one name: garbage collection and the deletion of
# namespaces know no exceptions, and the aggregation of ClusterRoles grants what it does not hold.
_CONTROLLERS = rules(
    "ALL | * | *",
    "bind escalate | rbac.authorization.k8s.io | clusterroles",
    "create | authentication.k8s.io | tokenreviews",
    "create | authorization.k8s.io | subjectaccessreviews",
    "create | core | serviceaccounts/token",
    "approve sign | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client-kubelet",
    # Kubernetes leaves the approval of these two to others; Motley's controllers approve what a
    # node asks for its own proxy and its own server.
    "approve sign | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client",
    "approve sign | certificates.k8s.io | signers | kubernetes.io/kubelet-serving",
    "sign | certificates.k8s.io | signers | kubernetes.io/legacy-unknown",
    "attest | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-serving",
)
_PROXY = rules(
    "list watch | core | endpoints services",
    "READ | core | nodes",
    _EVENTS,
    "list watch | discovery.k8s.io | endpointslices",
    "list watch | networking.k8s.io | servicecidrs",
    # Motley: cluster DNS runs in the same process and answers names of pods, too.
    "READ | core | pods namespaces services endpoints",
    # … and it enforces network policies.
    "list watch | networking.k8s.io | networkpolicies",
)
_GATEWAY = rules(
    "READ | core | nodes secrets services",
    "create | core | services",
    "delete patch update | core | services",
    "READ | discovery.k8s.io | endpointslices",
    "create delete patch update | discovery.k8s.io | endpointslices",
    "READ | networking.k8s.io | ingressclasses ingresses",
    "create | networking.k8s.io | ingressclasses",
    "patch update | networking.k8s.io | ingresses/status",
    "READ | motley.io | routes",
    "patch update | motley.io | routes/status",
    "create get patch update | coordination.k8s.io | leases",
    _EVENTS,
)
_FUNCTIONS = [
    # What triggers may watch: what everybody who may make a trigger may see anyway. No Secrets.
    *VIEW,
    *rules(
        "READ create delete patch | core | pods",
        "create get | core | configmaps secrets services",
        "READ patch | motley.io | functions",
        "patch update | motley.io | functions/finalizers functions/status",
        "READ | motley.io | triggers workflows",
        "patch update | motley.io | triggers/status",
        "READ create delete patch | motley.io | invocations",
        "patch update | motley.io | invocations/status",
        "create | authentication.k8s.io | tokenreviews",
        "create | authorization.k8s.io | subjectaccessreviews",
        "create get patch update | coordination.k8s.io | leases",
        _EVENTS,
    ),
]
_SLURM = rules(
    "READ create delete patch | motley.io | slurmjobs",
    "patch update | motley.io | slurmjobs/finalizers slurmjobs/status",
    "READ | motley.io | slurmclusters",
    "patch update | motley.io | slurmclusters/status",
    "create get patch | core | configmaps",
    "get | core | secrets",
    # Clusters that are offered as nodes, and the pods that run there.
    "create delete get list patch | core | nodes",
    "patch | core | nodes/status",
    "READ delete patch | core | pods",
    "patch | core | pods/status",
    # Who asks for the logs of those, and may they?
    "create | authentication.k8s.io | tokenreviews",
    "create | authorization.k8s.io | subjectaccessreviews",
    "create get patch update | coordination.k8s.io | leases",
    _EVENTS,
)
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = (
    *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*"),
    *("/readyz", "/version", "/version/"),
)
_APPROVER = "approve | certificates.k8s.io | signers | kubernetes.io/"

ROLES: dict[str, list[Document]] = {
    "cluster-admin": [*rules("* | * | *"), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "system:aggregate-to-admin": ADMIN,
    "system:aggregate-to-edit": EDIT,
    "system:aggregate-to-view": VIEW,
    "system:auth-delegator": rules(
        "create | authentication.k8s.io | tokenreviews",
        "create | authorization.k8s.io | subjectaccessreviews",
    ),
    "system:basic-user": rules(
        "create | authorization.k8s.io | selfsubjectaccessreviews selfsubjectrulesreviews",
        "create | authentication.k8s.io | selfsubjectreviews",
    ),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": rules(
        "create | certificates.k8s.io | certificatesigningrequests/nodeclient"
    ),
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": rules(
        "create | certificates.k8s.io | certificatesigningrequests/selfnodeclient"
    ),
    "system:certificates.k8s.io:kube-apiserver-client-approver": rules(
        f"{_APPROVER}kube-apiserver-client"
    ),
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver": rules(
        f"{_APPROVER}kube-apiserver-client-kubelet"
    ),
    "system:certificates.k8s.io:kubelet-serving-approver": rules(f"{_APPROVER}kubelet-serving"),
    "system:certificates.k8s.io:legacy-unknown-approver": rules(f"{_APPROVER}legacy-unknown"),
    "motley:certificatesigningrequests:nodeproxyclient": rules(
        "create | certificates.k8s.io | certificatesigningrequests/nodeproxyclient"
    ),
    "system:cluster-trust-bundle-discovery": rules(
        "READ | certificates.k8s.io | clustertrustbundles"
    ),
    "system:discovery": urls("get", *_DISCOVERY),
    "system:kube-aggregator": rules("READ | core | endpoints services"),
    "system:kube-controller-manager": _CONTROLLERS,
    "system:kube-dns": rules("list watch | core | endpoints services"),
    "system:kube-scheduler": _SCHEDULER,
    "system:kubelet-api-admin": rules(
        "READ | core | nodes",
        "proxy | core | nodes",
        "* | core | nodes/configz nodes/healthz nodes/log nodes/metrics nodes/pods nodes/proxy"
        " nodes/stats",
    ),
    "system:monitoring": urls(
        "get",
        *("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis"),
        *("/readyz", "/readyz/*"),
    ),
    "system:node": NODE_RULES,
    "system:node-bootstrapper": rules(
        "create get list watch | certificates.k8s.io | certificatesigningrequests"
    ),
    "system:node-problem-detector": rules(
        "get | core | nodes", "patch | core | nodes/status", _EVENTS
    ),
    "motley:gateway": _GATEWAY,
    "motley:functions": _FUNCTIONS,
    "motley:slurm": _SLURM,
    "system:node-proxier": _PROXY,
    "system:persistent-volume-provisioner": rules(
        "create delete get list watch | core | persistentvolumes",
        "get list update watch | core | persistentvolumeclaims",
        "READ | storage.k8s.io | storageclasses",
        "watch | core | events",
        _EVENTS,
    ),
    "system:public-info-viewer": urls("get", *_HEALTH),
    "system:service-account-issuer-discovery": urls(
        "get", "/.well-known/openid-configuration", "/openid/v1/jwks"
    ),
    "system:volume-scheduler": rules(
        "get list patch update watch | core | persistentvolumes",
        "READ | storage.k8s.io | storageclasses",
        "get list patch update watch | core | persistentvolumeclaims",
    ),
}
_AGGREGATED_BY = {name: f"{GROUP}/aggregate-to-{name}" for name in ("admin", "edit", "view")}
_LABELS = {
    "edit": "admin",
    "view": "edit",
    "motley:aggregate-to-view": "view",
    "motley:aggregate-to-edit": "edit",
    **{f"system:aggregate-to-{name}": name for name in _AGGREGATED_BY},
}

_ALL_USERS = ("Group system:authenticated",)
BINDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cluster-admin": ("cluster-admin", ("Group system:masters",)),
    "system:basic-user": ("system:basic-user", _ALL_USERS),
    "system:discovery": ("system:discovery", _ALL_USERS),
    "system:public-info-viewer": (
        "system:public-info-viewer",
        (*_ALL_USERS, "Group system:unauthenticated"),
    ),
    "system:monitoring": ("system:monitoring", ("Group system:monitoring",)),
    "system:kube-scheduler": ("system:kube-scheduler", ("User system:kube-scheduler",)),
    "system:volume-scheduler": ("system:volume-scheduler", ("User system:kube-scheduler",)),
    "system:kube-controller-manager": (
        "system:kube-controller-manager",
        ("User system:kube-controller-manager",),
    ),
    "motley:gateway": ("motley:gateway", ("User system:motley-gateway",)),
    "motley:functions": ("motley:functions", ("User system:motley-functions",)),
    "motley:slurm": ("motley:slurm", ("User system:motley-slurm",)),
    "system:node-proxier": ("system:node-proxier", ("User system:kube-proxy",)),
    # The node authorizer decides about nodes; in Kubernetes, too, nobody is bound to this role.
    "system:node": ("system:node", ()),
    "system:node-bootstrapper": ("system:node-bootstrapper", ("Group system:bootstrappers",)),
    # A node with a join token gets its certificate, and renews it, without a person's help.
    "motley:node-autoapprove-bootstrap": (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        ("Group system:bootstrappers",),
    ),
    "motley:node-autoapprove-renewal": (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        ("Group system:nodes",),
    ),
    # The proxy beside an agent is vouched for by the agent's certificate, never by a join token.
    "motley:node-autoapprove-proxy": (
        "motley:certificatesigningrequests:nodeproxyclient",
        ("Group system:nodes",),
    ),
    "system:service-account-issuer-discovery": (
        "system:service-account-issuer-discovery",
        ("Group system:serviceaccounts",),
    ),
}


def cluster_roles() -> list[Document]:
    """Every default ClusterRole, as it is first stored."""
    found = [_role(name, listed) for name, listed in ROLES.items()]
    view, edit = VIEW, EDIT
    if scheme.by_kind("motley.io/v1", "Decision") is not None:
        found.append(_role("motley:aggregate-to-view", MOTLEY_VIEW))
        found.append(_role("motley:aggregate-to-edit", MOTLEY_EDIT))
        view, edit = [*MOTLEY_VIEW, *VIEW], [*MOTLEY_EDIT, *EDIT]
    # What the aggregation controller will make of them: right from the first moment.
    totals = {"view": view, "edit": [*edit, *view], "admin": [*edit, *view, *ADMIN]}
    for name, label in _AGGREGATED_BY.items():
        selector = {"matchLabels": {label: "true"}}
        aggregation = {"aggregationRule": {"clusterRoleSelectors": [selector]}}
        found.append({**_role(name, totals[name]), **aggregation})
    return found


def cluster_role_bindings() -> list[Document]:
    """Every default ClusterRoleBinding."""
    return [_binding(name, role, who) for name, (role, who) in BINDINGS.items()]


def _metadata(name: str) -> Document:
    return {"name": name, "labels": dict(BOOTSTRAPPING), "annotations": {AUTOUPDATE: "true"}}


def _role(name: str, listed: list[Document]) -> Document:
    metadata = _metadata(name)
    if name in _LABELS:
        metadata["labels"][_AGGREGATED_BY[_LABELS[name]]] = "true"
    return {"metadata": metadata, "rules": listed}


def _binding(name: str, role: str, who: tuple[str, ...]) -> Document:
    subjects = [dict(zip(("kind", "name"), each.split(" "), strict=True)) for each in who]
    shown: Document = {
        "metadata": _metadata(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
    }
    if subjects:
        shown["subjects"] = [{**subject, "apiGroup": GROUP} for subject in subjects]
    return shown
