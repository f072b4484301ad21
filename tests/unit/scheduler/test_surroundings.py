"""The directory follows the API, and only what somebody asks about."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from motley.api import status
from motley.api.views.apps import ReplicaSet
from motley.api.views.core import Namespace, Service
from motley.api.views.pod import Pod
from motley.api.views.workloads import ReplicationController, StatefulSet
from motley.client.decoding import Listing, ListMeta, WatchEvent
from motley.lib.clock import SYSTEM
from motley.scheduler import profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import FollowsObjects, Handle
from motley.scheduler.feed import Feed
from motley.scheduler.images import ImageTable

pytestmark = pytest.mark.looptime


class Listed:
    """An API that lists what it was given, and then stays quiet until told."""

    def __init__(self, *objects: Any) -> None:
        self.objects = objects
        self.news: dict[type, asyncio.Queue[WatchEvent[Any]]] = {}

    async def list(self, cls: type, **_: Any) -> Listing[Any]:
        mine = [o for o in self.objects if isinstance(o, cls)]
        return Listing(metadata=ListMeta(resource_version="1"), items=mine)

    async def watch(
        self, cls: type, *, initial_events: bool = False, **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        if initial_events:
            raise status.BadRequest("streamed lists are not served here")
        queue = self.news[cls] = asyncio.Queue()
        while True:
            yield await queue.get()


def _handle(text: str = "") -> tuple[Handle, list[Any]]:
    handle = Handle(Columns(), SYSTEM, ImageTable())
    configuration = profiles.parse(text) if text else profiles.Configuration()
    built = profiles.build(configuration, handle)
    return handle, [profile.plugins for profile in built.values()]


def _followed(api: Listed, plugins: list[Any], only: tuple[str, ...]) -> Feed:
    feed = Feed(api, lambda _: None, clock=SYSTEM)
    for profile in plugins:
        for name, plugin in profile.items():
            if name in only and isinstance(plugin, FollowsObjects):
                plugin.follow(feed)
    return feed


_ASKING = ("InterPodAffinity", "PodTopologySpread")


def _meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", **more}


def _pod(labels: dict[str, str], api_version: str = "", kind: str = "", owner: str = "") -> Pod:
    owners = [{"apiVersion": api_version, "kind": kind, "name": owner, "controller": True}]
    return Pod.of({"metadata": _meta("p", labels=labels, ownerReferences=owners)})


async def test_namespaces_services_and_controllers_are_followed():
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    api = Listed(
        Namespace.of({"metadata": {"name": "default", "uid": "n", "labels": {"team": "x"}}}),
        Service.of({"metadata": _meta("svc"), "spec": {"selector": {"tier": "front"}}}),
        ReplicaSet.of({"metadata": _meta("rs"), "spec": selector}),
        StatefulSet.of({"metadata": _meta("sts"), "spec": selector}),
        ReplicationController.of({"metadata": _meta("rc"), "spec": {"selector": {"app": "old"}}}),
    )
    handle, plugins = _handle()
    book = handle.directory
    informers = _followed(api, plugins, _ASKING).informers
    assert len(informers) == 5
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced()
        assert book.namespace_labels("default") == {"team": "x"}
        assert book.namespace_labels("unheard-of") == {}
        web = {"app": "web"}
        assert str(book.siblings(_pod(web, "apps/v1", "ReplicaSet", "rs"))) == "app=web"
        assert str(book.siblings(_pod(web, "apps/v1", "StatefulSet", "sts"))) == "app=web"
        assert str(book.siblings(_pod(web, "v1", "ReplicationController", "rc"))) == "app=old"
        assert book.siblings(_pod(web, "batch/v1", "Job", "rs")).is_everything
        both = _pod({"app": "web", "tier": "front"}, "apps/v1", "ReplicaSet", "rs")
        assert str(book.siblings(both)) == "app=web,tier=front"
        before = book.version
        scaled = ReplicaSet.of(
            {"metadata": _meta("rs", resourceVersion="2"), "spec": {**selector, "replicas": 3}}
        )
        api.news[ReplicaSet].put_nowait(WatchEvent(type="MODIFIED", object=scaled))
        gone = Service.of({"metadata": _meta("svc", resourceVersion="3")})
        api.news[Service].put_nowait(WatchEvent(type="DELETED", object=gone))
        async with asyncio.timeout(10):
            while str(book.siblings(both)) != "app=web":
                await SYSTEM.sleep(0.01)
        assert book.version == before + 1  # scaling changes no answer
        for task in tasks:
            task.cancel()


def test_what_nobody_asks_about_is_not_read():
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {multiPoint: {disabled: [{name: InterPodAffinity}]}}
    pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]
"""
    _, plugins = _handle(text)
    assert _followed(Listed(), plugins, _ASKING).informers == []


async def test_a_kind_the_server_does_not_know_is_not_waited_for():
    class Without(Listed):
        async def list(self, cls: type, **more: Any) -> Listing[Any]:
            if cls is Service:
                raise status.NotFound("the server could not find the requested resource")
            return await super().list(cls, **more)

    feed = Feed(Without(), lambda _: None, clock=SYSTEM)
    feed.informer(Service, optional=True)
    feed.informer(Namespace)
    assert not feed.has_synced
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in feed.informers]
        async with asyncio.timeout(10):
            await feed.synced()
        assert feed.has_synced
        for task in tasks:
            task.cancel()


def test_informers_are_shared_and_books_filled_once():
    feed = Feed(Listed(), lambda _: None, clock=SYSTEM)
    assert feed.informer(Service) is feed.informer(Service)
    assert feed.once("volumes")
    assert not feed.once("volumes")
