"""The variable `authorizer` of conditions and policies: the answers of the server's own authorizer.

Invariant: a policy is never told no because of roles that are out of date; `asking` waits for the
caches before the first question.
"""

from typing import Protocol

from motley.api.cel.functions.authorization import Authorizer, Decision, Question
from motley.apiserver.admission.change import Change
from motley.apiserver.admission.review import SERVER
from motley.apiserver.authn.user import (
    AUTHENTICATED,
    User,
    service_account_groups,
    service_account_user,
)
from motley.apiserver.authz.decision import Decision as Decided
from motley.apiserver.request import Query, RequestInfo


class Decides(Protocol):
    """Who is asked: see `authz.authorizer.Authorizer`."""

    async def refresh(self, user: User) -> None:
        """Wait until decisions about a user are made from everything that is stored now."""

    def decide(self, user: User, info: RequestInfo) -> Decided:
        """The decision on what is known now."""


async def asking(change: Change, authorizer: Decides) -> Authorizer:
    """What a policy may ask while it looks at a write."""
    user = change.user or SERVER
    await authorizer.refresh(user)

    def ask(question: Question) -> Decision:
        who = _account(*question.account) if question.account is not None else user
        found = authorizer.decide(who, _request(question))
        return Decision(found.allowed, found.reason)

    own = Question(
        group=change.kind.group,
        resource=change.kind.plural,
        subresource=change.subresource,
        namespace=change.namespace,
        name=change.name,
    )
    return Authorizer(ask, own)


def _account(namespace: str, name: str) -> User:
    groups = (*service_account_groups(namespace), AUTHENTICATED)
    return User(service_account_user(namespace, name), groups)


def _request(question: Question) -> RequestInfo:
    if question.path:
        return RequestInfo("", question.path, question.verb, Query())
    selectors = {
        "fieldSelector": question.field_selector,
        "labelSelector": question.label_selector,
    }
    return RequestInfo(
        "",
        "",
        question.verb,
        Query({name: [text] for name, text in selectors.items() if text}),
        True,
        question.group,
        "*",
        question.namespace,
        question.resource,
        question.name,
        question.subresource,
    )
