"""From a CustomResourceDefinition to rows of the table of kinds, one for each served version.

Pure. Versions are ordered as Kubernetes orders them: v2 before v1 before v1beta1 before the rest.
"""

from typing import Any

from motley.api import scheme
from motley.api.structural.definition import AGE, Column, Definition, ScalePaths

Document = dict[str, Any]

# As discovery lists a custom resource's verbs: the order in which Kubernetes happens to add them.
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


# No object is known to fit: every one is looked at when it is read.
NEVER = 2**63


def rows(crd: Document, since: int = 0) -> list[scheme.Kind]:
    """The served versions, most preferred first.

    `since` is the revision from which on objects were written under this very schema.
    """
    versions = sorted(crd["spec"]["versions"], key=lambda v: scheme.version_order(v["name"]))
    kept = stored(crd, since)
    return [
        kept if version.get("storage") else _row(crd, version, since, kept)
        for version in versions
        if version.get("served")
    ]


def stored(crd: Document, since: int = 0) -> scheme.Kind:
    """The row of the version in which objects are kept; it may not be served."""
    return _row(crd, next(v for v in crd["spec"]["versions"] if v.get("storage")), since)


def _row(
    crd: Document, version: Document, since: int, kept: scheme.Kind | None = None
) -> scheme.Kind:
    spec = crd["spec"]
    names = (crd.get("status") or {}).get("acceptedNames") or {}
    names = {**spec["names"], **{k: v for k, v in names.items() if v}}
    subresources = version.get("subresources") or {}
    kind = scheme.Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        namespaced=spec["scope"] == "Namespaced",
        subresources=frozenset(s for s in ("status", "scale") if s in subresources),
        categories=tuple(names.get("categories") or ()),
        verbs=_VERBS,
        stored_as=None if kept is None else (spec["group"], kept.version),
        definition=definition(crd, version, since),
    )
    if kept is not None:
        # The kept version need not be served, so it cannot be looked up in the table.
        kind.__dict__["storage"] = kept
    return kind


def definition(crd: Document, version: Document, since: int) -> Definition:
    """How the objects of a version behave."""
    spec = crd["spec"]
    names = spec["names"]
    subresources = version.get("subresources") or {}
    columns = version.get("additionalPrinterColumns")
    return Definition(
        kind=names["kind"],
        list_kind=names.get("listKind") or f"{names['kind']}List",
        schema=(version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"},
        columns=[_column(c) for c in columns] if columns else (AGE,),
        scale=_scale(subresources.get("scale")),
        has_status="status" in subresources,
        selectable=tuple(f["jsonPath"] for f in version.get("selectableFields") or ()),
        warning=_warning(spec, version),
        convertible=(spec.get("conversion") or {}).get("strategy") != "Webhook",
        converter=((spec.get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {},
        is_terminating=bool(crd["metadata"].get("deletionTimestamp")),
        since=since if _is_one_schema(spec) else NEVER,
    )


def _is_one_schema(spec: Document) -> bool:
    """Whether it makes no difference in which version an object was written."""
    said = [v.get("schema") for v in spec["versions"]]
    return all(schema == said[0] for schema in said)


def _column(column: Document) -> Column:
    path = column["jsonPath"]
    described = f"Custom resource definition column (in JSONPath format): {path}"
    return Column(
        column["name"],
        column["type"],
        path,
        column.get("format") or "",
        column.get("description") or described,
        column.get("priority") or 0,
    )


def _scale(scale: Document | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        scale["specReplicasPath"],
        scale["statusReplicasPath"],
        scale.get("labelSelectorPath") or "",
    )


def _warning(spec: Document, version: Document) -> str:
    """What every answer in a deprecated version says."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    ordered = sorted(spec["versions"], key=lambda v: scheme.version_order(v["name"]))
    better = [v["name"] for v in ordered if v.get("served") and not v.get("deprecated")]
    advice = f"; use {group}/{better[0]} {kind}" if better else ""
    return f"{group}/{version['name']} {kind} is deprecated{advice}"
