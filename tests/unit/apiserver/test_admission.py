"""Token files, upkeep: the small parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import scheme
from motley.apiserver import document, upkeep
from motley.apiserver.admission.tolerationseconds import tolerate_sick_nodes
from motley.apiserver.authn import TokenFile
from motley.lib.clock import rfc3339
from motley.store.contract import Put
from motley.store.memory import MemoryStore


def test_a_pods_own_tolerations_are_respected():
    spec = {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}
    everything = {"tolerations": [{"operator": "Exists"}]}

    tolerate_sick_nodes(spec)
    tolerate_sick_nodes(everything)

    assert [t["key"] for t in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert len(everything["tolerations"]) == 1


def test_a_token_file_is_read_as_kubernetes_reads_it(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text('# people\nt1,alice,1,"dev,ops"\nt2, bob, 2\n\n')

    tokens = TokenFile.load(path)

    alice = tokens.user_of("t1")
    assert alice is not None
    assert (alice.name, alice.uid) == ("alice", "1")
    assert alice.groups == ("dev", "ops", "system:authenticated")
    assert tokens.user_of("t2").name == "bob"
    assert tokens.user_of("t3") is None


def test_a_broken_token_file_names_its_line(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text("t1,alice,1\nonly-a-token\n")

    with pytest.raises(ValueError, match=r"tokens\.csv:2"):
        TokenFile.load(path)


async def test_old_events_expire_and_fresh_ones_stay():
    now = 1_800_000_000.0
    kind = scheme.resource("", "v1", "events")
    store = MemoryStore(document.stamp)

    async def event(name: str, **fields) -> None:
        body = {"metadata": {"name": name, "creationTimestamp": rfc3339(now - 9999)}, **fields}
        await store.commit([Put(kind.key("default", name), document.encode(kind, body))])

    await event("old", lastTimestamp=rfc3339(now - 3700))
    await event("fresh", lastTimestamp=rfc3339(now - 60))
    await event("repeated", series={"lastObservedTime": rfc3339(now - 60)})
    await event("bare")

    assert await upkeep.expire_events(store, kind, now) == 2
    left = (await store.range(kind.storage_prefix)).records
    assert [r.key.rpartition("/")[2] for r in left] == ["fresh", "repeated"]


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4), st.integers(1, 10**9))
def test_a_stamp_replaces_the_stamp_before(labels, revision):
    kind = scheme.resource("", "v1", "configmaps")
    value = document.encode(kind, {"metadata": {"labels": labels}, "data": {"a": "b"}})

    once = document.stamp(value, revision)
    twice = document.stamp(once, revision + 1)

    assert document.decode(once)["metadata"] == {
        "resourceVersion": str(revision),
        "labels": labels,
    }
    assert twice == document.stamp(value, revision + 1)
    listed = document.decode(bytes(document.list_body(kind, [once, twice], 7)))
    assert [i["metadata"]["labels"] for i in listed["items"]] == [labels, labels]
    assert "kind" not in listed["items"][0]
