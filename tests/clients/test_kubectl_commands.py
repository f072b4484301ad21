"""kubectl's other commands, each as its users type it: what test_kubectl.py leaves out."""

import base64
import json
import textwrap

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

WEB = textwrap.dedent(
    """
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
    spec:
      replicas: 2
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: {containers: [{name: c, image: "nginx:1"}]}
    """
)


@pytest.fixture
def web(kubectl, tmp_path):
    """A deployment that was applied; the file it came from."""
    path = tmp_path / "web.yaml"
    path.write_text(WEB)
    kubectl("apply", "-f", str(path))
    return path


@pytest.fixture
def node(kubectl):
    """A node of the test's own; the name of the node."""
    name = f"node-{kubectl.namespace}"
    manifest = f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"
    kubectl("create", "-f", "-", stdin=manifest)
    yield name
    kubectl("delete", "node", name)


def template(kubectl) -> dict:
    found = kubectl("get", "deploy", "web", "-o", "json").json
    return found["spec"]["template"]


@pytest.mark.parametrize("command", [("create",), ("apply",), ("apply", "--server-side")])
def test_a_kind_nobody_serves_is_named(kubectl, command):
    foreign = "apiVersion: example.org/v9\nkind: Foo\nmetadata: {name: x}\n"
    refused = kubectl(*command, "-f", "-", stdin=foreign, fails=True)
    assert 'no matches for kind "Foo" in version "example.org/v9"' in refused.err
    assert "ensure CRDs are installed first" in refused.err


def test_explain_shows_fields_of_fields_and_of_other_versions(kubectl):
    resources = kubectl("explain", "pod.spec.containers.resources", "--recursive").out
    assert "limits\t<map[string]" in resources
    assert "name\t<string> -required-" in resources
    old = kubectl("explain", "hpa.spec", "--api-version=autoscaling/v1").out
    assert "targetCPUUtilizationPercentage" in old
    assert "FIELD: paths" in kubectl("explain", "ingress.spec.rules.http.paths").out
    by_v2 = kubectl("explain", "deploy.spec", "--output=plaintext-openapiv2").out
    assert "minReadySeconds\t<integer>" in by_v2
    assert 'field "nope" does not exist' in kubectl("explain", "pod.nope", fails=True).err


def test_diff_shows_what_apply_would_change_and_changes_nothing(kubectl, web):
    web.write_text(WEB.replace("nginx:1", "nginx:2"))

    shown = kubectl("diff", "-f", str(web), fails=True)

    assert "-      - image: nginx:1\n+      - image: nginx:2\n" in shown.out
    assert shown.code == 1
    assert template(kubectl)["spec"]["containers"][0]["image"] == "nginx:1"


def test_unknown_fields_are_refused_warned_about_or_ignored(kubectl):
    misspelt = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndataa: {k: v}\n"
    strict = kubectl("create", "--validate=strict", "-f", "-", stdin=misspelt % "a", fails=True)
    assert 'strict decoding error: unknown field "dataa"' in strict.err
    warned = kubectl("create", "--validate=warn", "-f", "-", stdin=misspelt % "b")
    assert warned.err == 'Warning: unknown field "dataa"\n'
    assert kubectl("create", "--validate=ignore", "-f", "-", stdin=misspelt % "c").err == ""


def test_api_resources_and_versions(kubectl):
    apps = kubectl("api-resources", "--api-group=apps", "-o", "wide", "--no-headers").out
    lines = [line.split() for line in apps.splitlines()]
    assert lines[2][:5] == ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    verbs = "create,delete,deletecollection,get,list,patch,update,watch"
    assert all(verbs in line for line in lines)
    cluster_wide = kubectl("api-resources", "--namespaced=false", "-o", "name").out.split()
    assert "nodes" in cluster_wide
    assert "pods" not in cluster_wide
    versions = kubectl("api-versions").out.split()
    assert {"v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1"} <= set(versions)


