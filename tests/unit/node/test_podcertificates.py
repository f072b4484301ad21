"""Certificates of pods: asked for, taken when they are issued, renewed in time."""

import asyncio
import base64
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.certificates import PodCertificateRequest
from motley.api.views.core import Node, ServiceAccount
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.lib.clock import rfc3339
from motley.node import keys, objects, podcertificates
from motley.node.environment import ConfigError, Credential
from motley.node.podcertificates import PodCertificates, wanted
from motley.node.volumes import payload

NOW = 1_800_000_000.0


class Clock:
    def __init__(self):
        self.time = NOW

    def now(self):
        return self.time

    monotonic = now

    async def sleep(self, seconds):
        await asyncio.Event().wait()


class Informer:
    """Stands in for the watch of requests: the test says what happened."""

    def __init__(self, client, cls, *, field_selector, clock):
        assert (cls, field_selector) == (PodCertificateRequest, "spec.nodeName=node-1")
        self.client = client
        client.informer = self

    def add_handler(self, handler):
        self.handler = handler

    async def run(self):
        await asyncio.Event().wait()

    def get(self, key):
        return self.client.requests.get(key)


class Client:
    """Numbers the requests it is sent, and lets the test answer them."""

    def __init__(self):
        self.sent = []
        self.requests = {}
        self.refuses = False

    async def get(self, cls, name, namespace):
        assert cls is ServiceAccount
        return ServiceAccount.of({"metadata": {"name": name, "uid": "sa-uid"}})

    async def create(self, cls, body, namespace):
        if self.refuses:
            raise status.Forbidden("not yours")
        self.sent.append(body)
        meta = {"name": f"req-{len(self.sent)}", "namespace": namespace}
        made = PodCertificateRequest.of({**body, "metadata": meta})
        self.requests[made.key] = made
        return made

    def answer(self, number, **told):
        key = Key("demo", f"req-{number}")
        old = self.requests[key]
        self.requests[key] = PodCertificateRequest.of(
            {"metadata": {"name": key.name, "namespace": "demo"}, "status": told}
        )
        self.informer.handler(Change(old, self.requests[key]))

    def issue(self, number, signer, at):
        spec = self.sent[number - 1]["spec"]
        chain = signer.issue(spec["stubPKCS10Request"], at)
        self.answer(
            number,
            conditions=[{"type": "Issued", "status": "True"}],
            certificateChain=f"a remark\n{chain}",
            beginRefreshAt=rfc3339(at + 3600),
            notAfter=rfc3339(at + 86400),
        )
        return chain.encode()


class Recorder:
    def __init__(self):
        self.events = []

    def event(self, pod, kind, reason, message):
        self.events.append((kind, reason, message))


def pod(**changed):
    source = {
        "signerName": "example.com/s",
        "keyType": "ECDSAP256",
        "credentialBundlePath": "both.pem",
        "keyPath": "key.pem",
        "certificateChainPath": "chain.pem",
        "userAnnotations": {"a.io/b": "c"},
        **changed,
    }
    volume = {"name": "v", "projected": {"sources": [{}, {"podCertificate": source}]}}
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "demo", "uid": "u"},
            "spec": {"serviceAccountName": "robot", "volumes": [volume]},
        }
    )


class World:
    def __init__(self, tasks):
        self.clock, self.client, self.recorder = Clock(), Client(), Recorder()
        self.told = []
        self.node = Node.of({"metadata": {"name": "node-1", "uid": "n-uid"}})
        self.certificates = PodCertificates(
            self.client,
            tasks,
            self.told.append,
            node_name="node-1",
            node=lambda: self.node,
            recorder=self.recorder,
            clock=self.clock,
            rng=Random(1),
        )

    def get(self):
        return self.certificates.get("u", "v", 1)


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(podcertificates, "Informer", Informer)
    began = []

    class Tasks:
        def create_task(self, work, name):
            began.append(name)
            work.close()

    made = World(Tasks())
    made.began = began
    return made


