"""The images of a node whose machine emulates another architecture."""

import json
from typing import ClassVar

import pytest

from motley.node import foreign
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.foreign import ForeignRuntime
from motley.registry import platforms
from motley.registry.manifests import Unreadable
from motley.registry.references import Reference

ARM = platforms.parse("arm64")
DIGEST = "sha256:" + "a" * 64


class Store(ForeignRuntime):
    """A runtime whose store is a dict: reference → architecture."""

    def __init__(self, record, **present):
        super().__init__("unix:///nowhere", ARM, record)
        self.present = present
        self.info = True

    async def _image(self, name, request, answer, timeout_s=0.0):
        assert name == "ImageStatus"
        arch = self.present.get(request.image.image)
        if arch is None:
            return cri.ImageStatusResponse()
        found = {"imageSpec": {"architecture": arch, "os": "linux"}, "chainID": "x"}
        info = {"info": json.dumps(found)} if self.info else {"info": "[]"}
        return cri.ImageStatusResponse(image=cri.Image(id=f"id-{arch}"), info=info)


class Registry:
    """What registries say, in place of the resolver."""

    asked: ClassVar[list] = []
    problem = None

    def __init__(self, registries):
        self.registries = registries

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def pin(self, image: Reference, here, login):
        Registry.asked.append((str(image), here, login))
        if Registry.problem is not None:
            raise Registry.problem
        return image._replace(digest=DIGEST)


@pytest.fixture
def pulled(monkeypatch):
    calls = []

    async def pull(self, reference, auth=None):
        calls.append((reference, auth))
        self.present[reference] = "arm64"
        return reference

    monkeypatch.setattr(Runtime, "pull", pull)
    monkeypatch.setattr(foreign, "Resolver", Registry)
    monkeypatch.setattr(Registry, "asked", [])
    return calls


@pytest.fixture
async def store(tmp_path):
    made = Store(tmp_path / "sub" / "variants.json", **{"localhost/a:1": "arm64", "b:1": "amd64"})
    yield made
    await made.close()


async def test_only_what_is_of_the_nodes_architecture_is_there(store):
    assert (await store.image("localhost/a:1")).id == "id-arm64"
    assert await store.image("b:1") is None
    assert await store.image("c:1") is None


async def test_where_a_runtime_does_not_say_the_image_counts(store):
    store.info = False
    assert (await store.image("b:1")).id == "id-amd64"


async def test_the_manifest_of_the_architecture_is_pulled_and_found_again_by_its_name(
    store, pulled, tmp_path
):
    auth = {"username": "me", "password": "secret"}
    await store.pull("reg:5000/app:1", auth)
    ((name, here, login),) = Registry.asked
    assert (name, here, login.username) == ("reg:5000/app:1", ARM, "me")
    assert pulled == [(f"reg:5000/app@{DIGEST}", auth)]
    assert (await store.image("reg:5000/app:1")).id == "id-arm64"
    later = Store(tmp_path / "sub" / "variants.json", **store.present)  # after a restart
    assert (await later.image("reg:5000/app:1")).id == "id-arm64"
    await later.close()


async def test_what_has_no_such_variant_fails_as_a_pull_does(store, pulled, monkeypatch):
    monkeypatch.setattr(Registry, "problem", Unreadable("no match for platform linux/arm64"))
    with pytest.raises(RuntimeFailure, match="no match for platform"):
        await store.pull("reg:5000/app:1")
    assert pulled == []


@pytest.mark.parametrize(
    ("name", "words"),
    [("localhost/x:1", "no registry has it"), ("localhost/n:1", "linux/amd64 only")],
)
async def test_images_made_on_a_machine_are_not_asked_for(store, pulled, name, words):
    store.present["localhost/n:1"] = "amd64"
    with pytest.raises(RuntimeFailure, match=words):
        await store.pull(name)
    assert Registry.asked == []


async def test_a_broken_record_is_passed_over(tmp_path):
    record = tmp_path / "variants.json"
    record.write_text("[")
    made = Store(record)
    assert await made.image("a") is None
    await made.close()
