"""`deploy/heterogeneity` on a Kubernetes that is not Motley: what it finds, and what it may.

The manifests are applied as they are, beside those of `deploy/scheduler`, which places pods by what
is found. See `stock.py` for how the same is tried on kube-apiserver.
"""

import json
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from motley.client import kubeconfig
from motley.ops.freeports import free_port

from .registries import motley
from .stock import DEPLOY, Call, eventually

HERE = DEPLOY / "heterogeneity"
ACCOUNT = ("kube-system", "motley-heterogeneity")
SCHEDULER = ("kube-system", "motley-scheduler")
TRUTH = {"n-0": 1.0, "n-1": 0.5, "n-2": 0.8}
ARM = "n-1"


@pytest.fixture(scope="module")
def cluster(stock, site):
    """Three nodes, one of them arm64, with the controllers and the scheduler of `deploy/`."""

    def with_registries(document):
        """As an administrator edits the ConfigMap: a registry with an authority of its own."""
        if document["kind"] == "ConfigMap":
            known = {"registries": [{"host": site.guarded, "caFile": str(site.ca)}]}
            document["data"]["registries.yaml"] = json.dumps(known)

    stock.apply(DEPLOY / "crds/imagemaps.yaml")
    for folder, name, change in (
        ("heterogeneity", "rbac", None),
        ("heterogeneity", "node-guard", None),
        ("heterogeneity", "deployment", with_registries),
        ("scheduler", "rbac", None),
        ("scheduler", "deployment", None),
    ):
        stock.apply(DEPLOY / folder / f"{name}.yaml", change)
    port = str(free_port())
    local = {"10259": port, "0.0.0.0": "127.0.0.1"}
    with ExitStack() as stack:
        stack.enter_context(stock.workloads())
        stack.enter_context(stock.nodes(3))
        stock.kubectl("label", "--overwrite", "node", ARM, "kubernetes.io/arch=arm64")
        stack.enter_context(stock.metrics())
        quick = ("--health-port=0", "--speed-every-s=1")
        stack.enter_context(stock.deployment(HERE / "deployment.yaml", *quick))
        stack.enter_context(stock.deployment(DEPLOY / "scheduler/deployment.yaml", replace=local))
        yield stock


def pod(cluster, namespace, name, image, **spec):
    spec |= {"schedulerName": "motley-scheduler", "containers": [{"name": "c", "image": image}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.create(document, namespace)


def node_of(cluster, namespace, name):
    words = ("get", "pod", name, "-n", namespace, "-o", "jsonpath={.spec.nodeName}")
    return eventually(lambda: cluster.kubectl(*words).out, f"{name} is bound")


def known(cluster, image):
    maps = cluster.kubectl("get", "imagemaps", "-o", "json").json["items"]
    return [one for m in maps for one in m["spec"]["images"] if one["name"] == image]


def test_an_image_is_looked_up_and_its_pod_goes_where_it_runs(cluster, site):
    image = f"{site.plain}/only/arm:1"
    digest = site.push(image, "arm64")
    namespace = cluster.namespace("images")
    pod(cluster, namespace, "arm", image)
    assert node_of(cluster, namespace, "arm") == ARM
    (said,) = known(cluster, image)
    assert (said["source"], said["digest"]) == ("registry", digest)
    assert [a["architecture"] for a in said["architectures"]] == ["arm64"]


def test_a_pod_that_fits_nowhere_waits_with_the_reason_and_goes_when_that_changes(cluster, site):
    image = f"{site.plain}/big/iron:1"
    site.push(image, "s390x")
    namespace = cluster.namespace("iron")
    pod(cluster, namespace, "iron", image)
    words = "3 node(s)'s arch isn't included in pods arches"
    describe = ("describe", "pod", "iron", "-n", namespace)
    eventually(lambda: words in cluster.kubectl(*describe).out, "the reason")
    spec = {"images": [{"name": image, "architectures": [{"architecture": "arm64"}]}]}
    cluster.create(
        {"apiVersion": "motley.io/v1", "kind": "ImageMap", "metadata": {"name": "m"}, "spec": spec}
    )
    assert node_of(cluster, namespace, "iron") == ARM


def test_pull_secrets_are_read_only_where_somebody_allows_it(cluster, site):
    for namespace in (cluster.namespace("closed"), cluster.namespace("open")):
        site.push(f"{site.guarded}/private/{namespace}:1", "arm64")
        cluster.kubectl(
            *("create", "secret", "generic", "pull", "-n", namespace),
            "--type=kubernetes.io/dockerconfigjson",
            f"--from-file=.dockerconfigjson={site.login}",
        )
    role, account = f"{ACCOUNT[1]}:pull-secrets", ":".join(ACCOUNT)
    words = (f"--clusterrole={role}", f"--serviceaccount={account}")
    cluster.kubectl("create", "rolebinding", "motley-pull-secrets", "-n", "open", *words)
    allowed = ("get", "secrets", "-n", "open")
    eventually(lambda: cluster.may(ACCOUNT, *allowed), "the right is known")
    for namespace in ("closed", "open"):
        image = f"{site.guarded}/private/{namespace}:1"
        pod(cluster, namespace, "private", image, imagePullSecrets=[{"name": "pull"}])
    assert node_of(cluster, "open", "private") == ARM
    assert node_of(cluster, "closed", "private") != ARM
    assert [one["source"] for one in known(cluster, f"{site.guarded}/private/open:1")] == [
        "registry"
    ]
    (guess,) = known(cluster, f"{site.guarded}/private/closed:1")
    assert guess["source"] == "assumed"
    assert "wants credentials" in guess["message"]


def test_speeds_are_learnt_from_replicas_and_become_labels(cluster):
    namespace = cluster.namespace("load")
    cluster.kubectl("label", "--overwrite", "node", "n-0", "hice.kj=1.0")  # sets the scale
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "schedulerName": "motley-scheduler",
            "containers": [{"name": "c", "image": "localhost/web:1"}],
        },
    }
    replicas = {"replicas": 6, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 80}]}
    for version, kind, spec in (("apps/v1", "ReplicaSet", replicas), ("v1", "Service", service)):
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
        cluster.create(document, namespace)

    def running():
        pods = cluster.kubectl("get", "pods", "-n", namespace, "-o", "json").json["items"]
        return pods if [p["status"].get("phase") for p in pods] == ["Running"] * 6 else None

    pods = eventually(running, "six replicas run")
    assert {p["spec"]["nodeName"] for p in pods} == set(TRUTH)
    for number, one in enumerate(pods):
        milli = 200 / TRUTH[one["spec"]["nodeName"]] * (0.97 + 0.02 * (number % 4))
        uses = f"fake.motley.io/usage=cpu={milli:.0f}m,memory=64Mi"
        cluster.kubectl("annotate", "pod", one["metadata"]["name"], "-n", namespace, uses)

    def learnt():
        found = cluster.kubectl("get", "nodes", "-o", "json").json["items"]
        nodes = {n["metadata"]["name"]: n["metadata"] for n in found}
        return nodes if all("hice.kj" in nodes[name]["labels"] for name in TRUTH) else None

    found = eventually(learnt, "labels")
    for name, truth in TRUTH.items():
        said = found[name]["annotations"]
        assert float(said["motley.io/estimated-speed"]) == pytest.approx(truth, rel=0.1)
        assert float(found[name]["labels"]["hice.kj"]) == pytest.approx(truth, rel=0.1)
    assert found["n-0"]["labels"]["hice.kj"] == "1.0"  # a person's, left as it is


