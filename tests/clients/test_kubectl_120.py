"""Debian 12's kubectl 1.20 against a real server: sixteen minor versions older, still in use.

It reads the schemas as one protobuf document, asks discovery one group at a time, validates on its
own side, and knows nothing of the warnings, subresources and field validation of later years.
"""

import json
import textwrap

import pytest

from motley.ops import install

from .conftest import ROOT, Kubectl

WEB = textwrap.dedent(
    """
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
      labels: {app: web}
    spec:
      replicas: 2
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          containers:
          - name: c
            image: nginx:1
            env: [{name: A, value: one}, {name: B, value: two}]
    """
)
CHANGED = WEB.replace("nginx:1", "nginx:2").replace("{name: A, value: one}, ", "")


@pytest.fixture(scope="session")
def old_binary() -> str:
    return install.old_kubectl(ROOT / ".cache", say=lambda _: None)


@pytest.fixture
def old(kubectl, old_binary) -> Kubectl:
    """The old kubectl, in the namespace of its own that the new one made."""
    return Kubectl(old_binary, kubectl.kubeconfig, kubectl.home, kubectl.namespace)


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "web.yaml"
    path.write_text(WEB)
    return path


def container(kubectl: Kubectl) -> dict:
    found = kubectl("get", "deploy", "web", "-o", "json").json
    return found["spec"]["template"]["spec"]["containers"][0]


def test_it_is_the_old_one(old):
    version = old("version", "-o", "json").json
    assert version["clientVersion"]["minor"] == "20"
    assert version["serverVersion"]["gitVersion"] == "v1.37.0+motley"


def test_apply_twice_and_with_a_change(old, manifest):
    assert old("apply", "-f", str(manifest)).out == "deployment.apps/web created\n"
    assert old("apply", "-f", str(manifest)).out == "deployment.apps/web unchanged\n"
    manifest.write_text(CHANGED)
    assert old("apply", "-f", str(manifest)).out == "deployment.apps/web configured\n"

    assert container(old)["image"] == "nginx:2"
    assert container(old)["env"] == [{"name": "B", "value": "two"}]
    assert old("diff", "-f", str(manifest)).out == ""
    dry = old("apply", "-f", str(manifest), "--dry-run=server").out
    assert dry == "deployment.apps/web unchanged (server dry run)\n"


