"""Questions the API answers without storing anything: whose token, who am I, may they.

Every review is a POST of an object that comes back with its `status` filled in.
"""

from collections.abc import Awaitable, Callable

from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.reviews import access, rules, subject, token
from motley.apiserver.verbs.call import Call

__all__ = ["HANDLERS"]

HANDLERS: dict[tuple[str, str], Callable[[Core, Call], Awaitable[Answer]]] = {
    ("authentication.k8s.io", "tokenreviews"): token.create,
    ("authentication.k8s.io", "selfsubjectreviews"): subject.create,
    ("authorization.k8s.io", "subjectaccessreviews"): access.of_subject,
    ("authorization.k8s.io", "localsubjectaccessreviews"): access.of_subject_locally,
    ("authorization.k8s.io", "selfsubjectaccessreviews"): access.of_self,
    ("authorization.k8s.io", "selfsubjectrulesreviews"): rules.create,
}
