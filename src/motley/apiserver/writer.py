"""The write path: one place where objects are created, changed and removed.

    read body → default → who owns what → the server's fields → mutate → validate → admit → commit

Every verb that writes ends here, and so do the subresources. Changes are compare-and-swap on
the revision that was read; a change that named no version is tried again on the fresh object,
one that did is refused with 409.

Invariant: an answer is given only after the store has made the write durable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from motley.api import codec, defaults, names, scheme, status, validation
from motley.api.fields import tracking
from motley.apiserver import document, preparation, strategy, versions
from motley.apiserver.admission import Admission, Change
from motley.apiserver.admission.webhook.caller import CallFailed
from motley.apiserver.admission.webhook.configuration import Webhook
from motley.apiserver.crds import conversion, shown
from motley.apiserver.options import parse_version
from motley.apiserver.subresources import parts
from motley.lib.clock import Clock, rfc3339
from motley.store.contract import (
    Committed,
    Delete,
    Full,
    Mismatch,
    Op,
    Put,
    Record,
    Revision,
    Store,
    TooLarge,
)

Document = dict[str, Any]
Modify = Callable[[Document], Document]
"""Makes the wanted object from a copy of the stored one; may raise an `ApiError`."""

SERVER = "kube-apiserver"
"""Who owns what the server writes on its own account, as in Kubernetes."""

# Kubernetes draws a new random name up to eight times before it says AlreadyExists.
_NAME_DRAWS = 8
# A hot object loses the race now and then; a dozen losses in a row mean something is wrong.
_RACES = 12


async def _nobody(webhook: Webhook, review: Document) -> Document:
    raise CallFailed("this server calls no webhooks")


@dataclass(slots=True)
class Written:
    """The outcome of a write: the object's bytes as they are now, and what to warn about."""

    value: bytes
    warnings: list[str] = field(default_factory=list)
    created: bool = False
    removed: bool = False


