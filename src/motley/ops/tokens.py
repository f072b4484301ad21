"""Join tokens, and what a cluster tells those who hold one.

A token is a Secret that the API server takes for a user who may ask for a node's certificate and
nothing more; it ends by itself. The cluster's authority is published for anyone to read, as kubeadm
does: whoever joins compares its public key with the hash in the join command before it believes
anything, and before it sends the token. What else a new node must know (address ranges, the DNS
address) is readable with the token.
"""

import base64
import hashlib
import re
from random import Random, SystemRandom
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from motley.api import status
from motley.api.views.core import Secret
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.ops.config import Config
from motley.ops.failure import Failure

NAMESPACE = "kube-system"
PUBLIC_NAMESPACE = "kube-public"
CLUSTER_INFO = "cluster-info"
SETTINGS = "motley-node-settings"
TYPE = "bootstrap.kubernetes.io/token"
DEFAULT_TTL_S = 24 * 3600.0
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_RBAC = "rbac.authorization.k8s.io"
_MANAGER = "motley-token"


class Token(msgspec.Struct, frozen=True, rename="camel"):
    """A join token as people see it."""

    token: str
    expires: str = ""  # empty: never
    description: str = ""
    usages: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The half that is no secret."""
        return self.token.partition(".")[0]

    def left_s(self, now: float) -> float | None:
        """How long it is good yet; None: for ever."""
        return clock.parse_rfc3339(self.expires) - now if self.expires else None


class NodeSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What every node of a cluster must agree on."""

    pod_cidr: str
    service_cidr: str
    cluster_dns: str
    cluster_domain: str
    pod_network: str = "auto"


def generate(rng: Random | None = None) -> str:
    """A new token; by default from the machine's source of secrets."""
    draws = rng or SystemRandom()
    characters = [draws.choice(_ALPHABET) for _ in range(22)]
    return f"{''.join(characters[:6])}.{''.join(characters[6:])}"


def check(token: str) -> str:
    """The token, if it is written as one. Raises Failure."""
    if _TOKEN.fullmatch(token) is None:
        raise Failure(
            "a token looks like abcdef.0123456789abcdef",
            "Copy the whole join command from: motley token create --print-join-command",
        )
    return token


def check_hash(text: str) -> str:
    """The hash of an authority, if it is written as one. Raises Failure."""
    if _HASH.fullmatch(text.lower()) is None:
        raise Failure(
            f"{text} is no hash of an authority: it looks like sha256: and 64 hexadecimal digits",
            "Copy the whole join command from: motley token create --print-join-command",
        )
    return text.lower()


def ca_hashes(ca: bytes) -> dict[str, bytes]:
    """kubeadm's hash of each authority of a bundle (of its public key), and its certificate."""
    found = {}
    for certificate in x509.load_pem_x509_certificates(ca):
        der = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        found[f"sha256:{hashlib.sha256(der).hexdigest()}"] = pem
    return found


def secret(token: str, *, ttl_s: float, description: str, now: float) -> dict[str, Any]:
    """The Secret of a token; `ttl_s` 0: for ever."""
    identity, _, word = check(token).partition(".")
    data = {
        "token-id": identity,
        "token-secret": word,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        **({"expiration": clock.rfc3339(now + ttl_s)} if ttl_s else {}),
        **({"description": description} if description else {}),
    }
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    name = {"name": f"bootstrap-token-{identity}", "namespace": NAMESPACE}
    return {"metadata": name, "type": TYPE, "data": encoded}


def read(found: Secret) -> Token | None:
    """The token of a Secret; None when it is none."""
    if found.type != TYPE:
        return None

    def text(key: str) -> str:
        return base64.b64decode(found.data.get(key) or "").decode(errors="replace")

    uses = [k.removeprefix("usage-bootstrap-") for k in found.data if k.startswith("usage-")]
    return Token(
        token=f"{text('token-id')}.{text('token-secret')}",
        expires=text("expiration"),
        description=text("description"),
        usages=tuple(sorted(u for u in uses if text(f"usage-bootstrap-{u}") == "true")),
        groups=tuple(filter(None, text("auth-extra-groups").split(","))),
    )


