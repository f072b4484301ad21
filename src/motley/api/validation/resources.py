"""Rules for requests and limits."""

from motley.api import names, quantity
from motley.api.validation.errors import (
    NOT_NEGATIVE,
    Document,
    Errors,
    forbidden,
    invalid,
    named,
    required,
)

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"


def requirements(field: str, given: Document | None) -> Errors:
    """Requests and limits of a container (or of a whole pod)."""
    found = given or {}
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    for name, amount in limits.items():
        yield from _entry(f"{field}.limits[{name}]", name, amount)
    for name, amount in requests.items():
        yield from _entry(f"{field}.requests[{name}]", name, amount)
        overcommits = name in _STANDARD
        limit = limits.get(name)
        if limit is None:
            if not overcommits and _is_known(name):
                yield required(
                    f"{field}.limits", "Limit must be set for non overcommitable resources"
                )
        elif quantity.quantity(amount).nano > quantity.quantity(limit).nano:
            yield invalid(
                f"{field}.requests",
                amount,
                f"must be less than or equal to {name} limit of {limit}",
            )
        elif not overcommits and quantity.quantity(amount).nano != quantity.quantity(limit).nano:
            yield invalid(f"{field}.requests", amount, f"must be equal to {name} limit of {limit}")
    asked = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in asked) and not asked & {"cpu", "memory"}:
        yield forbidden(field, "HugePages require cpu or memory")


def _is_known(name: str) -> bool:
    return name in _STANDARD or name.startswith(_HUGE_PAGES) or "/" in name


def _entry(field: str, name: str, amount: str) -> Errors:
    yield from named(field, name, names.check_qualified_name(name))
    if not _is_known(name):
        yield invalid(field, name, "must be a standard resource type or fully qualified")
        yield invalid(field, name, "must be a standard resource for containers")
    yield from resource_amount(field, name, amount)


def resource_amount(field: str, name: str, amount: str) -> Errors:
    """An amount of one resource: never negative, and whole where the resource has no parts."""
    exact = quantity.quantity(amount)
    if exact.nano < 0:
        yield invalid(field, amount, NOT_NEGATIVE)
    elif "/" in name and not exact.is_whole:
        yield invalid(field, amount, "must be an integer")
