"""Serving certificates of node agents: approved when they are good for that node and nothing else.

Kubernetes leaves these requests to a person, because a node says itself what its addresses are.
Motley approves them, and believes a node only where nobody else would be harmed: the requester must
be the node of the request's subject, every name must be the node's own, every address one that its
Node's status shows, and none may be another node's, a Service's or the API server's, or one that
means a different machine to everybody (loopback, multicast …). Else a node could be taken for the
API server, whose authority is the same.

What is not approved is left pending, to be approved by a person or when the Node's status has come.
"""

import ipaddress
from collections.abc import Collection, Iterable

from cryptography import x509

from motley.api.views.base import Key
from motley.api.views.certificates import CertificateSigningRequest
from motley.api.views.core import EndpointSlice, Node, Service
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import certificates
from motley.controllers.csrapproving import approve
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal

log = journal.get(__name__)

MESSAGE = "Auto approving kubelet serving certificate: its names are those of the requesting node."
_PREFIX, _NODES = "system:node:", "system:nodes"
_DNS_TYPES = frozenset({"Hostname", "InternalDNS", "ExternalDNS"})
_IP_TYPES = frozenset({"InternalIP", "ExternalIP"})
# Names by which the API server and Services are called: no node's, whatever it is named.
_RESERVED = frozenset({"localhost", "kubernetes", "svc"})


def objection(
    csr: CertificateSigningRequest, node: Node | None, others: Iterable[Node], reserved: set[str]
) -> str:
    """Why a request is not approved; empty when it is.

    `reserved`: addresses of Services and of API servers.
    """
    name = csr.spec.username.removeprefix(_PREFIX)
    if csr.spec.username != f"{_PREFIX}{name}" or _NODES not in csr.spec.groups:
        return "the requester is no node"
    try:
        request = certificates.parse(csr.spec.request)
        certificates.validate(certificates.KUBELET_SERVING, request, csr.spec.usages)
    except certificates.Refused as refused:
        return str(refused)
    if certificates.common_name(request) != csr.spec.username:
        return "the subject is not the requester"
    if node is None:
        return f"there is no node {name}"
    asked = certificates.alternative_names(request)
    assert asked is not None  # the signer's rule
    names = {n.lower() for n in asked.get_values_for_type(x509.DNSName)}
    addresses = set(map(str, asked.get_values_for_type(x509.IPAddress)))
    own_names = _of(node, _DNS_TYPES) | {node.metadata.name}
    for foreign in sorted(names - own_names) + sorted(addresses - _of(node, _IP_TYPES)):
        return f"{foreign} is not among the names and addresses of node {name}"
    taken = reserved | {a for o in others for a in _of(o, _IP_TYPES | _DNS_TYPES)}
    taken |= {o.metadata.name for o in others}
    for foreign in sorted((names | addresses) & taken):
        return f"{foreign} is also another node's, a Service's or the API server's"
    return _general(names, addresses)


def _general(names: Collection[str], addresses: Collection[str]) -> str:
    for name in sorted(names):
        if "*" in name or _RESERVED & set(name.split(".")):
            return f"{name} is a name that no node may have"
    for text in sorted(addresses):
        address = ipaddress.ip_address(text)
        if (
            address.is_loopback
            or address.is_multicast
            or address.is_unspecified
            or address.is_link_local
        ):
            return f"{text} is an address that no node may have"
    return ""


def _of(node: Node, types: frozenset[str]) -> set[str]:
    return {a.address.lower() for a in node.status.addresses if a.type in types}


class ServingApprovalController:
    """See the module's docstring."""

    name = "kubeletservingapproval"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._requests = context.informers.of(CertificateSigningRequest)
        self._nodes = context.informers.of(Node)
        self._services = context.informers.of(Service)
        self._slices = context.informers.of(EndpointSlice)
        self._requests.add_handler(lambda change: self.queue.add(change.key))
        self._nodes.add_handler(self._node_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        """A request may have come before the status that it is judged by."""
        old, new = change.old, change.new
        if old is not None and new is not None and old.status.addresses == new.status.addresses:
            return
        for csr in self._requests.items():
            if csr.spec.username == f"{_PREFIX}{change.key.name}" and _is_open(csr):
                self.queue.add(csr.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Approve one request, or leave it."""
        csr = self._requests.get(key)
        if csr is None or not _is_open(csr):
            return None
        name = csr.spec.username.removeprefix(_PREFIX)
        others = [n for n in self._nodes.items() if n.metadata.name != name]
        problem = objection(csr, self._nodes.get(Key("", name)), others, self._reserved())
        if problem:
            log.info("serving certificate left to a person", request=key.name, why=problem)
            return None
        await approve(self._client, self._clock, csr, MESSAGE)
        return None

    def _reserved(self) -> set[str]:
        found = {
            ip for s in self._services.items() for ip in (s.spec.cluster_ip, *s.spec.cluster_ips)
        }
        own = self._slices.get(Key("default", "kubernetes"))
        return found | {a for e in (own.endpoints if own else ()) for a in e.addresses}


def _is_open(csr: CertificateSigningRequest) -> bool:
    return (
        csr.spec.signer_name == certificates.KUBELET_SERVING
        and not csr.status.certificate
        and not csr.has("Approved")
        and not csr.has("Denied")
    )
