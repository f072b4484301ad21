"""Which requests are written down, and how much of them: `audit.k8s.io/v1` Policy.

The first rule that matches decides; a request no rule matches is not recorded. Without a policy
file every request is recorded at `Metadata`, save for health checks.

Bodies are a special case. At `Request` and `RequestResponse` they are kept, but those that are
known to hold credentials (Secrets, ConfigMaps, token requests and reviews) only when the rule names
that very resource: a rule for `*` records who touched a Secret, not what is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from motley.apiserver.authn.user import User
from motley.apiserver.request import RequestInfo

Document = dict[str, Any]

LEVELS = ("None", "Metadata", "Request", "RequestResponse")
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_SENSITIVE = frozenset(
    {
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
    }
)
_RULE_FIELDS = (
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
)


class BadPolicy(ValueError):
    """The policy file is wrong; the message names the field."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What to keep of one request."""

    level: str
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False

    @property
    def has_request(self) -> bool:
        """Whether the request's body is kept."""
        return self.level in ("Request", "RequestResponse")

    @property
    def has_response(self) -> bool:
        """Whether the answer's body is kept."""
        return self.level == "RequestResponse"


NOTHING = Recording("None")


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in order."""

    rules: tuple[Document, ...]
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False

    def recording(self, user: User, info: RequestInfo) -> Recording:
        """What to keep of a request."""
        for rule in self.rules:
            if not _matches(rule, user, info):
                continue
            level = rule["level"]
            if level in LEVELS[2:] and _is_sensitive(info) and not _is_named(rule, info):
                level = "Metadata"
            omit = rule.get("omitManagedFields")
            return Recording(
                level,
                self.omit_stages | frozenset(rule.get("omitStages") or ()),
                self.omit_managed_fields if omit is None else bool(omit),
            )
        return NOTHING


DEFAULT = Policy(
    (
        {
            "level": "None",
            "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"],
        },
        {"level": "Metadata"},
    ),
    frozenset({"RequestReceived"}),
)


def load(path: Path) -> Policy:
    """Read a policy file. Raises `BadPolicy`, OSError."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadPolicy(f"{path} is not valid YAML: {error}") from None
    try:
        return parse(document)
    except BadPolicy as error:
        raise BadPolicy(f"{path}: {error}") from None


def parse(document: Any) -> Policy:
    """A policy from its document."""
    if not isinstance(document, dict) or document.get("kind") != "Policy":
        raise BadPolicy("kind: must be Policy")
    if document.get("apiVersion") != "audit.k8s.io/v1":
        raise BadPolicy("apiVersion: must be audit.k8s.io/v1")
    for name in document:
        if name not in (
            "kind",
            "apiVersion",
            "metadata",
            "rules",
            "omitStages",
            "omitManagedFields",
        ):
            raise BadPolicy(f"{name}: unknown field")
    rules = document.get("rules")
    if not isinstance(rules, list) or not rules:
        raise BadPolicy("rules: at least one is required")
    for index, rule in enumerate(rules):
        _check(rule, f"rules[{index}]")
    return Policy(
        tuple(rules),
        frozenset(_stages(document, "")),
        bool(document.get("omitManagedFields")),
    )


def _check(rule: Any, path: str) -> None:
    if not isinstance(rule, dict):
        raise BadPolicy(f"{path}: must be an object")
    for name in rule:
        if name not in _RULE_FIELDS:
            raise BadPolicy(f"{path}.{name}: unknown field")
    if rule.get("level") not in LEVELS:
        raise BadPolicy(f"{path}.level: must be one of {', '.join(LEVELS)}")
    for name in ("users", "userGroups", "verbs", "namespaces", "nonResourceURLs"):
        _texts(rule, name, path)
    if rule.get("nonResourceURLs") and (rule.get("resources") or rule.get("namespaces")):
        raise BadPolicy(f"{path}.nonResourceURLs: rules cannot apply to both resources and URLs")
    for url in rule.get("nonResourceURLs") or ():
        if url != "*" and (not url.startswith("/") or "*" in url[:-1]):
            raise BadPolicy(f"{path}.nonResourceURLs: {url!r} must begin with / and end with any *")
    resources = rule.get("resources") or []
    if not isinstance(resources, list):
        raise BadPolicy(f"{path}.resources: must be a list")
    for index, one in enumerate(resources):
        here = f"{path}.resources[{index}]"
        if not isinstance(one, dict) or set(one) - {"group", "resources", "resourceNames"}:
            raise BadPolicy(f"{here}: must have only group, resources and resourceNames")
        if not isinstance(one.get("group", ""), str):
            raise BadPolicy(f"{here}.group: must be a string")
        _texts(one, "resources", here)
        _texts(one, "resourceNames", here)
        if one.get("resourceNames") and not one.get("resources"):
            raise BadPolicy(f"{here}.resourceNames: using resourceNames requires resources")
    _stages(rule, f"{path}.")


def _texts(value: Document, name: str, path: str) -> None:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise BadPolicy(f"{path}.{name}: must be a list of strings")


def _stages(value: Document, path: str) -> Sequence[str]:
    found = value.get("omitStages") or []
    if not isinstance(found, list) or any(one not in STAGES for one in found):
        raise BadPolicy(f"{path}omitStages: must be of {', '.join(STAGES)}")
    return found


def _matches(rule: Document, user: User, info: RequestInfo) -> bool:
    if (users := rule.get("users")) and user.name not in users:
        return False
    if (groups := rule.get("userGroups")) and not set(groups) & set(user.groups):
        return False
    if (verbs := rule.get("verbs")) and info.verb not in verbs:
        return False
    namespaces, resources = rule.get("namespaces"), rule.get("resources")
    if namespaces or resources:
        if not info.is_resource or (namespaces and info.namespace not in namespaces):
            return False
        return not resources or any(_resource_matches(one, info) for one in resources)
    if urls := rule.get("nonResourceURLs"):
        return not info.is_resource and any(_url_matches(one, info.path) for one in urls)
    return True


def _resource_matches(one: Document, info: RequestInfo) -> bool:
    if one.get("group", "") not in ("*", info.group):
        return False
    if (names := one.get("resourceNames")) and info.name not in names:
        return False
    listed = one.get("resources")
    if not listed:
        return True
    return any(
        name in ("*", _resource(info))
        or (info.subresource and name == f"*/{info.subresource}")
        or name == f"{info.resource}/*"
        for name in listed
    )


def _url_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return path == pattern


def _resource(info: RequestInfo) -> str:
    return f"{info.resource}/{info.subresource}" if info.subresource else info.resource


def _is_sensitive(info: RequestInfo) -> bool:
    return (info.group, _resource(info)) in _SENSITIVE


def _is_named(rule: Document, info: RequestInfo) -> bool:
    """Whether a rule names the resource itself, not only something that covers it."""
    return any(
        one.get("group", "") == info.group and _resource(info) in (one.get("resources") or ())
        for one in rule.get("resources") or ()
    )
