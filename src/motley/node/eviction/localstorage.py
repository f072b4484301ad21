"""Who took more of the disk than it said it would: the limits of emptyDirs, containers and pods.

These are promises of the pod itself, so nothing need be short: whoever breaks one goes at once.
"""

from motley.api import quantity
from motley.api.views.pod import Pod
from motley.node import resources
from motley.node.diskusage import PodDisk

_RESOURCE = "ephemeral-storage"


def has_limits(pod: Pod) -> bool:
    """Is there anything to check, so that measuring is worth its while?"""
    return any(
        v.empty_dir is not None and v.empty_dir.size_limit is not None for v in pod.spec.volumes
    ) or any(_RESOURCE in c.resources.limits for c in pod.spec.containers)


def broken(pod: Pod, disk: PodDisk) -> str:
    """Which limit the pod exceeds, in Kubernetes' words; empty when it keeps them all."""
    for volume in pod.spec.volumes:
        source = volume.empty_dir
        if source is None or source.medium == "Memory" or source.size_limit is None:
            continue
        limit = quantity.to_int(source.size_limit)
        used = disk.volumes.get(volume.name)
        if limit > 0 and used is not None and used.bytes > limit:
            text = quantity.canonical(source.size_limit)
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{text}". '
    most = resources.pod_limits(pod).get(_RESOURCE)
    if most is not None and disk.total.bytes > most:
        text = quantity.format_binary(most)
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
    for container in pod.spec.containers:
        written = container.resources.limits.get(_RESOURCE)
        mine = disk.containers.get(container.name)
        if written is not None and mine is not None and mine.bytes > quantity.to_int(written):
            text = quantity.canonical(written)
            return (
                f'Container {container.name} exceeded its local ephemeral storage limit "{text}". '
            )
    return ""
