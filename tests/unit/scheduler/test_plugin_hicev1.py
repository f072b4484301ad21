"""Hicev1: pods run only where all their images run."""

import asyncio

import msgspec
import pytest

from motley.api.views.motley import RESOLVER_LABEL, ImageMap
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.lib.clock import SYSTEM
from motley.registry.resolver import REGISTRY, Resolution
from motley.scheduler import events, images
from motley.scheduler.contract import Handle, Reject
from motley.scheduler.images import ImageTable, Platform
from motley.scheduler.plugins.hicev1 import Hicev1, Hicev1Args
from motley.scheduler.podinfo import IMAGES_AS_WRITTEN

TABLE = """
list:
  - name: local-registry:5000/web:latest
    images:
      - {name: 'local-registry:5000/web:latest-amd64', arch: amd64, os: linux}
      - {name: 'local-registry:5000/web:latest-arm64', arch: arm64, os: linux}
  - name: local-registry:5000/tool
    images:
      - {name: 'local-registry:5000/tool:a', arch: arm64, os: linux}
      - {name: 'local-registry:5000/tool:s', arch: s390x, os: linux}
"""
WEB, TOOL = "local-registry:5000/web:latest", "local-registry:5000/tool:latest"


@pytest.fixture
def world(cluster, node):
    def of_arch(name, arch):
        return node(name, labels={"kubernetes.io/arch": arch})

    return cluster(
        of_arch("x86", "amd64"),
        of_arch("arm", "arm64"),
        of_arch("z", "s390x"),
        of_arch("small", "arm"),
        table=images.parse(TABLE),
    )


def _plugin(world, **args):
    return Hicev1(msgspec.convert(args, Hicev1Args), world.handle)


@pytest.mark.parametrize(
    ("image", "nodes"),
    [
        (WEB, ["arm", "x86"]),
        (TOOL, ["arm", "z"]),
        ("reg/some-arm64:1", ["arm"]),
        ("arm64v8/nginx:1", ["arm"]),
        ("reg/some-arm:1", ["small"]),
        ("reg/amd64/app", ["x86"]),
        ("reg/unknown:1", ["arm", "small", "x86", "z"]),
        ("reg/alarm:1", ["arm", "small", "x86", "z"]),
    ],
)
def test_an_image_allows_the_nodes_it_is_built_for(world, pod, image, nodes):
    assert world.feasible(pod(image=image)) == nodes


def test_all_images_must_agree_also_those_of_init_containers(world, pod):
    both = pod(image=WEB, initContainers=[{"name": "i", "image": TOOL}])
    assert world.feasible(both) == ["arm"]


def test_images_with_nothing_in_common_refuse_the_pod_everywhere(world, pod):
    never = pod(image="a-amd64:1", initContainers=[{"name": "i", "image": TOOL}])
    decision = world.cycle.schedule(world.info(never))
    assert decision.message == (
        "0/4 nodes are available: the images of the pod have no architecture in common. "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )
    assert decision.rejected_by == {"Hicev1"}


def test_the_annotation_has_the_last_word(world, pod):
    annotated = pod(image=WEB, annotations={"motley.io/architectures": "s390x, linux/arm64"})
    assert world.feasible(annotated) == ["arm", "z"]


def test_unknown_images_can_be_assumed_to_be_amd64(world, pod):
    assert world.allowed(_plugin(world, assumeUnknown="amd64"), pod(image="x:1")) == ["x86"]


def test_a_table_can_be_read_from_a_file(world, pod, tmp_path):
    file = tmp_path / "images.yaml"
    file.write_text(TABLE.replace("web", "other"))
    plugin = _plugin(world, imagesFile=str(file))
    assert world.allowed(plugin, pod(image="local-registry:5000/other:latest")) == ["arm", "x86"]


