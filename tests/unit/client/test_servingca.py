"""A server's own authority: whom it convinces, how it is told, what becomes of other bundles."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from cryptography import x509

from motley.api import status
from motley.api.views.registration import APIService
from motley.client import servingca
from motley.client.decoding import Listing, ListMeta, WatchEvent
from motley.lib.clock import SYSTEM

NAME = "motley-history.kube-system.svc"
YEAR_S = 365 * 86400.0


class Later:
    def __init__(self, by_s):
        self.by_s = by_s

    def now(self):
        return SYSTEM.now() + self.by_s


def shown(serving, ca_pem, name):
    """The certificate a client sees that trusts `ca_pem` and asks for `name`."""
    trusting = ssl.create_default_context(cadata=ca_pem.decode())
    ends = [ssl.MemoryBIO() for _ in range(2)]
    client = trusting.wrap_bio(ends[0], ends[1], server_hostname=name)
    server = serving.context.wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(4):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True))


def test_who_knows_the_authority_believes_its_names_and_no_others():
    serving = servingca.authority([NAME, "127.0.0.1"])
    assert shown(serving, serving.ca_pem, NAME)
    assert shown(serving, serving.ca_pem, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|not valid for"):
        shown(serving, serving.ca_pem, "other.kube-system.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(serving, servingca.authority([NAME]).ca_pem, NAME)


def test_another_certificate_is_of_the_same_authority():
    serving = servingca.authority([NAME])
    first = shown(serving, serving.ca_pem, NAME)
    serving.renew()
    second = shown(serving, serving.ca_pem, NAME)
    assert first.serial_number != second.serial_number


def test_contexts_with_other_authorities_for_clients_show_the_same_certificate():
    serving, clients = servingca.authority([NAME]), servingca.authority(["clients"])
    other = serving.believing(clients.ca_pem.decode())
    assert other.verify_mode is ssl.CERT_OPTIONAL
    assert serving.context.verify_mode is ssl.CERT_NONE
    serving.renew()
    both = [
        shown(SimpleNamespace(context=c), serving.ca_pem, NAME) for c in (serving.context, other)
    ]
    assert both[0] == both[1]
    with pytest.raises(OSError):
        serving.believing("no PEM")


class Ended(Exception):
    pass


class Hasty:
    """A clock on which a day's sleep takes no time; `until` ends the test's loop."""

    def __init__(self, until_s):
        self.time, self.until_s = SYSTEM.now(), SYSTEM.now() + until_s

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += max(seconds, 86400.0)
        if self.time > self.until_s:
            raise Ended


async def test_it_is_renewed_long_before_it_ends():
    clock = Hasty(YEAR_S * 2.2)
    serving = servingca.authority([NAME], clock)
    ends = []
    again = serving.renew

    def renew():
        ends.append(clock.now())
        again()

    serving.renew = renew
    begun = clock.now()
    with pytest.raises(Ended):
        await serving.run()
    assert [round((at - begun) / YEAR_S, 1) for at in ends] == [0.7, 1.3, 2.0]


async def test_replaced_files_are_taken_over_and_half_written_ones_are_not(tmp_path):
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def put(pem):
        secret, _, public = pem.partition(b"-----BEGIN CERTIFICATE")
        key.write_bytes(secret)
        certificate.write_bytes(b"-----BEGIN CERTIFICATE" + public)

    pairs = [servingca.authority([NAME]) for _ in range(2)]
    put(pairs[0].issue())
    given = servingca.GivenFiles(certificate, key, clock := Hasty(86400 * 2.5))
    assert shown(given, pairs[0].ca_pem, NAME)
    certificate.write_bytes(b"half")
    with pytest.raises(Ended):
        await given.run()
    assert shown(given, pairs[0].ca_pem, NAME)
    put(pairs[1].issue())
    clock.until_s += 86400 * 2
    with pytest.raises(Ended):
        await given.run()
    assert shown(given, pairs[1].ca_pem, NAME)


def pem(*authorities):
    return b"".join(one.ca_pem for one in authorities)


def test_other_replicas_stay_in_the_bundle_and_strangers_do_not():
    ours, replica, stranger = (servingca.authority([n]) for n in (NAME, NAME, "else.svc"))
    now = SYSTEM.now()
    assert servingca.bundle(b"", ours.ca_pem, now) == pem(ours)
    assert servingca.bundle(b"nonsense", ours.ca_pem, now) == pem(ours)
    assert servingca.bundle(pem(ours), ours.ca_pem, now) is None
    assert servingca.bundle(pem(replica), ours.ca_pem, now) == pem(replica, ours)
    assert servingca.bundle(pem(replica, ours), ours.ca_pem, now) is None
    assert servingca.bundle(pem(stranger, ours), ours.ca_pem, now) == pem(ours)


def test_the_first_go_when_replicas_have_come_and_gone():
    seen = [servingca.authority([NAME]) for _ in range(9)]
    current = b""
    for one in seen:
        current = servingca.bundle(current, one.ca_pem, SYSTEM.now())
    assert current == pem(*seen[1:])
    old = servingca.authority([NAME], Later(-11 * YEAR_S))
    assert servingca.bundle(pem(old), seen[0].ca_pem, SYSTEM.now()) == pem(seen[0])


def document(*bundles):
    webhooks = [{"clientConfig": {"caBundle": one} if one else {}} for one in bundles]
    return {"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}


def test_every_webhook_of_a_configuration_is_told_in_one_conditional_patch():
    ours = servingca.authority([NAME])
    right = base64.b64encode(ours.ca_pem).decode()
    place = "/webhooks/*/clientConfig/caBundle"
    now = SYSTEM.now()
    assert servingca.told(document(right, right), place, ours.ca_pem, now) == []
    assert servingca.told({"metadata": {}}, place, ours.ca_pem, now) == []
    assert servingca.told(document("", right, "bm8="), place, ours.ca_pem, now) == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": right},
        {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": right},
    ]


class Server:
    """One APIService, changed by `write`, and by patches of the one tested."""

    def __init__(self):
        self.revision = 1
        self.document = {"spec": {}}
        self.events: asyncio.Queue[None] = asyncio.Queue()
        self.refusals = 0

    def write(self, value):
        self.document["spec"]["caBundle"] = value
        self.revision += 1
        self.events.put_nowait(None)

    def _view(self):
        view = APIService()
        view.metadata.name, view.metadata.resource_version = "x", str(self.revision)
        return view

    async def list(self, cls, **selected):
        assert selected["field_selector"] == "metadata.name=x"
        return Listing(metadata=ListMeta(resource_version=str(self.revision)), items=[self._view()])

    async def watch(self, cls, *, initial_events=False, **selected):
        if initial_events:
            raise status.Invalid("no streamed lists")
        while True:
            await self.events.get()
            yield WatchEvent(type="MODIFIED", object=self._view())

    async def raw(self, method, path, *, body=None, content_type=""):
        assert path == "/apis/apiregistration.k8s.io/v1/apiservices/x"
        if method == "GET":
            return {"metadata": {"resourceVersion": str(self.revision)}, **self.document}
        if self.refusals:
            self.refusals -= 1
            raise status.Conflict("changed meanwhile")
        assert body[0]["value"] == str(self.revision)
        self.write(body[1]["value"])
        return {}

    async def until(self, clock, condition: Callable[[], bool]):
        async with asyncio.timeout(60):
            while not condition():
                await clock.sleep(0.1)


@pytest.mark.looptime
async def test_the_bundle_is_written_at_the_start_and_mended_when_somebody_spoils_it(clock):
    server, serving = Server(), servingca.authority([NAME], clock)
    server.refusals = 2
    right = base64.b64encode(serving.ca_pem).decode()

    def is_right():
        return server.document["spec"].get("caBundle") == right

    async with asyncio.TaskGroup() as group:
        telling = group.create_task(
            servingca.keep_told(server, APIService, "x", "/spec/caBundle", serving, clock=clock)
        )
        await server.until(clock, is_right)
        server.write("")
        assert not is_right()
        await server.until(clock, is_right)
        telling.cancel()
