"""Names of Routes and Ingresses, as the gateway's Service says them; pure.

The gateway writes every name it serves, with its address, into an annotation of its Service. So
names and Services reach the zone by the same way, in the same order, and the zone needs no more
informers. A host `*.shop.example` answers for one label in front of it.
"""

import msgspec

from motley.api.views.base import Key
from motley.api.views.core import Service
from motley.network.dns import wire

GATEWAY = Key("kube-system", "motley-gateway")
HOSTS = "motley.io/hosts"
_WILD = b"\x01*"


def of_gateway(service: Service, domain: str) -> dict[bytes, bytes]:
    """Owner name and address, both as they go over the wire; nothing for any other Service.

    Names of the cluster's own domain are left out: a Route must not take a Service's name.
    """
    text = service.metadata.annotations.get(HOSTS)
    if text is None or service.key != GATEWAY:
        return {}
    found = {}
    try:
        for host, address in msgspec.json.decode(text, type=dict[str, str]).items():
            name = host.lower().rstrip(".")
            if name != domain and not name.endswith(f".{domain}"):
                found[wire.encode_name(name)] = wire.a_data(address)
    except (msgspec.MsgspecError, wire.FormatError):
        return {}
    return found


def wildcard(name: bytes) -> bytes:
    """The name with its first label replaced by the star that would cover it."""
    return _WILD + name[1 + name[0] :] if name and name[0] else name