def test_the_reason_is_counted_per_node(world, pod):
    world.nodes.remove_node("z")
    decision = world.cycle.schedule(world.info(pod(image="x-s390x:1")))
    assert decision.message == (
        "0/3 nodes are available: 3 node(s)'s arch isn't included in pods arches. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("nginx:latest-amd64", "amd64"),
        ("nginx:arm64", "arm64"),
        ("arm32v7/nginx", "arm"),
        ("app-386:1", "386"),
        ("app:1.386", "386"),
        ("r/riscv64/a", "riscv64"),
        ("a@sha256:386arm386", None),
        ("charm:1386", None),
        ("plain", None),
        ("registry.arm.example/web:1", None),  # the name of a registry
        ("amd64-mirror:5000/web:1-arm64", "arm64"),
        ("reg.example/arm/web", "arm"),
    ],
)
def test_keywords_in_names(name, arch):
    assert images.keyword(name) == arch


def test_a_file_that_is_no_table_says_so():
    with pytest.raises(ValueError, match="not an image table"):
        images.parse("list: [{images: []}]")


class _Api:
    def __init__(self):
        self.calls = []

    async def bind(self, pod, node):
        self.calls.append(("bind", pod.key.name, node))

    async def patch_pod(self, pod, body):
        self.calls.append(("patch", pod.key.name, body))


async def test_binding_rewrites_images_to_the_nodes_variant_first(world):
    pod = Pod.of(
        {
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {
                "containers": [{"name": "c", "image": WEB}, {"name": "d", "image": "plain"}],
                "initContainers": [{"name": "i", "image": "local-registry:5000/tool"}],
            },
        }
    )
    api = _Api()
    await _plugin(world).bind(world.info(pod), "arm", api)
    asks = '{"c":"local-registry:5000/web:latest","i":"local-registry:5000/tool"}'
    rewritten = {
        "metadata": {"annotations": {IMAGES_AS_WRITTEN: asks}},
        "spec": {
            "containers": [{"name": "c", "image": "local-registry:5000/web:latest-arm64"}],
            "initContainers": [{"name": "i", "image": "local-registry:5000/tool:a"}],
        },
    }
    assert api.calls == [("patch", "p", rewritten), ("bind", "p", "arm")]


async def test_binding_leaves_pods_alone_whose_images_are_in_no_table(world, pod):
    api = _Api()
    await _plugin(world).pre_bind(world.info(pod(image="plain")), "arm", api)
    assert api.calls == []


def test_a_table_can_learn():
    table = ImageTable()
    assert table.variants("a") is None
    table.put("a", {Platform("linux", "amd64"): "a-amd64"})
    assert table.variants("a:latest") == {Platform("linux", "amd64"): "a-amd64"}


# -- attempts that fail half-way ------------------------------------------------------------


def _rewritten(image, note):
    return Pod.of(
        {
            "metadata": {
                "name": "p",
                "namespace": "d",
                "uid": "u",
                "annotations": {IMAGES_AS_WRITTEN: note},
            },
            "spec": {"containers": [{"name": "c", "image": image}]},
        }
    )


async def test_a_pod_that_was_rewritten_and_not_bound_may_still_go_elsewhere(world):
    half_way = _rewritten(f"{WEB}-arm64", f'{{"c":"{WEB}"}}')
    assert world.feasible(half_way) == ["arm", "x86"]
    api = _Api()
    await _plugin(world).pre_bind(world.info(half_way), "x86", api)
    ((_, _, body),) = api.calls
    assert body["spec"] == {"containers": [{"name": "c", "image": f"{WEB}-amd64"}]}
    assert body["metadata"]["annotations"] == {IMAGES_AS_WRITTEN: f'{{"c":"{WEB}"}}'}


@pytest.mark.parametrize("note", [f'{{"c":"{WEB}"}}', "nonsense", "[]", '{"c":1}', '{"x":"y"}'])
async def test_a_note_that_does_not_fit_the_pod_is_not_believed(world, note):
    copied = _rewritten("reg/another-s390x:1", note)
    assert world.feasible(copied) == ["z"]
    api = _Api()
    await _plugin(world).pre_bind(world.info(copied), "z", api)
    assert api.calls == []


def test_the_name_of_a_variant_stands_for_its_platform(world, pod):
    assert world.feasible(pod(image="local-registry:5000/tool:s")) == ["z"]


