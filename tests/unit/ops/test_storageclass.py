"""The class of volumes `motley up` makes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from motley.api import status
from motley.api.views.storage import StorageClass
from motley.ops import storageclass
from motley.ops.config import Config

DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
CONFIG = Config(root=Path("/srv/motley"))


class Client:
    def __init__(self, *classes, race=False):
        self.classes = list(classes)
        self.race = race

    async def list(self, cls):
        return SimpleNamespace(items=list(self.classes))

    async def create(self, cls, body):
        if self.race:
            raise status.AlreadyExists("made meanwhile")
        self.classes.append(cls.of(body))


def named(name, **annotations):
    return StorageClass.of({"metadata": {"name": name, "annotations": annotations}})


async def test_a_new_cluster_gets_a_default_class_below_its_root():
    client = Client()
    assert await storageclass.ensure(client, CONFIG)
    [made] = client.classes
    assert made.metadata.annotations == DEFAULT
    assert made.parameters["path"] == "/srv/motley/volumes"
    assert made.volume_binding_mode == "WaitForFirstConsumer"
    assert not await storageclass.ensure(client, CONFIG)
    assert client.classes == [made]


async def test_another_default_stays_the_only_one():
    client = Client(named("theirs", **DEFAULT))
    assert await storageclass.ensure(client, CONFIG)
    assert client.classes[1].metadata.annotations == {}


@pytest.mark.parametrize("client", [Client(named("local-path")), Client(race=True)])
async def test_a_class_somebody_made_is_left_alone(client):
    before = list(client.classes)
    assert not await storageclass.ensure(client, CONFIG)
    assert client.classes == before
