"""Rules for roles and their bindings."""

from motley.api import names
from motley.api.validation import selector
from motley.api.validation.errors import Document, Errors, invalid, named, required, unsupported

_GROUP = "rbac.authorization.k8s.io"


def role(obj: Document) -> Errors:
    """A Role: its rules concern resources of its namespace."""
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(f"rules[{index}]", rule, namespaced=True)


def cluster_role(obj: Document) -> Errors:
    """A ClusterRole; one that gathers others says which."""
    for index, rule in enumerate(obj.get("rules") or ()):
        yield from _rule(f"rules[{index}]", rule, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return
    selectors = aggregation.get("clusterRoleSelectors") or []
    if not selectors:
        yield required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        )
    for index, given in enumerate(selectors):
        field = f"aggregationRule.clusterRoleSelectors[{index}]"
        yield from selector.label_selector(field, given)


def _rule(field: str, rule: Document, *, namespaced: bool) -> Errors:
    if not rule.get("verbs"):
        yield required(f"{field}.verbs")
    urls = rule.get("nonResourceURLs") or []
    if urls:
        if namespaced:
            yield invalid(
                f"{field}.nonResourceURLs",
                urls,
                "namespaced rules cannot apply to non-resource URLs",
            )
        if any(rule.get(part) for part in ("apiGroups", "resources", "resourceNames")):
            yield invalid(
                f"{field}.nonResourceURLs",
                urls,
                "rules cannot apply to both regular resources and non-resource URLs",
            )
        return
    if not rule.get("apiGroups"):
        yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{field}.resources", "resource rules must supply at least one resource")


def role_binding(obj: Document) -> Errors:
    """A RoleBinding."""
    yield from _reference(obj, ("Role", "ClusterRole"))
    for index, subject in enumerate(obj.get("subjects") or ()):
        yield from _subject(f"subjects[{index}]", subject)


def cluster_role_binding(obj: Document) -> Errors:
    """A ClusterRoleBinding: a service account is named with its namespace."""
    yield from _reference(obj, ("ClusterRole",))
    for index, subject in enumerate(obj.get("subjects") or ()):
        field = f"subjects[{index}]"
        yield from _subject(field, subject)
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            yield required(f"{field}.namespace")


def _reference(obj: Document, kinds: tuple[str, ...]) -> Errors:
    reference = obj.get("roleRef") or {}
    if reference.get("apiGroup") != _GROUP:
        yield unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (_GROUP,))
    if reference.get("kind") not in kinds:
        yield unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    name = reference.get("name", "")
    if not name:
        yield required("roleRef.name")
    else:
        yield from named("roleRef.name", name, names.check_path_segment(name))


def _subject(field: str, subject: Document) -> Errors:
    kind, name, group = (subject.get(part, "") for part in ("kind", "name", "apiGroup"))
    if not name:
        yield required(f"{field}.name")
    if kind == "ServiceAccount":
        if name:
            yield from named(f"{field}.name", name, names.check_dns_subdomain(name))
        if group:
            yield unsupported(f"{field}.apiGroup", group, ("",))
    elif kind in ("User", "Group"):
        if group != _GROUP:
            yield unsupported(f"{field}.apiGroup", group, (_GROUP,))
    else:
        yield unsupported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group"))


def role_binding_update(new: Document, old: Document) -> Errors:
    """A changed RoleBinding gives the same role to others, never another role."""
    yield from role_binding(new)
    yield from _same_role(new, old)


def cluster_role_binding_update(new: Document, old: Document) -> Errors:
    """A changed ClusterRoleBinding likewise."""
    yield from cluster_role_binding(new)
    yield from _same_role(new, old)


def _same_role(new: Document, old: Document) -> Errors:
    if new.get("roleRef") != old.get("roleRef"):
        reference = new.get("roleRef") or {}
        shown = {
            part[0].upper() + part[1:] if part != "apiGroup" else "APIGroup": reference.get(part)
            for part in ("apiGroup", "kind", "name")
        }
        yield invalid("roleRef", shown, "field is immutable")
