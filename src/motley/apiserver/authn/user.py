"""Who a request comes from."""

from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_PREFIX = "system:node:"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
SERVICE_ACCOUNTS = "system:serviceaccounts"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class User:
    """A name and the groups it belongs to.

    Groups keep the order of the credentials, because reviews show them; they must be hashable
    (a tuple, a frozenset), because decisions are remembered by them.
    """

    name: str
    groups: Collection[str]
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def node_name(self) -> str:
        """The node this user speaks for, empty for everybody else."""
        if NODES in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX)
        return ""

    @property
    def info(self) -> dict[str, Any]:
        """The user as reviews show it (`UserInfo`)."""
        shown = {
            "username": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra},
        }
        return {key: value for key, value in shown.items() if value}

    def extra_value(self, key: str) -> str:
        """The one value of an extra key, empty when there is none or several."""
        values = dict(self.extra).get(key, ())
        return values[0] if len(values) == 1 else ""


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def service_account_user(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups every ServiceAccount of a namespace is in, without `system:authenticated`."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


def split_service_account(user: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount a user name stands for."""
    if not user.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, _, name = user.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


REQUESTER: ContextVar[User | None] = ContextVar("requester", default=None)
"""Whose request is being served; None while the server acts for itself.

Admission asks it far from the handler: quotas, webhooks and policies all want to know who writes.
"""
