"""Images that must be looked up, over minutes, on virtual time."""

import itertools

import pytest
from world import simulate

from motley.api.views.core import Node, Secret
from motley.api.views.motley import RESOLVER_LABEL, ImageMap
from motley.api.views.pod import Pod
from motley.controllers import imageresolver
from motley.registry.platforms import Platform
from motley.registry.resolver import REGISTRY, Resolution, Resolver, guess

IMAGE = "reg.example.com/app:1"
FOUND = Resolution((Platform("linux", "arm64"),), REGISTRY, "sha256:" + "a" * 64)


class Registry:
    """Answers what it is told to, and notes when it was asked for what."""

    def __init__(self):
        self.answer = None
        self.asked = []
        self.clock = None
        self.takes_s = 0.0
        self.shows_to = None  # the secret that opens it

    async def resolve(self, _, image, secrets=()):
        self.asked.append((self.clock.monotonic(), image))
        if self.takes_s:
            await self.clock.sleep(self.takes_s)
        if self.shows_to and self.shows_to not in [one.metadata.name for one in secrets]:
            return guess(image, "reg.example.com answers 401", is_refused=True)
        return self.answer or guess(image, "reg.example.com answers 503")


@pytest.fixture
def registry(monkeypatch):
    made = Registry()

    async def resolve(resolver, image, secrets=()):
        return await made.resolve(resolver, image, secrets)

    monkeypatch.setattr(Resolver, "resolve", resolve)
    return made


async def mix(world, registry):
    """Make the second node another kind of machine."""
    registry.clock = world.clock
    for name, arch in (("node-0", "amd64"), ("node-1", "arm64")):
        labels = {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux"}
        await world.client.patch(Node, name, "", {"metadata": {"labels": labels}})
    await world.sleep(1)


async def make(world, name="p", image=IMAGE, **spec):
    spec = {"containers": [{"name": "c", "image": image}], **spec}
    await world.create(Pod, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def node_of(world, name="p"):
    return (await world.get(Pod, name)).spec.node_name


async def maps(world):
    found = await world.list(ImageMap)
    return {m.spec.images[0].name: m.spec.images[0] for m in found if m.spec.images}


@simulate(nodes=2)
async def test_a_pod_waits_for_the_registry_and_goes_where_it_says(world, registry):
    registry.answer = FOUND
    await mix(world, registry)
    await make(world)
    await world.sleep(1)
    assert await node_of(world) == "node-1"
    found = (await maps(world))[IMAGE]
    assert (found.source, found.digest) == (REGISTRY, FOUND.digest)
    assert [p.architecture for p in found.architectures] == ["arm64"]
    assert len(registry.asked) == 1


@simulate(nodes=2)
async def test_a_pod_that_comes_while_its_image_is_looked_up_has_it_asked_only_once(
    world, registry
):
    registry.answer, registry.takes_s = FOUND, 2.0
    await mix(world, registry)
    await make(world)
    await world.sleep(1)
    await make(world, "late")
    await world.sleep(5)
    assert [await node_of(world, name) for name in ("p", "late")] == ["node-1"] * 2
    assert len(registry.asked) == 1


@simulate(nodes=2)
async def test_a_registry_that_fails_is_asked_once_a_minute_and_then_ever_more_seldom(
    world, registry
):
    await mix(world, registry)
    big = {"resources": {"requests": {"cpu": "999"}}}
    await make(world, "big", containers=[{"name": "c", "image": IMAGE, **big}])  # stays pending
    await make(world)
    await world.sleep(30)
    assert await node_of(world) == "node-0"  # linux/amd64, for want of better
    found = (await maps(world))[IMAGE]
    assert (found.source, found.message) == ("assumed", "reg.example.com answers 503")
    version = [m.metadata.resource_version for m in await world.list(ImageMap)]
    await world.sleep(600)
    times = [at for at, _ in registry.asked]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert 30 <= pauses[0] <= 61
    assert max(pauses) <= 601
    assert 3 <= len(times) <= 8
    assert version == [m.metadata.resource_version for m in await world.list(ImageMap)]
    registry.answer = FOUND
    await world.sleep(610)
    assert (await maps(world))[IMAGE].source == REGISTRY


@simulate(nodes=2)
async def test_a_pod_with_other_credentials_need_not_wait_for_those_that_were_refused(
    world, registry
):
    registry.answer, registry.shows_to = FOUND, "ours"
    await mix(world, registry)
    big = [{"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": "999"}}}]
    for name in ("a", "b", "c"):
        await make(world, name, containers=big, imagePullSecrets=[{"name": "theirs"}])
    await world.sleep(10)
    assert len(registry.asked) == 1, "with the same credentials the answer is the same"
    await world.create(Secret, {"metadata": {"name": "ours", "namespace": "default"}})
    await make(world, "late", containers=big, imagePullSecrets=[{"name": "ours"}])
    await world.sleep(2)
    assert (await maps(world))[IMAGE].source == REGISTRY
    assert len(registry.asked) == 2


@simulate(nodes=2)
async def test_a_registry_that_is_down_is_not_asked_with_everybodys_credentials(world, registry):
    await mix(world, registry)
    big = [{"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": "999"}}}]
    for name in ("a", "b", "c"):
        await make(world, name, containers=big, imagePullSecrets=[{"name": name}])
    await world.sleep(20)
    assert len(registry.asked) == 1


@simulate(nodes=2)
async def test_what_people_wrote_is_not_asked_about_and_not_touched(world, registry):
    await mix(world, registry)
    entry = {"name": IMAGE, "architectures": [{"architecture": "arm64"}]}
    await world.create(ImageMap, {"metadata": {"name": "mine"}, "spec": {"images": [entry]}})
    await world.sleep(1)
    await make(world)
    await world.sleep(2)
    assert await node_of(world) == "node-1"
    assert registry.asked == []


@simulate(nodes=2)
async def test_machines_that_are_alike_ask_nobody(world, registry):
    registry.clock = world.clock
    await make(world)
    await world.sleep(5)
    assert await node_of(world)
    assert registry.asked == []
    assert await world.list(ImageMap) == []


@simulate(nodes=2)
async def test_what_no_pod_uses_is_forgotten_after_a_while(world, registry, monkeypatch):
    monkeypatch.setattr(imageresolver, "REFRESH_S", 300.0)  # instead of a day
    monkeypatch.setattr(imageresolver, "_UPKEEP_S", 60.0)
    registry.answer = FOUND
    await mix(world, registry)
    await make(world)
    await world.sleep(5)
    await world.client.delete(Pod, "p", "default", grace_period_s=0)
    await world.sleep(200)
    assert IMAGE in await maps(world)
    await world.sleep(450)
    assert await maps(world) == {}
    (marker,) = await world.list(ImageMap)
    assert RESOLVER_LABEL in marker.metadata.labels