def test_apply_by_the_server(old, manifest):
    applied = old("apply", "--server-side", "-f", str(manifest)).out
    assert applied == "deployment.apps/web serverside-applied\n"
    manifest.write_text(CHANGED)
    old("apply", "--server-side", "-f", str(manifest))

    assert container(old)["env"] == [{"name": "B", "value": "two"}]
    other = old("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=WEB, fails=True)
    assert 'conflict with "kubectl"' in other.err


def test_create_get_describe_and_delete(old):
    old("create", "-f", "-", stdin=WEB)
    old("create", "configmap", "c", "--from-literal=k=v")
    old("create", "deployment", "x", "--image=nginx", "--replicas=3")
    old("create", "ingress", "i", "--rule=host.example/path=web:80")
    old("run", "p", "--image=nginx")

    assert old("get", "pods").out.splitlines()[1].split()[:4] == ["p", "0/1", "Pending", "0"]
    wide = old("get", "deploy", "web", "-o", "wide").out.splitlines()[1].split()
    assert wide[-3:] == ["c", "nginx:1", "app=web"]
    assert old("get", "deploy", "-o", "name").out == "deployment.apps/web\ndeployment.apps/x\n"
    assert old("get", "cm", "c", "-o", "jsonpath={.data.k}").out == "v"
    assert "deployment.apps/web" in old("get", "all").out
    assert "2 desired" in old("describe", "deployment", "web").out
    assert "Status:       Pending" in old("describe", "pod", "p").out
    assert "host.example" in old("describe", "ingress", "i").out
    assert old("delete", "deploy", "web", "x").out == (
        'deployment.apps "web" deleted\ndeployment.apps "x" deleted\n'
    )
    assert 'pod "p" force deleted' in old("delete", "pod", "p", "--grace-period=0", "--force").out
    assert "No resources found" in old("get", "pods").err


def test_every_kind_of_its_time_can_be_listed(old):
    old("get", "ns,no,po,svc,cm,secrets,sa,ev,deploy,rs,sts,ds,jobs,hpa,ing,netpol,pv,pvc,sc", "-A")


def test_scale_label_annotate_patch_and_rollout(old, manifest):
    old("apply", "-f", str(manifest))
    assert old("scale", "deploy/web", "--replicas=3").out == "deployment.apps/web scaled\n"
    assert old("label", "deploy/web", "tier=front").out == "deployment.apps/web labeled\n"
    old("annotate", "deploy/web", "note=hello")
    old("set", "image", "deploy/web", "c=nginx:9")
    old("patch", "deploy", "web", "-p", '{"spec":{"minReadySeconds":5}}')

    found = old("get", "deploy", "web", "-o", "json").json
    assert found["spec"]["replicas"] == 3
    assert found["spec"]["minReadySeconds"] == 5
    assert found["metadata"]["labels"]["tier"] == "front"
    assert container(old)["image"] == "nginx:9"

    waiting = old("rollout", "status", "deploy/web", "--timeout=1s", fails=True)
    assert "Waiting for deployment spec update to be observed" in waiting.out


def test_rollout_status_of_a_deployment_that_is_there(old, kubectl, manifest):
    old("apply", "-f", str(manifest))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    status = {"status": {"observedGeneration": 1, **counts}}
    kubectl("patch", "deploy", "web", "--subresource=status", "-p", json.dumps(status))

    out = old("rollout", "status", "deploy/web", "--timeout=60s").out

    assert out == 'deployment "web" successfully rolled out\n'


def test_explain_reads_the_schemas(old):
    shown = old("explain", "deployment.spec.replicas").out
    assert "FIELD:    replicas <integer>" in shown
    recursive = old("explain", "pod.spec.containers", "--recursive").out
    assert "imagePullPolicy\t<string>" in recursive
    assert "valueFrom\t<Object>" in recursive


def test_it_validates_by_the_schemas_before_it_asks(old):
    typo = WEB.replace("image:", "imagee:")
    refused = old("create", "-f", "-", stdin=typo, fails=True)
    assert 'unknown field "imagee" in io.k8s.api.core.v1.Container' in refused.err
    mistyped = old(
        "apply", "-f", "-", stdin=WEB.replace("replicas: 2", "replicas: two"), fails=True
    )
    assert 'got "string", expected "integer"' in mistyped.err


def test_errors_read_as_users_know_them(old):
    assert old("get", "pod", "nope", fails=True).err == (
        'Error from server (NotFound): pods "nope" not found\n'
    )
    unknown = old("get", "unicorns", fails=True)
    assert 'the server doesn\'t have a resource type "unicorns"' in unknown.err
    foreign = "apiVersion: x.io/v1\nkind: Foo\nmetadata: {name: x}\n"
    assert 'no matches for kind "Foo"' in old("apply", "-f", "-", stdin=foreign, fails=True).err
    old("run", "p", "--image=nginx")
    nowhere = old("logs", "p", fails=True)
    assert nowhere.err == "Error from server (BadRequest): pod p does not have a host assigned\n"
    invalid = old("create", "namespace", "Not_A_Name", fails=True)
    assert "Invalid value" in invalid.err


def test_a_custom_resource_is_validated_and_explained(old):
    name = f"{old.namespace}.example.org"
    properties = {
        "size": {"type": "integer", "description": "How large it is."},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        },
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{name}"},
        "spec": {
            "group": name,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": properties}},
                        }
                    },
                }
            ],
        },
    }
    old("apply", "-f", "-", stdin=json.dumps(definition))
    old("wait", "--for=condition=Established", f"crd/things.{name}", "--timeout=60s")
    thing = {
        "apiVersion": f"{name}/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": {"size": 1, "free": {"any": [1]}, "port": "http"},
    }

    assert old("apply", "-f", "-", stdin=json.dumps(thing)).out == f"thing.{name}/t created\n"
    assert "How large it is." in old("explain", "thing.spec").out
    thing["spec"]["sise"] = 2
    refused = old("apply", "-f", "-", stdin=json.dumps(thing), fails=True)
    assert 'unknown field "sise"' in refused.err
    old("delete", "crd", f"things.{name}")
