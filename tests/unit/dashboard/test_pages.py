"""What pages show of what the cluster says, and that nothing it says becomes a part of them."""

import re
from html.parser import HTMLParser

import pytest

from motley.lib.clock import rfc3339

from .conftest import NOW

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
POD = "/api/v1/namespaces/default/pods/web-1"
BEGUN = rfc3339(NOW - 3600)


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def history(*containers):
    listed = [
        {"container": name, "cpu": [0.1, 0.2, cpu], "memory": [1e6, 2e6, memory]}
        for name, cpu, memory in containers
    ]
    return {"metadata": {"name": "x"}, "from": BEGUN, "stepSeconds": 30, "series": listed}


def a_pod(**metadata):
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "500m"}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "creationTimestamp": BEGUN,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}],
            **metadata,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": "main", "image": "app:1", "resources": resources},
                {"name": "side", "image": "side:1"},
            ],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 4,
                    "state": {"running": {"startedAt": rfc3339(NOW - 120)}},
                },
                {"name": "side", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
        },
    }


def a_node(name, arch="amd64", **labels):
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": BEGUN},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"architecture": arch},
        },
    }


def test_a_pods_page_has_charts_of_its_cpu_and_memory_by_container(api, user):
    api.documents[POD] = a_pod()
    past = history(("main", 0.3, 3e6), ("side", 0.01, 1e6))
    api.documents["/apis/history.motley.io/v1/namespaces/default/pods/web-1"] = past
    api.documents[f"{POD}/log"] = "first line\nlast line\n"
    code, page = user.get("/pods/default/web-1?range=6h")
    assert code == 200
    figures = [attributes for tag, attributes in Tags(page).tags if tag == "figure"]
    assert len(figures) == 2
    words = text_of(page)
    for shown in ("CPU", "Memory", "main", "side", "requested", "limit", "Burstable", "last line"):
        assert shown in words
    assert "Running for 2m" in words
    assert "CrashLoopBackOff" in words
    asked = [query for _, path, query in api.asked if "history" in path]
    assert asked == [{"from": "-6h", "step": "300s"}]
    links = {attributes.get("href") for tag, attributes in Tags(page).tags if tag == "a"}
    assert {"/nodes/node-1", "/workloads/default/ReplicaSet/web"} <= links


def test_the_log_is_that_of_the_container_asked_for(api, user):
    api.documents[POD] = a_pod()
    for asked, given in (("side", "side"), ("nobody", "main"), ("", "main")):
        api.asked.clear()
        user.get(f"/pods/default/web-1?container={asked}")
        (query,) = [q for _, path, q in api.asked if path.endswith("/log")]
        assert query == {"container": given, "tailLines": "200", "limitBytes": "262144"}


def test_without_a_history_the_page_says_so(api, user):
    api.documents[POD] = a_pod()
    code, page = user.get("/pods/default/web-1")
    assert code == 200
    assert "keeps no usage history" in page


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (403, "You may not see the usage history"),
        (503, "The usage history cannot be read now"),
        (404, "Nothing was measured in this time"),
    ],
)
def test_a_history_that_cannot_be_read_is_not_called_absent(api, user, code, words):
    api.documents[POD] = a_pod()
    api.documents["/api/v1/nodes"] = {"items": [a_node("node-1")]}
    for path in ("namespaces/default/pods/web-1", "nodes"):
        api.codes[f"/apis/history.motley.io/v1/{path}"] = code
    for path in ("/pods/default/web-1", "/"):
        page = text_of(user.get(path)[1])
        assert words in page
        assert "keeps no usage history" not in page


def test_why_a_pod_is_here_is_told_as_the_scheduler_remembers_it(api, user):
    api.documents[POD] = a_pod()
    api.documents["/apis/motley.io/v1/namespaces/default/decisions/web-1"] = {
        "spec": {
            "node": "node-1",
            "profile": "default-scheduler",
            "decidedAt": rfc3339(NOW - 60),
            "nodes": 3,
            "feasible": 2,
            "filters": [{"plugin": "NodeArch", "rejected": 1, "reason": "wrong machine"}],
            "weights": {"Spread": 2},
            "scores": [
                {"node": "node-1", "total": 180, "plugins": {"Spread": 180}},
                {"node": "node-2", "total": 90, "plugins": {"Spread": 90}},
            ],
        }
    }
    words = text_of(user.get("/pods/default/web-1")[1])
    for shown in ("2 of 3 nodes passed", "wrong machine", "Spread 2 180 90", "60s ago"):
        assert shown in words


def test_unlike_nodes_stand_side_by_side(api, user):
    nodes = [a_node("fast", **{"hice.kj": "2.0"}), a_node("slow", "arm64")]
    nodes[1]["spec"] = {"unschedulable": True}
    api.documents["/api/v1/nodes"] = {"items": nodes}
    busy = a_pod()
    busy["spec"]["nodeName"] = "fast"
    over = a_pod()
    over["spec"]["nodeName"], over["status"]["phase"] = "fast", "Succeeded"
    api.documents["/api/v1/pods"] = {"items": [busy, over]}
    api.documents["/apis/metrics.k8s.io/v1beta1/nodes"] = {
        "items": [{"metadata": {"name": "fast"}, "usage": {"cpu": "1", "memory": "1Gi"}}]
    }
    page = user.get("/nodes")[1]
    words = text_of(page)
    assert "fast Ready amd64 2.0" in words
    assert "slow Ready,SchedulingDisabled arm64" in words
    assert "50 %" in words
    assert "250m requested" in page, "what has ended holds nothing"
    cards = text_of(user.get("/")[1])
    assert "2 of 2 ready 1 amd64, 1 arm64" in cards
    assert "1 running 1 succeeded" in cards


