"""What pods belong to: their namespaces' labels, and who selects them.

Affinity terms choose namespaces by label; a pod without spread constraints is spread among its
siblings, which are those that its Services and its controller select. Informers fill the book.

Invariant: `version` moves whenever an answer may be another, and not for mere status updates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.pod import Pod

# The controllers whose pods are siblings, by group and kind.
REPLICATION_CONTROLLER = ("v1", "ReplicationController")
REPLICA_SET = ("apps/v1", "ReplicaSet")
STATEFUL_SET = ("apps/v1", "StatefulSet")

_NO_LABELS: Mapping[str, str] = {}


@dataclass
class Directory:
    """The book; changed by informers only."""

    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)  # labels, by name
    version: int = 0

    def __post_init__(self) -> None:
        self._services: dict[str, dict[str, Selector]] = {}  # by namespace, then name
        self._controllers: dict[tuple[str, str, Key], Selector] = {}

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace came, changed or went."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.version += 1

    def set_service(self, key: Key, selector: Mapping[str, str] | None) -> None:
        """A Service came, changed or went; without a selector it selects nothing."""
        there = self._services.setdefault(key.namespace, {})
        new = Selector.of_map(selector) if selector else None
        if there.get(key.name) == new:
            return
        if new is None:
            del there[key.name]
        else:
            there[key.name] = new
        self.version += 1

    def set_controller(self, kind: tuple[str, str], key: Key, selector: Selector | None) -> None:
        """A controller of pods came, changed or went."""
        full = (*kind, key)
        if self._controllers.get(full) == selector:
            return
        if selector is None:
            del self._controllers[full]
        else:
            self._controllers[full] = selector
        self.version += 1

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none where it is not known."""
        return self.namespaces.get(name, _NO_LABELS)

    def siblings(self, pod: Pod) -> Selector:
        """Selects the pods that the pod's Services and controller select; all: nobody does."""
        meta = pod.metadata
        found = {
            requirement
            for selector in self._services.get(meta.namespace, {}).values()
            if selector.matches(meta.labels)
            for requirement in selector.requirements
        }
        owner = meta.controller()
        if owner is not None:
            key = Key(meta.namespace, owner.name)
            controller = self._controllers.get((owner.api_version, owner.kind, key))
            if controller is not None:
                found.update(controller.requirements)
        return Selector(sorted(found))
