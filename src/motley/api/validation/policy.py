"""Rules for admission policies and their bindings."""

from typing import Any

from motley.api import names
from motley.api.validation import expression, selector, webhook
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    invalid,
    named,
    one_of,
    required,
    unsupported,
)

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_ONE_ITEM = "validations or auditAnnotations must contain at least one item"
_EXCLUSIVE = "name and selector are mutually exclusive"
_TWICE = (
    "must not contain both Deny and Warn (repeating the same validation failure information in "
    "the API response and headers serves no purpose)"
)


def validating(obj: Document) -> Errors:
    """A ValidatingAdmissionPolicy."""
    spec = obj.get("spec") or {}
    yield from _common(spec)
    validations, notes = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not notes:
        yield required("spec.validations", _ONE_ITEM)
        yield required("spec.auditAnnotations", _ONE_ITEM)
        return
    known = _known(spec)
    for index, given in enumerate(validations):
        yield from _validation(f"spec.validations[{index}]", given, known)
    seen: set[str] = set()
    name = (obj.get("metadata") or {}).get("name", "")
    for index, note in enumerate(notes):
        field = f"spec.auditAnnotations[{index}]"
        key, text = note.get("key", ""), note.get("valueExpression", "")
        wrong = names.check_qualified_name(f"{name}/{key}")
        yield from named(f"{field}.key", f"{name}/{key}", wrong)
        if not text.strip():
            yield required(f"{field}.valueExpression", "valueExpression is not specified")
        else:
            yield from expression.check(f"{field}.valueExpression", text, known)
        if key in seen:
            yield duplicate(f"{field}.key", key)
        seen.add(key)


def mutating(obj: Document) -> Errors:
    """A MutatingAdmissionPolicy."""
    spec = obj.get("spec") or {}
    yield from _common(spec)
    yield from _mutating_operations("spec.matchConstraints", spec.get("matchConstraints"))
    mutations = spec.get("mutations") or []
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _mutation(f"spec.mutations[{index}]", mutation)
    policy = spec.get("reinvocationPolicy")
    if not policy:
        yield required("spec.reinvocationPolicy")
    else:
        yield from one_of("spec.reinvocationPolicy", policy, webhook.REINVOCATION)


