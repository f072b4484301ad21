"""Who may speak for a signer: approve a request, sign it, attest what to trust.

Writing a request's status is one right, being the signer it names is another: otherwise whoever may
answer one signer's requests could answer all of them, and hand out certificates of an
administrator. So these writes also need the verb `approve`, `sign` or `attest` on the resource
`signers` of this name, or on `domain/*` for every signer of a domain.

Invariant: judged by the signer in the stored object, never by the one a request brings along;
what does not change the answer (labels, finalizers) needs no such right.
"""

import base64
import binascii
from typing import Any, Protocol

from cryptography import x509
from cryptography.x509.oid import NameOID

from motley.api import pem, status
from motley.api.validation.errors import forbidden, invalid
from motley.api.validation.podcertificate import ISSUED
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.authn.user import MASTERS, User
from motley.apiserver.authz.decision import Decision
from motley.apiserver.request import Query, RequestInfo
from motley.lib.clock import SYSTEM, Clock, parse_rfc3339

_GROUP = "certificates.k8s.io"
_REQUESTS = f"{_GROUP}/certificatesigningrequests"
_CLIENT = "kubernetes.io/kube-apiserver-client"
_SKEW_S = 300.0  # Kubernetes' patience with a signer's clock
# What garbage collection writes: no new word about what to trust.
_UPKEEP = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation")


class Decides(Protocol):
    """Who is asked: see `authz.authorizer.Authorizer`."""

    async def refresh(self, user: User) -> None:
        """Wait until decisions about a user are made from everything that is stored now."""

    def decide(self, user: User, info: RequestInfo) -> Decision:
        """The decision on what is known now."""


async def may(
    authorizer: Decides | None,
    user: User | None,
    verb: str,
    resource: str,
    names: tuple[str, ...],
    namespace: str = "",
) -> bool:
    """Whether the user has this right on any of these names; the server itself has all."""
    if user is None or authorizer is None or MASTERS in user.groups:
        return True
    await authorizer.refresh(user)
    for name in names:
        info = RequestInfo("", "", verb, Query(), True, _GROUP, "*", namespace, resource, name)
        if authorizer.decide(user, info).allowed:
            return True
    return False


async def may_as(authorizer: Decides | None, user: User | None, verb: str, signer: str) -> bool:
    """Whether the user may do this as the signer, or as every signer of its domain."""
    domain = signer.partition("/")[0]
    return await may(authorizer, user, verb, "signers", (signer, f"{domain}/*"))


def _signer(found: dict[str, Any] | None) -> str:
    return str(((found or {}).get("spec") or {}).get("signerName", ""))


class _SignerPlugin:
    def __init__(self, authorizer: Decides | None) -> None:
        self._authorizer = authorizer

    async def _may(self, change: Change, verb: str, signer: str) -> bool:
        return await may_as(self._authorizer, change.user, verb, signer)


class CertificateApproval(_SignerPlugin):
    """Looks at who approves and denies requests."""

    name = "CertificateApproval"
    interests = (interest("update", _REQUESTS, subresources="approval"),)

    async def validate(self, change: Change) -> None:
        """403 without the verb `approve` on the signer."""
        signer = _signer(change.old)
        if not await self._may(change, "approve", signer):
            raise change.forbidden(
                f'user not permitted to approve requests with signerName "{signer}"'
            )


class CertificateSigning(_SignerPlugin):
    """Looks at who hands out certificates."""

    name = "CertificateSigning"
    interests = (interest("update", _REQUESTS, subresources="status"),)

    async def validate(self, change: Change) -> None:
        """403 without the verb `sign` on the signer."""
        now, before = _status(change.new), _status(change.old)
        if all((now.get(k) or None) == (before.get(k) or None) for k in _ANSWER):
            return
        signer = _signer(change.old)
        if not await self._may(change, "sign", signer):
            raise change.forbidden(
                f'user not permitted to sign requests with signerName "{signer}"'
            )


_ANSWER = ("certificate", "conditions")


def _status(found: dict[str, Any] | None) -> dict[str, Any]:
    state: dict[str, Any] = (found or {}).get("status") or {}
    return state


class ClusterTrustBundleAttest(_SignerPlugin):
    """Looks at who says which certificates a signer's clients are to trust."""

    name = "ClusterTrustBundleAttest"
    interests = (interest("create update", f"{_GROUP}/clustertrustbundles"),)

    async def validate(self, change: Change) -> None:
        """403 without the verb `attest` on the signer."""
        signer = _signer(change.new)
        if not signer or (change.old is not None and _told(change.new) == _told(change.old)):
            return
        if not await self._may(change, "attest", signer):
            raise change.forbidden(f'user not permitted to attest for signerName "{signer}"')


def _told(found: dict[str, Any] | None) -> dict[str, Any]:
    """An object but for what garbage collection and storage change."""
    found = found or {}
    metadata = {k: v for k, v in (found.get("metadata") or {}).items() if k not in _UPKEEP}
    return {**found, "metadata": metadata}


class CertificateSubjectRestriction:
    """Nobody becomes an administrator by a certificate."""

    name = "CertificateSubjectRestriction"
    interests = (interest("create", _REQUESTS),)

    async def validate(self, change: Change) -> None:
        """403 when a client certificate would be of the group `system:masters`."""
        if _signer(change.new) != _CLIENT:
            return
        text = ((change.new or {}).get("spec") or {}).get("request", "")
        try:
            blocks = list(pem.blocks(base64.b64decode(text).decode("ascii", "replace")))
            subject = x509.load_der_x509_csr(blocks[0].data).subject
        except (binascii.Error, ValueError, IndexError) as error:
            raise change.forbidden("failed to parse CSR") from error
        groups = [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        if MASTERS in groups:
            raise change.forbidden(f"use of {_CLIENT} signer with {MASTERS} group is not allowed")


class PodCertificateAnswers(_SignerPlugin):
    """Looks at who answers PodCertificateRequests, and whether the certificate begins now.

    No matter of choice: in Kubernetes this is part of the kind's own rules.
    """

    name = "PodCertificateAnswers"
    interests = (interest("update", f"{_GROUP}/podcertificaterequests", subresources="status"),)

    def __init__(self, authorizer: Decides | None, *, clock: Clock = SYSTEM) -> None:
        super().__init__(authorizer)
        self._clock = clock

    async def validate(self, change: Change) -> None:
        """422 without the verb `sign` on the signer, or for a certificate of another day."""
        now = _status(change.new)
        if now == _status(change.old):
            return
        if any(c.get("type") == ISSUED for c in now.get("conditions") or ()):
            begins = now.get("notBefore") or ""
            if abs(parse_rfc3339(begins) - self._clock.now()) >= _SKEW_S:
                detail = "must be set to within 5 minutes of kube-apiserver's current time"
                raise _refused(change, invalid("status.notBefore", begins, detail))
        signer = _signer(change.old)
        if not await self._may(change, "sign", signer):
            who = change.user.name if change.user is not None else ""
            detail = f'User "{who}" is not permitted to "sign" for signer "{signer}"'
            raise _refused(change, forbidden("spec.signerName", detail))


def _refused(change: Change, error: status.FieldError) -> status.Invalid:
    return status.invalid(change.kind.group, change.kind.kind, change.name, [error])
