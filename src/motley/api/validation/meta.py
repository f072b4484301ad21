"""What holds for the metadata of every object, when it is created and when it changes."""

from collections.abc import Callable, Mapping
from typing import Any

from motley.api import names, scheme
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    immutable,
    invalid,
    named,
    not_negative,
    required,
    too_long,
)

_ANNOTATIONS_MAX = 256 * 1024  # bytes of all keys and values together
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
# Names that become part of host names.
_LABEL_NAMES = (("", "Namespace"), ("", "Service"), ("apps", "StatefulSet"))
_RBAC = "rbac.authorization.k8s.io"
# Their names speak of the signer, which only the rules of the kind know.
_NAMED_BY_SIGNER = ("certificates.k8s.io", "ClusterTrustBundle")
_NAMED_BY_ADDRESS = ("networking.k8s.io", "IPAddress")
# Kubernetes lets finalizers of custom resources, and of what defines them, have any name.
_EXTENSIONS = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})


def name_check(kind: scheme.Kind) -> Callable[[str], list[str]]:
    """The rule for names of this kind."""
    if kind.group == _RBAC or (kind.group, kind.kind) == _NAMED_BY_SIGNER:
        return names.check_path_segment
    if (kind.group, kind.kind) in _LABEL_NAMES:
        return names.check_dns_label
    if (kind.group, kind.kind) == _NAMED_BY_ADDRESS:
        return names.check_address
    return names.check_dns_subdomain


def create(kind: scheme.Kind, metadata: Document) -> Errors:
    """Metadata of a new object; its name is already generated."""
    check = name_check(kind)
    base = metadata.get("generateName")
    if base:
        yield from named("metadata.generateName", base, check(_without_dash(base)))
    name = metadata.get("name")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from named("metadata.name", name, check(name))
    if kind.namespaced:
        namespace = metadata.get("namespace")
        if not namespace:
            yield required("metadata.namespace")
        else:
            yield from named("metadata.namespace", namespace, names.check_dns_label(namespace))
    elif metadata.get("namespace"):
        yield forbidden("metadata.namespace", "not allowed on this type")
    yield from _common(kind, metadata)


def update(kind: scheme.Kind, new: Document, old: Document) -> Errors:
    """Metadata of a changed object: what identifies it stays."""
    yield from _common(kind, new)
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(field) != old.get(field):
            yield from immutable(f"metadata.{field}", new.get(field), old.get(field))
    if old.get("deletionTimestamp"):
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            yield from immutable(f"metadata.{field}", new.get(field), old.get(field))
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            quoted = ", ".join(f'"{name}"' for name in added)
            yield forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{quoted}}}",
            )
    elif new.get("deletionTimestamp"):
        yield from immutable("metadata.deletionTimestamp", new["deletionTimestamp"], None)


def _common(kind: scheme.Kind, metadata: Document) -> Errors:
    yield from not_negative("metadata.generation", metadata.get("generation"))
    yield from labels("metadata.labels", metadata.get("labels"))
    yield from annotations("metadata.annotations", metadata.get("annotations"))
    yield from _owners(metadata.get("ownerReferences") or [])
    extends = kind.definition is not None or kind.group in _EXTENSIONS
    yield from _finalizers(metadata.get("finalizers") or [], lenient=extends)


def _without_dash(base: str) -> str:
    """A prefix may end in a dash, since a suffix follows."""
    return f"{base[:-1]}a" if len(base) > 1 and base.endswith("-") else base


def labels(field: str, given: Mapping[str, str] | None) -> Errors:
    """Labels of an object, or a map of labels to select by."""
    for key, value in (given or {}).items():
        yield from named(field, key, names.check_qualified_name(key))
        yield from named(field, value, names.check_label_value(value))


def annotations(field: str, given: Mapping[str, str] | None) -> Errors:
    """Annotations: keys are qualified names in any case, values are free but not boundless."""
    for key in given or {}:
        yield from named(field, key, names.check_qualified_name(key.lower()))
    yield from size_of_annotations(field, given)


def size_of_annotations(field: str, given: Mapping[str, str] | None) -> Errors:
    """All keys and values together."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in (given or {}).items())
    if size > _ANNOTATIONS_MAX:
        yield too_long(field, _ANNOTATIONS_MAX)


def _owners(owners: list[Any]) -> Errors:
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        if "/" in owner.get("apiVersion", "").strip("/"):
            version = owner["apiVersion"].rpartition("/")[2]
        else:
            version = owner.get("apiVersion", "")
        if not version:
            yield invalid(f"{field}.apiVersion", version, "version must not be empty")
        for part in ("kind", "name", "uid"):
            if not owner.get(part):
                yield required(f"{field}.{part}", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        yield invalid(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {controllers[1]}',
        )


def _finalizers(finalizers: list[str], *, lenient: bool) -> Errors:
    for finalizer in finalizers:
        yield from named("metadata.finalizers", finalizer, names.check_qualified_name(finalizer))
    for index, finalizer in enumerate(finalizers):
        if not lenient and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield invalid(
                f"metadata.finalizers[{index}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        yield invalid(
            "metadata.finalizers",
            finalizers,
            "finalizer orphan and finalizer foregroundDeletion cannot be both set",
        )
