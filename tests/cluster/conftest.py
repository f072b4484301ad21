"""A real cluster for the tests of this directory, in a network namespace of its own."""

from pathlib import Path

import pytest

from motley.ops import images, install
from motley.ops.testbed import Testbed


@pytest.fixture(scope="session")
def cache():
    """Where this checkout keeps images and kubectl, so that they are made once."""
    path = Path(__file__).parents[2] / ".cache"
    images.ensure(path / "images", say=lambda _: None)
    install.kubectl(path, say=lambda _: None)
    return path


@pytest.fixture(scope="module")
def cluster(cache):
    """A cluster that is up; destroyed at the end, whatever happened."""
    testbed = Testbed(cache)
    try:
        testbed.make_namespace()
        testbed.up()
        yield testbed
    finally:
        testbed.destroy()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show the components' logs below the failure of a test that used a cluster."""
    report = yield
    used = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and used is not None:
        report.sections.append(("component logs", used.logs()))
    return report
