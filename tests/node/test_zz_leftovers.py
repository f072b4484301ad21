"""What is left when every pod is gone: runs after the other files, over all their pods."""

import pytest

from .conftest import eventually

pytestmark = pytest.mark.root


def test_nothing_of_deleted_pods_is_left(rig):
    rig.kubectl("delete", "pods", "--all", "--timeout=60s", "--grace-period=1")
    eventually(lambda: not any(rig.leftovers().values()))
    assert not rig.run("ctr", "--address", rig.socket, "-n", "k8s.io", "containers", "ls", "-q")
    assert not list((rig.root / "cni").glob("**/10.244.7.*")), "addresses are given back"
