"""What holds for every test."""

import asyncio

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Tests that start containers, networks or whole clusters share costly fixtures, and what they
# measure suffers from a second one beside them: they stay together, one after the other.
_ON_THE_MACHINE = ("tests/node/", "tests/network/", "tests/cluster/")


def pytest_configure() -> None:
    # looptime asks for the current loop before synchronous tests too; on Python 3.11 that makes
    # a loop nobody closes, unless it was said that there is none.
    asyncio.set_event_loop(None)


class _ByFixtures(LoadScopeScheduling):
    """Which tests must run in one process when several share the work (`-n`)."""

    def _split_scope(self, nodeid: str) -> str:
        return "machine" if nodeid.startswith(_ON_THE_MACHINE) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Files stay whole, and what runs on the machine stays together."""
    return _ByFixtures(config, log)
