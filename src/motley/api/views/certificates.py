"""Requests for certificates and what to trust, as controllers and node agents read them."""

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


class ClusterTrustBundleSpec(View):
    """Certificates, and who attests that they are to be trusted for its sake."""

    signer_name: str = ""
    trust_bundle: str = ""


class ClusterTrustBundle(Object):
    """Certificates of authorities, for every pod that wants them."""

    API_VERSION: ClassVar[str] = "certificates.k8s.io/v1"
    KIND: ClassVar[str] = "ClusterTrustBundle"
    PLURAL: ClassVar[str] = "clustertrustbundles"
    NAMESPACED: ClassVar[bool] = False

    spec: ClusterTrustBundleSpec = msgspec.field(default_factory=ClusterTrustBundleSpec)


class PodCertificateRequestSpec(View):
    """Who signs, for which pod."""

    signer_name: str = ""
    pod_name: str = ""


class PodCertificateRequestStatus(View):
    """The signer's answer."""

    conditions: list[RequestCondition] = []
    certificate_chain: str = ""
    not_before: str | None = None
    begin_refresh_at: str | None = None
    not_after: str | None = None


class PodCertificateRequest(Object):
    """A node's wish for a certificate of one of its pods."""

    API_VERSION: ClassVar[str] = "certificates.k8s.io/v1"
    KIND: ClassVar[str] = "PodCertificateRequest"
    PLURAL: ClassVar[str] = "podcertificaterequests"
    NAMESPACED: ClassVar[bool] = True

    spec: PodCertificateRequestSpec = msgspec.field(default_factory=PodCertificateRequestSpec)
    status: PodCertificateRequestStatus = msgspec.field(default_factory=PodCertificateRequestStatus)
