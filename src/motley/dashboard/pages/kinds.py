"""Every kind that the cluster serves, custom ones too: its objects as kubectl lists them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from motley.dashboard import kube
from motley.dashboard.asking import Asked, Page
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, text
from motley.dashboard.pages import frame, happenings, objects, tables

Document = dict[str, Any]

CORE = "core"  # how addresses call the group without a name
NOWHERE = "-"  # and the namespace of what has none


class Kind(NamedTuple):
    """A kind that can be listed."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool


def listed(api: Api, asked: Asked) -> Page:
    """All kinds."""
    rows: list[list[Child]] = [
        [
            frame.anchor(one.kind, "kinds", one.group, one.version, one.plural),
            one.plural,
            "" if one.group == CORE else one.group,
            one.version,
            "yes" if one.is_namespaced else "no",
        ]
        for one in known(api)
    ]
    heads = ["Kind", "Resource", "Group", "Version", "In namespaces"]
    main = [
        frame.filter_form(),
        frame.table(heads, rows, "The cluster does not say what it serves."),
    ]
    return Page("All kinds", text(main), "kinds", refresh_s=60)


def known(api: Api) -> list[Kind]:
    """What the cluster says it serves, in the version it prefers."""
    found = []
    for where in ("/api", "/apis"):
        for group in api.find(where, kube.DISCOVERY).get("items") or ():
            name = (group.get("metadata") or {}).get("name") or CORE
            found += list(_of(name, (group.get("versions") or [{}])[0]))
    return sorted(found, key=lambda k: (k.kind, k.group))


def _of(group: str, version: Document) -> Iterator[Kind]:
    for one in version.get("resources") or ():
        if "list" in (one.get("verbs") or ()):
            kind = (one.get("responseKind") or {}).get("kind") or one["resource"]
            namespaced = one.get("scope") == "Namespaced"
            yield Kind(group, version["version"], one["resource"], kind, namespaced)


def table(api: Api, asked: Asked, group: str, version: str, plural: str) -> Page:
    """The objects of one kind."""
    listing = tables.read(api, _path(group, version, plural, asked.namespace))
    is_namespaced = any(row.namespace for row in listing.rows) or bool(asked.namespace)

    def link(row: tables.Row) -> Child:
        space = row.namespace or NOWHERE
        return frame.anchor(row.name, "kinds", group, version, plural, space, row.name)

    main = [
        frame.namespaces(api, asked) if is_namespaced else None,
        tables.show(listing, link, with_namespace=is_namespaced and not asked.namespace),
    ]
    return Page(plural, text(main), "kinds", scoped=is_namespaced)


def show(
    api: Api, asked: Asked, group: str, version: str, plural: str, namespace: str, name: str
) -> Page:
    """One object."""
    space = "" if namespace == NOWHERE else namespace
    found = api.get(_path(group, version, plural, space, name))
    kind = str(found.get("kind") or plural)
    has_conditions = bool((found.get("status") or {}).get("conditions"))
    main = [
        frame.facts(
            [
                ("Kind", kind),
                ("Namespace", space),
                ("Made by", objects.owner(found)),
                ("Labels", frame.labels((found.get("metadata") or {}).get("labels"))),
            ]
        ),
        frame.section("Conditions", objects.conditions(found)) if has_conditions else None,
        frame.section("Events", happenings.about(api, kind, space, name, asked.now)),
        objects.manifest(found, is_open=True),
    ]
    return Page(f"{kind} {name}", text(main), "kinds")


def _path(group: str, version: str, plural: str, namespace: str = "", name: str = "") -> str:
    head = ("api", version) if group == CORE else ("apis", group, version)
    return kube.path(*head, *(("namespaces", namespace) if namespace else ()), plural, name)
