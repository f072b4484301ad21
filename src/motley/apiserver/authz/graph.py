"""Which objects belong to which node: through the pods bound to it.

    node ◄─ pod ◄─ secret, configmap, serviceaccount, resourceclaim
            pod ◄─ persistentvolumeclaim ◄─ persistentvolume ◄─ secret

Only where a pod runs is kept up to date; what a pod refers to is read when a node asks, once for
each state of the pod, because a node asks about the few pods it has.

Invariant: a mirror pod leads nowhere. A node makes those itself, and could otherwise give itself
any Secret.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from motley.api import codec, scheme
from motley.apiserver.attributes import Attributes
from motley.apiserver.authz.follower import Follower
from motley.store.watchcache import WatchCache

MIRROR = "kubernetes.io/config.mirror"
_NODE_NAME = 0  # of the fields selectable for pods
_REQUEST_NODE = 2  # of the fields selectable for PodCertificateRequests
Reference = tuple[str, str]
"""Plural and name, in the pod's namespace."""


class Caches(Protocol):
    """Where pods, claims and volumes are read."""

    def __getitem__(self, kind: scheme.Kind) -> WatchCache[Attributes]: ...


def _core(plural: str) -> scheme.Kind:
    found = scheme.resource("", "v1", plural)
    assert found is not None
    return found


class _PodsByNode:
    """See `follower.Index`."""

    def __init__(self) -> None:
        self.on_node: dict[str, set[str]] = {}
        self.node_of: dict[str, str] = {}

    def clear(self) -> None:
        self.on_node.clear()
        self.node_of.clear()

    def put(self, key: str, about: Attributes, value: bytes) -> None:
        node = about.fields[_NODE_NAME]
        if self.node_of.get(key, "") == node:
            return
        self.remove(key, about)
        if node:
            self.node_of[key] = node
            self.on_node.setdefault(node, set()).add(key)

    def remove(self, key: str, about: Attributes) -> None:
        node = self.node_of.pop(key, "")
        if node:
            self.on_node[node].discard(key)
            if not self.on_node[node]:
                del self.on_node[node]


class Graph:
    """Answers whether an object is related to a node."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._kind = _core("pods")
        self._pods = caches[self._kind]
        self._index = _PodsByNode()
        self._follower = Follower(self._pods, self._index)
        self._references: dict[str, tuple[int, frozenset[Reference]]] = {}

    def has_pod(self, node: str, namespace: str, name: str) -> bool:
        """Whether this pod is bound to the node."""
        self._follower.catch_up()
        return self._index.node_of.get(self._kind.key(namespace, name)) == node

    def has_request(self, node: str, namespace: str, name: str) -> bool:
        """Whether this PodCertificateRequest is of the node."""
        kind = scheme.resource("certificates.k8s.io", "v1", "podcertificaterequests")
        assert kind is not None
        cached = self._caches[kind].get(kind.key(namespace, name))
        return cached is not None and cached.attributes.fields[_REQUEST_NODE] == node

    def is_referred(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether a pod on the node refers to this object of its namespace."""
        wanted = (plural, name)
        return any(wanted in found for _, found in self._referred(node, namespace))

    def is_volume_used(self, node: str, volume: str) -> bool:
        """Whether a pod on the node claims this PersistentVolume."""
        return any(name == volume for name, _ in self._volumes(node, ""))

    def is_volume_secret(self, node: str, namespace: str, name: str) -> bool:
        """Whether a volume that a pod on the node claims needs this Secret."""
        return any(
            (secret.get("namespace") or home, secret.get("name")) == (namespace, name)
            for _, (home, spec) in self._volumes(node, "")
            for secret in volume_secrets(spec)
        )

    def _referred(self, node: str, namespace: str) -> Iterator[tuple[str, frozenset[Reference]]]:
        """The references of each pod on a node, in one namespace or (when empty) in all."""
        self._follower.catch_up()
        prefix = self._kind.prefix(namespace)
        for key in self._index.on_node.get(node, ()):
            if not key.startswith(prefix):
                continue
            cached = self._pods.get(key)
            if cached is None:
                continue
            revision = cached.record.revision
            known = self._references.get(key)
            if known is None or known[0] != revision:
                if len(self._references) > 2 * len(self._index.node_of) + 64:
                    self._references.clear()  # mostly of pods that are gone
                known = (revision, references(codec.decode(cached.record.value)))
                self._references[key] = known
            yield cached.attributes.namespace, known[1]

    def _volumes(self, node: str, namespace: str) -> Iterator[tuple[str, tuple[str, Any]]]:
        """Name, claiming namespace and spec of each volume that pods on the node claim."""
        claims, volumes = _core("persistentvolumeclaims"), _core("persistentvolumes")
        for home, found in self._referred(node, namespace):
            for plural, name in found:
                if plural != "persistentvolumeclaims":
                    continue
                claim = self._caches[claims].get(claims.key(home, name))
                volume = _spec(claim).get("volumeName", "") if claim else ""
                cached = self._caches[volumes].get(volumes.key("", volume)) if volume else None
                spec = _spec(cached) if cached else {}
                claimed = spec.get("claimRef") or {}
                if (claimed.get("namespace"), claimed.get("name")) == (home, name):
                    yield volume, (home, spec)


def _spec(cached: Any) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = codec.decode(cached.record.value).get("spec") or {}
    return spec


def references(pod: Mapping[str, Any]) -> frozenset[Reference]:
    """Everything in its namespace that a pod needs to run."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if MIRROR in (metadata.get("annotations") or {}):
        return frozenset()
    found = set(_volume_references(str(metadata.get("name", "")), spec))
    found.add(("serviceaccounts", str(spec.get("serviceAccountName", ""))))
    found |= {("secrets", r.get("name", "")) for r in spec.get("imagePullSecrets") or ()}
    for containers in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(containers) or ():
            found |= set(_environment_references(container))
    for claim in spec.get("resourceClaims") or ():
        found.add(("resourceclaims", claim.get("resourceClaimName", "")))
    for claim in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        found.add(("resourceclaims", claim.get("resourceClaimName", "")))
    return frozenset(r for r in found if r[1])


def _volume_references(pod_name: str, spec: Mapping[str, Any]) -> Iterator[Reference]:
    for volume in spec.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            secret = source.get("secret") or {}
            yield "secrets", secret.get("secretName") or secret.get("name", "")
            yield "configmaps", (source.get("configMap") or {}).get("name", "")
        claim = volume.get("persistentVolumeClaim") or {}
        yield "persistentvolumeclaims", claim.get("claimName", "")
        if volume.get("ephemeral"):
            yield "persistentvolumeclaims", f"{pod_name}-{volume.get('name', '')}"
        for secret in volume_secrets(volume):
            yield "secrets", secret.get("name", "")


def _environment_references(container: Mapping[str, Any]) -> Iterator[Reference]:
    for source in container.get("envFrom") or ():
        yield "secrets", (source.get("secretRef") or {}).get("name", "")
        yield "configmaps", (source.get("configMapRef") or {}).get("name", "")
    for variable in container.get("env") or ():
        value = variable.get("valueFrom") or {}
        yield "secrets", (value.get("secretKeyRef") or {}).get("name", "")
        yield "configmaps", (value.get("configMapKeyRef") or {}).get("name", "")


def volume_secrets(source: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The Secrets that mounting this volume source takes, whatever driver it names."""
    for driver in source.values():
        if not isinstance(driver, dict):
            continue
        for field in ("secretRef", "nodePublishSecretRef", "nodeStageSecretRef"):
            if isinstance(driver.get(field), dict):
                yield driver[field]
