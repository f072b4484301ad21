"""`motley dashboard install|remove|token`: the dashboard as pods of the cluster on this machine.

Each step looks first whether its work is done, so doing it again brings everything up to date and
no more: a newer image, a certificate that ends soon or lacks the address of a new node. Objects are
applied through the API as kubectl would; `dashboardplan` says what they are.

Invariant: the dashboard has no rights. What a browser sees is what the token of its user may see.
"""

import asyncio
import hashlib
import ssl
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from cryptography import x509

from motley.api import status
from motley.api.views import apps, core
from motley.api.views.base import Object
from motley.apiserver import tls
from motley.client import manifests, rest
from motley.lib import clock
from motley.ops import certificates, components, demo, images, members, rootfs
from motley.ops import dashboardplan as plan
from motley.ops.config import Config
from motley.ops.dashboardplan import NAME, NAMESPACE, VIEWER, Document
from motley.ops.failure import Failure
from motley.ops.progress import Progress

T = TypeVar("T", bound=Object)

MANAGER = "motley-dashboard"
ROLLOUT_S = 120.0
ANSWER_S = 30.0
GONE_S = 120.0
_POLL_S = 0.1
_CALL_S = 5.0


class Wish(msgspec.Struct, frozen=True):
    """What `motley dashboard install` was asked for; what is left out stays as it is."""

    service_type: str | None = None
    node_port: int = 0
    names: tuple[str, ...] = ()


class Installed(msgspec.Struct, frozen=True, rename="camel"):
    """Where it is now."""

    addresses: list[str]
    service_type: str
    certificate_authority: str
    namespace: str = NAMESPACE


async def install(
    config: Config,
    client: rest.Client,
    wish: Wish,
    progress: Progress,
    source: clock.Clock = clock.SYSTEM,
) -> Installed:
    """Have the dashboard running in the cluster, as of this program. Raises Failure."""
    with progress.step(f"image {images.DASHBOARD.reference}"):
        nodes = await asyncio.to_thread(bring_image, config, progress.say)
    file = plan.manifest()
    with progress.step(f"apply {file.parent.name}/{file.name}"):
        objects = {(d["kind"], d["metadata"]["name"]): d for d in manifests.documents(file)}
        deployment = objects.pop(("Deployment", NAME))  # last: its pods wait for the certificate
        await expose(client, objects.values(), wish)
    service = await client.get(core.Service, NAME, NAMESPACE)
    known = (await client.list(core.Node)).items
    with progress.step(f"certificate, in secret/{plan.TLS_SECRET}"):
        secret = await find(client, core.Secret, plan.TLS_SECRET)
        asked = plan.asked_names(wish.names, secret)
        names = plan.serving_names(service, known, asked, config.cluster_domain)
        certificate = await certify(config, client, secret, names, asked, progress.say, source)
    with progress.step(f"rollout of deployment/{NAME}"):
        # A pod reads when it starts whom to trust as API server; the certificate says that, too.
        made_of = (images.DASHBOARD.fingerprint(), hashlib.sha256(certificate).hexdigest()[:12])
        await apply(client, plan.deployment(deployment, images.DASHBOARD.reference, made_of, nodes))
        await rolled_out(client, source)
    addresses = plan.addresses(service, known, config.node_ip, asked)
    authority = certificates.located(config).ca
    reached = plan.addresses(service, (), config.node_ip)[0]
    with progress.step(f"answer of {reached}"):
        await answers(reached, authority.read_text(), source)
    return Installed(addresses, service.spec.type, str(authority))


# -- the image ------------------------------------------------------------------------------


def bring_image(config: Config, say: Callable[[str], None]) -> list[str]:
    """Have the image in the runtime of this machine's own nodes; their names.

    Not in that of nodes that emulate another machine: they are slow, and one node is enough.
    """
    nodes = _nodes(config)
    for one in nodes:
        if not components.layout(one).socket.is_socket():
            raise Failure(f"the runtime of {one.node_name} does not run", "Start it: motley up")
    try:
        made = images.ensure(config.images, say, (images.DASHBOARD,))
    except rootfs.Unavailable as error:
        raise Failure(str(error)) from None
    for one in nodes:
        for reference in images.Imports(components.layout(one).socket).ensure(made):
            say(f"imported {reference} on {one.node_name}")
    return [one.node_name for one in nodes]


def _nodes(config: Config) -> list[Config]:
    return [config, *(one for one in members.present(config) if not one.emulates)]


def take_image(config: Config) -> None:
    """Have the image on none of them."""
    for one in _nodes(config):
        runtime = components.layout(one).socket
        if runtime.is_socket():
            held = images.Imports(runtime)
            if images.DASHBOARD.reference in held.present():
                held.untag(images.DASHBOARD.reference)


# -- objects --------------------------------------------------------------------------------