def test_cluster_info_raw_paths_and_a_dump(kubectl, tmp_path):
    assert "control plane is running at" in kubectl("cluster-info").out
    dumped = kubectl("cluster-info", "dump", f"--output-directory={tmp_path / 'dump'}")
    assert "dumped to" in dumped.out
    assert (tmp_path / "dump" / "nodes.json").exists()
    assert json.loads(kubectl("get", "--raw", "/api/v1/namespaces/default").out)["kind"] == (
        "Namespace"
    )
    assert "readyz check passed" in kubectl("get", "--raw", "/readyz?verbose").out


@pytest.mark.parametrize("what", ["pods", "nodes"])
def test_top_says_that_there_are_no_metrics(kubectl, what):
    assert kubectl("top", what, fails=True).err == "error: Metrics API not available\n"


def signing_request(name: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return json.dumps(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
            },
        }
    )


def test_certificates_are_approved_or_denied_once(kubectl):
    good, bad = f"good-{kubectl.namespace}", f"bad-{kubectl.namespace}"
    for name in (good, bad):
        kubectl("create", "-f", "-", stdin=signing_request(name))
    assert kubectl("get", "csr", good, "--no-headers").out.split()[-1] == "Pending"

    kubectl("certificate", "approve", good)
    kubectl("certificate", "deny", bad)

    assert kubectl("get", "csr", good, "--no-headers").out.split()[-1] == "Approved"
    assert kubectl("get", "csr", bad, "--no-headers").out.split()[-1] == "Denied"
    assert "already Approved" in kubectl("certificate", "deny", good, fails=True).err
    assert f"Common Name:    {good}" in kubectl("describe", "csr", good).out


def test_auth_whoami_can_i_and_reconcile(kubectl):
    assert "kubernetes-admin" in kubectl("auth", "whoami").out
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert kubectl("auth", "can-i", "create", "pods", "--as=bob", fails=True).out == "no\n"
    rules = kubectl("auth", "can-i", "--list", "--no-headers").out
    assert rules.split()[0] == "*.*"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": kubectl.namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
    reconciled = kubectl("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    assert "missing rules added" in reconciled.out + reconciled.err
    kubectl("create", "rolebinding", "bobs", "--role=reader", "--user=bob")
    assert kubectl("auth", "can-i", "list", "pods", "--as=bob").out == "yes\n"
    kubectl("set", "subject", "rolebinding", "bobs", "--user=eve")
    assert kubectl("auth", "can-i", "list", "pods", "--as=eve").out == "yes\n"


def test_apply_prunes_what_left_the_directory(kubectl, tmp_path):
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}, labels: {{set: mine}}}}\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(one.format(name))
    kubectl("create", "configmap", "other")
    prune = ("apply", "--prune", "-l", "set=mine", "--prune-allowlist=core/v1/ConfigMap")
    kubectl(*prune, "-f", str(tmp_path))
    (tmp_path / "b.yaml").unlink()

    assert "configmap/b pruned\n" in kubectl(*prune, "-f", str(tmp_path)).out
    assert kubectl("get", "cm", "-o", "name").out == "configmap/a\nconfigmap/other\n"


def test_kustomizations_are_applied_and_deleted(kubectl, tmp_path):
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [web.yaml]\nnamePrefix: my-\nlabels: [{pairs: {team: a}}]\n"
        "configMapGenerator: [{name: settings, literals: [k=v]}]\n"
    )

    out = kubectl("apply", "-k", str(tmp_path)).out

    assert "deployment.apps/my-web created" in out
    assert kubectl("get", "deploy", "-l", "team=a", "-o", "name").out == "deployment.apps/my-web\n"
    kubectl("delete", "-k", str(tmp_path))
    assert "No resources found" in kubectl("get", "deploy,cm").err


def test_events_of_everything_and_of_one_object(kubectl, web):
    assert "No events found" in kubectl("events").err
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1"},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "namespace": kubectl.namespace,
            "uid": kubectl("get", "deploy", "web", "-o", "jsonpath={.metadata.uid}").out,
        },
        "reason": "Tested",
        "message": "it was tested",
        "type": "Normal",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))

    assert "it was tested" in kubectl("events", "--for=deployment/web").out
    assert "it was tested" in kubectl("describe", "deploy", "web").out
    assert "No events found" in kubectl("events", "--for=deployment/other").err


