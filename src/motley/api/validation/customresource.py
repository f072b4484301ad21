"""CustomResourceDefinitions and APIServices: what extends the API must fit into it.

Where every version of a definition says the same, Kubernetes reports problems as of the whole
(`spec.validation…`, `spec.subresources…`), else as of the version (`spec.versions[1].schema…`).
"""

from collections.abc import Mapping
from typing import Any

from motley.api import codec, names
from motley.api.status import FieldError
from motley.api.structural import jsonpath, schemas
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    immutable,
    invalid,
    named,
    required,
    unsupported,
)

APPROVED = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = (  # OpenAPI's own
    *("binary", "byte", "date", "date-time", "double", "float", "int32", "int64", "password"),
)
_SELECTABLE = ("string", "boolean", "integer")
# What the versions of a definition may say alike.
_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_PRIORITY_MAX = {"groupPriorityMinimum": 20000, "versionPriority": 1000}


def definition(obj: Document) -> Errors:
    """A CustomResourceDefinition."""
    spec = obj.get("spec") or {}
    name, group = obj["metadata"].get("name"), spec.get("group") or ""
    given = spec.get("names") or {}
    if name and name != f"{given.get('plural', '')}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _group(group, obj["metadata"].get("annotations") or {})
    scope = spec.get("scope")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced"))
    if spec.get("preserveUnknownFields"):
        yield invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead",
        )
    versions = spec.get("versions") or []
    yield from _version_names(versions)
    yield from _names(given)
    yield from _contents(versions)
    yield from _conversion(spec.get("conversion") or {})
    yield from _stored_versions(obj, versions)


