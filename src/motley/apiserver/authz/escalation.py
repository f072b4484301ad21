"""Nobody grants what they do not have.

Whoever may write roles could otherwise write themselves a better one. A new role must hold only
rights its author has; a new binding must lead to a role whose rights its author has. The verbs
`escalate` (on roles) and `bind` (on a role) lift this, for controllers and trusted delegates.

Invariant: an update that changes no rights is never refused for them, so that labels can always
be edited and garbage collected.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import status
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.authn.user import MASTERS, User
from motley.apiserver.authz.authorizer import Authorizer
from motley.apiserver.authz.rbac import GROUP
from motley.apiserver.authz.rules import Rule, described, missing
from motley.apiserver.request import Query, RequestInfo

_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")
_EVERYTHING = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class EscalationCheck:
    """An admission plugin that looks at roles and bindings."""

    name = "EscalationCheck"
    interests = (interest("create update", *(f"{GROUP}/{p}" for p in (*_ROLES, *_BINDINGS))),)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, change: Change) -> None:
        """403 when the change would grant more than its author holds; alters nothing."""
        user = change.user
        if user is None or MASTERS in user.groups or change.new is None:
            return
        await self._authorizer.refresh(user)
        if change.kind.plural in _ROLES:
            self._check_role(user, change, change.new)
        else:
            self._check_binding(user, change, change.new)

    def _check_role(self, user: User, change: Change, role: Mapping[str, Any]) -> None:
        if not _differs(role, change.old, ("rules", "aggregationRule")):
            return
        if self._may(user, "escalate", change.kind.plural, change.namespace, change.name):
            return
        listed = role.get("rules") or ()
        self._confirm(user, change, (Rule.of(r) for r in listed if isinstance(r, dict)))
        if role.get("aggregationRule"):
            self._confirm(
                user,
                change,
                (Rule.of(r) for r in _EVERYTHING),
                "must have cluster-admin privileges to use an aggregationRule: ",
            )

    def _check_binding(self, user: User, change: Change, binding: Mapping[str, Any]) -> None:
        if not _differs(binding, change.old, ("roleRef", "subjects")):
            return
        reference = binding.get("roleRef") or {}
        kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
        plural = "roles" if kind == "Role" else "clusterroles"
        if self._may(user, "bind", plural, change.namespace, name):
            return
        rules = self._authorizer.rbac.rules_in_role(kind, change.namespace, name)
        if rules is None:
            raise status.not_found(GROUP, change.kind.plural, name)
        self._confirm(user, change, rules)

    def _may(self, user: User, verb: str, plural: str, namespace: str, name: str) -> bool:
        info = RequestInfo(
            method="",
            path="",
            verb=verb,
            query=Query(),
            is_resource=True,
            group=GROUP,
            version="v1",
            namespace=namespace,
            resource=plural,
            name=name,
        )
        return self._authorizer.decide(user, info).allowed

    def _confirm(
        self, user: User, change: Change, wanted: Iterable[Rule], prefix: str = ""
    ) -> None:
        absent = missing(self._authorizer.rbac.rules_of(user, change.namespace), wanted)
        if not absent:
            return
        groups = " ".join(f'"{group}"' for group in user.groups)
        raise change.forbidden(
            f'{prefix}user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC '
            "permissions not currently held:\n" + "\n".join(described(absent))
        )


def _differs(new: Mapping[str, Any], old: Mapping[str, Any] | None, fields: Iterable[str]) -> bool:
    if old is None:
        return True
    return any((new.get(field) or None) != (old.get(field) or None) for field in fields)
