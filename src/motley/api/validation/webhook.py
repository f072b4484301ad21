"""Rules for webhooks: who is asked, about what, and how long the server waits."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from motley.api import names
from motley.api.validation import expression, selector
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    invalid,
    named,
    one_of,
    required,
    unsupported,
)

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MATCH_POLICIES = ("Equivalent", "Exact")
FAILURE_POLICIES = ("Fail", "Ignore")
REINVOCATION = ("IfNeeded", "Never")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REVIEWS = ("v1", "v1beta1")
_SCOPES = ("*", "Cluster", "Namespaced")
_TIMEOUT_MAX_S = 30
_CONDITIONS_MAX = 64
_SEGMENTS_MIN = 3
_FORM = "; desired format: https://host[/path]"


def configuration(obj: Document) -> Errors:
    """A ValidatingWebhookConfiguration or MutatingWebhookConfiguration."""
    seen: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        field = f"webhooks[{index}]"
        yield from _webhook(field, hook)
        name = hook.get("name", "")
        if name and name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)


def _webhook(field: str, hook: Document) -> Errors:
    yield from fully_qualified(f"{field}.name", hook.get("name", ""))
    for index, given in enumerate(hook.get("rules") or ()):
        yield from rule(f"{field}.rules[{index}]", given)
    yield from one_of(f"{field}.failurePolicy", hook.get("failurePolicy"), FAILURE_POLICIES)
    yield from one_of(f"{field}.matchPolicy", hook.get("matchPolicy"), MATCH_POLICIES)
    effects = hook.get("sideEffects")
    if not effects:
        yield required(f"{field}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    else:
        yield from one_of(f"{field}.sideEffects", effects, _SIDE_EFFECTS)
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= _TIMEOUT_MAX_S:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield invalid(f"{field}.timeoutSeconds", timeout, detail)
    for part in ("namespaceSelector", "objectSelector"):
        yield from selector.label_selector(f"{field}.{part}", hook.get(part))
    yield from one_of(f"{field}.reinvocationPolicy", hook.get("reinvocationPolicy"), REINVOCATION)
    yield from client_config(f"{field}.clientConfig", hook.get("clientConfig") or {})
    yield from conditions(f"{field}.matchConditions", hook.get("matchConditions") or [], ())
    yield from _versions(f"{field}.admissionReviewVersions", hook)


def fully_qualified(field: str, name: str) -> Errors:
    """A name of at least three segments, so that nobody's clash."""
    if not name:
        yield required(field)
        return
    yield from named(field, name, names.check_dns_subdomain(name))
    if len(name.split(".")) < _SEGMENTS_MIN:
        detail = "should be a domain with at least three segments separated by dots"
        yield invalid(field, name, detail)


def rule(field: str, given: Document) -> Errors:
    """Which operations on which resources."""
    operations = given.get("operations") or []
    if not operations:
        yield required(f"{field}.operations")
    if len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        yield invalid(f"{field}.operations", operations, detail)
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            yield unsupported(f"{field}.operations[{index}]", operation, OPERATIONS)
    for part, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = given.get(part) or []
        if not values:
            yield required(f"{field}.{part}")
        if len(values) > 1 and "*" in values:
            detail = f"if '*' is present, must not specify other {what}"
            yield invalid(f"{field}.{part}", values, detail)
    for index, version in enumerate(given.get("apiVersions") or ()):
        if not version:
            yield required(f"{field}.apiVersions[{index}]")
    yield from _resources(f"{field}.resources", given.get("resources") or [])
    yield from one_of(f"{field}.scope", given.get("scope"), _SCOPES)


def _resources(field: str, resources: list[str]) -> Errors:
    if not resources:
        yield required(field)
    whole = {r.partition("/")[0] for r in resources if r.endswith("/*")}
    every = {r.partition("/")[2] for r in resources if r.startswith("*/")}
    for index, text in enumerate(resources):
        if not text:
            yield required(f"{field}[{index}]")
            continue
        resource, slash, sub = text.partition("/")
        if slash and sub != "*" and resource in whole:
            detail = f"if '{resource}/*' is present, must not specify {text}"
            yield invalid(f"{field}[{index}]", text, detail)
        if slash and resource != "*" and sub in every:
            detail = f"if '*/{sub}' is present, must not specify {text}"
            yield invalid(f"{field}[{index}]", text, detail)
    if len(resources) > 1 and "*/*" in resources:
        detail = "if '*/*' is present, must not specify other resources"
        yield invalid(field, resources, detail)
    if "*" in resources and any("/" not in r and r != "*" for r in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        yield invalid(field, resources, detail)


def client_config(field: str, config: Document) -> Errors:
    """Where the webhook is: at a URL or behind a Service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(field, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(f"{field}.url", url)
    elif service is not None:
        yield from _service(f"{field}.service", service)


def _url(field: str, url: str) -> Errors:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(field, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(field, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not parts.netloc:
        yield invalid(field, parts.netloc, f"host must be specified{_FORM}")
    if parts.username is not None:
        user = parts.netloc.rpartition("@")[0]
        yield invalid(field, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(field, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(field, parts.query, "query parameters are not permitted in the URL")


def _service(field: str, service: Document) -> Errors:
    for part in ("name", "namespace"):
        if not service.get(part):
            yield required(f"{field}.{part}")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        yield invalid(f"{field}.port", port, detail)
    path = service.get("path")
    if not path or path == "/":
        return
    if not path.startswith("/"):
        yield invalid(f"{field}.path", path, "must start with a '/'")
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(f"{field}.path", path, f"segment[{index}] may not be empty")
            continue
        for words in names.check_dns_subdomain(step):
            yield invalid(f"{field}.path", path, f"segment[{index}]: {words}")


def _versions(field: str, hook: Document) -> Errors:
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        yield required(field, f"must specify one of {', '.join(_REVIEWS)}")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{field}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        yield from named(f"{field}[{index}]", version, names.check_dns_1035_label(version))
    if not seen & set(_REVIEWS):
        yield invalid(field, versions, f"must include at least one of {', '.join(_REVIEWS)}")


def conditions(field: str, given: list[Document], extra: Iterable[str]) -> Errors:
    """Expressions that say whether to ask at all."""
    if len(given) > _CONDITIONS_MAX:
        yield invalid(field, len(given), f"must have at most {_CONDITIONS_MAX} items")
    seen: set[str] = set()
    for index, condition in enumerate(given):
        at = f"{field}[{index}]"
        text, name = condition.get("expression", ""), condition.get("name", "")
        if not text.strip():
            yield required(f"{at}.expression")
        else:
            known = (*expression.ADMISSION, *extra)
            yield from expression.check(f"{at}.expression", text.strip(), known, result="bool")
        if not name:
            yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", name, names.check_qualified_name(name))
        if name and name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)


IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
