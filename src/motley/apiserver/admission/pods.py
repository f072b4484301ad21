"""What every pod gets: a service account, a priority, a grace for sick nodes, a quality class.

Pure functions of the pod; the plugin at the end only calls them in order.
"""

from typing import Any

from motley.api import qos
from motley.apiserver.admission.change import Change

Pod = dict[str, Any]

# 300 s: kube-apiserver's default-not-ready-toleration-seconds and its unreachable twin.
TOLERATION_S = 300
_SICKNESS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodAdmission:
    """ServiceAccount (name only), Priority, DefaultTolerationSeconds and the QoS class."""

    async def admit(self, change: Change) -> None:
        """Complete a new pod."""
        if change.verb != "create" or not change.is_of("", "pods") or change.new is None:
            return
        spec = change.new.get("spec")
        if not isinstance(spec, dict):
            return  # validation says so in better words
        default_service_account(spec)
        default_priority(spec)
        tolerate_sick_nodes(spec)
        change.new.setdefault("status", {})["qosClass"] = qos.qos_class(change.new)

    def settle(self, change: Change, *, committed: bool) -> None:
        """Nothing is held."""


def default_service_account(spec: Pod) -> None:
    """Pods that name no account run as `default`; the old field mirrors the new one."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name


def default_priority(spec: Pod) -> None:
    """Without PriorityClasses every pod is equally important."""
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def tolerate_sick_nodes(spec: Pod) -> None:
    """Let the pod stay on a failing node for a while before it is replaced elsewhere."""
    tolerations = spec.setdefault("tolerations", [])
    for key in _SICKNESS:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATION_S,
                }
            )


def _covers(toleration: Pod, key: str) -> bool:
    names_it = toleration.get("key", "") in (key, "")
    return names_it and toleration.get("effect", "") in ("NoExecute", "")
