import asyncio
from collections import Counter

import msgspec
import pytest

from motley.api.views import apps, core
from motley.ops import demo
from motley.ops.failure import Failure


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


async def serve(answers):
    """A server on loopback that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        name = left.pop(0) if len(left) > 1 else left[0]
        if name:
            body = f"hello from {name}\n"
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


def service_at(server):
    port = server.sockets[0].getsockname()[1]
    return core.Service.of(
        {"metadata": {}, "spec": {"clusterIP": "127.0.0.1", "ports": [{"port": port}]}}
    )


async def test_calls_are_counted_once_every_pod_has_answered():
    async with await serve(["", "a", "a", "b", *["a", "b"] * 10]) as server:
        answers = await demo.call_service(service_at(server), pods=2)
    assert answers == {"a": 5, "b": 5}


async def test_a_service_that_never_answers_is_a_failure(monkeypatch):
    monkeypatch.setattr(demo, "FIRST_ANSWER_S", 0.3)
    async with await serve([""]) as server:
        with pytest.raises(Failure, match="does not answer"):
            await demo.call_service(service_at(server), pods=1)
