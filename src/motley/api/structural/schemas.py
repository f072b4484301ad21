"""What a schema in a CustomResourceDefinition must be: structural, in Kubernetes' sense.

Every field has a type, nothing is said twice in different ways, and combinations of schemas only
restrict values. That is what makes pruning, defaulting and publishing possible.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from motley.api import codec, patterns
from motley.api.cel import CompileError, parser, tree
from motley.api.patterns import PatternError
from motley.api.status import FieldError
from motley.api.structural import rules, values
from motley.api.structural.node import Node, compile_schema
from motley.api.validation.errors import forbidden, invalid, required, unsupported

Schema = Mapping[str, Any]
Errors = Iterator[FieldError]

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("$ref", "$schema", "id", "definitions", "dependencies", "patternProperties")
_COMBINED = ("allOf", "anyOf", "oneOf")
# What a schema inside a combination may not say, and how that is called.
_STRUCTURE = {
    "type": "must be empty to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-list-map-keys": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_BUDGET = (
    "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, "
    "maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
_REASONS = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)


def check(schema: Schema, path: str) -> Errors:
    """All that keeps a schema from being structural, or from making sense."""
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield invalid(f"{path}.type", schema["type"], "must be object at the root")
        return
    yield from _node(schema, path, is_root=True)
    yield from _too_costly(schema, path)


def _node(schema: Schema, path: str, *, is_root: bool = False) -> Errors:
    yield from _unsupported(schema, path)
    type_ = schema.get("type") or ""
    if type_ and type_ not in TYPES:
        yield unsupported(f"{path}.type", type_, TYPES)
    if schema.get("x-kubernetes-int-or-string") and type_:
        problem = "must be empty if x-kubernetes-int-or-string is true"
        yield invalid(f"{path}.type", type_, problem)
    if type_ == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    yield from _embedded(schema, path)
    yield from _lists(schema, path)
    yield from _values(schema, path)
    yield from _default(schema, path)
    yield from _rules(schema, path, is_root=is_root)
    for word in (*_COMBINED, "not"):
        yield from _combination(schema, word, path)
    if is_root:
        yield from _metadata(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        if is_root and name == "metadata":
            continue
        where = f"{path}.properties[{name}]"
        yield from _typed(inner, where, "must not be empty for specified object fields")
        yield from _node(inner, where)
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        where = f"{path}.additionalProperties"
        yield from _typed(additional, where, "must not be empty for specified object fields")
        yield from _node(additional, where)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _typed(items, f"{path}.items", "must not be empty for specified array items")
        yield from _node(items, f"{path}.items")
    elif isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")


def _typed(schema: Schema, path: str, problem: str) -> Errors:
    free = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "$ref")
    if not schema.get("type") and not any(schema.get(mark) for mark in free):
        yield required(f"{path}.type", problem)


def _unsupported(schema: Schema, path: str) -> Errors:
    for word in _UNSUPPORTED:
        if schema.get(word):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    if schema.get("additionalItems") is not None:
        yield forbidden(f"{path}.additionalItems", "additionalItems is not supported")
    additional = schema.get("additionalProperties")
    if additional is False:
        yield forbidden(
            f"{path}.additionalProperties", "additionalProperties cannot be set to false"
        )
    elif additional is not None and schema.get("properties"):
        yield forbidden(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )


def _embedded(schema: Schema, path: str) -> Errors:
    if not schema.get("x-kubernetes-embedded-resource"):
        return
    if schema.get("type") != "object":
        yield invalid(
            f"{path}.type",
            schema.get("type") or "",
            "must be object if x-kubernetes-embedded-resource is true",
        )
    if schema.get("additionalProperties") is not None:
        yield forbidden(
            f"{path}.additionalProperties",
            "must not be used if x-kubernetes-embedded-resource is set",
        )
    if not schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        )


def _lists(schema: Schema, path: str) -> Errors:
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if list_type and list_type not in ("atomic", "set", "map"):
        yield unsupported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
        return
    if list_type and schema.get("type") != "array":
        problem = "must be array if x-kubernetes-list-type is specified"
        yield invalid(f"{path}.type", schema.get("type") or "", problem)
    if keys and list_type != "map":
        yield invalid(
            f"{path}.x-kubernetes-list-type",
            list_type,
            "must be map if x-kubernetes-list-map-keys is non-empty",
        )
    if list_type != "map":
        return
    if not keys:
        yield required(
            f"{path}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        problem = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", problem)
    for index, key in enumerate(keys):
        field = (items.get("properties") or {}).get(key)
        where = f"{path}.x-kubernetes-list-map-keys[{index}]"
        if field is None:
            yield invalid(where, key, "entries must all be names of item properties")
        elif field.get("type") in ("array", "object"):
            problem = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", field["type"], problem)
        elif key not in (items.get("required") or ()) and field.get("default") is None:
            yield required(
                f"{path}.items.properties[{key}].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default "
                "or be a required property",
            )


def _pattern_problem(text: str) -> str:
    try:
        patterns.compiled(text)
    except PatternError as error:
        return str(error)
    return ""


def _values(schema: Schema, path: str) -> Errors:
    expression = schema.get("pattern")
    if expression and (problem := _pattern_problem(expression)):
        yield invalid(
            f"{path}.pattern",
            expression,
            f"must be a valid regular expression, but isn't: {problem}",
        )


def _default(schema: Schema, path: str) -> Errors:
    default = schema.get("default")
    if default is None:
        return
    for error in values.check(schema, default):
        below = "" if error.field == values.NOWHERE else f".{error.field}"
        yield FieldError(f"{path}.default{below}", error.reason, error.message)


def _rules(schema: Schema, path: str, *, is_root: bool) -> Errors:
    given = schema.get("x-kubernetes-validations") or ()
    if not given:
        return
    node = compile_schema(schema)
    for index, rule in enumerate(given):
        yield from _rule(rule, node, f"{path}.x-kubernetes-validations[{index}]", is_root)


def _costs(schema: Schema, path: str) -> Iterator[str]:
    """The expressions that could take for ever: text of unbounded length, put together."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        if {"_+_", "string"} <= _called(rule.get("messageExpression") or ""):
            yield f"{path}.x-kubernetes-validations[{index}].messageExpression"
    for name, inner in (schema.get("properties") or {}).items():
        yield from _costs(inner, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield from _costs(schema[word], f"{path}.{word}")


def _called(text: str) -> set[str]:
    """The functions and operators of an expression; none of a text that is no expression."""
    try:
        parsed = parser.parse(text) if text.strip() else None
    except CompileError:
        return set()
    nodes = tree.walk(parsed) if parsed is not None else ()
    return {node.name for node in nodes if isinstance(node, tree.Call)}


def _too_costly(schema: Schema, path: str) -> Errors:
    costly = list(_costs(schema, path))
    for field in costly:
        yield forbidden(field, f"estimated messageExpression cost {_BUDGET}")
        yield forbidden(
            field,
            "contributed to estimated rule cost total exceeding cost limit for entire "
            "OpenAPIv3 schema",
        )
    if costly:
        total = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, f"{total} {_BUDGET}")


