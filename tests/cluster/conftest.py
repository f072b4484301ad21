"""A real cluster for the tests of this directory, in a network namespace of its own."""

from pathlib import Path

import pytest

from motley.ops import images, install
from motley.ops.testbed import Testbed

from . import threenodes

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def cache():
    """Where this checkout keeps images and kubectl, so that they are made once."""
    path = Path(__file__).parents[2] / ".cache"
    images.ensure(path / "images", say=lambda _: None)
    install.kubectl(path, say=lambda _: None)
    return path


@pytest.fixture(scope="module")
def cluster(request, cache):
    """A cluster that is up, with the options a file names as UP; destroyed at the end."""
    testbed = Testbed(cache)
    try:
        testbed.make_namespace()
        testbed.up(*getattr(request.module, "UP", ()))
        yield testbed
    finally:
        testbed.destroy()


@pytest.fixture(scope="session")
def three(cache):
    """Three nodes, with one pod of the Service `web` on each; for every file of `test_nodes*`."""
    testbed = Testbed(cache)
    try:
        testbed.make_bare_namespace()
        testbed.up_nodes(len(threenodes.NODES))
        threenodes.serve(testbed)
        yield testbed
    finally:
        testbed.destroy()


def _clusters(item):
    return [v for v in getattr(item, "funcargs", {}).values() if isinstance(v, Testbed)]


@pytest.fixture(autouse=True)
def _the_three_nodes_are_put_right(request):
    """A test that fails half way must not fail those of the next files, which share the cluster."""
    yield
    item = request.node
    if item.path.name.startswith("test_nodes") and item.stash.get(FAILED, False):
        for testbed in _clusters(item)[:1]:
            threenodes.put_right(testbed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show the components' logs below the failure of a test that used a cluster."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    for testbed in _clusters(item) if report.failed else ():
        report.sections.append((f"component logs of {testbed.name}", testbed.logs()))
    return report