async def create(
    client: Client,
    *,
    token: str = "",
    ttl_s: float = DEFAULT_TTL_S,
    description: str = "",
    source: clock.Clock = clock.SYSTEM,
    rng: Random | None = None,
) -> Token:
    """Make a token. Raises Failure when this one exists."""
    chosen = token or generate(rng)
    body = secret(chosen, ttl_s=ttl_s, description=description, now=source.now())
    try:
        made = read(await client.create(Secret, body))
    except status.AlreadyExists:
        raise Failure(
            f"a token {chosen.partition('.')[0]} exists",
            f"Choose another, or first: motley token delete {chosen.partition('.')[0]}",
        ) from None
    assert made is not None
    return made


async def listed(client: Client) -> list[Token]:
    """Every token, those that end first in front."""
    found = await client.list(Secret, namespace=NAMESPACE, field_selector=f"type={TYPE}")
    tokens = [token for one in found.items if (token := read(one)) is not None]
    return sorted(tokens, key=lambda t: (t.expires or "~", t.id))


async def delete(client: Client, name: str) -> str:
    """End a token, named by its id or whole; the id. Raises Failure when there is none."""
    identity = name.partition(".")[0]
    if not re.fullmatch(r"[a-z0-9]{6}", identity):
        raise Failure(f"{name} is no token's id", "They are listed by: motley token list")
    try:
        await client.delete(Secret, f"bootstrap-token-{identity}", NAMESPACE)
    except status.NotFound:
        raise Failure(
            f"there is no token {identity}", "They are listed by: motley token list"
        ) from None
    return identity


# -- what is published


def published(config: Config, ca: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Paths and objects by which new nodes find their way."""
    first, *further = config.api_servers(config.node_ip)
    server = kubeconfig.Config(server=first, further=tuple(further), ca=ca)
    settings = NodeSettings(
        pod_cidr=config.pod_cidr,
        service_cidr=config.service_cidr,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        pod_network=config.pod_network,
    )
    info = {"kubeconfig": kubeconfig.render(server, user="")}
    values = msgspec.to_builtins(settings)
    nodes = ("system:bootstrappers", "system:nodes")
    return [
        _config_map(PUBLIC_NAMESPACE, CLUSTER_INFO, info),
        *_readable(PUBLIC_NAMESPACE, CLUSTER_INFO, [_subject("User", "system:anonymous")]),
        _config_map(NAMESPACE, SETTINGS, values),
        *_readable(NAMESPACE, SETTINGS, [_subject("Group", group) for group in nodes]),
    ]


def _subject(kind: str, name: str) -> dict[str, Any]:
    return {"apiGroup": _RBAC, "kind": kind, "name": name}


def _config_map(namespace: str, name: str, data: dict[str, str]) -> tuple[str, dict[str, Any]]:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    meta = {"name": name, "namespace": namespace}
    return path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _readable(
    namespace: str, name: str, subjects: list[dict[str, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    role = f"motley:{name}"
    base = f"/apis/{_RBAC}/v1/namespaces/{namespace}"
    shared = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": role, "namespace": namespace}}
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}
    rules = [{**rule, "resourceNames": [name]}]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": role}
    bound = {"kind": "RoleBinding", "roleRef": reference, "subjects": subjects}
    return [
        (f"{base}/roles/{role}", {**shared, "kind": "Role", "rules": rules}),
        (f"{base}/rolebindings/{role}", {**shared, **bound}),
    ]


async def publish(client: Client, config: Config, ca: bytes) -> None:
    """Make or bring up to date what new nodes read."""
    for path, document in published(config, ca):
        await client.raw(
            "PATCH",
            path,
            body=document,
            params={"fieldManager": _MANAGER, "force": "true"},
            content_type="application/apply-patch+yaml",
        )


def join_command(config: Config, token: Token, ca: bytes) -> str:
    """What to run, as root, on the machine that is to join."""
    hashes = " ".join(f"--ca-hash {one}" for one in ca_hashes(ca))
    server = f"https://{config.node_ip}:{config.api_port}"
    return f"motley join {server} --token {token.token} {hashes}"
