"""Subresources as kubectl uses them."""

import base64
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
            }
        ],
    },
}


@pytest.fixture
def pod(kubectl):
    """A pod named `web`; no controllers run here, so its service account is made as well."""
    kubectl("create", "serviceaccount", "default")
    kubectl("create", "-f", "-", stdin=json.dumps(POD))
    return lambda: kubectl("get", "pod", "web", "-o", "json").json


def test_kubectl_resizes_a_pod(kubectl, pod):
    container = {"name": "c", "resources": {"requests": {"cpu": "250m"}}}
    change = json.dumps({"spec": {"containers": [container]}})

    kubectl("patch", "pod", "web", "--subresource", "resize", "-p", change)

    assert pod()["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "250m"


def test_kubectl_debug_adds_an_ephemeral_container(kubectl, pod):
    kubectl("debug", "web", "--image=busybox", "--target=c", "-c", "look", "--", "sleep", "1")

    added = pod()["spec"]["ephemeralContainers"]
    assert [(c["name"], c["targetContainerName"]) for c in added] == [("look", "c")]


def test_kubectl_drain_waits_for_the_budget(kubectl, pod):
    node = f"n-{kubectl.namespace}"
    kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}),
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web/binding"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    status(kubectl, "pod/web", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    status(kubectl, "pdb/web", observedGeneration=1, desiredHealthy=1, currentHealthy=1)

    refused = kubectl("drain", node, "--force", "--timeout=2s", fails=True)
    status(kubectl, "pdb/web", disruptionsAllowed=1)
    kubectl("drain", node, "--force", "--grace-period=0", "--timeout=20s")

    assert "would violate the pod's disruption budget" in refused.err
    assert "NotFound" in kubectl("get", "pod", "web", fails=True).err


def status(kubectl, what, **fields):
    body = json.dumps({"status": fields})
    kubectl("patch", what, "--subresource=status", "--type=merge", "-p", body)


def test_kubectl_approves_a_certificate_request(kubectl):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": kubectl.namespace},
        "spec": {"request": pem, "signerName": "example.com/s", "usages": ["client auth"]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(body))

    kubectl("certificate", "approve", kubectl.namespace)

    shown = kubectl("get", "csr", kubectl.namespace, "-o", "json").json
    assert shown["status"]["conditions"][0]["type"] == "Approved"
    assert shown["status"]["conditions"][0]["lastTransitionTime"]
