"""What to trust and a certificate of one's own, in a pod, from a signer that is this test."""

import json

import pytest

from motley.lib.clock import SYSTEM, rfc3339

from .conftest import eventually

pytestmark = pytest.mark.root

SIGNER = "example.com/spiffe"
GROUP = {"apiVersion": "certificates.k8s.io/v1"}


def _bundle(rig, name, anchor):
    spec = {"signerName": SIGNER, "trustBundle": anchor}
    rig.create({**GROUP, "kind": "ClusterTrustBundle", "metadata": {"name": name}, "spec": spec})


def _requests(rig):
    return rig.get("podcertificaterequests")["items"]


def _issue(rig, authority, request, lasts_s=86400):
    begins = float(int(SYSTEM.now()))
    at = {"notBefore": 0, "beginRefreshAt": 1200, "notAfter": lasts_s}
    now = rfc3339(begins)
    condition = {"type": "Issued", "status": "True", "reason": "R", "message": ""}
    chain = authority.issue(request["spec"]["stubPKCS10Request"], begins, lasts_s)
    answer = {
        **{name: rfc3339(begins + s) for name, s in at.items()},
        "certificateChain": chain,
        "conditions": [{**condition, "lastTransitionTime": now}],
    }
    name = request["metadata"]["name"]
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": answer}))
    rig.kubectl("patch", "podcertificaterequest", name, *patch)
    return chain


def test_a_pod_has_its_certificate_when_it_starts_and_sees_what_to_trust_change(
    rig, certificate_signer
):
    authority, other = certificate_signer("one"), certificate_signer("two")
    sources = [
        {
            "podCertificate": {
                "signerName": SIGNER,
                "keyType": "ECDSAP256",
                "keyPath": "key.pem",
                "certificateChainPath": "chain.pem",
            }
        },
        {"clusterTrustBundle": {"signerName": SIGNER, "labelSelector": {}, "path": "trust.pem"}},
    ]
    rig.pod(
        "certified",
        *("sleep", "1000"),
        pod_spec={
            "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
            "volumes": [{"name": "tls", "projected": {"sources": sources}}],
        },
        volumeMounts=[{"name": "tls", "mountPath": "/tls"}],
    )
    (request,) = eventually(lambda: _requests(rig))
    assert request["spec"]["podName"] == "certified"
    assert request["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    chain = _issue(rig, authority, request)
    assert rig.status("certified")["phase"] == "Pending", "nobody has said yet whom to trust"
    _bundle(rig, "example.com:spiffe:one", authority.anchor)
    rig.until_ready("certified")

    said = rig.exec("certified", "sh", "-c", "stat -L -c '%a %u %g' /tls/*; cat /tls/chain.pem")
    assert said == "640 1000 2000\n" * 3 + chain
    assert "BEGIN PRIVATE KEY" in rig.exec("certified", "cat", "/tls/key.pem")
    assert rig.exec("certified", "cat", "/tls/trust.pem") == authority.anchor
    _bundle(rig, "example.com:spiffe:two", other.anchor)
    both = {authority.anchor + other.anchor, other.anchor + authority.anchor}
    eventually(lambda: rig.exec("certified", "cat", "/tls/trust.pem") in both)

    rig.delete("certified")
    for name in ("one", "two"):
        rig.kubectl("delete", "clustertrustbundle", f"example.com:spiffe:{name}")
    rig.kubectl("delete", "podcertificaterequest", "--all")
