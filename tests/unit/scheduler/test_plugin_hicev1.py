"""Hicev1: pods run only where all their images run."""

import msgspec
import pytest

from motley.api.views.pod import Pod
from motley.scheduler import images
from motley.scheduler.images import ImageTable, Platform
from motley.scheduler.plugins.hicev1 import Hicev1, Hicev1Args

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
    rewritten = {
        "spec": {
            "containers": [{"name": "c", "image": "local-registry:5000/web:latest-arm64"}],
            "initContainers": [{"name": "i", "image": "local-registry:5000/tool:a"}],
        }
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