def definition_update(new: Document, old: Document) -> Errors:
    """A changed CustomResourceDefinition: once it is served, what it is called stays."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    fixed = list(immutable("spec.group", after.get("group"), before.get("group")))
    if _is_established(old):
        fixed += immutable("spec.scope", after.get("scope"), before.get("scope"))
        for part in ("kind", "plural"):
            now = (after.get("names") or {}).get(part)
            fixed += immutable(f"spec.names.{part}", now, (before.get("names") or {}).get(part))
    yield from fixed
    blamed = {e.field for e in fixed}
    for error in definition(new):
        # A name that no longer fits follows from what may not change anyway.
        if error.field not in blamed and not (fixed and error.field == "metadata.name"):
            yield error


def _is_established(obj: Document) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def _group(group: str, annotations: Mapping[str, str]) -> Errors:
    if not group:
        yield required("spec.group")
        return
    if wrong := names.check_dns_subdomain(group):
        yield from named("spec.group", group, wrong)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if any(group == p or group.endswith(f".{p}") for p in _PROTECTED) and not annotations.get(
        APPROVED
    ):
        yield required(
            f"metadata.annotations[{APPROVED}]",
            f'protected groups must have approval annotation "{APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )


def _version_names(versions: list[Document]) -> Errors:
    for index, version in enumerate(versions):
        field, name = f"spec.versions[{index}].name", version.get("name") or ""
        yield from named(field, name, names.check_dns_1035_label(name))
    listed = [v.get("name") for v in versions]
    if len(set(listed)) < len(listed):
        yield _versions_wrong(versions, "must contain unique version names")
    if sum(1 for v in versions if v.get("storage")) != 1:
        problem = "must have exactly one version marked as storage version"
        yield _versions_wrong(versions, problem)
    if versions:
        first = versions[0].get("name") or ""
        yield from named("spec.version", first, names.check_dns_1035_label(first))


def _versions_wrong(versions: list[Document], problem: str) -> FieldError:
    """Shown as the server's own type shows itself, with what is said alike left out."""
    shown = [
        {
            "Name": v.get("name") or "",
            "Served": bool(v.get("served")),
            "Storage": bool(v.get("storage")),
            "Deprecated": bool(v.get("deprecated")),
            "DeprecationWarning": v.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for v in versions
    ]
    message = f"Invalid value: {codec.encode(shown).decode()}: {problem}"
    return FieldError("spec.versions", "FieldValueInvalid", message)


def _names(given: Document) -> Errors:
    for part in ("plural", "singular", "kind", "listKind"):
        field, text = f"spec.names.{part}", given.get(part) or ""
        if not text:
            yield required(field)
            continue
        mixed = part in ("kind", "listKind")
        wrong = names.check_dns_1035_label(text.lower() if mixed else text)
        prefix = "may have mixed case, but should otherwise match: " if mixed else ""
        yield from named(field, text, [prefix + words for words in wrong])
    for part in ("shortNames", "categories"):
        for index, text in enumerate(given.get(part) or ()):
            field = f"spec.names.{part}[{index}]"
            yield from named(field, text, names.check_dns_1035_label(text))
    kind = given.get("kind")
    if kind and kind == given.get("listKind"):
        yield invalid("spec.names.listKind", kind, "kind and listKind may not be the same")


def _contents(versions: list[Document]) -> Errors:
    for part in _SHARED:
        said = [v.get(part) for v in versions]
        alike = bool(said) and all(s == said[0] for s in said)
        for index, version in enumerate(versions[:1] if alike else versions):
            below = "" if alike else f"versions[{index}]."
            yield from _part(part, version, f"spec.{below}", index)


def _part(part: str, version: Document, prefix: str, index: int) -> Errors:
    if part == "schema":
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
            return
        within = f"{prefix}schema" if "versions[" in prefix else f"{prefix}validation"
        yield from schemas.check(schema, f"{within}.openAPIV3Schema")
    elif part == "subresources":
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            yield from _scale(scale, f"{prefix}subresources.scale")
    elif part == "additionalPrinterColumns":
        for number, column in enumerate(version.get(part) or ()):
            yield from _column(column, f"{prefix}{part}[{number}]")
    else:
        yield from _selectable(version, f"{prefix}{part}")


def _scale(scale: Document, field: str) -> Errors:
    for part, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        path = scale.get(part) or ""
        if not path:
            if part != "labelSelectorPath":
                yield required(f"{field}.{part}")
        elif jsonpath.simple_fields(path) is None:
            yield invalid(f"{field}.{part}", path, "must be a simple json path starting with .")
        elif not path.startswith(roots):
            allowed = " or ".join(root[:-1] for root in roots)
            yield invalid(f"{field}.{part}", path, f"should be a json path under {allowed}")


def _column(column: Document, field: str) -> Errors:
    if not column.get("name"):
        yield required(f"{field}.name")
    type_, format_ = column.get("type") or "", column.get("format") or ""
    if not type_:
        yield required(f"{field}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif type_ not in _COLUMN_TYPES:
        yield invalid(f"{field}.type", type_, f"must be one of {','.join(_COLUMN_TYPES)}")
    if format_ and format_ not in _COLUMN_FORMATS:
        yield invalid(f"{field}.format", format_, f"must be one of {','.join(_COLUMN_FORMATS)}")
    path = column.get("jsonPath") or ""
    if not path:
        yield required(f"{field}.JSONPath")
    elif not path.startswith("."):
        yield invalid(f"{field}.JSONPath", path, "must be a simple json path starting with .")
    else:
        try:
            jsonpath.compile_path(path)
        except jsonpath.PathError as error:
            yield invalid(f"{field}.JSONPath", path, str(error))


def _selectable(version: Document, field: str) -> Errors:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for index, entry in enumerate(version.get("selectableFields") or ()):
        path, where = entry.get("jsonPath") or "", f"{field}[{index}].jsonPath"
        if not path:
            yield required(where)
            continue
        if path in seen:
            yield FieldError(where, "FieldValueDuplicate", f'Duplicate value: "{path}"')
        seen.add(path)
        found: Any = schema
        for name in jsonpath.simple_fields(path) or ("",):
            found = (found.get("properties") or {}).get(name) or {}
        if path.startswith(".metadata."):
            yield invalid(where, path, "must not point to fields in metadata")
        elif not found:
            yield invalid(where, path, "is an invalid path: does not refer to a valid field")
        elif found.get("type") not in _SELECTABLE:
            kinds = ", ".join(_SELECTABLE)
            yield invalid(where, path, f"must point to a field of type {kinds}")


def _conversion(conversion: Document) -> Errors:
    strategy = conversion.get("strategy") or ""
    if strategy not in ("None", "Webhook"):
        yield unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    if strategy == "Webhook":
        config = (webhook or {}).get("clientConfig")
        if config is None:
            yield required(
                "spec.conversion.webhookClientConfig", "required when strategy is set to Webhook"
            )
        elif bool(config.get("url")) == bool(config.get("service")):
            yield required(
                "spec.conversion.webhookClientConfig",
                "exactly one of url or service is required",
            )
        if not (webhook or {}).get("conversionReviewVersions"):
            yield required("spec.conversion.conversionReviewVersions")
    elif webhook is not None:
        yield forbidden(
            "spec.conversion.webhookClientConfig",
            "should not be set when strategy is not set to Webhook",
        )


def _stored_versions(obj: Document, versions: list[Document]) -> Errors:
    field, stored = "status.storedVersions", (obj.get("status") or {}).get("storedVersions")
    if not stored:
        yield invalid(field, None, "must have at least one stored version")
        return
    listed = {v.get("name") for v in versions}
    for index, name in enumerate(stored):
        if name not in listed:
            yield invalid(
                f"{field}[{index}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(field, stored, f"must have the storage version {version.get('name')}")


def api_service(obj: Document) -> Errors:
    """An APIService."""
    spec = obj.get("spec") or {}
    name = obj["metadata"].get("name") or ""
    group, version = spec.get("group") or "", spec.get("version") or ""
    wanted = f"{version}.{group}"
    if name and name != wanted:
        problem = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield invalid("metadata.name", name, problem)
    if group:
        yield from named("spec.group", group, names.check_dns_subdomain(group))
    yield from named("spec.version", version, names.check_dns_1035_label(version))
    for field, most in _PRIORITY_MAX.items():
        given = spec.get(field) or 0
        if not 0 < given <= most:
            problem = f"must be positive and less than {most}"
            yield invalid(f"spec.{field}", given, problem)
    yield from _backend(spec)


def _backend(spec: Document) -> Errors:
    service = spec.get("service")
    if service is None:
        if spec.get("caBundle"):
            yield invalid(
                "spec.caBundle",
                f"{len(spec['caBundle'])} bytes",
                "local APIServices may not have a caBundle",
            )
        if spec.get("insecureSkipTLSVerify"):
            yield invalid(
                "spec.insecureSkipTLSVerify",
                True,
                "local APIServices may not have insecureSkipTLSVerify",
            )
        return
    for part in ("namespace", "name"):
        if not service.get(part):
            yield required(f"spec.service.{part}")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid(
            "spec.service.port", port, "port is not valid: must be between 1 and 65535, inclusive"
        )
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        problem = "may not be true if caBundle is present"
        yield invalid("spec.insecureSkipTLSVerify", True, problem)
