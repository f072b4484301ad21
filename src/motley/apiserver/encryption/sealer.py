"""The seal over stored values: which providers a key's resource has, and what they make of it.

It also remembers which objects were read with another provider than the one that writes now, so
that writing one of them again, unchanged, is no empty act: `kubectl get secrets -A -o json |
kubectl replace -f -` is how Kubernetes' users change keys.

Invariant: bytes that begin `k8s:enc:` are never taken for a value, also without a configuration.
"""

from collections.abc import Sequence

from motley.api import scheme
from motley.apiserver.encryption.ciphers import WrongKey
from motley.apiserver.encryption.config import IDENTITY, PREFIX, Entry, Provider
from motley.store.contract import Store
from motley.store.sealing import Unreadable

_PLAIN = (IDENTITY,)
# Groups of custom resources always have a dot, and resources of the core group never have.
_DOTLESS_GROUPS = frozenset(group for group in scheme.groups() if "." not in group)


class Sealer:
    """See `store.sealing.Seal`."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries = entries
        self._providers: dict[tuple[str, str], tuple[Provider, ...]] = {}
        # Grows with the objects not yet rewritten after a change of keys, shrinks as they are.
        self._stale: set[str] = set()

    def is_stale(self, key: str) -> bool:
        """Whether an object would be kept otherwise if it were written now."""
        return key in self._stale

    async def check(self, store: Store) -> None:
        """Read everything that may be sealed once, before it is served. Raises `Unreadable`."""
        for kind in scheme.kinds():
            if not kind.is_stored or kind.stored_as is not None:
                continue
            is_covered = any(e.covers(kind.plural, kind.group) for e in self._entries)
            if is_covered or (kind.group, kind.plural) == ("", "secrets"):
                await store.range(kind.storage_prefix)

    def seal(self, key: str, value: bytes, place: bytes) -> bytes:
        """See `Seal`."""
        if not self._entries:
            return value
        first = self._of(key)[0]
        self._stale.discard(key)
        if first.cipher is None:
            return value
        return first.prefix + first.cipher.encrypt(value, place)

    def open(self, key: str, kept: bytes, place: bytes) -> bytes:
        """See `Seal`."""
        is_sealed = kept.startswith(PREFIX)
        if not is_sealed and not self._entries:
            return kept
        providers = self._of(key)
        problem = ""
        for provider in providers:
            if provider.cipher is None:
                if is_sealed:
                    continue
                value = kept
            elif kept.startswith(provider.prefix):
                try:
                    value = provider.cipher.decrypt(kept[len(provider.prefix) :], place)
                except WrongKey as error:
                    problem = str(error)
                    continue
            else:
                continue
            if provider is not providers[0]:
                self._stale.add(key)
            return value
        raise Unreadable(_explain(key, kept, problem))

    def _of(self, key: str) -> tuple[Provider, ...]:
        resource = resource_of(key)
        found = self._providers.get(resource)
        if found is None:
            entry = next((e for e in self._entries if e.covers(*resource)), None)
            found = self._providers[resource] = entry.providers if entry else _PLAIN
        return found


def resource_of(key: str) -> tuple[str, str]:
    """(resource, group) of a key `/registry/[GROUP/]RESOURCE/…`."""
    first, _, rest = key.removeprefix("/registry/").partition("/")
    if "." in first or first in _DOTLESS_GROUPS:
        return rest.partition("/")[0], first
    return first, ""


def _explain(key: str, kept: bytes, problem: str) -> str:
    """What is missing, and what to do."""
    if not kept.startswith(PREFIX):
        return (
            f"{key} is stored unencrypted, and --encryption-provider-config has no provider"
            " `identity` for it: add `- identity: {}` as the last one"
        )
    how = ":".join(kept[len(PREFIX) :][:200].decode("latin-1").split(":")[:3])
    provider, _, name = how.split(":") if how.count(":") == 2 else (how, "", "")
    wanted = f"the {provider} key {name!r}"
    if problem:
        return (
            f"{key} cannot be decrypted with {wanted} of --encryption-provider-config: {problem};"
            " the key was changed, or the value was copied here from elsewhere"
        )
    return f"{key} is encrypted with {wanted}, which --encryption-provider-config does not have"
