"""Defaults of what extends the API: webhooks, policies, custom resources, API services."""

from collections.abc import Iterable
from typing import Any

Document = dict[str, Any]

_WEBHOOK_TIMEOUT_S = 10
_SERVICE_PORT = 443


def mutating_webhooks(obj: Document) -> None:
    """A MutatingWebhookConfiguration."""
    for webhook in obj.get("webhooks") or ():
        _webhook(webhook)
        webhook.setdefault("reinvocationPolicy", "Never")


def validating_webhooks(obj: Document) -> None:
    """A ValidatingWebhookConfiguration."""
    for webhook in obj.get("webhooks") or ():
        _webhook(webhook)


def _webhook(webhook: Document) -> None:
    webhook.setdefault("failurePolicy", "Fail")
    _matching(webhook)
    webhook.setdefault("timeoutSeconds", _WEBHOOK_TIMEOUT_S)
    _rules(webhook.get("rules") or ())
    _service(webhook.get("clientConfig"))


def _matching(resources: Document) -> None:
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})


def _rules(rules: Iterable[Document]) -> None:
    for rule in rules:
        rule.setdefault("scope", "*")


def _service(config: Document | None) -> None:
    service = (config or {}).get("service")
    if service is not None:
        service.setdefault("port", _SERVICE_PORT)


def admission_policy(obj: Document) -> None:
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def admission_policy_binding(obj: Document) -> None:
    """A binding of either kind of policy."""
    _match_resources(obj.setdefault("spec", {}).get("matchResources"))


def _match_resources(resources: Document | None) -> None:
    if resources is None:
        return
    _matching(resources)
    _rules(resources.get("resourceRules") or ())
    _rules(resources.get("excludeResourceRules") or ())


def custom_resource_definition(obj: Document) -> None:
    """A CustomResourceDefinition names its singular and its list when nobody does."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    _service((conversion.get("webhook") or {}).get("clientConfig"))
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        stored = [v.get("name", "") for v in spec.get("versions") or () if v.get("storage")]
        status["storedVersions"] = stored[:1]


def api_service(obj: Document) -> None:
    """An APIService."""
    _service(obj.setdefault("spec", {}))