def test_the_role_is_enough_and_no_more(cluster):
    # Maps are deleted after a day in which no pod used their image.
    assert cluster.unused(HERE / "rbac.yaml", *ACCOUNT) == {
        Call("motley.io", "imagemaps", "delete")
    }
    assert cluster.refused(*ACCOUNT) == ["get /secrets closed/pull"]
    assert cluster.refused(*SCHEDULER) == []
    for words in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("patch", "pods"),
        ("delete", "nodes"),
        ("patch", "nodes", "--subresource=status"),
        ("patch", "leases/kube-controller-manager"),
    ):
        assert not cluster.may(ACCOUNT, *words, "-n", "kube-system"), words
    lease = ("get", "lease", ACCOUNT[1], "-n", ACCOUNT[0], "-o", "json")
    assert cluster.kubectl(*lease).json["spec"]["holderIdentity"]


def test_of_nodes_only_the_speed_may_be_written(cluster):
    def answer(change):
        """What the controllers' account is told for a change of a node."""
        config = kubeconfig.load(cluster.as_service_account(*ACCOUNT))
        asked = urllib.request.Request(
            f"{config.server}/api/v1/nodes/n-2", json.dumps(change).encode(), method="PATCH"
        )
        asked.add_header("Content-Type", "application/merge-patch+json")
        asked.add_header("Authorization", f"Bearer {config.token}")
        try:
            with urllib.request.urlopen(asked, context=config.ssl_context(), timeout=20) as found:
                return found.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    for change, words in (
        ({"metadata": {"labels": {"pool": "gold"}}}, "only hice.kj is theirs"),
        ({"metadata": {"labels": {"kubernetes.io/arch": None}}}, "only hice.kj is theirs"),
        ({"metadata": {"annotations": {"x": "y"}}}, "only those of motley.io are theirs"),
        ({"spec": {"unschedulable": True}}, "the spec of nodes is not theirs"),
        ({"metadata": {"labels": {"hice.kj": "0.8"}}}, '"hice.kj":"0.8"'),
    ):
        eventually(lambda change=change, words=words: words in answer(change), words, 20)


def test_what_was_found_is_shown_by_the_command(cluster, site):
    shown = motley("images", "list", "--kubeconfig", str(cluster.kubeconfig)).stdout
    assert [line.split()[1:] for line in shown.splitlines() if "only/arm" in line] == [
        ["linux/arm64", "registry"]
    ]