def test_wait_for_values_creation_and_deletion(kubectl, web):
    assert (
        "condition met"
        in kubectl("wait", "deploy/web", "--for=jsonpath={.spec.replicas}=2", "--timeout=60s").out
    )
    kubectl("wait", "deploy/web", "--for=create", "--timeout=60s")
    kubectl("delete", "deploy", "web")
    kubectl("wait", "deploy/web", "--for=delete", "--timeout=60s")
    late = kubectl("wait", "deploy/web", "--for=condition=Available", "--timeout=1s", fails=True)
    assert "not found" in late.err


def test_replace_and_replace_by_force(kubectl, web):
    before = kubectl("get", "deploy", "web", "-o", "json").json["metadata"]
    web.write_text(WEB.replace("nginx:1", "nginx:2"))
    assert kubectl("replace", "-f", str(web)).out == "deployment.apps/web replaced\n"
    assert template(kubectl)["spec"]["containers"][0]["image"] == "nginx:2"

    kubectl("replace", "--force", "-f", str(web))

    after = kubectl("get", "deploy", "web", "-o", "json").json["metadata"]
    assert after["uid"] != before["uid"]


def test_set_env_resources_account_and_selector(kubectl, web):
    kubectl("set", "env", "deploy/web", "X=1")
    kubectl("set", "resources", "deploy/web", "--limits=cpu=1,memory=1Gi", "--requests=cpu=500m")
    kubectl("set", "serviceaccount", "deploy/web", "robot")
    kubectl("expose", "deploy", "web", "--port=80")
    kubectl("set", "selector", "service", "web", "app=other")

    spec = template(kubectl)["spec"]
    assert spec["containers"][0]["env"] == [{"name": "X", "value": "1"}]
    assert spec["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m"},
    }
    assert spec["serviceAccountName"] == "robot"
    assert "X=1" in kubectl("set", "env", "deploy/web", "--list").out
    service = kubectl("get", "service", "web", "-o", "json").json
    assert service["spec"]["selector"] == {"app": "other"}


def test_rollouts_are_restarted_paused_and_resumed(kubectl, web):
    kubectl("rollout", "restart", "deploy/web")
    assert "kubectl.kubernetes.io/restartedAt" in template(kubectl)["metadata"]["annotations"]
    kubectl("rollout", "pause", "deploy/web")
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.paused}").out == "true"
    kubectl("rollout", "resume", "deploy/web")
    assert "no rollout history" in kubectl("rollout", "undo", "deploy/web", fails=True).err


def test_subresources_can_be_shown_and_patched(kubectl, web):
    scaled = {"spec": {"replicas": 3}}
    kubectl("patch", "deploy/web", "--subresource=scale", "--type=merge", "-p", json.dumps(scaled))
    shown = kubectl("get", "deploy/web", "--subresource=scale", "--no-headers").out.split()
    assert shown[:3] == ["web", "3", "0"]
    kubectl("autoscale", "deploy", "web", "--max=5", "--cpu-percent=50")
    assert kubectl("get", "hpa", "web", "--no-headers").out.split()[1] == "Deployment/web"


def test_annotations_and_the_last_applied_configuration(kubectl, web):
    kubectl("annotate", "deploy/web", "note=hello")
    kubectl("annotate", "deploy/web", "note-")
    annotations = kubectl("get", "deploy", "web", "-o", "json").json["metadata"]["annotations"]
    assert "note" not in annotations
    assert "image: nginx:1" in kubectl("apply", "view-last-applied", "deploy/web").out
    web.write_text(WEB.replace("nginx:1", "nginx:2"))
    kubectl("apply", "set-last-applied", "-f", str(web))
    assert "image: nginx:2" in kubectl("apply", "view-last-applied", "deploy/web").out


