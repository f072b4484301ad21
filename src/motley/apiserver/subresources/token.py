"""`serviceaccounts/token`: a token for an account, for whoever may ask for one.

A token bound to a pod, Secret or node is good only while that very object exists; the uid in the
token tells a new object of the same name from the old one.
"""

from typing import Any

from motley.api import names, schema, scheme, status
from motley.api.fields import tracking
from motley.api.status import FieldError
from motley.apiserver import document, tables
from motley.apiserver.admission import Change
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call, in_media_type
from motley.lib.clock import rfc3339

Document = dict[str, Any]

GROUP, KIND = "authentication.k8s.io", "TokenRequest"
API_VERSION = f"{GROUP}/v1"
DEFAULT_S = 3600
SHORTEST_S = 600
LONGEST_S = 1 << 32
_KIND = scheme.Kind(GROUP, "v1", KIND, "tokenrequests", "tokenrequest", is_stored=False)
_BINDABLE = {("v1", "Pod"): "pods", ("v1", "Secret"): "secrets", ("v1", "Node"): "nodes"}


async def create(core: Core, call: Call) -> Answer:
    """201 with the token."""
    options = write_options(call.info.query, "CreateOptions")
    wanted = await _read(call)
    record = await core.store.get(call.kind.key(call.namespace, call.info.name))
    if record is None:
        raise status.not_found("", "serviceaccounts", call.info.name)
    account = document.decode(record.value)
    _check(wanted, call.info.name, call.namespace)
    owners = _owners(core, wanted, call.manager(options))
    spec = wanted["spec"]
    spec["audiences"] = spec.get("audiences") or list(core.access.tokens.audiences)
    change = Change(
        "create",
        call.kind,
        call.namespace,
        call.info.name,
        wanted,
        None,
        "token",
        options.dry_run,
    )
    async with core.writer.admission.admitted(change) as validate:
        await validate()
        bound = await _bound(core, call.namespace, spec)
        expires = int(core.clock.now()) + int(spec["expirationSeconds"])
        token = core.access.tokens.issue(
            account,
            audiences=spec["audiences"],
            expires=expires,
            token_id=names.new_uid(core.rng),
            bound=bound,
        )
    metadata = account["metadata"]
    shown = {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "creationTimestamp": core.writer.timestamp(),
            **({"managedFields": owners} if owners else {}),
        },
        "spec": {**spec, "boundObjectRef": spec.get("boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
    }
    form = tables.transformed(call.kind, shown, call.wanted, "")
    return in_media_type(form, call.wanted.media_type, 201, change.warnings)


def _owners(core: Core, wanted: Document, manager: str) -> list[Document]:
    """Who asked, in the form in which objects say who wrote them."""
    draft = {**wanted, "metadata": {}}
    tracking.created(_KIND, draft, manager, core.writer.timestamp())
    owners: list[Document] = draft["metadata"].get("managedFields") or []
    return [{**entry, "subresource": "token"} for entry in owners]


async def _read(call: Call) -> Document:
    wanted = await call.document(KIND, API_VERSION)
    named = str(wanted.get("kind") or KIND), str(wanted.get("apiVersion") or API_VERSION)
    if named != (KIND, API_VERSION):
        raise status.BadRequest(
            f'{named[0]} in version "{named[1]}" cannot be handled as a {KIND}: converting '
            f"({named[1]}.{named[0]}) to (authentication.{KIND}): unknown conversion"
        )
    checked = schema.check_as(schema.of_type(API_VERSION, KIND), wanted)
    if checked.errors:
        raise status.BadRequest(
            f'{KIND} in version "v1" cannot be handled as a {KIND}: {checked.errors[0].message}'
        )
    if not isinstance(wanted.get("spec"), dict):
        wanted["spec"] = {}
    if wanted["spec"].get("expirationSeconds") is None:
        wanted["spec"]["expirationSeconds"] = DEFAULT_S
    return wanted


def _check(wanted: Document, name: str, namespace: str) -> None:
    metadata, seconds = wanted.get("metadata") or {}, wanted["spec"]["expirationSeconds"]
    for field, expected in (("name", name), ("namespace", namespace)):
        given = metadata.get(field)
        if given and given != expected:
            what = "name" if field == "name" else "namespace"
            problem = (
                f'Invalid value: "{given}": must match the service account {what} if specified'
            )
            error = FieldError(f"metadata.{field}", "FieldValueInvalid", problem)
            raise status.invalid(GROUP, KIND, name, [error])
    problem = ""
    if seconds < SHORTEST_S:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > LONGEST_S:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        message = f"Invalid value: {seconds}: {problem}"
        error = FieldError("spec.expirationSeconds", "FieldValueInvalid", message)
        raise status.invalid(GROUP, KIND, "", [error])


async def _bound(core: Core, namespace: str, spec: Document) -> dict[str, dict[str, str]]:
    """What the token is bound to; for a pod on a node also, for information, that node."""
    reference = spec.get("boundObjectRef")
    if not isinstance(reference, dict):
        return {}
    version, named = str(reference.get("apiVersion", "")), str(reference.get("kind", ""))
    plural = _BINDABLE.get((version, named))
    if plural is None:
        group = version.rpartition("/")[0]
        raise status.BadRequest(
            f"cannot bind token to object of type {group}/{version.rpartition('/')[2]}, "
            f"Kind={named}"
        )
    found = await _object(core, plural, namespace, str(reference.get("name", "")))
    if found is None:
        raise status.not_found("", plural, str(reference.get("name", "")))
    uid = found["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        raise status.Conflict(
            f'Operation cannot be fulfilled on {named} "{reference["name"]}": the UID in the bound '
            f"object reference ({reference['uid']}) does not match the UID in record. The object "
            "might have been deleted and then recreated",
            details={"name": reference["name"], "kind": named},
        )
    bound = {named.lower(): {"name": found["metadata"]["name"], "uid": uid}}
    node_name = (found.get("spec") or {}).get("nodeName") if plural == "pods" else ""
    if node_name:
        node = await _object(core, "nodes", "", node_name)
        uid = node["metadata"]["uid"] if node is not None else ""
        bound["node"] = {"name": node_name, "uid": uid}
    return bound


async def _object(core: Core, plural: str, namespace: str, name: str) -> Document | None:
    kind = scheme.resource("", "v1", plural)
    assert kind is not None
    record = await core.store.get(kind.key(namespace if kind.namespaced else "", name))
    return document.decode(record.value) if record is not None else None
