"""What holds for every test."""

import asyncio
from pathlib import Path

import pytest

# Tests that start containers, networks or whole clusters share costly fixtures, and what they
# measure suffers from a second one beside them: they stay together, one after the other.
_ON_THE_MACHINE = ("node", "network", "cluster")


def pytest_configure() -> None:
    # looptime asks for the current loop before synchronous tests too; on Python 3.11 that makes
    # a loop nobody closes, unless it was said that there is none.
    asyncio.set_event_loop(None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests must run in one process when several share the work (`-n`)."""
    here = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(here)
        group = "machine" if place.parts[0] in _ON_THE_MACHINE else str(place)
        item.add_marker(pytest.mark.xdist_group(group))