def test_ephemeral_containers_count(world, pod):
    debugged = pod(image=WEB, ephemeralContainers=[{"name": "debug", "image": "tool-arm64:1"}])
    assert world.feasible(debugged) == ["arm"]


# -- generations of an architecture ---------------------------------------------------------

GENERATIONS = {
    Platform("linux", "arm", "v6"): "app:v6",
    Platform("linux", "arm", "v7"): "app:v7",
}


@pytest.fixture
def generations(cluster, node):
    def arm(name, **labels):
        variant = {f"motley.io/{key.replace('_', '-')}": v for key, v in labels.items()}
        return node(name, labels={"kubernetes.io/arch": "arm", **variant})

    table = ImageTable({"app:1": GENERATIONS, "new:1": {Platform("linux", "arm", "v7"): "new:1"}})
    return cluster(
        arm("old", arch_variant="v6"), arm("v7", arch_variant="v7"), arm("x"), table=table
    )


def test_a_generation_runs_on_its_own_and_later_machines(generations, pod):
    assert generations.feasible(pod(image="app:1")) == ["old", "v7", "x"]
    assert generations.feasible(pod(image="new:1")) == ["v7", "x"]
    both = pod(image="app:1", initContainers=[{"name": "i", "image": "new:1"}])
    assert generations.feasible(both) == ["v7", "x"]


@pytest.mark.parametrize(("name", "image"), [("old", "app:v6"), ("v7", "app:v7"), ("x", "app:v6")])
async def test_a_node_gets_the_newest_generation_it_is_known_to_run(generations, pod, name, image):
    api = _Api()
    await _plugin(generations).pre_bind(generations.info(pod(image="app:1")), name, api)
    assert api.calls[0][2]["spec"]["containers"] == [{"name": "c", "image": image}]


# -- ImageMap objects -----------------------------------------------------------------------


def image_map(name, *entries, labels=()):
    return ImageMap.of(
        {
            "metadata": {"name": name, "labels": dict.fromkeys(labels, "true")},
            "spec": {"images": list(entries)},
        }
    )


def entry(image, *archs, source="import"):
    return {
        "name": image,
        "source": source,
        "architectures": [{"architecture": arch} for arch in archs],
    }


class FakeFeed:
    """Hands objects over as informers do, and notes what the queue would be told."""

    def __init__(self):
        self.handlers = []
        self.told = []
        self._seen = set()
        self._objects = {}

    def informer(self, cls, *, optional=False):
        assert cls is ImageMap
        return self

    def add_handler(self, handler):
        self.handlers.append(handler)

    def once(self, what):
        return what not in self._seen and not self._seen.add(what)

    def happened(self, event):
        self.told.append(event)

    def put(self, found, *, gone=False):
        old = self._objects.get(found.metadata.name)
        self._objects[found.metadata.name] = None if gone else found
        for handler in self.handlers:
            handler(Change(old, None if gone else found))


@pytest.fixture
def fed(world, clock):
    """Makes a plugin that follows ImageMaps, with the feed it follows."""

    def make(time=clock, **args):
        handle = Handle(world.nodes, time, images.parse(TABLE))
        plugin, feed = Hicev1(msgspec.convert(args, Hicev1Args), handle), FakeFeed()
        plugin.follow(feed)
        return plugin, feed

    return make


def test_an_image_map_is_obeyed_while_it_is_there(world, fed, pod):
    plugin, feed = fed()
    feed.put(image_map("a", entry("app", "arm64", "s390x")))
    assert world.allowed(plugin, pod(image="app:latest")) == ["arm", "z"]
    feed.put(image_map("a", entry("app", "arm64")))
    assert world.allowed(plugin, pod(image="app")) == ["arm"]
    feed.put(image_map("a"), gone=True)
    assert plugin.pre_filter(world.info(pod(image="app")), world.nodes) is not None  # anywhere
    assert feed.told == [events.ImageMapChanged()] * 3