class Writer:
    """Writes objects of every kind."""

    def __init__(self, store: Store, admission: Admission, clock: Clock, rng: Random) -> None:
        self.store = store
        self.admission = admission
        self.clock = clock
        self.rng = rng
        self.conversions = conversion.Conversions(_nobody, rng)
        self.is_stale: Callable[[str], bool] = lambda key: False
        """Whether an object must be written again also when nothing in it changed."""

    def timestamp(self) -> str:
        """Now, as objects carry it."""
        return rfc3339(self.clock.now())

    async def create(
        self,
        kind: scheme.Kind,
        namespace: str,
        new: Document,
        *,
        manager: str | None = SERVER,
        dry_run: bool = False,
    ) -> Written:
        """Create an object from a document the caller gives up.

        `manager` becomes the owner of its fields; None: the document says who owns what.
        """
        metadata = metadata_of(new)
        check_namespace(kind, metadata, namespace)

        def own(shown_as: scheme.Kind, made: Document) -> None:
            if manager is not None:
                tracking.created(shown_as, made, manager, self.timestamp())

        if (default := preparation.TIMED.get((kind.group, kind.plural))) is not None:
            default(new, self.timestamp())
        kind, new = versions.kept(kind, new, own)
        metadata = new["metadata"]
        base = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        if not base:
            return await self._create(kind, namespace, new, dry_run)
        for _ in range(_NAME_DRAWS - 1):
            draft = document.copy(new)
            draft["metadata"]["name"] = names.generate(base, self.rng)
            try:
                return await self._create(kind, namespace, draft, dry_run)
            except status.AlreadyExists:
                continue
        new["metadata"]["name"] = names.generate(base, self.rng)
        return await self._create(kind, namespace, new, dry_run)

    async def _create(
        self, kind: scheme.Kind, namespace: str, new: Document, dry_run: bool
    ) -> Written:
        has_version = bool(new["metadata"].get("resourceVersion"))
        for _ in range(_RACES):
            try:
                return await self._create_once(kind, namespace, new, dry_run, has_version)
            except Mismatch:
                continue  # what is written along with it (a quota, an address) has changed
        raise status.Conflict(
            f"{kind.qualified}: what is taken along with it in namespace {namespace!r} changes too "
            "quickly, try again"
        )

    async def _create_once(
        self, kind: scheme.Kind, namespace: str, new: Document, dry_run: bool, has_version: bool
    ) -> Written:
        metadata = new["metadata"]
        name = str(metadata.get("name") or "")
        strategy.before_create(kind, new, uid=names.new_uid(self.rng), created=self.timestamp())
        change = Change("create", kind, namespace, name, new, None, dry_run=dry_run)
        async with self.admission.admitted(change) as validate:
            if errors := validation.create(kind, new):
                raise status.invalid(kind.group, kind.kind, name, errors)
            await validate()
            if has_version:  # told last, as in Kubernetes: who may not create hears that instead
                text = "resourceVersion should not be set on objects to be created"
                raise status.BadRequest(text)
            key = kind.key(namespace, name)
            value = await self.conversions.encode(kind, new)
            if dry_run:
                await self.conversions.prime(kind, [value])
                if (current := await self.store.get(key)) is not None:
                    raise already_exists(kind, name, current)
                return Written(value, change.warnings, created=True)
            try:
                done = await self.commit([Put(key, value, Revision(0)), *change.also])
            except Mismatch as mismatch:
                if mismatch.key != key:
                    raise
                raise already_exists(kind, name, mismatch.current) from None
            return await self._shown(kind, done.records[0].value, change, created=True)

    async def update(
        self,
        kind: scheme.Kind,
        namespace: str,
        name: str,
        modify: Modify,
        *,
        subresource: str = "",
        manager: str | None = None,
        is_fresh: bool = False,
        dry_run: bool = False,
    ) -> Written:
        """Change a stored object; `modify` is called again on fresh state when a race is lost.

        `manager` becomes the owner of what it changes; None: the document says who owns what.
        `is_fresh`: what `modify` returns shares nothing with what it was given.

        The document `modify` returns may carry a resourceVersion or a uid: then the stored
        object must have them.
        """
        key = kind.key(namespace, name)
        record = await self.store.get(key)
        if record is None:
            raise status.not_found(kind.group, kind.plural, name)
        modify = versions.modifying(kind, modify)
        kind = versions.tabled(kind)
        for _ in range(_RACES):
            if record is None:
                raise status.not_found(kind.group, kind.plural, name)
            await self.conversions.prime(kind, [record.value])
            old = shown.read(kind, record.value)
            new = modify(old if is_fresh else shown.read(kind, record.value))
            pinned = check_expectations(kind, name, new, old, record)
            try:
                return await self._update(
                    kind, namespace, name, record, old, new, subresource, manager, dry_run
                )
            except Mismatch as mismatch:
                if mismatch.key != key:  # what is written along with it: try again
                    record = await self.store.get(key)
                    continue
                if pinned:
                    raise modified(kind, name) from None
                record = mismatch.current
        raise modified(kind, name)

    async def _update(
        self,
        kind: scheme.Kind,
        namespace: str,
        name: str,
        record: Record,
        old: Document,
        new: Document,
        subresource: str,
        manager: str | None,
        dry_run: bool,
    ) -> Written:
        if subresource == "status":
            new = strategy.before_status_update(kind, new, old)
        elif not subresource or subresource in parts.NAMES:
            defaults.apply(kind, new)
        if manager is not None:
            tracking.updated(kind, old, new, manager, subresource, self.timestamp())
        if not subresource:
            strategy.before_update(kind, new, old)
        elif subresource == "status":
            strategy.settle_status(kind, new, old, self.timestamp())
        elif subresource in parts.NAMES:
            new = parts.narrow(kind, subresource, new, old, self.timestamp())
        # Other subresources (binding, finalize) made the new object from the stored one.
        change = Change("update", kind, namespace, name, new, old, subresource, dry_run)
        async with self.admission.admitted(change) as validate:
            if not subresource:
                strategy.count(kind, new, old)
            new |= {"kind": kind.kind, "apiVersion": kind.api_version}
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            # A binding sets what an update may not: `binding` has checked it.
            errors = (
                validation.update(kind, new, old, subresource) if subresource != "binding" else []
            )
            if errors:
                raise status.invalid(kind.group, kind.kind, name, errors)
            await validate()
            tracking.settle_times(old, new)
            if document.is_same(old, new) and not self.is_stale(record.key):
                return Written(record.value, change.warnings)
            value = await self.conversions.encode(kind, new)
            if dry_run:
                return await self._shown(kind, document.stamp(value, record.revision), change)
            if strategy.is_released(new):
                await self.commit([Delete(record.key, record.revision), *change.also])
                change.new = None  # what the object held is free again
                last = document.stamp(value, record.revision)
                return await self._shown(kind, last, change, removed=True)
            done = await self.commit([Put(record.key, value, record.revision), *change.also])
            return await self._shown(kind, done.records[0].value, change)

    async def _shown(
        self,
        kind: scheme.Kind,
        value: bytes,
        change: Change,
        *,
        created: bool = False,
        removed: bool = False,
    ) -> Written:
        """The outcome, fit to be shown in the version that was written."""
        await self.conversions.prime(kind, [value])
        return Written(value, change.warnings, created=created, removed=removed)

    async def put(self, kind: scheme.Kind, record: Record, new: Document) -> Committed:
        """Store a document as it is over the record it was made from (deletions mark so)."""
        # As it is also means: in the version it was kept in, where a webhook tells them apart.
        as_is = conversion.is_asked(kind)
        value = codec.encode_object(new) if as_is else document.encode(kind, new)
        return await self.commit([Put(record.key, value, record.revision)])

    async def commit(self, ops: Sequence[Op]) -> Committed:
        """Commit, and say in the API's words when the disk is full."""
        try:
            done = await self.store.commit(ops)
        except Full as error:
            # No Retry-After: kubectl would try again for a minute before it shows the reason.
            raise status.InsufficientStorage(
                f"the store has no space left and nothing was changed: {error}"
            ) from None
        except TooLarge as error:
            raise status.TooLarge(str(error)) from None
        self.admission.wrote(done.revision)
        return done


