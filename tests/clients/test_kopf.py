"""An operator written with kopf, run as its users run it, against a custom resource."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.home.example.com}
spec:
  group: home.example.com
  scope: Namespaced
  names: {plural: lamps, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {colour: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
LAMP = """
apiVersion: home.example.com/v1
kind: Lamp
metadata: {name: desk}
spec: {colour: red}
"""
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = True
    settings.networking.request_timeout = 10

@kopf.on.create("lamps")
def lit(spec, body, patch, **_):
    patch.status["shines"] = spec["colour"]
    patch.metadata.annotations["lit"] = "yes"
    kopf.info(body, reason="Lit", message=f"shines {spec['colour']}")

@kopf.on.update("lamps", field="spec.colour")
def changed(new, patch, **_):
    patch.status["shines"] = new

@kopf.on.delete("lamps")
def out(body, **_):
    kopf.info(body, reason="Out", message="went dark")
"""
DEADLINE_S = 60.0


def until(condition, what: str):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
    raise AssertionError(what)


@pytest.fixture
def operator(kubectl, tmp_path):
    """`kopf run` as a process, watching the test's namespace."""
    kubectl("apply", "-f", "-", stdin=CRD)
    kubectl("wait", "--for=condition=Established", "crd/lamps.home.example.com")
    script = tmp_path / "operator.py"
    script.write_text(textwrap.dedent(OPERATOR))
    command = [sys.executable, "-m", "kopf", "run", "--standalone", str(script)]
    with (tmp_path / "kopf.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-n", kubectl.namespace],
            env={**os.environ, **kubectl.environment()},
            stdout=log,
            stderr=log,
        )
    yield process
    process.send_signal(signal.SIGINT)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def test_an_operator_patches_status_annotations_and_finalizers(kubectl, operator, tmp_path):
    kubectl("apply", "-f", "-", stdin=LAMP)

    def lamp() -> dict:
        assert operator.poll() is None, (tmp_path / "kopf.log").read_text()[-3000:]
        return kubectl("get", "lamp", "desk", "-o", "json").json

    def shines(colour: str) -> dict | None:
        found = lamp()
        return found if (found.get("status") or {}).get("shines") == colour else None

    shown = until(lambda: shines("red"), "the operator saw the lamp")
    assert shown["metadata"]["annotations"]["lit"] == "yes"
    assert shown["metadata"]["finalizers"]

    kubectl("patch", "lamp", "desk", "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
    until(lambda: shines("blue"), "the operator saw the change")
    until(lambda: "Lit" in kubectl("get", "events").out, "the operator posted an event")

    kubectl("delete", "lamp", "desk")  # waits for the finalizer
    assert "NotFound" in kubectl("get", "lamp", "desk", fails=True).err