@pytest.mark.parametrize("kind", ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"])
def test_a_key_comes_with_the_proof_that_it_is_had(kind):
    made = keys.make(kind)

    request = x509.load_der_x509_csr(made.stub)
    assert request.is_signature_valid
    assert list(request.subject) == []
    private = serialization.load_pem_private_key(made.private_key, None)
    assert private.public_key() == request.public_key()


def test_a_kind_of_key_that_nobody_knows_is_told():
    with pytest.raises(ConfigError, match='unknown key type "DSA"'):
        keys.make("DSA")


async def test_a_certificate_is_asked_for_once_in_the_name_of_the_pod(world):
    await world.certificates.use(pod(maxExpirationSeconds=7200))
    await world.certificates.use(pod(maxExpirationSeconds=7200))

    (sent,) = world.client.sent
    spec = dict(sent["spec"])
    assert x509.load_der_x509_csr(base64.b64decode(spec.pop("stubPKCS10Request")))
    assert spec == {
        "signerName": "example.com/s",
        "podName": "p",
        "podUID": "u",
        "serviceAccountName": "robot",
        "serviceAccountUID": "sa-uid",
        "nodeName": "node-1",
        "nodeUID": "n-uid",
        "maxExpirationSeconds": 7200,
        "unverifiedUserAnnotations": {"a.io/b": "c"},
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    assert sent["metadata"] == {"generateName": "req-", "ownerReferences": [owner]}
    assert world.began == ["pod certificate requests", "pod certificates"]
    with pytest.raises(ConfigError, match="credential bundle is not issued yet"):
        world.get()


async def test_the_pod_is_told_when_it_is_issued_and_finds_three_files(world, certificate_signer):
    await world.certificates.use(pod())
    chain = world.client.issue(1, certificate_signer(), NOW)

    assert world.told == ["u"]
    key = world.get().private_key

    class Lookup:
        def credential(self, volume, index):
            return world.certificates.get("u", volume, index)

    files = payload.of(pod().spec.volumes[0], pod(), Lookup(), {}, {})
    assert {name: file.content for name, file in files.items()} == {
        "both.pem": key + chain,
        "key.pem": key,
        "chain.pem": chain,
    }


async def test_it_is_renewed_when_the_signer_says_and_the_old_one_serves_until_then(
    world, certificate_signer
):
    signer = certificate_signer()
    await world.certificates.use(pod())
    world.client.issue(1, signer, NOW)
    first = world.get()
    world.clock.time = NOW + 3600 - 1
    await world.certificates.use(pod())
    assert len(world.client.sent) == 1

    world.clock.time = NOW + 3600 + 300  # with all the jitter there may be
    await world.certificates.use(pod())
    assert len(world.client.sent) == 2
    assert world.get() == first
    second = world.client.issue(2, signer, world.clock.time)
    assert world.get().chain == second
    assert world.get().private_key != first.private_key


async def test_a_pod_hears_of_a_renewal_that_does_not_come(world, certificate_signer):
    await world.certificates.use(pod())
    world.client.issue(1, certificate_signer(), NOW)
    for hours in (1.5, 1.6, 25, 26):
        world.clock.time = NOW + hours * 3600
        await world.certificates.use(pod())

    assert [reason for _, reason, _ in world.recorder.events] == [
        "CertificateOverdueForRefresh",
        "CertificateExpired",
    ]


async def test_what_is_denied_stays_denied_and_the_pod_says_why(world):
    await world.certificates.use(pod())
    refusal = {"type": "Denied", "status": "True", "reason": "Unknown", "message": "who?"}
    world.client.answer(1, conditions=[refusal])
    await world.certificates.use(pod())

    assert len(world.client.sent) == 1
    assert world.told == ["u"]
    words = 'PodCertificateRequest was permanently denied: reason="Unknown" message="who\\?"'
    with pytest.raises(ConfigError, match=words):
        world.get()
    ((kind, reason, message),) = world.recorder.events
    assert (kind, reason) == ("Warning", "Denied")
    assert "demo/req-1" in message


async def test_a_failure_is_tried_again_and_not_at_once(world):
    world.client.refuses = True
    await world.certificates.use(pod())
    world.client.refuses = False
    await world.certificates.use(pod())
    assert world.client.sent == []

    world.clock.time += 1.0
    await world.certificates.use(pod())
    assert len(world.client.sent) == 1


async def test_a_node_that_does_not_know_itself_yet_waits(world):
    known, world.node = world.node, None
    await world.certificates.use(pod())
    assert world.client.sent == []

    world.node = known
    world.clock.time += 1.0
    await world.certificates.use(pod())
    assert len(world.client.sent) == 1


async def test_a_deleted_request_is_made_again(world):
    await world.certificates.use(pod())
    gone = world.client.requests.pop(Key("demo", "req-1"))
    world.client.informer.handler(Change(gone, None))
    assert world.told == ["u"]

    await world.certificates.use(pod())
    assert len(world.client.sent) == 2


async def test_a_request_that_is_never_seen_is_made_again_in_the_end(world):
    await world.certificates.use(pod())
    world.client.requests.clear()
    world.clock.time += 599
    await world.certificates.use(pod())
    assert len(world.client.sent) == 1

    world.clock.time += 301
    await world.certificates.use(pod())
    assert len(world.client.sent) == 2


async def test_pods_are_woken_while_something_is_due(world, certificate_signer):
    await world.certificates.use(pod())
    world.client.issue(1, certificate_signer(), NOW)
    world.told.clear()
    rounds = []

    async def sleep(seconds):
        rounds.append(seconds)
        world.clock.time += 1800
        if len(rounds) == 4:
            raise EOFError

    world.clock.sleep = sleep
    with pytest.raises(EOFError):
        await world.certificates.renew_forever()
    assert world.told == ["u"], "after half an hour it was fresh, after an hour and a half not"


async def test_a_pod_that_is_gone_has_no_certificate(world, certificate_signer):
    await world.certificates.use(pod())
    world.client.issue(1, certificate_signer(), NOW)
    assert isinstance(world.get(), Credential)

    world.certificates.release("u")

    with pytest.raises(ConfigError):
        world.get()


def test_a_pod_that_wants_a_certificate_may_have_to_wait_before_its_sandbox():
    assert list(wanted(pod())) == [("v", 1)]
    assert not objects.is_plain(pod())