async def apply(client: rest.Client, document: Document) -> None:
    """Make an object have these fields, whoever set them before."""
    view = manifests.view_of(document)
    await client.apply(view, document, field_manager=MANAGER, force=True)


async def find(client: rest.Client, view: type[T], name: str) -> T | None:
    """One of the dashboard's objects, if it is there."""
    try:
        return await client.get(view, name, NAMESPACE)
    except status.NotFound:
        return None


async def expose(client: rest.Client, objects: Iterable[Document], wish: Wish) -> None:
    """Everything but the pods and their certificate, with the Service as it was wished for."""
    before = await find(client, core.Service, NAME)
    how = plan.exposure(wish.service_type, wish.node_port, before)
    for one in objects:
        await apply(client, plan.service(one, how) if one["kind"] == "Service" else one)


async def certify(
    config: Config,
    client: rest.Client,
    secret: core.Secret | None,
    names: Sequence[str],
    asked: Sequence[str],
    say: Callable[[str], None],
    source: clock.Clock = clock.SYSTEM,
) -> bytes:
    """Have a certificate of the cluster's authority with these names, good for a while yet.

    While one authority takes another's place, of the new one, which signs and comes first.
    """
    pki = tls.load(config.root / "apiserver")
    signing = tls.pem_of(x509.load_pem_x509_certificate(pki.ca_pem))
    present = plan.certificate_of(secret)
    if certificates.is_good_server(present, signing, names, source):
        return present
    cert, key = tls.issue_server(pki, f"{NAME}.{NAMESPACE}.svc", names, now=source)
    await apply(client, plan.tls_secret(cert, key, asked))
    say(
        "made anew: it ends soon, lacks a name, or has another authority"
        if present
        else "made: there was none"
    )
    return cert


# -- waiting --------------------------------------------------------------------------------


async def rolled_out(client: rest.Client, source: clock.Clock = clock.SYSTEM) -> None:
    """Wait until the pods are those of the manifest, and ready. Raises Failure with the reason."""
    deadline = source.monotonic() + ROLLOUT_S
    while source.monotonic() < deadline:
        if demo.rollout(await client.get(apps.Deployment, NAME, NAMESPACE)).is_complete:
            return
        await source.sleep(_POLL_S)
    reasons = await demo.complaints(client, NAMESPACE)
    raise Failure(f"its pod is not ready after {ROLLOUT_S:.0f} s", "\n".join(reasons))


async def answers(address: str, ca_pem: str, source: clock.Clock = clock.SYSTEM) -> None:
    """Wait until it answers there, as whom the cluster's authority says. Raises Failure.

    A pod that became ready a moment ago reaches the Service's rules a moment later.
    """
    deadline = source.monotonic() + ANSWER_S
    context = ssl.create_default_context(cadata=ca_pem)
    while True:
        try:
            await asyncio.to_thread(_call, f"{address}healthz", context)
            return
        except OSError as error:
            if source.monotonic() > deadline:
                raise Failure(f"{address} does not answer: {error}", "See: motley doctor") from None
        await source.sleep(_POLL_S)


def _call(url: str, context: ssl.SSLContext) -> None:
    proxyless = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(proxyless, urllib.request.HTTPSHandler(context=context))
    with opener.open(url, timeout=_CALL_S):
        pass


# -- remove, token --------------------------------------------------------------------------


async def remove(
    config: Config, client: rest.Client, progress: Progress, source: clock.Clock = clock.SYSTEM
) -> None:
    """Take everything of it away, and wait until it is gone. Nothing to do is no failure."""
    file = plan.manifest()
    with progress.step(f"delete {file.parent.name}/{file.name}"):
        for one in manifests.documents(file):
            view, name = manifests.view_of(one), one["metadata"]["name"]
            if view.NAMESPACED:  # goes with its namespace
                continue
            try:
                await client.delete(view, name)
            except status.NotFound:
                continue
        deadline = source.monotonic() + GONE_S
        while await find(client, core.Namespace, NAMESPACE) is not None:
            if source.monotonic() > deadline:
                advice = f"See what holds it: kubectl describe namespace {NAMESPACE}"
                raise Failure(f"namespace {NAMESPACE} is not gone after {GONE_S:.0f} s", advice)
            await source.sleep(_POLL_S)
    with progress.step(f"image {images.DASHBOARD.reference}"):
        await asyncio.to_thread(take_image, config)


async def token(client: rest.Client, duration_s: float) -> tuple[str, str]:
    """A token of the one who may look at everything, and when it ends. Raises Failure."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": int(duration_s)},
    }
    try:
        made = await client.create_subresource(
            core.ServiceAccount, VIEWER, NAMESPACE, "token", body
        )
    except status.NotFound:
        raise Failure("the dashboard is not installed", "Do: motley dashboard install") from None
    return made["status"]["token"], made["status"]["expirationTimestamp"]