def test_what_people_wrote_counts_before_files_and_those_before_registries(world, fed, pod):
    plugin, feed = fed()
    feed.put(image_map("guess", entry(WEB, "arm", source="assumed")))
    feed.put(image_map("found", entry(WEB, "s390x", source="registry")))
    assert world.allowed(plugin, pod(image=WEB)) == ["arm", "x86"]  # the file
    feed.put(image_map("hand", entry(WEB, "s390x", "arm")))
    assert world.allowed(plugin, pod(image=WEB)) == ["small", "z"]
    feed.put(image_map("other", entry("x:1", "arm", source="keyword")))
    feed.put(image_map("certain", entry("x:1", "amd64", source="registry")))
    assert world.allowed(plugin, pod(image="x:1")) == ["x86"]


async def test_an_image_maps_variants_are_written_at_binding(world, fed, pod):
    plugin, feed = fed()
    variants = [{"architecture": "arm64", "image": "app:arm"}, {"architecture": "amd64"}]
    feed.put(image_map("a", {"name": "app:1", "architectures": variants}))
    api = _Api()
    await plugin.pre_bind(world.info(pod(image="app:1")), "x86", api)
    assert api.calls == []  # the same name there
    await plugin.pre_bind(world.info(pod(image="app:1")), "arm", api)
    assert api.calls[0][2]["spec"]["containers"][0]["image"] == "app:arm"


# -- images that are looked up --------------------------------------------------------------


def test_a_pod_waits_while_its_image_is_looked_up_but_not_for_ever(world, fed, pod, clock):
    plugin, feed = fed(waitSeconds=10)
    feed.put(image_map("resolver", labels=[RESOLVER_LABEL]))
    info = world.info(pod(image="reg.io/new:1"))
    answer = plugin.pre_filter(info, world.nodes)
    assert answer == Reject('looking up which architectures image "reg.io/new:1" is built for')
    clock.time += 10
    assert world.allowed(plugin, pod(image="reg.io/new:1")) == ["x86"]  # linux/amd64 only
    feed.put(image_map("found", entry("reg.io/new:1", "s390x", source="registry")))
    assert world.allowed(plugin, pod(image="reg.io/new:1")) == ["z"]


def test_nothing_is_waited_for_where_it_would_not_matter(cluster, node, fed, pod, world, clock):
    plugin, feed = fed()
    feed.put(image_map("resolver", labels=[RESOLVER_LABEL]))
    # Made on the machines themselves.
    assert plugin.pre_filter(world.info(pod(image="localhost/motley/x:1")), world.nodes) is not None
    assert not isinstance(
        plugin.pre_filter(world.info(pod(image="localhost/motley/x:1")), world.nodes), Reject
    )
    for name in ("arm", "z", "small"):
        world.nodes.remove_node(name)
    alike = plugin.pre_filter(world.info(pod(image="reg.io/new:1")), world.nodes)
    assert not isinstance(alike, Reject)


async def test_the_scheduler_can_look_images_up_itself(world, fed, pod, monkeypatch):
    asked = []

    async def resolve(self, image, secrets=()):
        asked.append(image)
        return Resolution((Platform("linux", "s390x"),), REGISTRY, "sha256:1")

    async def no_secrets(client, pod):
        return []

    monkeypatch.setattr("motley.registry.resolver.Resolver.resolve", resolve)
    monkeypatch.setattr("motley.registry.pullsecrets.of_pod", no_secrets)
    plugin, feed = fed(time=SYSTEM, resolve=True)
    found = asyncio.Event()
    feed.happened = lambda event: found.set()
    plugin.follow(feed)
    image = "reg.io/new:1"
    assert isinstance(plugin.pre_filter(world.info(pod(image=image)), world.nodes), Reject)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(plugin.background(None))
        async with asyncio.timeout(20):
            await found.wait()
        running.cancel()
    assert world.allowed(plugin, pod(image=image)) == ["z"]
    assert asked == [image]


@pytest.mark.parametrize(
    ("args", "words"), [({"waitSeconds": -1}, "waitSeconds"), ({"registries": [{}]}, "host")]
)
def test_wrong_arguments_are_refused(args, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(args, Hicev1Args)
