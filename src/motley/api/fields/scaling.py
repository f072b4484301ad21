"""Owners of a replica count, seen through the scale subresource and back.

A Scale has managedFields of its own only while a request is served: those of its object that own
the replica count. Afterwards they become part of the object's again.
"""

from typing import Any

from motley.api import scheme
from motley.api.fields import entries, pathset
from motley.api.fields.entries import Managed, Manager, Owned

Entries = list[dict[str, Any]]
Path = tuple[str, ...]

REPLICAS: Path = ("f:spec", "f:replicas")
SCALE = scheme.Kind("autoscaling", "v1", "Scale", "scales", "scale")


def of_scale(parent: Entries | None, path: Path = REPLICAS) -> Entries:
    """The entries of the Scale: who owns the object's replica count."""
    found: Managed = {
        manager: Owned(pathset.of_path(REPLICAS), SCALE.api_version, owned.time)
        for manager, owned in entries.decode(parent).items()
        if pathset.has(owned.fields, path)
    }
    return entries.encode(found)


def of_parent(
    kind: scheme.Kind, parent: Entries | None, scale: Entries | None, path: Path = REPLICAS
) -> Entries:
    """The object's entries after a write of its Scale."""
    owners = {_in_version(m, kind.api_version): o for m, o in entries.decode(scale).items()}
    found: Managed = {}
    replicas = pathset.of_path(path)
    before = entries.decode(parent)
    for manager, owned in before.items():
        if not pathset.has(owned.fields, path) or owners.pop(manager, None) is not None:
            found[manager] = owned
        elif rest := pathset.difference(owned.fields, replicas):
            found[manager] = owned._replace(fields=rest)
    for manager, owned in owners.items():
        if pathset.has(owned.fields, REPLICAS):
            time = before[manager].time if manager in before else None
            found[manager] = Owned(replicas, kind.api_version, time)
    return entries.encode(found)


def _in_version(manager: Manager, api_version: str) -> Manager:
    """The same manager, as the object knows it."""
    return manager._replace(api_version=api_version) if manager.api_version else manager
