"""What holds for every test."""

import asyncio

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Tests that start containers, networks, clusters or a Slurm share costly fixtures: each kind stays
# in one process, one test after the other. They wait more than they compute, so the kinds run
# side by side; the longest begins first.
_TOGETHER = ("tests/cluster/", "tests/node/", "tests/slurm/", "tests/network/")


def pytest_configure() -> None:
    # looptime asks for the current loop before synchronous tests too; on Python 3.11 that makes
    # a loop nobody closes, unless it was said that there is none.
    asyncio.set_event_loop(None)


class _ByFixtures(LoadScopeScheduling):
    """Which tests must run in one process when several share the work (`-n`)."""

    def _split_scope(self, nodeid: str) -> str:
        kinds = (kind for kind in _TOGETHER if nodeid.startswith(kind))
        return next(kinds, nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long kinds first: at the end only short files are left to share out."""
    last = len(_TOGETHER)

    def place(item: pytest.Item) -> int:
        kinds = (n for n, kind in enumerate(_TOGETHER) if item.nodeid.startswith(kind))
        return next(kinds, last)

    items.sort(key=place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Files stay whole, and so do the kinds of tests that share costly fixtures."""
    return _ByFixtures(config, log)
