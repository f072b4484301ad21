"""Configuration files of v1beta1 mean today what they meant then."""

import pytest

from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.podinfo import PodInfos

from .conftest import make_node, make_pod


def built(text, nodes=None):
    handle = Handle(nodes if nodes is not None else Columns(), SYSTEM, images.ImageTable())
    document = (
        "apiVersion: kubescheduler.config.k8s.io/v1beta1\n"
        "kind: KubeSchedulerConfiguration\n"
        f"profiles: [{text}]"
    )
    return profiles.build(profiles.parse(document), handle)["default-scheduler"]


def weights(profile):
    return {plugin.name: weight for plugin, weight in profile.score}


def score(profile, name, nodes, **requests):
    plugin = next(p for p, _ in profile.score if p.name == name)
    found = plugin.score(PodInfos().of(make_pod("p", requests=requests)), nodes)
    return {node: float(found[row]) for node, row in nodes.rows.items()}


@pytest.fixture
def nodes():
    made = Columns()
    made.set_node(make_node("small", cpu="2", memory="4Gi"))
    made.set_node(make_node("large", cpu="8", memory="4Gi"))
    return made


def test_enabling_the_old_default_takes_the_place_of_the_new_one(nodes):
    text = (
        "{plugins: {score: {enabled: [{name: NodeResourcesLeastAllocated, weight: 5}]}},"
        " pluginConfig: [{name: NodeResourcesLeastAllocated,"
        " args: {resources: [{name: cpu, weight: 1}]}}]}"
    )
    profile = built(text, nodes)
    assert weights(profile)["NodeResourcesLeastAllocated"] == 5
    assert "NodeResourcesFit" not in weights(profile)
    assert "NodeResourcesFit" in [p.name for p in profile.filter]
    assert score(profile, "NodeResourcesLeastAllocated", nodes, cpu="1") == {
        "small": 50,
        "large": 87,
    }


def test_configuring_the_old_default_is_enough(nodes):
    text = (
        "{pluginConfig: [{name: NodeResourcesLeastAllocated,"
        " args: {resources: [{name: cpu, weight: 1}]}}]}"
    )
    profile = built(text, nodes)
    assert weights(profile)["NodeResourcesLeastAllocated"] == 1
    assert "NodeResourcesFit" not in weights(profile)


def test_disabling_the_old_default_and_packing_instead(nodes):
    text = (
        "{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}],"
        " enabled: [{name: NodeResourcesMostAllocated, weight: 2}]}}}"
    )
    profile = built(text, nodes)
    assert weights(profile)["NodeResourcesMostAllocated"] == 2
    assert not weights(profile).keys() & {"NodeResourcesFit", "NodeResourcesLeastAllocated"}
    asked = score(profile, "NodeResourcesMostAllocated", nodes, cpu="1", memory="1Gi")
    assert asked == {"small": 37, "large": 18}


def test_a_shape_has_its_old_arguments(nodes):
    text = (
        "{plugins: {score: {disabled: [{name: '*'}],"
        " enabled: [{name: RequestedToCapacityRatio}]}}, pluginConfig: "
        "[{name: RequestedToCapacityRatio, args: {shape: [{utilization: 0, score: 0},"
        " {utilization: 100, score: 10}], resources: [{name: cpu}]}}]}"
    )
    profile = built(text, nodes)
    assert weights(profile) == {"RequestedToCapacityRatio": 1}
    asked = score(profile, "RequestedToCapacityRatio", nodes, cpu="1")
    assert asked == {"small": 50, "large": 12}


def test_a_shape_is_required():
    with pytest.raises(profiles.ConfigError, match=r"RequestedToCapacityRatio.*shape"):
        built("{plugins: {score: {enabled: [{name: RequestedToCapacityRatio}]}}}")


def test_spreading_by_selector_is_spreading_by_topology():
    profile = built("{plugins: {score: {enabled: [{name: SelectorSpread, weight: 9}]}}}")
    assert weights(profile) == weights(built("{}"))
    text = "{disabled: [{name: '*'}], enabled: [{name: SelectorSpread, weight: 9}]}"
    profile = built(f"{{plugins: {{score: {text}}}}}")
    assert weights(profile) == {"PodTopologySpread": 9}


@pytest.mark.parametrize("name", ["EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"])
def test_the_limits_of_single_clouds_are_one_today(name):
    text = f"{{disabled: [{{name: '*'}}], enabled: [{{name: {name}}}, {{name: NodeVolumeLimits}}]}}"
    profile = built(f"{{plugins: {{filter: {text}}}}}")
    assert [plugin.name for plugin in profile.filter] == ["NodeVolumeLimits"]
    kept = built(f"{{plugins: {{filter: {{disabled: [{{name: {name}}}]}}}}}}")
    assert "NodeVolumeLimits" in [plugin.name for plugin in kept.filter]


def test_what_has_no_successor_is_said_to_be_gone():
    with pytest.raises(profiles.ConfigError, match="'NodeLabel' at 'filter' is not available"):
        built("{plugins: {filter: {enabled: [{name: NodeLabel}]}}}")


def test_a_plugin_is_not_enabled_twice():
    twice = "{name: ImageLocality}, {name: ImageLocality}"
    with pytest.raises(profiles.ConfigError, match="enabled twice"):
        built(f"{{plugins: {{score: {{enabled: [{twice}]}}}}}}")
