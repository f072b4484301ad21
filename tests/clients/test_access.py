"""Who may do what, as people meet it: kubectl's `auth` and `create token`, roles, tokens in use."""

import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml


def with_token(kubectl, server, token: str, directory: Path):
    """kubectl with a bearer token instead of the administrator's certificate."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    directory.mkdir(exist_ok=True)
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return replace(kubectl, kubeconfig=path)


@pytest.fixture
def alice(kubectl, server, tmp_path):
    """kubectl as alice of the group `developers`, who has no rights of her own."""
    return with_token(kubectl, server, "secret-alice", tmp_path / "alice")


def allowed(kubectl, *question: str) -> bool:
    asked = subprocess.run(
        kubectl.command("auth", "can-i", *question),
        capture_output=True,
        text=True,
        timeout=30,
        env=kubectl.environment(),
        check=False,  # `no` is its exit status 1, too
    )
    assert asked.stdout.strip() in ("yes", "no"), asked.stderr
    return asked.stdout.strip() == "yes"


def test_whoami_tells_name_and_groups(kubectl, alice):
    shown = alice("auth", "whoami", "-o", "json").json["status"]["userInfo"]

    assert shown["username"] == "alice"
    assert shown["groups"] == ["developers", "system:authenticated"]
    assert "kubernetes-admin" in kubectl("auth", "whoami").out


def test_can_i_follows_roles_and_bindings(kubectl, alice):
    assert allowed(kubectl, "delete", "nodes")
    assert not allowed(alice, "list", "pods")

    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log")
    kubectl("create", "rolebinding", "readers", "--role=reader", "--group=developers")

    assert allowed(alice, "list", "pods")
    assert allowed(alice, "get", "pods", "--subresource=log")
    assert not allowed(alice, "delete", "pods")
    assert not allowed(alice, "list", "pods", "--namespace=default")
    assert "No resources found" in alice("get", "pods").err
    refused = alice("get", "secrets", fails=True).err
    assert 'User "alice" cannot list resource "secrets" in API group ""' in refused


def test_can_i_lists_everything_one_may(kubectl, alice):
    kubectl("create", "rolebinding", "v", "--clusterrole=view", "--user=alice")

    listed = alice("auth", "can-i", "--list").out

    assert "deployments.apps" in listed
    assert "[/apis/*]" in listed
    assert "secrets" not in listed


def test_an_administrator_acts_for_others(kubectl, alice):
    assert not allowed(kubectl, "list", "pods", "--as=alice")
    kubectl("create", "rolebinding", "e", "--clusterrole=edit", "--user=alice")

    assert allowed(kubectl, "create", "deployments", "--as=alice")
    assert not allowed(kubectl, "create", "roles", "--as=alice")
    assert allowed(kubectl, "list", "nodes", "--as=x", "--as-group=system:masters")
    refused = alice("get", "pods", "--as=bob", fails=True).err
    assert 'User "alice" cannot impersonate-on:user-info:list resource "pods"' in refused


def test_a_created_token_works_until_its_account_is_gone(kubectl, server, tmp_path):
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=10m").out.strip()
    robot = with_token(kubectl, server, token, tmp_path / "robot")
    name = f"system:serviceaccount:{kubectl.namespace}:robot"

    assert name in robot("auth", "whoami").out
    refused = robot("get", "pods", fails=True).err
    assert f'User "{name}" cannot list resource "pods"' in refused
    subject = f"--serviceaccount={kubectl.namespace}:robot"
    kubectl("create", "rolebinding", "r", "--clusterrole=view", subject)
    robot("get", "pods")

    kubectl("delete", "serviceaccount", "robot")
    refused = robot("get", "pods", fails=True).err
    assert "must be logged in to the server (Unauthorized)" in refused


def test_nobody_grants_what_they_do_not_have(kubectl, alice):
    kubectl("create", "role", "granter", "--verb=create,get", "--resource=roles,rolebindings")
    kubectl("create", "rolebinding", "g", "--role=granter", "--user=alice")

    refused = alice("create", "role", "thief", "--verb=get", "--resource=secrets", fails=True)

    assert "attempting to grant RBAC permissions not currently held" in refused.err
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}' in refused.err


def test_roles_reconcile_from_a_manifest(kubectl):
    manifest = json.dumps(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "made", "namespace": kubectl.namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        }
    )

    assert "reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=manifest).out
    assert "made" in kubectl("get", "roles").out


def test_tokens_and_roles_outlive_a_restart(own_server, kubectl, tmp_path):
    kubectl = replace(kubectl, kubeconfig=own_server.kubeconfig, namespace="default")
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot").out.strip()
    kubectl("create", "rolebinding", "r", "--clusterrole=view", "--serviceaccount=default:robot")
    kubectl("delete", "clusterrole", "system:monitoring")

    own_server.kill(signal.SIGTERM)
    own_server.start()

    robot = with_token(kubectl, own_server, token, tmp_path / "robot")
    robot("get", "pods")
    kubectl("get", "clusterrole", "system:monitoring")  # made again
    assert token not in (tmp_path / "server.log").read_text()
    key = tmp_path / "pki" / "sa.key"
    assert key.stat().st_mode & 0o777 == 0o600