def metadata_of(body: Document) -> Document:
    """The document's metadata, made where there is none."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        metadata = body["metadata"] = {}
    return metadata


def check_namespace(kind: scheme.Kind, metadata: Document, namespace: str) -> None:
    """A body may leave out its namespace, but may not name another than the path."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace") not in (None, "", namespace):
        raise status.BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def check_expectations(
    kind: scheme.Kind, name: str, new: Document, old: Document, record: Record
) -> bool:
    """Compare what the new document says of version and uid; True when it pinned the version."""
    metadata = metadata_of(new)
    uid = metadata.get("uid")
    if uid and uid != old["metadata"].get("uid"):
        raise other_uid(kind, name, record.key, uid, old["metadata"].get("uid"))
    version = parse_version(str(metadata.get("resourceVersion") or ""))
    if version is not None and version != record.revision:
        raise modified(kind, name)
    ended = metadata.get("deletionTimestamp")
    if ended and ended != old["metadata"].get("deletionTimestamp"):
        raise immutable(kind, name, "metadata.deletionTimestamp", ended)
    return version is not None


def other_uid(kind: scheme.Kind, name: str, key: str, wanted: Any, found: Any) -> status.Conflict:
    """The write was made for another object of the same name."""
    return status.Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": '
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {found}",
        details=_details(kind, name),
    )


def immutable(kind: scheme.Kind, name: str, field: str, value: Any) -> status.Invalid:
    """What only the server sets was to be changed."""
    message = f'Invalid value: "{value}": field is immutable'
    error = status.FieldError(field, "FieldValueInvalid", message)
    return status.invalid(kind.group, kind.kind, name, [error])


def modified(kind: scheme.Kind, name: str) -> status.Conflict:
    """The write was made for another version of the object."""
    return status.Conflict(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": the object has been '
        "modified; please apply your changes to the latest version and try again",
        details=_details(kind, name),
    )


def already_exists(kind: scheme.Kind, name: str, current: Record | None) -> status.AlreadyExists:
    """The name is taken, perhaps by something that is on its way out."""
    leaving = (
        current is not None
        and b'"deletionTimestamp"' in current.value
        and document.decode(current.value)["metadata"].get("deletionTimestamp")
    )
    prefix = "object is being deleted: " if leaving else ""
    return status.AlreadyExists(
        f'{prefix}{kind.qualified} "{name}" already exists', details=_details(kind, name)
    )


def _details(kind: scheme.Kind, name: str) -> dict[str, str]:
    every = {"name": name, "group": kind.group, "kind": kind.plural}
    return {k: v for k, v in every.items() if v}
