"""Server-side apply with real kubectl: owners, conflicts, migration from client-side apply."""

import textwrap

import pytest

MANIFEST = textwrap.dedent(
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
            ports: [{containerPort: 80}]
            env: [{name: A, value: one}]
    """
)
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "web.yaml"
    path.write_text(MANIFEST)
    return path


def shown(kubectl):
    return kubectl("get", "deploy", "web", "-o", "json", "--show-managed-fields").json


def managers(kubectl):
    found = shown(kubectl)["metadata"]["managedFields"]
    return {(e["manager"], e["operation"]) for e in found}


def test_server_side_apply_creates_changes_and_removes(kubectl, manifest):
    command = ("apply", "--server-side", "-f", str(manifest))
    assert kubectl(*command).out == "deployment.apps/web serverside-applied\n"
    before = shown(kubectl)
    kubectl(*command)
    assert shown(kubectl)["metadata"] == before["metadata"], "nothing changed, nothing written"
    manifest.write_text(MANIFEST.replace("nginx:1", "nginx:2").replace("name: A", "name: B"))
    kubectl(*command)

    (container,) = shown(kubectl)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "nginx:2"
    assert container["env"] == [{"name": "B", "value": "one"}]
    assert managers(kubectl) == {("kubectl", "Apply")}
    assert ANNOTATION not in shown(kubectl)["metadata"].get("annotations", {})


def test_conflicts_are_explained_and_can_be_forced(kubectl, manifest):
    kubectl("apply", "--server-side", "-f", str(manifest))
    manifest.write_text(MANIFEST.replace("replicas: 2", "replicas: 5"))
    command = ("apply", "--server-side", "--field-manager=other", "-f", str(manifest))
    refused = kubectl(*command, fails=True)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas' in refused.err
    assert "--force-conflicts" in refused.err

    assert kubectl(*command, "--force-conflicts").out == "deployment.apps/web serverside-applied\n"
    assert shown(kubectl)["spec"]["replicas"] == 5
    assert managers(kubectl) == {("kubectl", "Apply"), ("other", "Apply")}


def test_scaling_makes_a_later_apply_conflict(kubectl, manifest):
    kubectl("apply", "--server-side", "-f", str(manifest))
    kubectl("scale", "deploy", "web", "--replicas=7")
    refused = kubectl("apply", "--server-side", "-f", str(manifest), fails=True)
    assert ".spec.replicas" in refused.err


def test_client_side_apply_is_taken_over_without_conflicts(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    assert managers(kubectl) == {("kubectl-client-side-apply", "Update")}
    manifest.write_text(
        MANIFEST.replace("nginx:1", "nginx:2").replace("replicas: 2", "replicas: 3")
    )
    kubectl("apply", "--server-side", "-f", str(manifest))

    after = shown(kubectl)
    assert after["spec"]["replicas"] == 3
    assert "nginx:2" in after["metadata"]["annotations"][ANNOTATION], "kept current"
    assert ("kubectl", "Apply") in managers(kubectl)
    assert ("kubectl-client-side-apply", "Update") not in managers(kubectl), "migrated"
    manifest.write_text(MANIFEST.replace("        env: [{name: A, value: one}]\n", ""))
    kubectl("apply", "--server-side", "-f", str(manifest))
    (container,) = shown(kubectl)["spec"]["template"]["spec"]["containers"]
    assert "env" not in container, "what client-side apply set goes when it is no longer stated"


def test_going_back_to_client_side_apply_works(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    kubectl("apply", "--server-side", "-f", str(manifest))
    manifest.write_text(MANIFEST.replace("nginx:1", "nginx:3"))
    assert "configured" in kubectl("apply", "-f", str(manifest)).out
    assert "unchanged" in kubectl("apply", "-f", str(manifest)).out


def test_diff_shows_what_a_server_side_apply_would_change(kubectl, manifest):
    kubectl("apply", "--server-side", "-f", str(manifest))
    assert kubectl("diff", "--server-side", "-f", str(manifest)).out == ""
    manifest.write_text(MANIFEST.replace("nginx:1", "nginx:2"))
    changed = kubectl("diff", "--server-side", "-f", str(manifest), fails=True)
    assert "-        image: nginx:1" in changed.out or "nginx:1" in changed.out
    assert "nginx:2" in changed.out
    assert shown(kubectl)["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"


def test_a_server_side_dry_run_keeps_nothing(kubectl, manifest):
    command = ("apply", "--server-side", "--dry-run=server", "-f", str(manifest))
    assert kubectl(*command).out == "deployment.apps/web serverside-applied (server dry run)\n"
    assert "NotFound" in kubectl("get", "deploy", "web", fails=True).err


def test_every_editor_is_recorded_by_its_name(kubectl, manifest):
    kubectl("create", "-f", str(manifest))
    kubectl("label", "deploy", "web", "tier=front")
    kubectl("set", "image", "deploy/web", "c=nginx:9")
    assert managers(kubectl) == {
        ("kubectl-create", "Update"),
        ("kubectl-label", "Update"),
        ("kubectl-set", "Update"),
    }