def _rule(rule: Schema, node: Node, path: str, is_root: bool) -> Errors:
    text = rule.get("rule") or ""
    if not text.strip():
        yield required(f"{path}.rule", "rule is not specified")
    else:
        yield from _expression(rule, "rule", node, path, is_root)
    if rule.get("messageExpression"):
        yield from _expression(rule, "messageExpression", node, path, is_root)
    message = rule.get("message") or ""
    if rule.get("message") is not None and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    if rule.get("reason") and rule["reason"] not in _REASONS:
        yield unsupported(f"{path}.reason", rule["reason"], _REASONS)


def _expression(rule: Schema, part: str, node: Node, path: str, is_root: bool) -> Errors:
    is_rule = part == "rule"
    wrapped = bool(rule.get("optionalOldSelf"))
    problem = ""
    try:
        found = rules.compiled(node, rule[part], is_root=is_root, is_old_wrapped=wrapped)
        if found.type not in ("bool" if is_rule else "string", "dyn"):
            problem = (
                "cel expression must evaluate to a bool"
                if is_rule
                else "messageExpression must evaluate to a string"
            )
    except CompileError as error:
        said = "compilation failed" if is_rule else "messageExpression compilation failed"
        problem = f"{said}: {error}"
    if problem:
        shown = _go_json(
            {
                "Rule": rule.get("rule") or "",
                "Message": rule.get("message") or "",
                "MessageExpression": rule.get("messageExpression") or "",
                "Reason": rule.get("reason"),
                "FieldPath": rule.get("fieldPath") or "",
                "OptionalOldSelf": rule.get("optionalOldSelf"),
            }
        )
        message = f"Invalid value: {shown}: {problem}"
        yield FieldError(f"{path}.{part}", "FieldValueInvalid", message)


def _go_json(value: Any) -> str:
    text = codec.encode(value).decode()
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _combination(schema: Schema, word: str, path: str) -> Errors:
    given = schema.get(word)
    if not given:
        return
    if word == "anyOf" and schema.get("x-kubernetes-int-or-string") and given == _INT_OR_STRING:
        return
    parts = (
        [(f"{path}.{word}", given)]
        if word == "not"
        else [(f"{path}.{word}[{i}]", part) for i, part in enumerate(given)]
    )
    for where, part in parts:
        if part.get("anyOf") == _INT_OR_STRING and schema.get("x-kubernetes-int-or-string"):
            continue
        yield from _restriction(part, schema, where)


def _restriction(part: Schema, structure: Schema, path: str) -> Errors:
    """A schema inside a combination: it restricts values, and names only known fields."""
    for mark, problem in _STRUCTURE.items():
        if part.get(mark) not in (None, "", False):
            yield forbidden(f"{path}.{mark}", problem)
    yield from _unsupported({k: v for k, v in part.items() if k != "additionalProperties"}, path)
    yield from _values(part, path)
    known = structure.get("properties") or {}
    for name, inner in (part.get("properties") or {}).items():
        where = f"{path}.properties[{name}]"
        if name in known:
            yield from _restriction(inner, known[name], where)
        elif not structure.get("additionalProperties"):
            yield required(
                where.replace(path, path.rpartition(".")[0], 1), f"because it is defined in {where}"
            )
    for word in _COMBINED:
        for index, inner in enumerate(part.get(word) or ()):
            yield from _restriction(inner, structure, f"{path}.{word}[{index}]")
    if part.get("not"):
        yield from _restriction(part["not"], structure, f"{path}.not")


def _metadata(schema: Schema, path: str) -> Errors:
    metadata = (schema.get("properties") or {}).get("metadata")
    if not metadata:
        return
    where = f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid(f"{where}.type", metadata.get("type") or "", "must be object")
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        yield forbidden(
            where,
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )
