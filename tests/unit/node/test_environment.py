"""Variables, expansion and the downward API."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.core import ConfigMap, Secret, Service
from motley.api.views.pod import Pod
from motley.node import environment
from motley.node.environment import ConfigError

FACTS = {"status.podIP": "10.0.0.9", "status.hostIP": "10.77.0.1"}


class Lookup:
    def __init__(self, maps=(), secrets=()):
        self.maps = {name: ConfigMap.of({"data": data}) for name, data in dict(maps).items()}
        self.secrets = {
            name: Secret.of(
                {"data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}}
            )
            for name, data in dict(secrets).items()
        }

    def config_map(self, name):
        return self.maps.get(name)

    def secret(self, name):
        return self.secrets.get(name)


def resolve(container, lookup=None, services=None, **meta):
    pod = Pod.of({"metadata": {"name": "p", **meta}, "spec": {"containers": [container]}})
    found = environment.resolve(
        pod,
        pod.spec.containers[0],
        lookup or Lookup(),
        services or {},
        FACTS,
        {"cpu": 1900, "memory": 1 << 30},
    )
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("100$", "100$"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(A)$", "1$"),
    ],
)
def test_expansion_is_kubernetes(text, expected):
    assert environment.expand(text, {"A": "1"}) == expected


@given(st.text(alphabet="$()AB ", max_size=20))
def test_expansion_never_fails_and_leaves_plain_text_alone(text):
    expanded = environment.expand(text, {"A": "a"})
    if "$" not in text:
        assert expanded == text


def test_a_variable_may_refer_to_earlier_ones_only():
    env = [
        {"name": "LATE", "value": "$(FIRST)"},
        {"name": "FIRST", "value": "1"},
        {"name": "SECOND", "value": "$(FIRST)2"},
    ]
    found = resolve({"name": "c", "env": env})
    assert found == {"LATE": "$(FIRST)", "FIRST": "1", "SECOND": "12"}


def test_env_wins_over_env_from_and_that_over_services():
    container = {
        "name": "c",
        "envFrom": [
            {"configMapRef": {"name": "a"}},
            {"prefix": "P_", "configMapRef": {"name": "a"}},
        ],
        "env": [{"name": "X", "value": "own"}],
    }
    lookup = Lookup({"a": {"X": "map", "Y": "map", "2": "no name of a shell's"}})
    found = resolve(container, lookup, {"X": "service", "Y": "service", "Z": "service"})
    assert found == {
        "X": "own",
        "Y": "map",
        "Z": "service",
        "P_X": "map",
        "P_Y": "map",
        "2": "no name of a shell's",
        "P_2": "no name of a shell's",
    }


def test_missing_objects_and_keys_are_errors_unless_optional():
    def key(**ref):
        return {"name": "c", "env": [{"name": "V", "valueFrom": {"configMapKeyRef": ref}}]}

    with pytest.raises(ConfigError, match='configmap "none" not found'):
        resolve(key(name="none", key="k"))
    with pytest.raises(ConfigError, match="couldn't find key k in ConfigMap here"):
        resolve(key(name="here", key="k"), Lookup({"here": {}}))
    assert resolve(key(name="none", key="k", optional=True)) == {}
    with pytest.raises(ConfigError, match='secret "none" not found'):
        resolve({"name": "c", "envFrom": [{"secretRef": {"name": "none"}}]})


def test_secrets_are_decoded():
    ref = {"secretKeyRef": {"name": "s", "key": "k"}}
    container = {"name": "c", "env": [{"name": "V", "valueFrom": ref}]}
    assert resolve(container, Lookup(secrets={"s": {"k": "sesame"}})) == {"V": "sesame"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['none']", ""),
        ("status.podIP", "10.0.0.9"),
        ("metadata.labels", 'app="web"'),
    ],
)
def test_fields_of_the_pod_itself(path, expected):
    container = {
        "name": "c",
        "env": [{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}],
    }
    assert resolve(container, labels={"app": "web"}) == {"V": expected}


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.cpu", "1", "1"),
        ("limits.cpu", "1m", "250"),
        ("requests.cpu", "1m", "250"),
        ("limits.memory", "1Mi", "64"),
        ("limits.memory", "0", str(64 << 20)),
        ("requests.ephemeral-storage", "1", "0"),
    ],
)
def test_resources_of_the_container_round_up(resource, divisor, expected):
    ref = {"resourceFieldRef": {"resource": resource, "divisor": divisor}}
    container = {
        "name": "c",
        "env": [{"name": "V", "valueFrom": ref}],
        "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}},
    }
    assert resolve(container) == {"V": expected}


def test_limits_that_are_not_set_are_the_nodes():
    ref = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}
    container = {"name": "c", "env": [{"name": "V", "valueFrom": ref}]}
    assert resolve(container) == {"V": "1900"}


def _service(namespace, name, address, *ports):
    return Service.of(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterIP": address, "ports": [dict(p) for p in ports]},
        }
    )


def test_services_become_variables():
    services = [
        _service("default", "kubernetes", "10.96.0.1", {"name": "https", "port": 443}),
        _service("shop", "redis-main", "10.96.0.5", {"port": 6379}),
        _service("shop", "headless", "None", {"port": 1}),
        _service("other", "secret", "10.96.0.6", {"port": 1}),
    ]
    found = environment.service_variables(services, "shop", all_services=True)
    assert found["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
    assert found["KUBERNETES_SERVICE_PORT_HTTPS"] == "443"
    assert found["REDIS_MAIN_SERVICE_HOST"] == "10.96.0.5"
    assert found["REDIS_MAIN_PORT_6379_TCP_ADDR"] == "10.96.0.5"
    assert not [k for k in found if "HEADLESS" in k or "SECRET" in k]
    few = environment.service_variables(services, "shop", all_services=False)
    assert not [k for k in few if "REDIS" in k]
