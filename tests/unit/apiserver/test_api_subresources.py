"""Scale, binding and eviction."""

PODS = "/api/v1/namespaces/demo/pods"
SETS = "/apis/apps/v1/namespaces/demo/replicasets"
SET = {
    "metadata": {"name": "rs"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    },
}


def binding(node: str, name: str = "p") -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }


async def test_a_scale_shows_and_sets_the_replicas(api):
    await api.create(SETS, SET)

    shown = (await api.get(f"{SETS}/rs/scale")).json
    assert (shown["kind"], shown["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert shown["spec"] == {"replicas": 2}
    assert shown["status"]["selector"] == "app=x"
    body = {"metadata": {"name": "rs"}, "spec": {"replicas": 5}}
    assert (await api.put(f"{SETS}/rs/scale", body)).json["spec"]["replicas"] == 5
    assert (await api.patch(f"{SETS}/rs/scale", {"spec": {"replicas": 0}})).code == 200

    changed = (await api.get(f"{SETS}/rs")).json
    assert changed["spec"]["replicas"] == 0
    assert changed["metadata"]["generation"] == 3


async def test_a_scale_is_checked(api):
    made = (await api.create(SETS, SET)).json
    stale = {**made["metadata"]}
    await api.patch(f"{SETS}/rs", {"metadata": {"labels": {"a": "b"}}})

    negative = await api.patch(f"{SETS}/rs/scale", {"spec": {"replicas": -1}})
    conflict = await api.put(f"{SETS}/rs/scale", {"metadata": stale, "spec": {"replicas": 1}})
    missing = await api.get(f"{SETS}/nope/scale")

    assert (negative.code, conflict.code, missing.code) == (422, 409, 404)
    assert negative.json["details"]["causes"][0]["field"] == "spec.replicas"


async def test_a_binding_sets_the_node_once(api, a_pod):
    await api.create(PODS, a_pod())

    first = await api.create(f"{PODS}/p/binding", binding("n1"))
    second = await api.create(f"{PODS}/p/binding", binding("n2"))

    assert (first.code, first.json["status"]) == (201, "Success")
    assert (second.code, second.json["reason"]) == (409, "Conflict")
    assert 'already assigned to node "n1"' in second.message
    pod = (await api.get(f"{PODS}/p")).json
    assert pod["spec"]["nodeName"] == "n1"
    scheduled = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    assert scheduled["status"] == "True"
    assert pod["metadata"]["generation"] == 1


async def test_a_binding_needs_a_pod_and_a_node(api, a_pod):
    await api.create(PODS, a_pod())

    assert (await api.create(f"{PODS}/nope/binding", binding("n", "nope"))).code == 404
    assert (await api.create(f"{PODS}/p/binding", binding("", "p"))).code == 422
    assert (await api.create(f"{PODS}/p/binding", binding("n", "other"))).code == 400


async def test_an_eviction_deletes_with_its_options(api, a_pod):
    await api.create(PODS, a_pod(nodeName="n1"))
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 3},
    }

    done = await api.create(f"{PODS}/p/eviction", body)

    assert (done.code, done.json["status"]) == (201, "Success")
    metadata = (await api.get(f"{PODS}/p")).json["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 3


async def test_what_a_subresource_takes_is_held_to_its_schema(api, a_pod):
    await api.create(SETS, SET)
    await api.create(PODS, a_pod())
    bodies = [
        {"kind": "Deployment", "apiVersion": "apps/v1"},
        {"apiVersion": ["autoscaling/v1"]},
        {"metadata": []},
        {"metadata": {"name": "p"}, "target": [], "deleteOptions": [], "spec": []},
    ]
    for body in bodies:
        for path in (f"{PODS}/p/binding", f"{PODS}/p/eviction"):
            assert (await api.create(path, body)).code == 400, (path, body)
        assert (await api.put(f"{SETS}/rs/scale", body)).code == 400, body
    for kind in ("merge", "strategic"):
        assert (await api.patch(f"{SETS}/rs/scale", {"spec": []}, kind)).code == 400


async def test_an_eviction_in_the_words_of_an_old_kubectl_is_taken(api, a_pod):
    await api.create(PODS, a_pod())
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}}

    assert (await api.create(f"{PODS}/p/eviction", body)).code == 201
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_terminals_and_logs_say_why_they_cannot_be_had(api, a_pod):
    two = a_pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "x"})
    await api.create(PODS, two)
    await api.create(PODS, a_pod("one"))

    unnamed = await api.get(f"{PODS}/two/log")
    wrong = await api.get(f"{PODS}/two/log?container=z")
    nowhere = await api.get(f"{PODS}/one/log")
    missing = await api.get(f"{PODS}/nope/log")
    no_socket = await api.get(f"{PODS}/one/exec?command=ls")

    assert unnamed.message == (
        "a container name must be specified for pod two, choose one of: [c d]"
    )
    assert wrong.message == "container z is not valid for pod two"
    assert nowhere.message == "pod one does not have a host assigned"
    assert (missing.code, no_socket.code) == (404, 400)
