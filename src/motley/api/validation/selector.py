"""Rules for label selectors and node selectors inside objects."""

from typing import Any

from motley.api import names
from motley.api.validation import meta
from motley.api.validation.errors import Document, Errors, forbidden, invalid, named, required

_BAD_OPERATOR = "not a valid selector operator"


def label_selector(field: str, selector: Document | None) -> Errors:
    """A `LabelSelector`; absent is fine here."""
    if selector is None:
        return
    yield from meta.labels(f"{field}.matchLabels", selector.get("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression(f"{field}.matchExpressions[{index}]", expression)


def _expression(field: str, expression: Document) -> Errors:
    operator = expression.get("operator", "")
    values = expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(
                f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(
                f"{field}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    else:
        yield invalid(f"{field}.operator", operator, _BAD_OPERATOR)
    key = expression.get("key", "")
    yield from named(f"{field}.key", key, names.check_qualified_name(key))
    for index, value in enumerate(values):
        yield from named(f"{field}.values[{index}]", value, names.check_label_value(value))


def node_selector(field: str, selector: Document) -> Errors:
    """A `NodeSelector`: terms of which one must hold."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from node_selector_term(f"{field}.nodeSelectorTerms[{index}]", term)


def node_selector_term(field: str, term: Document) -> Errors:
    """One term: all of its expressions must hold."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _node_expression(f"{field}.matchExpressions[{index}]", expression)
    for index, expression in enumerate(term.get("matchFields") or ()):
        yield from _node_field(f"{field}.matchFields[{index}]", expression)


def _node_expression(field: str, expression: Document) -> Errors:
    operator = expression.get("operator", "")
    values: list[Any] = expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(
                f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(
                f"{field}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(
                f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        yield invalid(f"{field}.operator", operator, _BAD_OPERATOR)
    key = expression.get("key", "")
    yield from named(f"{field}.key", key, names.check_qualified_name(key))


def _node_field(field: str, expression: Document) -> Errors:
    operator = expression.get("operator", "")
    values = expression.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(f"{field}.operator", operator, _BAD_OPERATOR)
    elif len(values) != 1:
        yield required(
            f"{field}.values",
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )
    key = expression.get("key", "")
    if key != "metadata.name":
        yield invalid(f"{field}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from named(f"{field}.values[{index}]", value, names.check_dns_subdomain(value))