def test_many_pods_are_counted_a_part_at_a_time(api, user):
    api.documents["/api/v1/nodes"] = {"items": [a_node("node-1")]}
    parts = {"": "more", "more": "last", "last": ""}
    api.documents["/api/v1/pods"] = lambda query: {
        "metadata": {"continue": parts[query.get("continue", "")]},
        "items": [a_pod()] * 2,
    }
    words = text_of(user.get("/")[1])
    assert "6 running" in words
    assert "1500m requested" in words or "1.5 requested" in words
    asked = [query.get("continue", "") for _, path, query in api.asked if path == "/api/v1/pods"]
    assert asked == ["", "more", "last"]


def test_the_list_is_the_servers_own_table_and_says_what_it_leaves_out(api, user):
    heads = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"]
    cells = ["web-1", "1/2", "CrashLoopBackOff", "4 (2m ago)", "1h", "10.0.0.1", "node-1"]
    api.documents["/api/v1/namespaces/default/pods"] = {
        "columnDefinitions": [{"name": h, "priority": int(i > 4)} for i, h in enumerate(heads)],
        "metadata": {"continue": "more", "remainingItemCount": 42},
        "rows": [
            {"cells": cells, "object": {"metadata": {"name": "web-1", "namespace": "default"}}}
        ],
    }
    used = {"usage": {"cpu": "120m", "memory": "20Mi"}}
    api.documents["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"] = {
        "items": [
            {"metadata": {"name": "web-1", "namespace": "default"}, "containers": [used, used]}
        ]
    }
    page = user.get("/pods?namespace=default")[1]
    words = text_of(page)
    assert "web-1 1/2 CrashLoopBackOff 4 (2m ago) 1h 240m 40" in words
    assert "42 more are not shown" in words
    assert 'href="/pods/default/web-1"' in page


def test_objects_of_any_kind_are_listed_and_shown(api, user):
    group = {
        "metadata": {"name": "example.org"},
        "versions": [
            {
                "version": "v1",
                "resources": [
                    {
                        "resource": "widgets",
                        "responseKind": {"kind": "Widget"},
                        "scope": "Namespaced",
                        "verbs": ["list"],
                    }
                ],
            }
        ],
    }
    api.documents["/apis"] = {"items": [group]}
    assert 'href="/kinds/example.org/v1/widgets"' in user.get("/kinds")[1]
    where = "/apis/example.org/v1/namespaces/a/widgets/b"
    api.documents[where] = {"kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 3}}
    assert "size: 3" in user.get("/kinds/example.org/v1/widgets/a/b")[1]


@pytest.mark.parametrize(
    "path", ["/", "/nodes/n", "/pods/default/web-1", "/events", "/pods?namespace=" + "%3Cu%3E"]
)
def test_nothing_the_cluster_says_becomes_a_part_of_the_page(api, user, path):
    node = a_node("n", EVIL, x=EVIL)
    node["status"]["conditions"] = [{"type": "Ready", "status": EVIL, "message": EVIL}]
    node["spec"] = {"taints": [{"key": EVIL, "effect": EVIL}]}
    pod = a_pod(labels={"a": EVIL}, annotations={EVIL: EVIL})
    pod["spec"]["containers"][0] = {
        "name": EVIL,
        "image": EVIL,
        "resources": {"limits": {EVIL: EVIL}},
    }
    pod["status"]["message"] = EVIL
    event = {
        "type": EVIL,
        "reason": EVIL,
        "message": EVIL,
        "involvedObject": {"kind": "Pod", "name": EVIL, "namespace": EVIL},
    }
    api.documents |= {
        "/api/v1/nodes": {"items": [node]},
        "/api/v1/nodes/n": node,
        "/api/v1/pods": {"items": [pod]},
        POD: pod,
        f"{POD}/log": EVIL,
        "/api/v1/events": {"items": [event]},
        "/api/v1/namespaces/default/events": {"items": [event]},
        "/api/v1/namespaces": {"items": [{"metadata": {"name": EVIL}}]},
        "/apis/history.motley.io/v1/namespaces/default/pods/web-1": history(
            (EVIL, 1, 1), ("b", 1, 1)
        ),
    }
    api.codes["/api/v1/namespaces/<u>/pods"] = 403
    code, page = user.get(path)
    assert code == 200
    tags = Tags(page).tags
    assert [t for t, _ in tags].count("script") == 1, "the dashboard's own"
    assert not [t for t, _ in tags if t in ("img", "u")]
    assert not [a for _, attributes in tags for a in attributes if a.startswith("on")]
    assert not [a for _, attributes in tags for a in attributes if a == "style"]
    assert "alert(1)" in page or "%3Cu%3E" in path, "it is shown, as text"
