"""Who a request comes from."""

from dataclasses import dataclass

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"


@dataclass(frozen=True, slots=True)
class User:
    """A name and the groups it belongs to."""

    name: str
    groups: frozenset[str]
    uid: str = ""

    @property
    def node_name(self) -> str:
        """The node this user speaks for, empty for everybody else."""
        if NODES in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX)
        return ""


ANONYMOUS = User("system:anonymous", frozenset({UNAUTHENTICATED}))
