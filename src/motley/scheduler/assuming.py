"""Between the decision and the binding: the pod counts on its node already, if the plugins agree.

They may count it otherwise there (`placed_as`), keep books of their own (Reserve), and refuse or
put off its binding (Permit).
"""

from motley.scheduler.contract import PluginError, PodInfo, Reject, Wait
from motley.scheduler.profiles import Profile


def placed_as(profile: Profile, pod: PodInfo, node: str) -> PodInfo:
    """The pod as it is counted on this node. Raises PluginError."""
    for plugin in profile.counts_by_node:
        try:
            pod = plugin.placed_as(pod, node)
        except Exception as e:
            raise PluginError(plugin.name, "Filter", e) from e
    return pod


def reserve_and_permit(profile: Profile, pod: PodInfo, node: str) -> Reject | Wait | None:
    """What the plugins say to the node chosen; None: go on. Raises PluginError."""
    wait: Wait | None = None
    at = ("", "")
    try:
        for plugin in profile.reserve:
            at = (plugin.name, "Reserve")
            refusal = plugin.reserve(pod, node)
            if refusal is not None:
                return Reject(refusal.reason)
        for plugin in profile.permit:
            at = (plugin.name, "Permit")
            answer = plugin.permit(pod, node)
            if isinstance(answer, Reject):
                return answer
            if isinstance(answer, Wait):
                wait = answer if wait is None or answer.timeout_s < wait.timeout_s else wait
    except Exception as e:
        raise PluginError(*at, e) from e
    return wait
