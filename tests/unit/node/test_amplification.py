"""What a Node's labels make of what its kubelet reports."""

import asyncio
import base64
import io
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import overcommit, quantity
from motley.api.patch import json as jsonpatch
from motley.node import amplification, webhook

CPU, MEMORY = overcommit.LABELS["cpu"], overcommit.LABELS["memory"]


def node(cpu="4", memory="8Gi", *, capacity=None, labels=None, annotations=None):
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "metadata": {"name": "n", "labels": labels or {}, "annotations": annotations or {}},
        "status": {"capacity": capacity or dict(allocatable), "allocatable": allocatable},
    }


def review(obj, old=None):
    """What the webhook's answer makes of an object."""
    asked = {"request": {"uid": "u", "object": obj, "oldObject": old, "userInfo": {}}}
    answer = json.loads(webhook.answer(json.dumps(asked).encode()))["response"]
    assert answer["uid"] == "u"
    assert answer["allowed"] is True
    patch = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    return jsonpatch.apply(json.loads(json.dumps(obj)), patch), answer.get("warnings", [])


def raised(obj, old=None):
    return review(obj, old)[0]


def figures(obj):
    return obj["status"]["allocatable"]["cpu"], obj["status"]["allocatable"]["memory"]


def test_labels_raise_cpu_and_memory_and_the_kubelets_figures_are_kept():
    made = raised(node("3920m", "8145921Ki", labels={CPU: "2", MEMORY: "1.25"},
                       capacity={"cpu": "4", "memory": "8Gi", "pods": "110"}))  # fmt: skip
    assert figures(made) == ("7840m", "10182401Ki")
    assert made["status"]["allocatable"]["pods"] == "110"
    noted = overcommit.raised(made["metadata"]["annotations"])
    assert noted["cpu"] == overcommit.Raised("3920m", "7840m", "4")
    assert noted["memory"].raw == "8145921Ki"


def test_a_node_without_labels_and_one_that_allows_one_are_left_alone():
    assert raised(node()) == node()
    once = node(labels={CPU: "1", MEMORY: "1.0"})
    assert raised(once) == once


def test_what_was_raised_is_not_raised_again():
    made = raised(node(labels={CPU: "2"}))
    assert raised(made, made) == made


def test_the_kubelets_figure_is_raised_anew_whenever_it_writes_it():
    before = raised(node(labels={CPU: "2"}))
    reported = json.loads(json.dumps(before))
    reported["status"]["allocatable"]["cpu"] = "3"
    assert figures(raised(reported, before)) == ("6", "8Gi")


def test_another_label_counts_from_the_kubelets_figure():
    made = raised(node(labels={CPU: "2", MEMORY: "2"}))
    made["metadata"]["labels"] = {CPU: "3"}
    again = raised(made)
    assert figures(again) == ("12", "8Gi")
    assert set(overcommit.raised(again["metadata"]["annotations"])) == {"cpu"}


def test_without_its_labels_a_node_is_as_its_kubelet_reported_it():
    made = raised(node(labels={CPU: "2"}))
    made["metadata"]["labels"] = {}
    assert raised(made) == node()


def test_a_wrong_label_is_warned_of_and_raises_nothing():
    made, warnings = review(node(labels={CPU: "lots", MEMORY: "1.5"}))
    assert figures(made) == ("4", "12Gi")
    assert warnings == [f'{CPU}="lots": not a decimal number from 1 to 10; 1 is assumed']
    assert figures(raised(node(labels={CPU: "11"}))) == ("4", "8Gi")


def test_a_machine_that_grew_to_the_raised_figure_is_raised_from_there():
    made = raised(node(labels={CPU: "2"}))
    made["status"]["capacity"]["cpu"] = "8"  # and the kubelet need not write 8 over 8
    assert figures(raised(made))[0] == "16"


def test_a_figure_that_lost_its_note_is_not_multiplied_over_what_the_machine_has():
    lost = raised(node(labels={CPU: "2"}))
    del lost["metadata"]["annotations"][overcommit.RAISED]
    assert figures(raised(lost))[0] == "8"
    lost["metadata"]["labels"][CPU] = "3"
    assert figures(raised(lost))[0] == "12"


