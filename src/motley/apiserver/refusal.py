"""What somebody is told who may not, in the words Kubernetes uses. Pure."""

from typing import ClassVar

from motley.api import status
from motley.apiserver.request import RequestInfo


class Denied(status.Forbidden):
    """The caller may not do this at all; no resource has looked at the request yet.

    Kubernetes answers these from its filters, which shows: they always carry details and forbid
    browsers to guess the content's type.
    """

    is_from_filter: ClassVar[bool] = True


def forbidden(user: str, info: RequestInfo, name: str, reason: str = "") -> Denied:
    """The refusal for a user of this name; `name` is the object's."""
    if not info.is_resource:
        return Denied(f'forbidden: User "{user}" cannot {info.verb} path "{info.path}"', details={})
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    subject = f'{qualified} "{name}"' if name else qualified
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    message = (
        f'{subject} is forbidden: User "{user}" cannot {info.verb} resource "{resource}" '
        f'in API group "{info.group}" {scope}'
    )
    details = {"name": name, "group": info.group, "kind": info.resource}
    return Denied(
        f"{message}: {reason}" if reason else message,
        details={k: v for k, v in details.items() if v},
    )
