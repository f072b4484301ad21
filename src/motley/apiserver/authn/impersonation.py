"""Acting for others: `kubectl --as`, for those whom a role lets.

Two ways lead there. The old one is the verb `impersonate` on users, groups, uids and extra values:
who has it may do everything the other may. The constrained ones need two rights: to be the other
(`impersonate:MODE`) and to do this very thing as the other (`impersonate-on:MODE:VERB`). Each way
that fits is tried; the first refusal is what the caller is told.

Invariant: an impersonated user is never more than the headers name and rules allow.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar
from urllib.parse import unquote

from motley.api import names, status
from motley.apiserver.authn.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_PREFIX,
    NODES,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)
from motley.apiserver.request import Query, RequestInfo

_AUTHENTICATION = "authentication.k8s.io"
_EXTRA_PREFIX = "impersonate-extra-"
Extra = tuple[tuple[str, tuple[str, ...]], ...]
Check = Callable[[User, RequestInfo], Exception | None]
"""Asks the authorizer: None when the user may, else the refusal."""


class BadImpersonation(status.BadRequest):
    """The headers make no sense."""

    is_from_filter: ClassVar[bool] = True


def wanted_user(headers: Mapping[str, str]) -> User | None:
    """The user the headers name; None when they name nobody."""
    if not any(header.startswith("impersonate-") for header in headers):
        return None
    name, uid = headers.get("impersonate-user", ""), headers.get("impersonate-uid", "")
    listed = headers.get("impersonate-group")
    groups = tuple(g.strip() for g in listed.split(",")) if listed is not None else ()
    extra: Extra = tuple(
        (
            unquote(header.removeprefix(_EXTRA_PREFIX).lower()),
            tuple(value.strip() for value in text.split(",")),
        )
        for header, text in headers.items()
        if header.startswith(_EXTRA_PREFIX)
    )
    if not name and (uid or groups or extra):
        raise BadImpersonation(
            f"requested {_go_syntax(uid, groups, extra)} without impersonating a user name"
        )
    return User(name, groups, uid, extra) if name else None


def _go_syntax(uid: str, groups: tuple[str, ...], extra: Extra) -> str:
    """The half-made user as Kubernetes prints it."""
    shown = "{" + ", ".join(f'"{g}"' for g in groups) + "}" if groups else "(nil)"
    keyed = ", ".join(
        f'"{key}":[]string{{{", ".join(f"{chr(34)}{v}{chr(34)}" for v in values)}}}'
        for key, values in extra
    )
    extras = f"map[string][]string{{{keyed}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:"{uid}", Groups:[]string{shown}, Extra:{extras}}}'


@dataclass(frozen=True, slots=True)
class _Mode:
    """One way to act for another; an empty name is the old way."""

    name: str

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"

    def fits(self, requester: User, wanted: User) -> bool:
        """Whether this way leads to such a user at all."""
        bare = not (wanted.uid or wanted.groups or wanted.extra)
        node, account = _node_of(wanted.name), split_service_account(wanted.name)
        if self.name == "associated-node":
            theirs = requester.extra_value("authentication.kubernetes.io/node-name")
            is_account = split_service_account(requester.name) is not None
            return bare and bool(node) and is_account and theirs == node
        if self.name == "arbitrary-node":
            return bare and bool(node)
        if self.name == "serviceaccount":
            return bare and account is not None
        if self.name == "user-info":
            return not node and account is None
        return True

    def questions(self, wanted: User) -> Iterator[RequestInfo]:
        """Every right that being this user takes."""
        group = _AUTHENTICATION if self.name else ""
        node, account = _node_of(wanted.name), split_service_account(wanted.name)
        if self.name and node:
            name = "*" if self.name == "associated-node" else node
            yield _question(self.verb, group, "nodes", name)
        elif account is not None:
            yield _question(self.verb, group, "serviceaccounts", account[1], account[0])
        else:
            yield _question(self.verb, group, "users", wanted.name)
        if wanted.uid:
            yield _question(self.verb, _AUTHENTICATION, "uids", wanted.uid)
        for one in wanted.groups:
            yield _question(self.verb, group, "groups", one)
        for key, values in wanted.extra:
            for value in values:
                asked = _question(self.verb, _AUTHENTICATION, "userextras", value)
                yield replace(asked, subresource=key)


_MODES = tuple(
    _Mode(name) for name in ("associated-node", "arbitrary-node", "serviceaccount", "user-info", "")
)


def impersonated(requester: User, wanted: User, info: RequestInfo, check: Check) -> User:
    """The user to act for in this request. Raises the first refusal when no way leads there."""
    first: Exception | None = None
    for mode in _MODES:
        if not mode.fits(requester, wanted):
            continue
        problem = _refusal(mode, requester, wanted, info, check)
        if problem is None:
            return _completed(mode, wanted)
        first = first or problem
    assert first is not None
    raise first


def _refusal(
    mode: _Mode, requester: User, wanted: User, info: RequestInfo, check: Check
) -> Exception | None:
    if mode.name:
        on = replace(info, verb=f"impersonate-on:{mode.name}:{info.verb}")
        if (problem := check(requester, on)) is not None:
            return problem
    for asked in mode.questions(wanted):
        if (problem := check(requester, asked)) is not None:
            return problem
    if mode.name and (MASTERS in wanted.groups or "" in wanted.groups):
        # Only the old way leads to administrators, as it always did.
        return status.Forbidden("impersonating the system:masters group is not allowed")
    return None


def _completed(mode: _Mode, wanted: User) -> User:
    """The user with the groups that go without saying."""
    groups = tuple(wanted.groups)
    account = split_service_account(wanted.name)
    if mode.name and _node_of(wanted.name):
        groups = (NODES,)
    elif account is not None and not groups:
        groups = service_account_groups(account[0])
    if wanted.name == ANONYMOUS.name:
        groups = tuple(dict.fromkeys([*groups, UNAUTHENTICATED]))
    elif UNAUTHENTICATED not in groups:
        groups = tuple(dict.fromkeys([*groups, AUTHENTICATED]))
    return replace(wanted, groups=groups)


def _node_of(user: str) -> str:
    name = user.removeprefix(NODE_PREFIX) if user.startswith(NODE_PREFIX) else ""
    return name if name and names.is_dns_subdomain(name) else ""


def _question(verb: str, group: str, resource: str, name: str, namespace: str = "") -> RequestInfo:
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        query=Query(),
        is_resource=True,
        group=group,
        version="v1",
        namespace=namespace,
        resource=resource,
        name=name,
    )
