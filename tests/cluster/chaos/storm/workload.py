"""What runs in the cluster during a storm.

A pod on every node that must live through everything as it is, a Deployment that is scaled and
whose pods are deleted and evicted, one Service before all of them, and a pod that calls it.
"""

from storm import ledger, load
from storm.bed import NODES

VIP = "10.96.0.80"
STEADY, ELASTIC, CALLER = "steady", "elastic", "caller"
SHORT_TOLERATION_S = 2


def container(code, *arguments):
    return {
        "name": "main",
        "image": "localhost/motley/python:1",
        "command": ["python3", "-c", code, *map(str, arguments)],
        # What asks for no CPU gets none while others are busy, and would miss its time for that.
        "resources": {"requests": {"cpu": "200m", "memory": "32Mi"}},
    }


def server(labels, **more):
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        | ({"tolerationSeconds": SHORT_TOLERATION_S} if labels["app"] == ELASTIC else {})
        for key in ("not-ready", "unreachable")
    ]
    probe = {"tcpSocket": {"port": load.PORT}, "periodSeconds": 1, "failureThreshold": 10}
    return {
        "metadata": {"labels": {**labels, "serves": "yes"}},
        "spec": {
            "terminationGracePeriodSeconds": 20,
            "automountServiceAccountToken": False,
            "tolerations": tolerations,
            "containers": [{**container(load.SERVER), "readinessProbe": probe}],
            **more,
        },
    }


def pod(name, template):
    meta = {"name": name, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": meta}


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {
        "clusterIP": VIP,
        "selector": {"serves": "yes"},
        "ports": [{"port": 80, "targetPort": load.PORT}],
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": ELASTIC},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": ELASTIC}},
        "template": server({"app": ELASTIC}),
    },
}
WRITTEN = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ledger.NAMESPACE}}


def steady_pods():
    """One on every node; they must live through everything as they are."""
    for number, node in enumerate(NODES, 1):
        yield pod(f"{STEADY}-{number}", server({"app": STEADY}, nodeName=node))
    calls = container(load.CALLER, VIP, 80, load.COUNTS_PORT)
    yield pod(
        CALLER,
        {
            "metadata": {"labels": {"app": CALLER}},
            "spec": {
                "nodeName": "node-2",
                "terminationGracePeriodSeconds": 0,
                "containers": [calls],
            },
        },
    )