def _common(spec: Document) -> Errors:
    policy = spec.get("failurePolicy")
    yield from one_of("spec.failurePolicy", policy, webhook.FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        for part in ("apiVersion", "kind"):
            if not spec["paramKind"].get(part):
                yield required(f"spec.paramKind.{part}")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from _match("spec.matchConstraints", constraints)
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    params = ("params",) if spec.get("paramKind") is not None else ()
    given = spec.get("matchConditions") or []
    yield from webhook.conditions("spec.matchConditions", given, params)
    known = _known(spec)
    for index, variable in enumerate(spec.get("variables") or ()):
        field = f"spec.variables[{index}]"
        name, text = variable.get("name", ""), variable.get("expression", "")
        if not name.strip():
            yield required(f"{field}.name", "name is not specified")
        elif not webhook.IDENTIFIER.fullmatch(name):
            yield invalid(f"{field}.name", name, "must be a valid CEL identifier")
        if not text.strip():
            yield required(f"{field}.expression", "expression is not specified")
        else:
            yield from expression.check(f"{field}.expression", text, known)


def _known(spec: Document) -> tuple[str, ...]:
    found: tuple[str, ...] = expression.ADMISSION
    if spec.get("paramKind") is not None:
        found += ("params",)
    return (*found, "variables") if spec.get("variables") else found


def _validation(field: str, given: Document, known: tuple[str, ...]) -> Errors:
    text = given.get("expression", "")
    if not text.strip():
        yield required(f"{field}.expression", "expression is not specified")
    else:
        yield from expression.check(f"{field}.expression", text, known, result="bool")
    words = given.get("messageExpression", "")
    if words and not words.strip():
        yield invalid(f"{field}.messageExpression", words, "must be non-empty if specified")
    elif words:
        said = tuple(name for name in known if name != "authorizer")  # nobody is asked for words
        yield from expression.check(f"{field}.messageExpression", words, said, result="string")
    message = given.get("message", "")
    if message and not message.strip():
        yield invalid(f"{field}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{field}.message", message, "must not contain line breaks")
    yield from one_of(f"{field}.reason", given.get("reason"), _REASONS)


def _mutation(field: str, mutation: Document) -> Errors:
    kind = mutation.get("patchType", "")
    parts = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not kind:
        yield required(f"{field}.patchType")
        return
    if kind not in parts:
        yield unsupported(f"{field}.patchType", kind, tuple(parts))
        return
    wanted = parts.pop(kind)
    other = next(iter(parts.values()))
    if mutation.get(wanted) is None:
        yield required(f"{field}.{wanted}", f"must be specified when patchType is {kind}")
    elif not mutation[wanted].get("expression", "").strip():
        yield required(f"{field}.{wanted}.expression", "expression is not specified")
    if mutation.get(other) is not None:
        detail = f"must not be specified when patchType is {kind}"
        yield invalid(f"{field}.{other}", f"{{{other}}}", detail)


def _match(field: str, resources: Document | None) -> Errors:
    if resources is None:
        return
    policy = resources.get("matchPolicy")
    yield from one_of(f"{field}.matchPolicy", policy, webhook.MATCH_POLICIES)
    for part in ("namespaceSelector", "objectSelector"):
        yield from selector.label_selector(f"{field}.{part}", resources.get(part))
    for part in ("resourceRules", "excludeResourceRules"):
        for index, given in enumerate(resources.get(part) or ()):
            at = f"{field}.{part}[{index}]"
            yield from _resource_names(f"{at}.resourceNames", given.get("resourceNames") or [])
            yield from webhook.rule(at, given)


def _resource_names(field: str, given: list[Any]) -> Errors:
    for index, name in enumerate(given):
        yield from named(f"{field}[{index}]", name, names.check_path_segment(name))
        if name in given[:index]:
            yield duplicate(f"{field}[{index}]", name)


def _mutating_operations(field: str, resources: Document | None) -> Errors:
    for given in (resources or {}).get("resourceRules") or ():
        for operation in given.get("operations") or ():
            if operation not in _MUTATING_OPERATIONS:
                where = f"{field}.resourceRules.operations"
                yield unsupported(where, operation, _MUTATING_OPERATIONS)


def validating_binding(obj: Document) -> Errors:
    """A ValidatingAdmissionPolicyBinding."""
    spec = obj.get("spec") or {}
    yield from _binding(spec)
    actions = spec.get("validationActions") or []
    for index, action in enumerate(actions):
        field = f"spec.validationActions[{index}]"
        yield from one_of(field, action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(field, action)
    if {"Deny", "Warn"} <= set(actions):
        yield invalid("spec.validationActions", actions, _TWICE)
    if not actions:
        yield required("spec.validationActions", "at least one validation action is required")


def mutating_binding(obj: Document) -> Errors:
    """A MutatingAdmissionPolicyBinding."""
    spec = obj.get("spec") or {}
    yield from _binding(spec)
    yield from _mutating_operations("spec.matchResources", spec.get("matchResources"))


def _binding(spec: Document) -> Errors:
    name = spec.get("policyName", "")
    if not name:
        yield required("spec.policyName")
    else:
        yield from named("spec.policyName", name, names.check_dns_subdomain(name))
    if spec.get("paramRef") is not None:
        yield from _parameter("spec.paramRef", spec["paramRef"])
    yield from _match("spec.matchResources", spec.get("matchResources"))


def _parameter(field: str, reference: Document) -> Errors:
    name, given = reference.get("name", ""), reference.get("selector")
    if name:
        yield from named(f"{field}.name", name, names.check_path_segment(name))
    yield from selector.label_selector(f"{field}.selector", given)
    if name and given is not None:
        yield forbidden(f"{field}.name", _EXCLUSIVE)
        yield forbidden(f"{field}.selector", _EXCLUSIVE)
    elif not name and given is None:
        yield required(field, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        yield required(f"{field}.parameterNotFoundAction")
    else:
        yield from one_of(f"{field}.parameterNotFoundAction", action, ("Deny", "Allow"))