def test_taint_cordon_and_drain(kubectl, node):
    kubectl("taint", "node", node, "dedicated=x:NoSchedule")
    taints = kubectl("get", "node", node, "-o", "json").json["spec"]["taints"]
    assert {"key": "dedicated", "value": "x", "effect": "NoSchedule"} in taints
    kubectl("taint", "node", node, "dedicated-")
    kubectl("cordon", node)
    assert "SchedulingDisabled" in kubectl("get", "node", node).out
    kubectl("uncordon", node)
    assert "SchedulingDisabled" not in kubectl("get", "node", node).out
    kubectl("run", "p", "--image=nginx", "--overrides", json.dumps({"spec": {"nodeName": node}}))

    assert "declare no controller" in kubectl("drain", node, fails=True).err
    rehearsed = kubectl("drain", node, "--force", "--dry-run=server").out
    assert "drained (server dry run)" in rehearsed
    out = kubectl("drain", node, "--force", "--grace-period=0", "--timeout=60s").out
    assert "pod/p evicted" in out
    assert "No resources found" in kubectl("get", "pods").err
    assert "Non-terminated Pods:          (0 in total)" in kubectl("describe", "node", node).out


CREATED = [
    ("quota q --hard=pods=4", "resourcequota/q"),
    ("job j --image=b", "job.batch/j"),
    ("cronjob cj --image=b --schedule=@daily", "cronjob.batch/cj"),
    ("ingress i --rule=foo.com/bar=svc1:8080 --class=c", "ingress.networking.k8s.io/i"),
    ("pdb d --selector=a=b --min-available=1", "poddisruptionbudget.policy/d"),
    ("role r --verb=get --resource=pods", "role.rbac.authorization.k8s.io/r"),
    ("rolebinding rb --role=r --user=bob", "rolebinding.rbac.authorization.k8s.io/rb"),
    ("service clusterip s1 --tcp=80:8080", "service/s1"),
    ("service nodeport s2 --tcp=80", "service/s2"),
    ("service externalname s3 --external-name=x.example.org", "service/s3"),
    ("service loadbalancer s4 --tcp=80", "service/s4"),
    ("serviceaccount robot", "serviceaccount/robot"),
    ("secret generic s --from-literal=a=b", "secret/s"),
]


@pytest.mark.parametrize(("command", "made"), CREATED, ids=[made for _, made in CREATED])
def test_create_makes(kubectl, command, made):
    assert kubectl("create", *command.split()).out == f"{made} created\n"
    assert kubectl("get", made, "-o", "name").out == f"{made}\n"
    kubectl("describe", made)
    kubectl("delete", made)


def test_create_makes_what_belongs_to_no_namespace(kubectl):
    name = f"mine-{kubectl.namespace}"
    kubectl("create", "priorityclass", name, "--value=5")
    kubectl("create", "clusterrole", name, "--verb=get", "--resource=pods")
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--user=bob")
    for kind in ("clusterrolebinding", "clusterrole", "priorityclass"):
        kubectl("describe", kind, name)
        kubectl("delete", kind, name)


def test_a_job_from_a_cron_job_and_a_token_for_an_account(kubectl):
    kubectl("create", "cronjob", "cj", "--image=b", "--schedule=@daily")
    kubectl("create", "job", "now", "--from=cronjob/cj")
    owner = kubectl("get", "job", "now", "-o", "json").json["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("CronJob", "cj")
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=1h", "--audience=mine").out
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == ["mine"]
    assert claims["sub"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    assert claims["exp"] - claims["iat"] == 3600


def test_lists_are_sorted_paged_and_printed_by_columns(kubectl):
    for name, value in (("a", "2"), ("b", "1"), ("c", "3")):
        kubectl("create", "configmap", name, f"--from-literal=k={value}")
    by_value = kubectl("get", "cm", "--sort-by=.data.k", "--no-headers").out
    assert [line.split()[0] for line in by_value.splitlines()] == ["b", "a", "c"]
    paged = kubectl("get", "cm", "--chunk-size=1", "-o", "name").out.split()
    assert len(paged) == 3
    columns = kubectl("get", "cm", "-o", "custom-columns=N:.metadata.name,V:.data.k").out
    assert columns.splitlines()[1].split() == ["a", "2"]
    assert kubectl("get", "cm", "-o", "go-template={{len .items}}").out == "3"
    refused = kubectl("get", "pods", "--field-selector=spec.bogus=1", fails=True)
    assert "field label not supported: spec.bogus" in refused.err
