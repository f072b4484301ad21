"""What is known of images, and the look-up of those that are not, without any registry."""

import asyncio

import pytest

from motley.api.views.motley import ImageMap
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.lib.clock import SYSTEM
from motley.registry import resolver
from motley.registry.platforms import Platform
from motley.scheduler import images
from motley.scheduler.imagelookup import ImageLookup
from motley.scheduler.imagemaps import ImageMaps

ARM = Platform("linux", "arm64")


def pod():
    return Pod.of({"metadata": {"name": "p", "namespace": "default"}})


class Accounts:
    """An API without secrets."""

    async def get(self, cls, name, namespace=""):
        return cls.of({"metadata": {"name": name, "namespace": namespace}})


async def test_an_image_that_cannot_be_looked_up_does_not_keep_others_from_it(monkeypatch):
    asked = []

    async def resolve(self, image, secrets=()):
        asked.append(image)
        if image == "bad:1":
            raise RuntimeError("not foreseen")
        return resolver.Resolution((ARM,), resolver.REGISTRY)

    monkeypatch.setattr(resolver.Resolver, "resolve", resolve)
    lookup, changes = ImageLookup(), []
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(lookup.run(Accounts(), lambda: changes.append(1)))
        assert lookup.want("bad:1", pod()) is None
        while "bad:1" not in asked:
            await SYSTEM.sleep(0.005)
        assert lookup.want("good:1", pod()) is None
        while not (found := lookup.want("good:1", pod())):
            await SYSTEM.sleep(0.005)
        guess = lookup.want("bad:1", pod())
        running.cancel()
    assert found.platforms == (ARM,)
    assert guess is not None, "its name counts, as where a registry fails"
    assert (guess.source, len(changes)) == (resolver.ASSUMPTION, 2)


def image_map(*entries):
    document = {"metadata": {"name": "m"}, "spec": {"images": list(entries)}}
    made = ImageMaps()
    new = ImageMap.of(document)
    made.changed(Change(None, new))
    return made


def test_an_entry_without_architectures_says_nothing():
    assert image_map({"name": "web:1", "architectures": []}).known("web:1") is None


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("docker.io/library/nginx", "nginx:latest"),
        ("index.docker.io/team/app:1", "team/app:1"),
        ("docker.io/team/app:1", "team/app:1"),
    ],
)
def test_names_of_the_same_image_are_the_same(written, asked):
    entry = {"name": written, "architectures": [{"architecture": "arm64", "image": "x:arm64"}]}
    assert image_map(entry).variants(asked) == {ARM: "x:arm64"}
    assert images.ImageTable({written: {ARM: "x:arm64"}}).variants(asked) == {ARM: "x:arm64"}


def test_names_of_other_images_are_not():
    table = images.ImageTable({"nginx": {ARM: "x"}})
    for other in ("nginx:1", "reg.io/nginx", "team/nginx", "nginx@sha256:" + "ab" * 32, "a b"):
        assert table.variants(other) is None
