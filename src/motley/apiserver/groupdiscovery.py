"""Discovery's documents for groups that no row of the scheme has, from plain lists. Pure.

Shared by the API server, which lists other servers' groups, and by servers that are such.
"""

from typing import Any

Document = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def listed(name: str, served: list[str]) -> Document:
    """A group with its versions, the best first, as APIGroups and lists of them show it."""
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in served]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def aggregated(name: str, versions: dict[str, list[Document]]) -> Document:
    """An APIGroupDiscovery, from the plain lists of resources by version."""
    shown = []
    for version, resources in versions.items():
        found: dict[str, Document] = {}
        for resource in resources:
            plural, _, sub = str(resource.get("name", "")).partition("/")
            response = {
                "group": resource.get("group", ""),
                "version": resource.get("version", ""),
                "kind": resource.get("kind", ""),
            }
            if sub:
                entry = {"subresource": sub, "responseKind": response}
                entry["verbs"] = resource.get("verbs", [])
                if plural in found:
                    found[plural].setdefault("subresources", []).append(entry)
                continue
            found[plural] = {
                "resource": plural,
                "responseKind": response,
                "scope": "Namespaced" if resource.get("namespaced") else "Cluster",
                "singularResource": resource.get("singularName", ""),
                "verbs": resource.get("verbs", []),
                **{k: resource[k] for k in ("shortNames", "categories") if resource.get(k)},
            }
        shown.append(
            {"version": version, "resources": list(found.values()), "freshness": "Current"}
        )
    return {"metadata": {"name": name}, "versions": shown}