def test_a_whole_status_written_without_the_note_keeps_it():
    before = raised(node(labels={CPU: "2"}))
    plain = json.loads(json.dumps(before))
    plain["metadata"]["annotations"] = None
    assert raised(plain, before)["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_amounts_are_never_rounded_up():
    made = raised(node("3333m", "1000001Ki", labels={CPU: "1.001", MEMORY: "1.0000001"},
                       capacity={"cpu": "8", "memory": "8Gi"}))  # fmt: skip
    assert figures(made) == ("3336m", "1000001Ki")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cpu": 1}', '{"cpu":{"raw":"1"}}', "null"])
def test_a_broken_note_says_nothing(text):
    notes = {overcommit.RAISED: text}
    made = raised(node(labels={CPU: "2"}, annotations=notes))
    assert figures(made)[0] == "8"
    assert raised(node(annotations=notes))["metadata"]["annotations"] == {}


@pytest.mark.parametrize("amount", ["x", "", "4Q", "-"])
def test_amounts_that_are_none_are_for_the_server_to_refuse(amount):
    assert figures(raised(node(amount, labels={CPU: "2", MEMORY: "2"}))) == (amount, "16Gi")


RATIOS = st.sampled_from([None, "1", "1.5", "2", "10", "x"])
ACTS = st.one_of(
    st.tuples(st.just("label"), RATIOS),
    st.tuples(st.just("reserve"), st.integers(0, 900)),  # the kubelet is restarted
    st.tuples(st.just("report"), st.booleans()),  # by a kubelet whose copy is old?
    st.tuples(st.just("lost"), st.booleans()),  # the webhook does not answer; the copy is old?
    st.tuples(st.just("grow"), st.integers(1, 64)),
    st.tuples(st.just("watch"), st.none()),  # `amplifier` looks
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTS, max_size=12))
def test_whatever_happens_before_a_watched_node_is_what_its_label_makes_of_its_report(acts):
    stored, seen = node(), node()
    cores, reserved = 4, 0
    labels: dict[str, str] = {}
    said = "4"
    for act, value in [*acts, ("report", False), ("watch", None)]:
        if act == "label":
            labels = {CPU: value} if value else {}
            stored["metadata"]["labels"] = dict(labels)
        elif act == "reserve":
            reserved = value
        elif act == "grow":
            cores = value
        elif act == "watch":
            stored = _watched(stored)
        else:
            said = quantity.format_milli(cores * 1000 - reserved)
            written = json.loads(json.dumps(stored))
            written["status"]["capacity"]["cpu"] = str(cores)
            known = seen if value else stored  # a patch holds what differs from the kubelet's copy
            if quantity.parse(known["status"]["allocatable"]["cpu"]) != quantity.parse(said):
                written["status"]["allocatable"]["cpu"] = said
            seen = stored
            stored = raised(written, stored) if act == "report" else written
    ratio = overcommit.ratio(labels.get(CPU, "1")) or 1
    assert _watched(stored) == stored, "once is enough"
    got, real = quantity.cpu_milli(figures(stored)[0]), quantity.cpu_milli(said)
    # By chance a kubelet may report what was written; then it counts as that, which is less.
    chance = overcommit.raised(stored["metadata"]["annotations"]).get("cpu")
    if chance is None or quantity.cpu_milli(chance.raw) == real:
        assert got == int(real * ratio)
    assert got <= cores * 1000 * ratio


def _watched(stored):
    meta, status = stored["metadata"], stored["status"]
    wanted = amplification.amplified(
        meta["labels"], meta["annotations"], status["capacity"], status["allocatable"]
    )
    patch = amplification.merge_patch(meta["annotations"], wanted)
    made = json.loads(json.dumps(stored))
    if patch:
        note = patch["metadata"]["annotations"][overcommit.RAISED]
        made["metadata"]["annotations"] = {overcommit.RAISED: note} if note else {}
        made["status"]["allocatable"] |= patch["status"]["allocatable"]
    return made


@pytest.fixture
async def served():
    async with TestClient(TestServer(webhook.Webhook(lambda: False).app())) as client:
        yield client


async def test_it_answers_reviews_and_says_when_it_is_not_ready(served):
    asked = {"request": {"uid": "u", "object": node(labels={CPU: "2"})}}
    answer = await served.post("/nodes", json=asked)
    assert (await answer.json())["response"]["patchType"] == "JSONPatch"
    assert (await served.get("/livez")).status == 200
    assert (await served.get("/readyz")).status == 503


DEEP = b'{"request":{"x":' + b"[" * 10_000
BAD = [b"", b"{", b"[]", b'{"request":{}}', b'{"request":{"uid":"u","object":[]}}', b"\xff", DEEP]


@pytest.mark.parametrize("body", BAD)
async def test_what_is_no_review_is_refused(served, body):
    assert (await served.post("/nodes", data=body)).status == 400


async def test_what_is_longer_than_an_object_is_not_read(served):
    assert (await served.post("/nodes", data=io.BytesIO(b" " * (8 << 20)))).status == 413


async def test_who_sends_slowly_is_not_waited_for_and_others_are_told_to_come_again(
    served, monkeypatch
):
    monkeypatch.setattr(webhook, "_AT_ONCE", 1)
    monkeypatch.setattr(webhook, "_READ_S", 0.2)
    reader, writer = await asyncio.open_connection(served.server.host, served.server.port)
    writer.write(b"POST /nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    await writer.drain()
    while (refused := (await served.post("/nodes", data=b"{")).status) == 400:
        pass  # the slow one has not begun
    assert refused == 503
    assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 408 ")
    writer.close()
    assert (await served.post("/nodes", data=b"{")).status == 400, "there is room again"
