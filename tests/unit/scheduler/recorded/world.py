"""One recorded cluster in memory, with the default profile over it."""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.podinfo import PodInfo, PodInfos

# Where a recording does not say what namespaces it had.
NAMESPACES = {"ns-a": {"team": "a"}, "ns-b": {"team": "b"}}

Document = Mapping[str, Any]


class World:
    """Columns, books and a cycle."""

    def __init__(
        self, nodes: Sequence[Document], namespaces: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.nodes = Columns()
        for node in nodes:
            self.nodes.set_node(Node.of(dict(node)))
        self.handle = Handle(self.nodes, SYSTEM, images.ImageTable())
        for name, labels in (namespaces or NAMESPACES).items():
            named = {**labels, "kubernetes.io/metadata.name": name}
            self.handle.directory.set_namespace(name, named)
        self.profile = profiles.default(self.handle)["default-scheduler"]
        self.cycle = Cycle(self.profile, self.nodes, nominations=self.handle.nominations)
        self._infos = PodInfos()

    def info(self, pod: Document) -> PodInfo:
        """A pod as plugins see it."""
        return self._infos.of(Pod.of(dict(pod)))

    def place(self, pod: Document, node: str) -> None:
        """Count a pod on a node."""
        self.nodes.add_pod(self.info(pod), node)
