"""May they? Administrators may everything; components what the table says; others nothing.

Roles that users write themselves (RBAC) join here as one more source of rules.

Invariant: everything not allowed is refused, with the words Kubernetes uses, so that tools
which parse them keep working.
"""

from motley.api import status
from motley.apiserver.authn.user import AUTHENTICATED, MASTERS, User
from motley.apiserver.authz import node, table
from motley.apiserver.request import RequestInfo

__all__ = ["Authorizer"]

_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_DISCOVERY = ("/api", "/apis", "/openapi", *sorted(_PUBLIC))


class Authorizer:
    """Decides on requests of known users."""

    def __init__(self, pods: node.Pods) -> None:
        self._pods = pods

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Return when the user may; raise Forbidden when not."""
        if MASTERS in user.groups:
            return
        if not info.is_resource:
            self._authorize_path(user, info)
            return
        reason = self._refusal(user, info)
        if reason is not None:
            raise forbidden(user, info, reason)

    def _authorize_path(self, user: User, info: RequestInfo) -> None:
        path = info.path.rstrip("/") or "/"
        if info.verb in ("get", "head"):
            if path in _PUBLIC:
                return
            known = AUTHENTICATED in user.groups
            if known and any(path == p or path.startswith(f"{p}/") for p in _DISCOVERY):
                return
        raise status.Forbidden(
            f'forbidden: User "{user.name}" cannot {info.verb} path "{info.path}"'
        )

    def _refusal(self, user: User, info: RequestInfo) -> str | None:
        """None when allowed, else the reason beyond the general words (often empty)."""
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        node_name = user.node_name
        rules = table.NODE if node_name else table.COMPONENTS.get(user.name, ())
        if not any(r.allows(info.verb, info.group, resource) for r in rules):
            return ""
        if node_name and (reason := node.refusal(node_name, info, self._pods)):
            return f"node: {reason}"
        return None


def forbidden(user: User, info: RequestInfo, reason: str = "") -> status.Forbidden:
    """The refusal, worded as Kubernetes words it."""
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    subject = f'{qualified} "{info.name}"' if info.name else qualified
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    message = (
        f'{subject} is forbidden: User "{user.name}" cannot {info.verb} resource "{resource}" '
        f'in API group "{info.group}" {scope}'
    )
    details = {"name": info.name, "group": info.group, "kind": info.resource}
    return status.Forbidden(
        f"{message}: {reason}" if reason else message,
        details={k: v for k, v in details.items() if v},
    )
