"""Switching off whole versions of the API."""

import subprocess
import sys

import pytest

from motley.api import motleyio
from motley.apiserver.server import switched_off

# The table of kinds is one per process, so what takes rows away is tried in another.
WITHHELD = """
from motley.api import motleyio, scheme
from motley.apiserver import discovery
motleyio.install()
for version in ("extensions/v1beta1", "motley.io/v1", "autoscaling/v2beta2"):
    scheme.withhold(version)
assert scheme.resource("extensions", "v1beta1", "deployments") is None
assert scheme.by_kind("extensions/v1beta1", "Deployment") is None
assert "motley.io" not in scheme.groups()
assert discovery.resource_list("motley.io", "v1") is None
assert scheme.groups()["autoscaling"] == ["v2", "v1"]
assert scheme.resource("apps", "v1", "deployments") is not None
"""


def test_versions_are_named_as_kubernetes_names_them():
    motleyio.install()
    assert switched_off("") == []
    assert switched_off("extensions/v1beta1=false,autoscaling/v2beta2=true,motley.io/v1=false") == [
        "extensions/v1beta1",
        "motley.io/v1",
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("apps/v1=false", "the server itself needs this version"),
        ("nosuch/v1=false", "no such version"),
        ("extensions/v1beta1=maybe", "neither true nor false"),
    ],
)
def test_what_cannot_be_switched_off_is_told(given, problem):
    with pytest.raises(ValueError, match=problem):
        switched_off(given)


def test_a_version_that_is_switched_off_is_not_there():
    subprocess.run([sys.executable, "-c", WITHHELD], check=True, timeout=30)
