"""Tokens, the authority's hash, and what a machine is told when it cannot join."""

import base64
import hashlib
import subprocess
from random import Random

import msgspec
import pytest

from motley.api.views.base import ObjectMeta, OwnerReference
from motley.api.views.core import Secret
from motley.api.views.pod import Pod, PodStatus
from motley.apiserver import tls
from motley.client import kubeconfig
from motley.ops import components, joining, leaving, tokens
from motley.ops import config as configs
from motley.ops.config import Config
from motley.ops.failure import Failure

NOW = 1_800_000_000.0
TOKEN = "abcdef.0123456789abcdef"


@pytest.fixture(scope="module")
def authority():
    return tls.make_authority("motley-ca")[0]


def asked(*hashes, server="https://10.0.0.1:6443"):
    return joining.Invitation(server, TOKEN, hashes)


# -- tokens


def test_new_tokens_are_tokens_and_differ():
    made = {tokens.generate() for _ in range(50)} | {tokens.generate(Random(1))}
    assert len(made) == 51
    assert all(tokens.check(token) == token for token in made)


@pytest.mark.parametrize("text", ["", "abc", "ABCDEF.0123456789abcdef", f"{TOKEN}x", "a.b"])
def test_what_is_no_token_is_refused_with_how_to_get_one(text):
    with pytest.raises(Failure) as caught:
        tokens.check(text)
    assert "motley token create" in caught.value.advice


def test_a_tokens_secret_is_what_kubernetes_reads_and_reads_back():
    body = tokens.secret(TOKEN, ttl_s=3600, description="rack 4", now=NOW)
    assert body["metadata"] == {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    assert body["type"] == "bootstrap.kubernetes.io/token"
    data = {key: base64.b64decode(value).decode() for key, value in body["data"].items()}
    assert data == {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "expiration": "2027-01-15T09:00:00Z",
        "description": "rack 4",
    }
    read = tokens.read(Secret(type=body["type"], data=body["data"]))
    assert read.token == TOKEN
    assert read.usages == ("authentication", "signing")
    assert read.left_s(NOW) == 3600


def test_a_token_without_an_end_says_so():
    body = tokens.secret(TOKEN, ttl_s=0, description="", now=NOW)
    assert tokens.read(Secret(type=body["type"], data=body["data"])).left_s(NOW) is None
    assert tokens.read(Secret(type="Opaque")) is None


# -- whom to believe


def test_the_hash_is_that_of_kubeadm(authority, tmp_path):
    (tmp_path / "ca.crt").write_bytes(authority)
    # As Kubernetes' documentation computes it.
    public = subprocess.run(
        ["openssl", "x509", "-pubkey", "-noout", "-in", tmp_path / "ca.crt"],
        capture_output=True,
        check=True,
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"],
        input=public,
        capture_output=True,
        check=True,
    ).stdout
    assert list(tokens.ca_hashes(authority)) == [f"sha256:{hashlib.sha256(der).hexdigest()}"]


def published(ca):
    config = Config(node_ip="10.0.0.1")
    (_, info), *_ = tokens.published(config, ca)
    return info["data"]["kubeconfig"]


def test_the_authority_with_the_right_hash_is_believed(authority):
    (good,) = tokens.ca_hashes(authority)
    assert joining.trusted(published(authority), asked(good)) == authority


def test_of_two_authorities_only_the_one_vouched_for_is_believed(authority):
    other = tls.make_authority("another")[0]
    (good,) = tokens.ca_hashes(authority)
    assert joining.trusted(published(authority + other), asked(good)) == authority


@pytest.mark.parametrize("text", ["", "}{", "clusters: []", "clusters: [{cluster: {}}]"])
def test_what_tells_no_authority_is_refused(text):
    with pytest.raises(Failure, match="tells no authority"):
        joining.trusted(text, asked("sha256:" + "0" * 64))


def test_another_authority_is_refused_and_the_token_was_not_sent(authority):
    with pytest.raises(Failure, match="is not the cluster of this join command") as caught:
        joining.trusted(published(authority), asked("sha256:" + "0" * 64))
    assert "The token was not sent" in caught.value.advice


def test_the_join_command_is_what_join_takes(authority):
    config = Config(node_ip="10.0.0.1", api_port=7443)
    command = tokens.join_command(config, tokens.Token(TOKEN), authority).split()
    assert command[:3] == ["motley", "join", "https://10.0.0.1:7443"]
    invited = joining.invitation(command[2], command[4], (command[6],))
    assert invited == asked(*tokens.ca_hashes(authority), server="https://10.0.0.1:7443")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("http://10.0.0.1", TOKEN, ("x",)), "no address such as"),
        (("https://10.0.0.1", "", ("x",)), "--token"),
        (("https://10.0.0.1", TOKEN, ()), "--ca-hash"),
        (("https://10.0.0.1", TOKEN, ("sha256:12",)), "no hash"),
    ],
)
def test_an_incomplete_join_command_says_what_is_missing(given, words):
    with pytest.raises(Failure, match=words):
        joining.invitation(*given)


