"""Rules for what a pod says about where it may run: tolerations, affinity, spreading."""

from typing import Any

from motley.api import names
from motley.api.validation import selector
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

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def tolerations(field: str, given: list[Any] | None) -> Errors:
    """Which taints the pod can live with."""
    for index, toleration in enumerate(given or ()):
        yield from _toleration(f"{field}[{index}]", toleration)


def _toleration(field: str, toleration: Document) -> Errors:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if key:
        yield from named(f"{field}.key", key, names.check_qualified_name(key))
    if not key and operator != "Exists":
        yield invalid(
            f"{field}.operator",
            operator,
            'operator must be Exists when `key` is empty, which means "match all values and all '
            'keys"',
        )
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield invalid(
            f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )
    if operator in ("Equal", ""):
        yield from named(f"{field}.operator", value, names.check_label_value(value))
    elif operator == "Exists":
        if value:
            yield invalid(
                f"{field}.operator", value, "value must be empty when `operator` is 'Exists'"
            )
    else:
        yield unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{field}.effect", effect, _EFFECTS)


def taints(field: str, given: list[Any] | None) -> Errors:
    """What keeps pods away from a node."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given or ()):
        at = f"{field}[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        yield from named(f"{at}.key", key, names.check_qualified_name(key))
        yield from named(f"{at}.value", value, names.check_label_value(value))
        if not effect:
            yield required(f"{at}.effect")
        yield from one_of(f"{at}.effect", effect or None, _EFFECTS)
        if (key, effect) in seen:
            shown = {
                "Key": key,
                "Value": value,
                "Effect": effect,
                "TimeAdded": taint.get("timeAdded"),
            }
            yield duplicate(at, shown, "taints must be unique by key and effect pair")
        seen.add((key, effect))


def affinity(field: str, given: Document | None) -> Errors:
    """Node affinity, pod affinity and pod anti-affinity."""
    found = given or {}
    node = found.get("nodeAffinity") or {}
    if (wanted := node.get("requiredDuringSchedulingIgnoredDuringExecution")) is not None:
        at = f"{field}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        yield from selector.node_selector(at, wanted)
    at = f"{field}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        yield from _weight(f"{at}[{index}]", term)
        yield from selector.node_selector_term(
            f"{at}[{index}].preference", term.get("preference") or {}
        )
    for name in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(f"{field}.{name}", found.get(name) or {})


def _weight(field: str, term: Document) -> Errors:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        yield invalid(f"{field}.weight", weight, "must be in the range 1-100")


def _pod_affinity(field: str, given: Document) -> Errors:
    at = f"{field}.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        yield from _pod_term(f"{at}[{index}]", term)
    at = f"{field}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(
        given.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    ):
        yield from _weight(f"{at}[{index}]", weighted)
        yield from _pod_term(
            f"{at}[{index}].podAffinityTerm", weighted.get("podAffinityTerm") or {}
        )


def _pod_term(field: str, term: Document) -> Errors:
    yield from selector.label_selector(f"{field}.labelSelector", term.get("labelSelector"))
    yield from selector.label_selector(f"{field}.namespaceSelector", term.get("namespaceSelector"))
    for index, namespace in enumerate(term.get("namespaces") or ()):
        yield from named(
            f"{field}.namespaces[{index}]", namespace, names.check_dns_label(namespace)
        )
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{field}.topologyKey", "can not be empty")
    yield from named(f"{field}.topologyKey", key, names.check_qualified_name(key))


def spread(field: str, given: list[Any] | None) -> Errors:
    """Topology spread constraints, unique by key and action."""
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(given or ()):
        at = f"{field}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            yield invalid(f"{at}.maxSkew", skew, "must be greater than zero")
        key = constraint.get("topologyKey", "")
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        else:
            yield from named(f"{at}.topologyKey", key, names.check_qualified_name(key))
        action = constraint.get("whenUnsatisfiable", "")
        yield from one_of(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            yield invalid(f"{at}.minDomains", domains, "must be greater than zero")
        if domains is not None and action != "DoNotSchedule":
            yield invalid(
                f"{at}.minDomains",
                domains,
                f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}",
            )
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(f"{at}.{policy}", constraint.get(policy), ("Honor", "Ignore"))
        if (key, action) in seen:
            yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        seen.add((key, action))
        yield from selector.label_selector(f"{at}.labelSelector", constraint.get("labelSelector"))
        if constraint.get("matchLabelKeys") and constraint.get("labelSelector") is None:
            yield forbidden(
                f"{at}.matchLabelKeys", "must not be specified when labelSelector is not set"
            )
