from collections import Counter

import msgspec

from motley.api.views import apps
from motley.ops import demo


def deployment(**status):
    return apps.Deployment.of(
        {
            "metadata": {"name": "hello", "generation": 2},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": {"observedGeneration": 2, **status},
        }
    )


def test_a_rollout_is_complete_when_every_wanted_pod_is_new_and_available():
    done = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "readyReplicas": 3}
    assert demo.rollout(deployment(**done)).is_complete
    assert not demo.rollout(deployment(**{**done, "availableReplicas": 2})).is_complete
    assert not demo.rollout(deployment(**{**done, "replicas": 4})).is_complete
    assert not demo.rollout(deployment(**{**done, "observedGeneration": 1})).is_complete


def test_the_example_is_a_deployment_of_three_and_a_service():
    documents = {d["kind"]: d for d in demo.documents(demo.manifest())}
    assert set(documents) == {"ConfigMap", "Deployment", "Service"}
    template = documents["Deployment"]["spec"]["template"]
    assert documents["Deployment"]["spec"]["replicas"] == 3
    assert template["metadata"]["labels"] == {"app": "hello"}
    compile(documents["ConfigMap"]["data"]["server.py"], "server.py", "exec")


def test_an_applied_object_remembers_what_was_applied_as_kubectl_does():
    body = demo.as_applied({"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}})
    (key, text), *_ = body["metadata"]["annotations"].items()
    assert key == "kubectl.kubernetes.io/last-applied-configuration"
    assert msgspec.json.decode(text) == {
        "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "default", "annotations": {}},
        "data": {"a": "b"},
    }


def test_pods_that_did_not_answer_are_shown_too():
    from motley.api.views import pod

    pods = [
        pod.Pod.of({"metadata": {"name": n}, "spec": {"nodeName": "m"}, "status": {"podIP": "1"}})
        for n in ("b", "a")
    ]
    assert list(demo.rows(pods, Counter({"b": 4}))) == [("a", "m", "1", 0), ("b", "m", "1", 4)]
