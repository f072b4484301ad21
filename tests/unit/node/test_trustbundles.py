"""Trust bundles as files: of one bundle or of all that a signer attests, each certificate once."""

import asyncio

import pytest

from motley.api import pem
from motley.api.views.certificates import ClusterTrustBundle
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.lib.clock import SYSTEM
from motley.node import objects
from motley.node.environment import ConfigError
from motley.node.trustbundles import TrustBundles, joined, wanted
from motley.node.volumes import payload


def certificates(*contents: bytes) -> str:
    return "".join(pem.encode("CERTIFICATE", one) for one in contents)


def bundle(name, text, signer="", **labels):
    spec = {"signerName": signer, "trustBundle": text}
    return ClusterTrustBundle.of({"metadata": {"name": name, "labels": labels}, "spec": spec})


def pod(uid="u", **source):
    volume = {"name": "v", "projected": {"sources": [{"clusterTrustBundle": source}]}}
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "demo", "uid": uid},
            "spec": {"volumes": [volume], "containers": [{"name": "c"}]},
        }
    )


class Client:
    """Lists what it has and then never says anything again."""

    def __init__(self, *bundles):
        self.bundles = bundles
        self.watching = 0


class Informer:
    """Stands in for the watch: synced from the start, changed by the test."""

    def __init__(self, client, cls, *, clock):
        assert cls is ClusterTrustBundle
        self.client, self.handlers = client, []
        self.has_synced = True

    def add_handler(self, handler):
        self.handlers.append(handler)

    async def run(self):
        self.client.watching += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.client.watching -= 1

    async def synced(self):
        await SYSTEM.sleep(0)

    def get(self, key):
        return next((b for b in self.client.bundles if b.metadata.name == key.name), None)

    def items(self):
        return list(self.client.bundles)


@pytest.fixture
async def following(monkeypatch):
    """Trust bundles over what a test has; `told` are the pods that were woken."""
    monkeypatch.setattr("motley.node.trustbundles.Informer", Informer)
    told: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        made: list[TrustBundles] = []

        def follow(*bundles):
            client = Client(*bundles)
            made.append(TrustBundles(client, tasks, told.append))
            return made[-1], client, told

        yield follow
        for one in made:
            for uid in list(one._users):
                one.release(uid)


async def anchors(bundles, **source):
    found = pod(**source)
    await bundles.use(found)
    return bundles.anchors(wanted(found)[0])


def test_certificates_are_written_once_in_an_order_of_their_own():
    one, two = bundle("a", f"remark\n{certificates(b'y', b'x')}"), bundle("b", certificates(b"x"))

    assert joined([one, two]) == joined([two, one]) == certificates(b"x", b"y").encode()


async def test_a_bundle_is_had_by_its_name(following):
    bundles, *_ = following(bundle("a", certificates(b"x")), bundle("b", certificates(b"y")))

    assert await anchors(bundles, name="b", path="t") == certificates(b"y").encode()
    with pytest.raises(ConfigError, match='clustertrustbundle "c" not found'):
        await anchors(bundles, name="c", path="t")
    assert await anchors(bundles, name="c", path="t", optional=True) == b""


async def test_the_bundles_of_a_signer_are_joined_by_their_labels(following):
    bundles, *_ = following(
        bundle("s:a", certificates(b"x"), "s.io/a", alive="true"),
        bundle("s:b", certificates(b"y"), "s.io/a", alive="false"),
        bundle("s:c", certificates(b"z"), "s.io/other", alive="true"),
        bundle("d", certificates(b"w"), alive="true"),
    )
    ask = {"signerName": "s.io/a", "path": "t"}

    assert await anchors(bundles, **ask, labelSelector={}) == certificates(b"x", b"y").encode()
    alive = {"matchLabels": {"alive": "true"}}
    assert await anchors(bundles, **ask, labelSelector=alive) == certificates(b"x").encode()
    with pytest.raises(ConfigError, match="matched zero ClusterTrustBundles"):
        await anchors(bundles, **ask)  # no selector selects nothing
    assert await anchors(bundles, **ask, optional=True) == b""


async def test_a_change_wakes_the_pods_it_concerns_and_no_others(following):
    bundles, _, told = following()
    await bundles.use(pod("by-name", name="a", path="t"))
    await bundles.use(pod("by-signer", signerName="s.io/a", labelSelector={}, path="t"))
    changed = bundles._informer.handlers[0]

    changed(Change(None, bundle("a", "")))
    assert told == ["by-name"]
    changed(Change(bundle("s:x", "", "s.io/a"), None))
    assert told == ["by-name", "by-signer"]
    changed(Change(None, bundle("other", "", "s.io/other")))
    assert len(told) == 2


async def test_bundles_are_watched_only_while_a_pod_wants_any(following):
    bundles, client, _ = following()
    await bundles.use(Pod.of({"metadata": {"uid": "none"}}))
    assert bundles._informer is None

    for uid in ("one", "two"):
        await bundles.use(pod(uid, name="a", path="t", optional=True))
    await SYSTEM.sleep(0)
    assert client.watching == 1
    bundles.release("one")
    await SYSTEM.sleep(0)
    assert client.watching == 1
    bundles.release("two")
    for _ in range(3):
        await SYSTEM.sleep(0)
    assert client.watching == 0


def test_a_pod_that_wants_a_bundle_may_have_to_wait_before_its_sandbox():
    assert not objects.is_plain(pod(name="a", path="t"))


def test_a_file_belongs_to_the_one_user_of_the_pod():
    class Lookup:
        def trust_anchors(self, source):
            return b"anchors"

    def written(containers, **context):
        found = pod(name="a", path="certs/t.pem")
        spec = {
            "securityContext": context,
            "containers": [{"name": "c", "securityContext": c} for c in containers],
        }
        of = Pod.of({"metadata": {"uid": "u"}, "spec": spec})
        return payload.of(found.spec.volumes[0], of, Lookup(), {}, {})

    assert written([{}]) == {"certs/t.pem": payload.File(b"anchors", 0o644)}
    own = {"certs/t.pem": payload.File(b"anchors", 0o600, 1000)}
    assert written([{}, {}], runAsUser=1000) == own
    assert written([{"runAsUser": 1000}]) == own
    differ = written([{"runAsUser": 1}, {"runAsUser": 2}], fsGroup=3)
    assert differ == {"certs/t.pem": payload.File(b"anchors", 0o600)}
