"""Random histories on a real store beside a plain dict, compared after every step."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from motley.store import broadcast, sqlite
from motley.store.contract import (
    Committed,
    Compacted,
    Delete,
    Mismatch,
    Op,
    Put,
    Record,
    Revision,
    Store,
)
from motley.store.etcd import store as etcd
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore

KEYS = st.sampled_from(["/a", "/a/1", "/a/2", "/a/20", "/b", "/b/1", "/b0"])
PREFIXES = st.sampled_from(["", "/", "/a", "/a/", "/b/", "/none"])
VALUES = st.binary(max_size=4).map(bytes.hex).map(str.encode)


def stamp(value: bytes, revision: Revision) -> bytes:
    return b"%s@%d" % (value.partition(b"@")[0], revision)


def is_done(result: object) -> bool:
    return isinstance(result, Committed)


class Comparison(RuleBasedStateMachine):
    """The store and its model: the state at every revision since the start."""

    store_name = "memory"

    @initialize()
    def start(self) -> None:
        self.runner = self.make_runner()
        self.directory = tempfile.TemporaryDirectory()
        self.store: Store = self.run(self.open())
        self.states: list[dict[str, Record]] = [{}]
        self.compacted = 0

    def make_runner(self) -> asyncio.Runner:
        return asyncio.Runner()

    async def open(self) -> Store:
        """The store anew, over what it has kept."""
        if self.store_name == "memory":
            return MemoryStore(stamp)
        return await SqliteStore.open(Path(self.directory.name) / "store.db", stamp=stamp)

    def run(self, work):
        return self.runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.run(self.store.close())
            if self.runner is not EtcdComparison.shared_runner:
                self.runner.close()
            self.directory.cleanup()

    def expectation(self, key: str, kind: str) -> Revision | None:
        current = self.states[-1].get(key)
        known = current.revision if current else Revision(0)
        return {"right": known, "wrong": Revision(known + 1), "any": None}[kind]

    @rule(
        wishes=st.lists(
            st.tuples(
                KEYS, VALUES | st.none(), st.sampled_from(["right", "right", "any", "wrong"])
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda wish: wish[0],
        )
    )
    def commit(self, wishes) -> None:
        ops: list[Op] = []
        after = dict(self.states[-1])
        revision = Revision(len(self.states))
        refused = False
        for key, value, kind in wishes:
            expect = self.expectation(key, kind)
            before = after.get(key)
            refused |= kind == "wrong" or (value is None and before is None)
            if value is not None:
                ops.append(Put(key, value, expect))
                created = before.created if before else revision
                after[key] = Record(key, stamp(value, revision), revision, created)
            else:
                ops.append(Delete(key, expect))
                after.pop(key, None)
        if refused:
            with pytest.raises(Mismatch):
                self.run(self.store.commit(ops))
        else:
            assert self.run(self.store.commit(ops)).revision == revision
            self.states.append(after)

    @rule(wishes=st.lists(st.tuples(KEYS, VALUES), min_size=2, max_size=6))
    def commit_together(self, wishes) -> None:
        """Creates at the same time: one of each key wins, if the key is free."""

        async def all_of_them() -> list[object]:
            creates = (self.store.commit([Put(k, v, Revision(0))]) for k, v in wishes)
            return await asyncio.gather(*creates, return_exceptions=True)

        results = self.run(all_of_them())
        done = [(r, *wish) for wish, r in zip(wishes, results, strict=True) if is_done(r)]
        for result, key, value in sorted(done, key=lambda entry: entry[0].revision):
            state = dict(self.states[-1])
            revision = Revision(len(self.states))
            assert result.revision == revision
            assert key not in state
            state[key] = Record(key, stamp(value, revision), revision, revision)
            self.states.append(state)
        for (key, _), result in zip(wishes, results, strict=True):
            if not is_done(result):
                assert isinstance(result, Mismatch)
                assert result.current == self.states[-1][key]

    @rule(
        prefix=PREFIXES, start=KEYS | st.just(""), limit=st.integers(0, 4), back=st.integers(0, 8)
    )
    def list_then(self, prefix, start, limit, back) -> None:
        at = max(len(self.states) - 1 - back, 0)
        state = self.states[at]
        wanted = [state[k] for k in sorted(state) if k.startswith(prefix) and k >= start]
        if at < self.compacted:
            with pytest.raises(Compacted):
                self.run(self.store.range(prefix, start=start, limit=limit, at=Revision(at)))
            return
        found = self.run(self.store.range(prefix, start=start, limit=limit, at=Revision(at)))
        shown = wanted[:limit] if limit else wanted
        assert list(found.records) == shown
        assert (found.revision, found.remaining) == (at, len(wanted) - len(shown))
        assert found.more == (len(wanted) > len(shown))

    @rule(prefix=PREFIXES, back=st.integers(0, 12))
    def replay(self, prefix, back) -> None:
        """A watch from the past, applied to the state of the past, gives the present."""
        after = max(len(self.states) - 1 - back, self.compacted)
        wanted = {k: r for k, r in self.states[-1].items() if k.startswith(prefix)}
        state = {k: r for k, r in self.states[after].items() if k.startswith(prefix)}

        async def follow() -> None:
            watch = self.store.watch(prefix, Revision(after))
            last = after
            while watch.revision < len(self.states) - 1:
                reading = asyncio.ensure_future(anext(watch))
                done, _ = await asyncio.wait([reading], timeout=0.02)
                if not done:
                    reading.cancel()
                    await asyncio.wait([reading])
                    continue
                for event in reading.result():
                    assert event.revision >= last
                    last = event.revision
                    assert event.previous == state.get(event.key)
                    if event.value is None:
                        assert event.last_state == stamp(event.previous.value, event.revision)
                        del state[event.key]
                    else:
                        state[event.key] = Record(
                            event.key, event.value, event.revision, event.created
                        )
            await watch.aclose()

        self.run(follow())
        assert state == wanted

    @rule(back=st.integers(0, 6))
    def compact(self, back) -> None:
        revision = max(len(self.states) - 1 - back, 0)
        self.run(self.store.compact(Revision(revision)))
        self.compacted = max(self.compacted, revision)

    @precondition(lambda self: self.store_name != "memory")
    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.open())

    @invariant()
    def same_state(self) -> None:
        if hasattr(self, "runner"):
            now = self.run(self.store.range(""))
            assert {r.key: r for r in now.records} == self.states[-1]
            assert now.revision == len(self.states) - 1
            assert self.run(self.store.revision()) == now.revision
            assert self.run(self.store.oldest()) == self.compacted


class SqliteComparison(Comparison):
    store_name = "sqlite"


class EtcdComparison(Comparison):
    store_name = "etcd"
    stores = None  # of `conftest.py`: a store of its own for every history, on one server
    shared_runner = None  # gRPC has one poller for all loops, and is late to notice closed ones

    def make_runner(self) -> asyncio.Runner:
        return self.shared_runner

    async def open(self) -> Store:
        if hasattr(self, "store"):
            return await self.stores.reopen(self.store)
        return await self.stores.open()


@pytest.mark.parametrize("machine", [Comparison, SqliteComparison])
def test_a_store_behaves_like_a_dict_with_history(machine, monkeypatch):
    compare(machine, monkeypatch, examples=25)


def test_etcd_behaves_like_a_dict_with_history(etcd_stores, monkeypatch):
    monkeypatch.setattr(EtcdComparison, "stores", etcd_stores)
    with asyncio.Runner() as runner:
        monkeypatch.setattr(EtcdComparison, "shared_runner", runner)
        # Shrinking would take minutes: revisions of a shared server do not repeat.
        compare(EtcdComparison, monkeypatch, examples=8, phases=[Phase.generate])


def compare(machine, monkeypatch, examples, phases=tuple(Phase)) -> None:
    # Small limits, so that short histories also take the ways of long ones.
    monkeypatch.setattr(broadcast, "SLICE", 3)
    monkeypatch.setattr(sqlite, "RECENT", 2)
    monkeypatch.setattr(sqlite, "SWEEP", 2)
    monkeypatch.setattr(etcd, "RECENT", 2)
    monkeypatch.setattr(etcd, "PAGE", 2)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            phases=phases,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
