"""May they? Administrators may everything; nodes what is theirs; all others what roles say.

Several sources of rules are asked in turn and the first yes counts; nothing ever says a final no,
so a refusal lists what was missing everywhere.

Invariant: everything not allowed is refused, and never because of rules that are out of date: a
refusal is given only after the caches have caught up with the store.
"""

from typing import Protocol

from motley.api import scheme
from motley.apiserver.attributes import Attributes
from motley.apiserver.authn.user import MASTERS, User
from motley.apiserver.authz import rbac
from motley.apiserver.authz.decision import Decision, Denied, forbidden
from motley.apiserver.authz.graph import Graph
from motley.apiserver.authz.nodes import NodeAuthorizer, equal_fields
from motley.apiserver.authz.rules import Rule
from motley.apiserver.request import RequestInfo
from motley.store.watchcache import WatchCache

_MANY = frozenset({"list", "watch", "deletecollection"})
_DEPENDS_ON = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


class Caches(Protocol):
    """Where rules and pods are read."""

    def __getitem__(self, kind: scheme.Kind) -> WatchCache[Attributes]: ...

    async def fresh(self, kind: scheme.Kind) -> WatchCache[Attributes]:
        """The kind's cache, once it shows everything the store has now."""


class Authorizer:
    """Decides on requests of known users."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._pods = rbac.kind("pods", "")
        self._certificate_requests = rbac.kind("podcertificaterequests", "certificates.k8s.io")
        self._nodes = NodeAuthorizer(Graph(caches))
        self.rbac = rbac.Rbac(caches)

    async def authorize(self, user: User, info: RequestInfo) -> None:
        """Return when the user may; raise `Denied` when not."""
        decision = await self.allows(user, info)
        if not decision.allowed:
            raise forbidden(user, info, name_of(info), decision.reason)

    async def allows(self, user: User, info: RequestInfo) -> Decision:
        """The decision; a no is told only when it is one on everything that is stored now."""
        decision = self.decide(user, info)
        if not decision.allowed:
            await self.refresh(user)
            decision = self.decide(user, info)
        return decision

    async def refresh(self, user: User) -> None:
        """Wait until decisions about a user are made from everything that is stored now."""
        for plural in _DEPENDS_ON:
            await self._caches.fresh(rbac.kind(plural))
        if user.node_name:
            await self._caches.fresh(self._pods)
            await self._caches.fresh(self._certificate_requests)

    def decide(self, user: User, info: RequestInfo) -> Decision:
        """The decision on what the caches show."""
        if MASTERS in user.groups:
            return Decision(True)
        name = name_of(info)
        opinion = self._nodes.decide(user, info, name)
        if opinion.allowed:
            return Decision(True, opinion.reason)
        if info.is_resource:
            why = self.rbac.allows(
                user,
                info.verb,
                info.group,
                info.resource,
                info.subresource,
                info.namespace,
                name,
            )
        else:
            why = self.rbac.allows_path(user, info.verb, info.path)
        if why:
            return Decision(True, why)
        return Decision(False, f"node: {opinion.reason}" if opinion.reason else "")

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """Every rule that holds for the user there, and what makes the list incomplete."""
        error = "node authorizer does not support user rule resolution" if user.node_name else ""
        return self.rbac.rules_of(user, namespace), error


def name_of(info: RequestInfo) -> str:
    """The one object a request is about, also when a field selector names it."""
    if info.name or info.verb not in _MANY or "fieldSelector" not in info.query:
        return info.name
    return dict(equal_fields(info)).get("metadata.name", "")


__all__ = ["Authorizer", "Decision", "Denied", "forbidden", "name_of"]
