"""DefaultTolerationSeconds: a grace for pods on nodes that fall sick.

Without it, a node that is silent for a moment would lose its pods at once.
"""

from typing import Any

from motley.apiserver.admission.change import Change, interest

Document = dict[str, Any]

# 300 s: kube-apiserver's default-not-ready-toleration-seconds and its unreachable twin.
TOLERATION_S = 300
_SICKNESS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds:
    """Adds the two tolerations that a pod does not decide about itself."""

    name = "DefaultTolerationSeconds"
    interests = (interest("create update", "pods"),)

    async def mutate(self, change: Change) -> None:
        """Complete a pod's tolerations."""
        if change.spec is not None:
            tolerate_sick_nodes(change.spec)


def tolerate_sick_nodes(spec: Document) -> None:
    """Let the pod stay on a failing node for a while before it is replaced elsewhere."""
    tolerations = list(spec.get("tolerations") or ())
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATION_S,
        }
        for key in _SICKNESS
        if not any(_covers(toleration, key) for toleration in tolerations)
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def _covers(toleration: Document, key: str) -> bool:
    names_it = (toleration.get("key") or "") in (key, "")
    return names_it and (toleration.get("effect") or "") in ("NoExecute", "")
