"""What is remembered about pod specs is what would be computed: form, defaults, faults."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import codec, defaults, schema, scheme, validation
from motley.api.schema import checking
from motley.api.validation import pod as pod_rules
from motley.lib.memo import Memo

Document = dict[str, Any]

_MEMOS = ((checking, "_known"), (defaults, "_defaulted"), (pod_rules, "_sound"))


@contextmanager
def _memory(limit_bytes: int) -> Iterator[None]:
    """Fresh memos; with 0 bytes nothing is ever remembered."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in _MEMOS:
            patched.setattr(module, name, Memo(limit_bytes))
        yield


def _pods() -> scheme.Kind:
    kind = scheme.resource("", "v1", "pods")
    assert kind is not None
    return kind


def _outcome(document: Document) -> bytes:
    """Everything the server makes of a pod before it is stored, or refuses it with; in bytes, so
    that the order of keys counts too."""
    kind, obj = _pods(), copy.deepcopy(document)
    checked = schema.check(kind, obj)
    if checked.errors:
        return codec.encode([checked.unknown, [str(e) for e in checked.errors], obj])
    defaults.apply(kind, obj)
    wrong = [str(e) for e in validation.create(kind, obj)]
    again = [str(e) for e in validation.update(kind, obj, copy.deepcopy(obj))]
    return codec.encode([checked.unknown, wrong, again, obj])


_WORDS = st.sampled_from(["a", "web", "Not a name", "", "cpu", "x/y", "registry/app:1"])
_AMOUNTS = st.sampled_from(["1", "500m", "0.5", "1024Mi", "1Gi", "-1", "much", 2, 0.1, None, ""])
_RESOURCES = st.fixed_dictionaries(
    {},
    optional={
        "limits": st.dictionaries(st.sampled_from(["cpu", "memory", "x/y", "odd"]), _AMOUNTS),
        "requests": st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), _AMOUNTS),
    },
)
_CONTAINERS = st.fixed_dictionaries(
    {"name": _WORDS},
    optional={
        "image": st.one_of(_WORDS, st.none()),
        "ports": st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.sampled_from([80, 0, 70000, "80", 1.5, True])},
                optional={"protocol": st.sampled_from(["TCP", "SMTP", ""]), "hostPort": st.just(1)},
            ),
            max_size=2,
        ),
        "env": st.lists(
            st.fixed_dictionaries({"name": _WORDS}, optional={"value": _WORDS}), max_size=2
        ),
        "resources": _RESOURCES,
        "volumeMounts": st.lists(
            st.fixed_dictionaries({"name": _WORDS, "mountPath": st.just("/data")}), max_size=2
        ),
        "livenessProbe": st.sampled_from([{}, {"httpGet": {"port": 80}}, {"periodSeconds": -1}]),
        "unheardOf": st.integers(),
    },
)
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.one_of(st.none(), st.lists(_CONTAINERS, max_size=2)),
        "initContainers": st.lists(_CONTAINERS, max_size=1),
        "volumes": st.lists(
            st.fixed_dictionaries(
                {"name": _WORDS},
                optional={"emptyDir": st.just({}), "configMap": st.just({"name": "c"})},
            ),
            max_size=2,
        ),
        "hostNetwork": st.sampled_from([True, False, None, 1]),
        "terminationGracePeriodSeconds": st.sampled_from([-1, 0, 30, 10**30]),
        "restartPolicy": st.sampled_from(["Always", "Sometimes"]),
        "tolerations": st.lists(st.sampled_from([{"key": "a"}, {"operator": "Exists"}, {}])),
        "serviceAccount": _WORDS,
        "nodeSelector": st.dictionaries(_WORDS, _WORDS, max_size=2),
        "resources": _RESOURCES,
        "nonsense": st.just({"deep": [1, None]}),
    },
)
_PODS = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": _WORDS, "namespace": st.just("demo")})},
    optional={"spec": st.one_of(_SPECS, st.none(), st.just("text")), "status": st.just({})},
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_PODS, min_size=1, max_size=4))
def test_pods_come_out_the_same_whether_or_not_their_like_was_seen_before(pods: list[Document]):
    with _memory(0):
        computed = [_outcome(pod) for pod in pods]
    with _memory(2**20):
        first = [_outcome(pod) for pod in pods]
        second = [_outcome(pod) for pod in pods]
    with _memory(2**11):  # so little that it is forgotten again in between
        crowded = [_outcome(pod) for pod in [*pods, *pods]]
    assert first == computed
    assert second == computed
    assert crowded == computed * 2


def _pod(**spec: Any) -> Document:
    containers = [{"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "0.5"}}}]
    return {
        "metadata": {"name": "p", "namespace": "demo"},
        "spec": {"containers": containers, **spec},
    }


def test_the_second_pod_of_a_template_is_looked_up():
    with _memory(2**20):
        _outcome(_pod())
        known = checking._known.size_bytes, defaults._defaulted.size_bytes, len(pod_rules._sound)
        assert min(known) > 0
        _outcome(_pod())
        assert known == (
            checking._known.size_bytes,
            defaults._defaulted.size_bytes,
            len(pod_rules._sound),
        )


def test_to_change_one_pod_does_not_change_the_next_of_its_template():
    kind = _pods()
    with _memory(2**20):
        made = []
        for _ in range(3):
            obj = _pod()
            schema.check(kind, obj)
            defaults.apply(kind, obj)
            made.append(codec.encode(obj))
            obj["spec"]["containers"][0]["image"] = "changed"
            obj["spec"]["containers"].append({"name": "added"})
            obj["spec"]["securityContext"]["runAsUser"] = 7
        assert made[0] == made[1] == made[2]


def test_what_is_wrong_with_a_spec_is_said_every_time():
    with _memory(2**20):
        for _ in range(2):
            errors = validation.create(_pods(), _pod(restartPolicy="Sometimes"))
            assert [e.field for e in errors] == ["spec.restartPolicy"]


def test_unknown_fields_are_named_every_time_with_their_own_place():
    deployments = scheme.resource("apps", "v1", "deployments")
    assert deployments is not None
    with _memory(2**20):
        for _ in range(2):
            spec = {"containers": [{"name": "c", "typo": 1}]}
            assert schema.check(_pods(), {"spec": copy.deepcopy(spec)}).unknown == [
                "spec.containers[0].typo"
            ]
            template = {"spec": {"template": {"spec": copy.deepcopy(spec)}}}
            assert schema.check(deployments, template).unknown == [
                "spec.template.spec.containers[0].typo"
            ]
