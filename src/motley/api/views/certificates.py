"""CertificateSigningRequest, as the controllers that approve and sign read it."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Object, View


class RequestCondition(View):
    """What was decided of a request."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None


class SigningRequestSpec(View):
    """What is asked for, and by whom (written by the API server, so it can be believed)."""

    request: bytes = b""
    signer_name: str = ""
    usages: list[str] = []
    expiration_seconds: int | None = None
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class SigningRequestStatus(View):
    """What became of it."""

    certificate: bytes = b""
    conditions: list[RequestCondition] = []


class CertificateSigningRequest(Object):
    """Someone's wish for a certificate."""

    API_VERSION: ClassVar[str] = "certificates.k8s.io/v1"
    KIND: ClassVar[str] = "CertificateSigningRequest"
    PLURAL: ClassVar[str] = "certificatesigningrequests"
    NAMESPACED: ClassVar[bool] = False

    spec: SigningRequestSpec = msgspec.field(default_factory=SigningRequestSpec)
    status: SigningRequestStatus = msgspec.field(default_factory=SigningRequestStatus)

    def has(self, condition: str) -> bool:
        """Is this condition among those written?"""
        return any(c.type == condition for c in self.status.conditions)
