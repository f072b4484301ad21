"""ImageLocality: prefer nodes that already hold the pod's images, large ones most.

An image counts with its size times the share of nodes that have it: one that a single node
happens to hold must not draw every pod there.
"""

import numpy as np

from motley.scheduler import contract
from motley.scheduler.contract import MAX_SCORE, Columns, PodInfo, Scores

_MIB = 1024 * 1024
# kube-scheduler's bounds: smaller is as good as absent, larger (per container) counts no more.
_LEAST_BYTES = 23 * _MIB
_MOST_BYTES_PER_CONTAINER = 1000 * _MIB


class ImageLocality:
    """Score nodes by the bytes that need not be pulled."""

    name = "ImageLocality"
    static = True
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """0 below 23 MiB present, 100 from 1000 MiB per container."""
        present: Scores | None = None
        for image in pod.images:
            found = nodes.image_bytes(image)
            if found is not None:
                size, holders = found
                scaled = np.floor(size * (holders / nodes.count))
                present = scaled if present is None else present + scaled
        if present is None:
            return np.zeros(nodes.size)
        most = _MOST_BYTES_PER_CONTAINER * len(pod.images)
        bounded = np.clip(present, _LEAST_BYTES, most)
        return np.floor(MAX_SCORE * (bounded - _LEAST_BYTES) / (most - _LEAST_BYTES))


_: contract.Made[contract.ScorePlugin] = ImageLocality
