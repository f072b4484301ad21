"""Real kubectl against a real server."""

import json
import subprocess
import textwrap

import pytest
import yaml

DEPLOYMENT = textwrap.dedent(
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
    ---
    apiVersion: v1
    kind: Service
    metadata:
      name: web
    spec:
      selector: {app: web}
      ports: [{port: 80, targetPort: 80}]
    """
)
POD = textwrap.dedent(
    """
    apiVersion: v1
    kind: Pod
    metadata: {name: p, labels: {app: p}}
    spec: {containers: [{name: c, image: nginx}]}
    """
)


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "web.yaml"
    path.write_text(DEPLOYMENT)
    return path


def test_apply_creates_then_changes_nothing_then_only_what_changed(kubectl, manifest):
    assert kubectl("apply", "-f", str(manifest)).out == (
        "deployment.apps/web created\nservice/web created\n"
    )
    before = kubectl("get", "deploy", "web", "-o", "json").json
    assert kubectl("apply", "-f", str(manifest)).out == (
        "deployment.apps/web unchanged\nservice/web unchanged\n"
    )
    manifest.write_text(DEPLOYMENT.replace("nginx:1", "nginx:2").replace("value: one", "value: x"))
    assert kubectl("apply", "-f", str(manifest)).out == (
        "deployment.apps/web configured\nservice/web unchanged\n"
    )

    after = kubectl("get", "deploy", "web", "-o", "json").json
    container = after["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "nginx:2"
    assert container["env"] == [{"name": "A", "value": "x"}]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert kubectl("diff", "-f", str(manifest)).out == ""


def test_apply_removes_what_the_manifest_no_longer_has(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    manifest.write_text(DEPLOYMENT.replace("        env: [{name: A, value: one}]\n", ""))
    kubectl("apply", "-f", str(manifest))

    spec = kubectl("get", "deploy", "web", "-o", "json").json["spec"]["template"]["spec"]
    assert "env" not in spec["containers"][0]


def test_get_prints_tables_json_yaml_and_names(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    kubectl("create", "-f", "-", stdin=POD)

    deployments = kubectl("get", "deployments").out.splitlines()
    assert deployments[0].split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert deployments[1].split()[:4] == ["web", "0/2", "0", "0"]
    wide = kubectl("get", "deployments", "-o", "wide").out.splitlines()
    assert wide[0].split()[-3:] == ["CONTAINERS", "IMAGES", "SELECTOR"]
    assert wide[1].split()[-3:] == ["c", "nginx:1", "app=web"]
    pods = kubectl("get", "pods", "-o", "wide").out.splitlines()
    assert pods[1].split()[:4] == ["p", "0/1", "Pending", "0"]
    assert kubectl("get", "pod", "p", "-o", "name").out == "pod/p\n"
    assert "kind: Pod\n" in kubectl("get", "pod", "p", "-o", "yaml").out
    path = "{.items[*].metadata.name}"
    assert kubectl("get", "pods", "-o", f"jsonpath={path}").out == "p"
    every = kubectl("get", "all").out
    assert "pod/p" in every
    assert "service/web" in every
    assert "deployment.apps/web" in every
    assert kubectl("get", "pods", "-l", "app=p", "--no-headers").out.startswith("p ")
    assert "No resources found" in kubectl("get", "pods", "-l", "app=other").err


KINDS = (
    "ns,no,po,svc,endpointslices,cm,secrets,sa,events,leases,deploy,rs,sts,ds,jobs,cj,pdb,ing,"
    "netpol,pv,pvc,sc,pc"
)


@pytest.mark.parametrize("form", ["", "wide", "yaml"])
def test_every_kind_can_be_listed(kubectl, form):
    kubectl("get", KINDS, "-A", "-o", form)


def test_get_watch_follows_changes(kubectl):
    kubectl("create", "configmap", "a", "--from-literal=k=1")
    watching = subprocess.Popen(
        kubectl.command("get", "configmaps", "-w", "--no-headers"),
        stdout=subprocess.PIPE,
        text=True,
        env=kubectl.environment(),
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:2] == ["a", "1"]
        kubectl("create", "configmap", "b", "--from-literal=k=1", "--from-literal=l=2")
        assert watching.stdout.readline().split()[:2] == ["b", "2"]
        kubectl("patch", "configmap", "a", "-p", '{"data":{"m":"3"}}')
        assert watching.stdout.readline().split()[:2] == ["a", "2"]
    finally:
        watching.kill()
        watching.communicate()


def test_wait_sees_a_condition_come(kubectl):
    kubectl("create", "-f", "-", stdin=POD)
    waiting = subprocess.Popen(
        kubectl.command("wait", "pod/p", "--for=condition=Ready", "--timeout=60s"),
        stdout=subprocess.PIPE,
        text=True,
        env=kubectl.environment(),
    )
    try:
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        kubectl("patch", "pod", "p", "--subresource=status", "-p", json.dumps(ready))
        out, _ = waiting.communicate(timeout=90)
        assert out == "pod/p condition met\n"
        assert waiting.returncode == 0
    finally:
        waiting.kill()
        waiting.communicate()


def test_describe_tells_about_objects(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    kubectl("create", "-f", "-", stdin=POD)

    deployment = kubectl("describe", "deployment", "web").out
    assert "Replicas:               2 desired" in deployment
    pod = kubectl("describe", "pod", "p").out
    assert "Status:           Pending" in pod
    assert "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s" in pod
    assert "Type:                     ClusterIP" in kubectl("describe", "service", "web").out
    assert "Status:       Active" in kubectl("describe", "namespace", kubectl.namespace).out


def test_scale_label_annotate_and_set_image(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))

    assert kubectl("scale", "deploy/web", "--replicas=5").out == "deployment.apps/web scaled\n"
    kubectl("label", "deploy/web", "tier=front")
    kubectl("label", "deploy/web", "tier=back", fails=True)
    kubectl("label", "deploy/web", "tier=back", "--overwrite")
    kubectl("annotate", "deploy/web", "note=hello")
    kubectl("set", "image", "deploy/web", "c=nginx:9")

    found = kubectl("get", "deploy", "web", "-o", "json").json
    assert found["spec"]["replicas"] == 5
    assert found["metadata"]["labels"]["tier"] == "back"
    assert found["metadata"]["annotations"]["note"] == "hello"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:9"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", {"spec": {"template": {"spec": {"containers": [{"name": "d"}]}}}}),
        ("merge", {"spec": {"replicas": 7}}),
        ("json", [{"op": "replace", "path": "/spec/replicas", "value": 7}]),
    ],
)
def test_patches_of_every_kind(kubectl, manifest, kind, patch):
    kubectl("apply", "-f", str(manifest))
    if kind == "strategic":
        patch["spec"]["template"]["spec"]["containers"][0]["image"] = "x"

    kubectl("patch", "deploy", "web", f"--type={kind}", "-p", json.dumps(patch))

    spec = kubectl("get", "deploy", "web", "-o", "json").json["spec"]
    if kind == "strategic":
        names = [c["name"] for c in spec["template"]["spec"]["containers"]]
        assert sorted(names) == ["c", "d"]
    else:
        assert spec["replicas"] == 7


def test_edit_writes_back_what_the_editor_left(kubectl, manifest, tmp_path):
    kubectl("apply", "-f", str(manifest))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 2/replicas: 4/' \"$1\"\n")
    editor.chmod(0o755)
    environment = kubectl.environment() | {"KUBE_EDITOR": str(editor)}

    done = subprocess.run(
        kubectl.command("edit", "deploy", "web"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout == "deployment.apps/web edited\n"
    assert kubectl("get", "deploy", "web", "-o", "json").json["spec"]["replicas"] == 4


def test_a_server_dry_run_shows_and_keeps_nothing(kubectl, manifest):
    shown = kubectl("apply", "-f", str(manifest), "--dry-run=server", "-o", "name").out

    assert shown == "deployment.apps/web\nservice/web\n"
    kubectl("get", "deploy", "web", fails=True)


def test_config_maps_and_secrets_from_literals_and_files(kubectl, tmp_path):
    text = tmp_path / "motd"
    text.write_text("hello\n")
    binary = tmp_path / "blob"
    binary.write_bytes(b"\x00\xff")

    kubectl(
        "create",
        "configmap",
        "c",
        "--from-literal=k=v",
        f"--from-file={text}",
        f"--from-file={binary}",
    )
    kubectl("create", "secret", "generic", "s", "--from-literal=pass=word", f"--from-file={binary}")
    kubectl(
        "create",
        "secret",
        "docker-registry",
        "r",
        "--docker-server=r",
        "--docker-username=u",
        "--docker-password=p",
    )

    config = kubectl("get", "configmap", "c", "-o", "json").json
    assert config["data"] == {"k": "v", "motd": "hello\n"}
    assert config["binaryData"] == {"blob": "AP8="}
    secret = kubectl("get", "secret", "s", "-o", "json").json
    assert secret["data"] == {"pass": "d29yZA==", "blob": "AP8="}
    assert secret["type"] == "Opaque"
    kinds = [line.split()[1] for line in kubectl("get", "secrets", "--no-headers").out.splitlines()]
    assert "kubernetes.io/dockerconfigjson" in kinds


def test_imperative_commands_that_speak_protobuf(kubectl):
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3", "--port=80")
    kubectl("expose", "deployment", "web", "--port=80", "--target-port=http", "--type=NodePort")
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "job", "once", "--image=busybox", "--", "echo", "hi")
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    kubectl("run", "single", "--image=nginx", "--env=A=b", "--labels=x=y")
    kubectl("create", "quota", "q", "--hard=cpu=1,pods=2")

    deployment = kubectl("get", "deploy", "web", "-o", "json").json
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0] == {
        "containerPort": 80,
        "protocol": "TCP",
    }
    port = kubectl("get", "service", "web", "-o", "json").json["spec"]["ports"][0]
    assert port["targetPort"] == "http"
    assert 30000 <= port["nodePort"] <= 32767
    pod = kubectl("get", "pod", "single", "-o", "json").json
    assert pod["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]


def test_delete_waits_until_the_object_is_gone(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))

    out = kubectl("delete", "-f", str(manifest), "--wait").out

    assert 'deployment.apps "web" deleted' in out
    kubectl("get", "deploy", "web", fails=True)
    kubectl("get", "service", "web", fails=True)


def test_delete_by_selector_and_now(kubectl):
    kubectl("create", "-f", "-", stdin=POD)

    kubectl("delete", "pods", "-l", "app=p", "--now")

    assert "No resources found" in kubectl("get", "pods").err


def test_errors_read_as_users_know_them(kubectl):
    missing = kubectl("get", "pod", "nope", fails=True)
    assert missing.err == 'Error from server (NotFound): pods "nope" not found\n'
    unknown = kubectl("get", "unicorns", fails=True)
    assert 'the server doesn\'t have a resource type "unicorns"' in unknown.err
    kubectl("create", "configmap", "a")
    taken = kubectl("create", "configmap", "a", fails=True)
    assert 'configmaps "a" already exists' in taken.err
    broken = kubectl("create", "-f", "-", stdin=POD.replace("name: c,", ""), fails=True)
    assert 'The Pod "p" is invalid: spec.containers[0].name: Required value' in broken.err
    typo = kubectl("create", "-f", "-", stdin=POD.replace("image:", "imagee:"), fails=True)
    assert 'unknown field "spec.containers[0].imagee"' in typo.err
    invalid = kubectl("create", "namespace", "Not_A_Name", fails=True)
    assert "Invalid value" in invalid.err


def test_another_user_is_refused(kubectl, tmp_path):
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "secret-alice"}
    alices = tmp_path / "alice.kubeconfig"
    alices.write_text(yaml.safe_dump(config))
    refused = kubectl("get", "pods", f"--kubeconfig={alices}", fails=True)
    assert 'User "alice" cannot list resource "pods"' in refused.err


def test_explain_api_resources_version_and_cluster_info(kubectl):
    assert "FIELD: replicas <integer>" in kubectl("explain", "deployment.spec.replicas").out
    resources = kubectl("api-resources", "-o", "name").out.split()
    assert "deployments.apps" in resources
    assert "v1" in kubectl("api-versions").out.split()
    version = kubectl("version", "-o", "json").json
    assert version["serverVersion"]["gitVersion"] == "v1.37.0+motley"
    assert "is running at" in kubectl("cluster-info").out
    assert kubectl("get", "--raw", "/readyz").out == "ok"


def test_rollout_status_and_history_are_read_from_the_object(kubectl, manifest):
    kubectl("apply", "-f", str(manifest))
    status = {
        "status": {
            "observedGeneration": 1,
            "replicas": 2,
            "updatedReplicas": 2,
            "readyReplicas": 2,
            "availableReplicas": 2,
        }
    }
    kubectl(
        "patch", "deploy", "web", "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )

    out = kubectl("rollout", "status", "deploy/web", "--timeout=60s").out

    assert 'deployment "web" successfully rolled out' in out
    assert "2/2" in kubectl("get", "deploy", "web").out
