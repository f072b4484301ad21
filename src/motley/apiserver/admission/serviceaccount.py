"""ServiceAccount: every pod runs as somebody, and its programs can prove it.

A pod names its account or gets `default`; the account's pull secrets and, unless it or the pod
says no, a projected volume with a token, the cluster's certificate and the namespace come along.

The `default` account of a namespace is made by a controller a moment after the namespace. A pod
that comes sooner is taken: its token is fetched by the node, which waits for the account anyway.
"""

from random import Random
from typing import Any

from motley.api import names
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]

DEFAULT = "default"
MIRROR = "kubernetes.io/config.mirror"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access-"
# An hour, and seven seconds by which Kubernetes knows the tokens that were asked for this way.
TOKEN_LIFETIME_S = 3607


class ServiceAccount:
    """Gives pods their account and its token."""

    name = "ServiceAccount"
    interests = (interest("create", "pods"),)

    def __init__(self, lookup: Lookup, rng: Random, *, mount_token: bool = True) -> None:
        self._lookup = lookup
        # Drawn once: the name need only differ from those of a pod's other volumes, and pods of
        # one template then stay equal to the last byte, which is what makes many of them cheap.
        self._volume = names.generate(VOLUME, rng)
        self._mount_token = mount_token
        self._kind = kind_of("", "serviceaccounts")

    async def mutate(self, change: Change) -> None:
        """Complete a new pod; 403 when it names an account that does not exist."""
        spec = change.spec
        if spec is None or is_mirror(change.new):
            return
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._lookup.get(self._kind, change.namespace, str(name))
        if account is None:
            if name != DEFAULT:
                raise change.forbidden(
                    f"error looking up service account {change.namespace}/{name}: "
                    f'serviceaccount "{name}" not found'
                )
            account = {}
        if self._mount_token and wants_token(spec, account):
            mount_token(spec, self._volume)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(s) for s in account["imagePullSecrets"]]

    async def validate(self, change: Change) -> None:
        """A pod that a node shows to the API has no account: nobody could take it away."""
        spec = change.spec
        if spec is None or not is_mirror(change.new):
            return
        if spec.get("serviceAccountName"):
            raise change.forbidden("a mirror pod may not reference service accounts")
        for volume in spec.get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if source.get("serviceAccountToken"):
                    raise change.forbidden(
                        "a mirror pod may not use ServiceAccountToken volume projections"
                    )


def is_mirror(pod: Document | None) -> bool:
    """Whether a pod mirrors one that a node was given in a file."""
    metadata = (pod or {}).get("metadata") or {}
    return MIRROR in (metadata.get("annotations") or {})


def wants_token(spec: Document, account: Document) -> bool:
    """The pod decides, then the account; without a word from either, yes."""
    for holder in (spec, account):
        wanted = holder.get("automountServiceAccountToken")
        if wanted is not None:
            return bool(wanted)
    return True


def mount_token(spec: Document, volume: str) -> None:
    """Mount the token into every container that has nothing at its place."""
    for known in spec.get("volumes") or ():
        if str(known.get("name", "")).startswith(VOLUME):
            volume = known["name"]
    mounted = False
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            mounts = container.get("volumeMounts") or []
            if any(m.get("mountPath") == MOUNT_PATH for m in mounts):
                continue
            mount = {"name": volume, "readOnly": True, "mountPath": MOUNT_PATH}
            container["volumeMounts"] = [*mounts, mount]
            mounted = True
    if mounted and all(v.get("name") != volume for v in spec.get("volumes") or ()):
        spec["volumes"] = [*(spec.get("volumes") or ()), token_volume(volume)]


def token_volume(name: str) -> Document:
    """Token, certificate and namespace as three files."""
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    certificate = {"key": "ca.crt", "path": "ca.crt"}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_LIFETIME_S, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [certificate]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
            "defaultMode": 0o644,
        },
    }
