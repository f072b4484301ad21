"""Who may speak for a signer, and what a node may ask of one."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from motley.lib.clock import SYSTEM, rfc3339
from motley.node import keys

GROUP = "/apis/certificates.k8s.io/v1"
BUNDLES, SIGNING = f"{GROUP}/clustertrustbundles", f"{GROUP}/certificatesigningrequests"
REQUESTS = f"{GROUP}/namespaces/demo/podcertificaterequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SIGNER = "example.com/spiffe"


@pytest.fixture
async def signing(api):
    """Alice may write everything in the group; `grant` lets her also be a signer."""

    async def grant(name, verbs, resource, *names):
        rule = {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs}
        rule |= {"resourceNames": list(names)} if names else {}
        await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        assert (await api.create(f"{RBAC}/clusterrolebindings", binding)).code == 201

    plain = ["create", "get", "list", "update", "patch"]
    await grant("bundles", plain, "clustertrustbundles")
    await grant("requests", plain, "podcertificaterequests/status")
    await grant("approval", plain, "certificatesigningrequests/approval")
    await grant("status", plain, "certificatesigningrequests/status")
    api.grant = grant
    return api


def bundle(signer, anchor, name="v1"):
    name = f"{signer.replace('/', ':')}:{name}" if signer else name
    return {"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": anchor}}


async def test_only_who_may_attest_says_what_to_trust_for_a_signer(signing, certificate_signer):
    anchor = certificate_signer().anchor

    refused = await signing.create(BUNDLES, bundle(SIGNER, anchor), token="alice")
    assert refused.code == 403
    assert 'user not permitted to attest for signerName "example.com/spiffe"' in refused.message
    assert (await signing.create(BUNDLES, bundle("", anchor), token="alice")).code == 201
    await signing.create(BUNDLES, bundle(SIGNER, anchor))
    url = f"{BUNDLES}/example.com:spiffe:v1"
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await signing.patch(url, labels, token="alice")).code == 403
    owned = {"metadata": {"finalizers": ["example.com/kept"]}}
    assert (await signing.patch(url, owned, token="alice")).code == 200, "as garbage collection"
    await signing.grant("attest", ["attest"], "signers", "example.com/*")
    assert (await signing.patch(url, labels, token="alice")).code == 200
    again = bundle(SIGNER, anchor, "v2")
    assert (await signing.create(BUNDLES, again, token="alice")).code == 201
    found = (await signing.get(f"{BUNDLES}?fieldSelector=spec.signerName={SIGNER}")).json
    assert [one["metadata"]["name"] for one in found["items"]] == [
        "example.com:spiffe:v1",
        "example.com:spiffe:v2",
    ]


async def test_a_bundle_is_replaced_only_by_who_names_its_version(signing, certificate_signer):
    made = (await signing.create(BUNDLES, bundle("", certificate_signer().anchor))).json

    blind = {**made, "metadata": {"name": "v1"}}
    refused = await signing.put(f"{BUNDLES}/v1", blind)
    assert refused.code == 422
    assert "must be specified for an update" in refused.message
    assert (await signing.put(f"{BUNDLES}/v1", made)).code == 200


def certificate_request(organization="dev", signer="kubernetes.io/kube-apiserver-client"):
    names = ((x509.NameOID.ORGANIZATION_NAME, organization), (x509.NameOID.COMMON_NAME, "jane"))
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    text = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": text, "signerName": signer, "usages": ["client auth"]}
    return {"metadata": {"name": "jane"}, "spec": spec}


async def test_only_who_may_approve_approves_and_who_may_sign_signs(signing, certificate_signer):
    await signing.create(SIGNING, certificate_request(signer=SIGNER))
    approved = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}
    approval = {"status": {"conditions": [approved]}}
    text = base64.b64encode(certificate_signer().anchor.encode()).decode()
    signed = {"status": {"certificate": text}}

    async def attempt():
        first = await signing.patch(f"{SIGNING}/jane/approval", approval, token="alice")
        second = await signing.patch(f"{SIGNING}/jane/status", signed, token="alice")
        return first, second

    first, second = await attempt()
    assert (first.code, second.code) == (403, 403)
    assert 'user not permitted to approve requests with signerName "example.com' in first.message
    assert 'user not permitted to sign requests with signerName "example.com' in second.message
    await signing.grant("signer", ["approve", "sign"], "signers", SIGNER)
    assert [reply.code for reply in await attempt()] == [200, 200]


async def test_nobody_asks_for_a_certificate_of_an_administrator(signing):
    refused = await signing.create(SIGNING, certificate_request("system:masters"))

    assert refused.code == 403
    assert "signer with system:masters group is not allowed" in refused.message
    assert (await signing.create(SIGNING, certificate_request("dev"))).code == 201


@pytest.fixture
async def asking(signing, a_pod):
    """A pod on node-1 whose volume wants a certificate; what its node would ask with."""
    nodes = [
        (await signing.create("/api/v1/nodes", {"metadata": {"name": name}})).json
        for name in ("node-1", "node-2")
    ]
    accounts = "/api/v1/namespaces/demo/serviceaccounts"
    account = (await signing.create(accounts, {"metadata": {"name": "robot"}})).json
    source = {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "c"}
    volumes = [{"name": "v", "projected": {"sources": [{"podCertificate": source}]}}]
    wanted = {"serviceAccountName": "robot", "volumes": volumes}
    pods = "/api/v1/namespaces/demo/pods"
    pod, other, plain = [
        (await signing.create(pods, a_pod(name, nodeName=node, **spec))).json
        for name, node, spec in (
            ("here", "node-1", wanted),
            ("there", "node-2", wanted),
            ("plain", "node-1", {"serviceAccountName": "robot"}),
        )
    ]
    made = keys.make("ED25519")
    spec = {
        "signerName": SIGNER,
        "podName": "here",
        "podUID": pod["metadata"]["uid"],
        "serviceAccountName": "robot",
        "serviceAccountUID": account["metadata"]["uid"],
        "nodeName": "node-1",
        "nodeUID": nodes[0]["metadata"]["uid"],
        "stubPKCS10Request": base64.b64encode(made.stub).decode(),
    }
    signing.request = spec
    signing.others = {"there": other, "plain": plain, "node-2": nodes[1]}
    return signing


async def test_a_node_asks_for_its_own_pods_only(asking):
    def uid(name):
        return asking.others[name]["metadata"]["uid"]

    async def told(**changed):
        body = {"metadata": {"generateName": "req-"}, "spec": {**asking.request, **changed}}
        reply = await asking.create(REQUESTS, body, token="node-1")
        return reply.message if reply.code != 201 else "made"

    assert await told() == "made"
    foreign = await told(nodeName="node-2", nodeUID=uid("node-2"))
    assert 'which is not the requesting node "node-1"' in foreign
    assert "differs from the running one" in await told(nodeUID="other")
    assert "differs from the running one" in await told(podUID="other")
    assert "differs from the running one" in await told(serviceAccountUID="other")
    there = await told(podName="there", podUID=uid("there"))
    assert 'pod "demo/there" is not running on node "node-1"' in there
    assert "differs from running pod" in await told(serviceAccountName="default")
    assert 'pods "gone" not found' in await told(podName="gone")
    unwanted = await told(signerName="example.com/other")
    assert 'does not mount a podCertificate projected volume for signer "example.com/' in unwanted
    plain = await told(podName="plain", podUID=uid("plain"))
    assert "does not mount a podCertificate projected volume" in plain


async def test_a_node_sees_its_own_requests_only_and_answers_none(asking):
    body = {"metadata": {"name": "mine"}, "spec": asking.request}
    assert (await asking.create(REQUESTS, body, token="node-1")).code == 201
    other = {**asking.request, "nodeName": "node-2", "podName": "there"}
    assert (await asking.create(REQUESTS, {"metadata": {"name": "its"}, "spec": other})).code == 201

    async def code(method, url, body=None):
        return (await asking.call(method, url, body, token="node-1")).code

    everywhere = f"{GROUP}/podcertificaterequests"
    assert await code("GET", f"{REQUESTS}/mine") == 200
    assert await code("GET", f"{REQUESTS}/its") == 403
    assert await code("GET", everywhere) == 403
    assert await code("GET", f"{everywhere}?fieldSelector=spec.nodeName=node-2") == 403
    assert await code("GET", f"{everywhere}?fieldSelector=spec.nodeName=node-1") == 200
    assert await code("PUT", f"{REQUESTS}/mine/status", body) == 403
    assert await code("DELETE", f"{REQUESTS}/mine") == 403


async def test_only_the_signer_answers_and_with_a_certificate_of_today(asking, certificate_signer):
    body = {"metadata": {"name": "req"}, "spec": asking.request}
    await asking.create(REQUESTS, body, token="node-1")

    def answer(begins):
        begins = float(int(begins))
        when = {"notBefore": begins, "beginRefreshAt": begins + 3600, "notAfter": begins + 86400}
        condition = {"type": "Issued", "status": "True", "reason": "R", "message": ""}
        stub = asking.request["stubPKCS10Request"]
        return {
            "status": {
                "certificateChain": certificate_signer().issue(stub, begins),
                "conditions": [{**condition, "lastTransitionTime": rfc3339(begins)}],
                **{name: rfc3339(at) for name, at in when.items()},
            }
        }

    url = f"{REQUESTS}/req/status"
    refused = await asking.patch(url, answer(SYSTEM.now()), token="alice")
    assert refused.code == 422
    assert 'User "alice" is not permitted to "sign" for signer "example.com' in refused.message
    await asking.grant("sign", ["sign"], "signers", SIGNER)
    early = await asking.patch(url, answer(SYSTEM.now() - 400), token="alice")
    assert "within 5 minutes of kube-apiserver's current time" in early.message
    assert (await asking.patch(url, answer(SYSTEM.now()), token="alice")).code == 200
    again = await asking.patch(url, answer(SYSTEM.now()), token="alice")
    assert "immutable after PodCertificateRequest is issued" in again.message
    shown = await asking.get(
        f"{REQUESTS}?fieldSelector=spec.podName=here",
        accept="application/json;as=Table;v=v1;g=meta.k8s.io",
    )
    (row,) = shown.json["rows"]
    assert row["cells"][:6] == ["req", "here", "robot", "node-1", SIGNER, "Issued"]


async def test_a_mirror_pod_has_no_bundles_and_no_certificates(asking, a_pod):
    uid = (await asking.get("/api/v1/nodes/node-1")).json["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid, "controller": True}
    for source, plural in (
        ({"clusterTrustBundle": {"name": "v1", "path": "t"}}, "clustertrustbundles"),
        (
            {"podCertificate": {"signerName": SIGNER, "keyType": "ED25519", "keyPath": "k"}},
            "podcertificates",
        ),
    ):
        volumes = [{"name": "v", "projected": {"sources": [source]}}]
        mirror = a_pod("m", nodeName="node-1", volumes=volumes)
        mirror["metadata"] |= {
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [owner],
        }
        refused = await asking.create("/api/v1/namespaces/demo/pods", mirror, token="node-1")
        assert f"can not create pods that reference {plural}" in refused.message
