"""Objects by which a server is called by the API server; read only to see that they change."""

from typing import ClassVar

from motley.api.views.base import Object


class APIService(Object):
    """A group and version that another server serves."""

    API_VERSION: ClassVar[str] = "apiregistration.k8s.io/v1"
    KIND: ClassVar[str] = "APIService"
    PLURAL: ClassVar[str] = "apiservices"
    NAMESPACED: ClassVar[bool] = False


class MutatingWebhookConfiguration(Object):
    """Who may change what is written."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "MutatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "mutatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False


class ValidatingWebhookConfiguration(Object):
    """Who may refuse what is written."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "ValidatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "validatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False