def test_an_address_alone_means_https_and_the_usual_port():
    digest = "sha256:" + "a" * 64
    assert joining.invitation("10.0.0.1", TOKEN, (digest,)).server == "https://10.0.0.1:6443"
    assert joining.invitation("[fd00::1]:1", TOKEN, (digest,)).server == "https://[fd00::1]:1"


# -- what a machine becomes

SETTINGS = tokens.NodeSettings("10.9.0.0/16", "10.8.0.0/16", "10.8.0.10", "example.org")


def resolved(root, server="https://127.0.0.1:6443", **options):
    return joining.resolve(root, server, SETTINGS, options)


def test_a_joined_machine_takes_over_the_clusters_settings(tmp_path):
    config = resolved(tmp_path, node_name="n2", node_labels="a=b")
    assert (config.pod_cidr, config.service_cidr) == ("10.9.0.0/16", "10.8.0.0/16")
    assert (config.cluster_dns, config.cluster_domain) == ("10.8.0.10", "example.org")
    assert config.node_ip == "127.0.0.1"  # by which the control plane sees it
    assert set(config.ports.values()) == {"node", "proxy"}
    names = [spec.name for spec in components.joined(config)]
    assert names == ["containerd", "node", "proxy"]
    agent = components.joined(config)[1].command
    assert "--node-labels=a=b" in agent
    assert not any(TOKEN in word for word in agent)


def test_a_machine_that_is_something_else_is_told_how_to_give_that_up(tmp_path):
    Config(root=tmp_path / "own", node_name="n", node_ip="10.0.0.1").save()
    with pytest.raises(Failure, match="a cluster of its own") as caught:
        resolved(tmp_path / "own")
    assert "motley down --delete-data" in caught.value.advice
    resolved(tmp_path / "node", node_name="n2").save()
    with pytest.raises(Failure, match=r"a node of https://127\.0\.0\.1:6443") as caught:
        resolved(tmp_path / "node", server="https://127.0.0.1:7443")
    assert "motley leave" in caught.value.advice
    again = joining.resolve(tmp_path / "node", "https://127.0.0.1:6443", None, {})
    assert (again.node_name, again.pod_cidr) == ("n2", SETTINGS.pod_cidr)


def test_a_node_keeps_its_name(tmp_path):
    resolved(tmp_path, node_name="n2").save()
    with pytest.raises(Failure, match="node-name n2"):
        resolved(tmp_path, node_name="n3")


@pytest.mark.parametrize("text", ["a", "=b", "node-restriction.kubernetes.io/x=y", "k8s.io/a=b"])
def test_labels_that_a_node_may_not_give_itself_are_refused_first(text):
    with pytest.raises(Failure):
        joining.check_labels(f"fine=1,{text}")
    joining.check_labels("fine=1,topology.kubernetes.io/zone=a")


def test_a_dry_run_tells_what_would_be_done(tmp_path):
    text = joining.plan(resolved(tmp_path, node_name="n2"))
    assert "node n2 (127.0.0.1)" in text
    assert "10.9.0.0/16" in text
    assert configs.load(tmp_path) is None


# -- leaving


def pod(name, phase="Running", owner="", **annotations):
    owners = [OwnerReference(kind=owner, name="o", controller=True)] if owner else []
    meta = ObjectMeta(name=name, owner_references=owners, annotations=annotations)
    return Pod(metadata=meta, status=PodStatus(phase=phase))


def test_a_drain_waits_for_pods_that_can_move():
    pods = [
        pod("web", owner="ReplicaSet"),
        pod("bare"),
        pod("agent", owner="DaemonSet"),
        pod("done", phase="Succeeded"),
        pod("static", **{"kubernetes.io/config.mirror": "x"}),
    ]
    assert [p.metadata.name for p in leaving.to_move(pods)] == ["web", "bare"]


def test_what_is_published_is_for_those_who_need_it(authority):
    documents = [
        document for _, document in tokens.published(Config(node_ip="10.0.0.1"), authority)
    ]
    bound = {
        d["metadata"]["namespace"]: [s["name"] for s in d["subjects"]]
        for d in documents
        if d["kind"] == "RoleBinding"
    }
    assert bound["kube-public"] == ["system:anonymous"]
    assert bound["kube-system"] == ["system:bootstrappers", "system:nodes"]
    assert all(
        d["rules"][0]["resourceNames"] and d["rules"][0]["verbs"] == ["get"]
        for d in documents
        if d["kind"] == "Role"
    )
    settings = next(d for d in documents if d["metadata"]["name"] == tokens.SETTINGS)
    assert msgspec.convert(settings["data"], tokens.NodeSettings).pod_cidr == "10.244.0.0/16"
    info = documents[0]["data"]["kubeconfig"]
    assert "token" not in info
    assert "client-key" not in info


def test_a_node_kubeconfig_of_a_joined_machine_is_where_the_agent_writes_it(tmp_path):
    config = resolved(tmp_path, node_name="n2")
    assert f"--kubeconfig={config.node_kubeconfig}" in components.joined(config)[1].command
    text = kubeconfig.render(kubeconfig.Config(server="https://h", token=TOKEN), user="bootstrap")
    assert text.count(TOKEN) == 1
