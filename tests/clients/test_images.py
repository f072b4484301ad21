"""A cluster of unlike machines, end to end on fake nodes: architectures and speeds.

Images of several architectures go from a real registry to the node they can run on.

The registries are those of `registries.py`.
"""

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from motley.ops.freeports import free_port

from .registries import motley, running

SERVER_OPTIONS = ("--metrics-every-s", "0.5")
EXAMPLES = Path(__file__).parents[2] / "examples"
ARCHITECTURES = {"n-0": "amd64", "n-1": "arm64", "n-2": "amd64"}
LOGICAL = "local-registry:5000/test-nginx:latest"


def eventually(condition, what, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        threading.Event().wait(0.05)
    return found


# -- the registries alone -------------------------------------------------------------------


def test_an_image_of_two_architectures_is_pushed_and_found(site):
    digest = site.push(f"{site.plain}/team/web:1", "amd64", "arm64")
    found = json.loads(motley("images", "resolve", f"{site.plain}/team/web:1", "-o", "json").stdout)
    assert found == {
        "image": f"{site.plain}/team/web:1",
        "platforms": ["linux/amd64", "linux/arm64"],
        "source": "registry",
        "digest": digest,
    }
    named = motley("images", "resolve", f"{site.plain}/team/web@{digest}").stdout
    assert "linux/arm64" in named
    # What was pushed is what any client gets.
    with urllib.request.urlopen(f"http://{site.plain}/v2/team/web/tags/list", timeout=5) as answer:
        assert json.load(answer)["tags"] == ["1"]


def test_passwords_and_an_authority_of_ones_own_are_used_and_needed(site):
    image = f"{site.guarded}/private/tool:1"
    site.push(image, "arm64")
    trusted = ["--ca-file", str(site.ca)]
    let_in = motley("images", "resolve", image, *trusted, "--docker-config", str(site.login))
    assert let_in.stdout.split()[3:5] == ["linux/arm64", "registry"]
    refused = motley("images", "resolve", image, *trusted)
    assert "assumed" in refused.stdout
    assert "wants credentials" in refused.stderr
    untrusted = motley("images", "resolve", image, "--docker-config", str(site.login))
    assert "assumed" in untrusted.stdout


# -- in a cluster ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def components(server, site):
    motley_ = [sys.executable, "-m", "motley.cli.main"]
    config = ["--kubeconfig", str(server.kubeconfig), "--log-level", "warning"]
    registries = str(site.directory / "registries.yaml")
    controllers = ["--health-port", "0", "--no-leader-elect", "--registries", registries]
    controllers += ["--speed-every-s", "1"]
    commands = [
        [*motley_, "controllers", *config, *controllers],
        [*motley_, "fake-nodes", *config, "--count", "3", "--prefix", "n-"],
        [*motley_, "scheduler", *config, "--health-port", "0", "--no-leader-elect"],
    ]
    with running(commands, server.directory / "components.log"):
        yield server


@pytest.fixture
def cluster(components, kubectl):
    """kubectl of a cluster with nodes of two architectures."""
    eventually(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    for name, arch in ARCHITECTURES.items():
        kubectl("label", "--overwrite", "node", name, f"kubernetes.io/arch={arch}")
    return kubectl


def pod(kubectl, name, *images, **spec):
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    body = {"containers": containers, **spec}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}
    kubectl("create", "-f", "-", stdin=json.dumps(document))


def bound(kubectl, name):
    def look():
        found = kubectl("get", "pod", name, "-o", "json").json
        return found if found["spec"].get("nodeName") else None

    return eventually(look, f"{name} is bound")


def arch(found):
    return ARCHITECTURES[found["spec"]["nodeName"]]


def test_the_documents_table_is_imported_and_decides_at_once(cluster, components):
    config = ("--kubeconfig", str(components.kubeconfig))
    done = motley("images", "import", str(EXAMPLES / "kubehice/images.yaml"), *config)
    assert done.stdout == "imagemap.motley.io/images: 1 images imported\n"
    listed = motley("images", "list", *config).stdout.splitlines()
    assert [line.split() for line in listed] == [
        ["IMAGE", "PLATFORMS", "SOURCE"],
        [LOGICAL, "linux/amd64,linux/arm64", "import"],
    ]
    shown = motley("images", "show", LOGICAL, "-o", "json", *config).stdout
    assert [a["image"] for a in json.loads(shown)[0]["architectures"]] == [
        f"{LOGICAL}-amd64",
        f"{LOGICAL}-arm64",
    ]
    assert "nothing is known" in motley("images", "show", "other", *config, fails=True).stderr
    assert "imagemap.motley.io/images\n" in cluster("get", "imagemaps", "-o", "name").out

    # One Deployment without any selector: each replica gets its own node's variant.
    text = (
        (EXAMPLES / "kubehice/deployment.yaml").read_text().replace("hostPort: 80", "hostPort: 81")
    )
    text = text.replace("kubehice-scheduler", "default-scheduler")
    cluster("apply", "-f", "-", stdin=text)
    cluster("scale", "deployment", "--all", "--replicas=4")

    def replicas():
        pods = cluster("get", "pods", "-o", "json").json["items"]
        return [p for p in pods if p["metadata"].get("ownerReferences")]

    def placed():
        return [p for p in replicas() if p["spec"].get("nodeName")]

    def last_waits():
        events = cluster("get", "events", "--field-selector=reason=FailedScheduling", "-o", "json")
        return any("free ports" in e["message"] for e in events.json["items"])

    eventually(lambda: len(placed()) == 3 and last_waits(), "one replica per node, the last waits")
    assert {p["spec"]["nodeName"] for p in placed()} == set(ARCHITECTURES)
    for one in placed():
        container = one["spec"]["containers"][0]
        assert container["image"] == f"{LOGICAL}-{arch(one)}"
        assert container["imagePullPolicy"] == "Always"
        noted = one["metadata"]["annotations"]["motley.io/images-as-written"]
        assert json.loads(noted) == {container["name"]: LOGICAL}
    # The owner's template is as it was, and nobody makes the pods anew for it.
    sets = cluster("get", "replicasets", "-o", "json").json["items"]
    assert [s["spec"]["template"]["spec"]["containers"][0]["image"] for s in sets] == [LOGICAL]
    assert len(replicas()) == 4
    cluster("delete", "deployment", "--all", "--wait=false")


def test_an_unknown_image_is_looked_up_with_the_pods_own_secret(cluster, components, site):
    image = f"{site.guarded}/private/app:2"
    site.push(image, "arm64")
    cluster(
        "create",
        "secret",
        "generic",
        "pull",
        "--type=kubernetes.io/dockerconfigjson",
        f"--from-file=.dockerconfigjson={site.login}",
    )
    begun = time.monotonic()
    pod(cluster, "private", image, imagePullSecrets=[{"name": "pull"}])
    assert arch(bound(cluster, "private")) == "arm64"
    assert time.monotonic() - begun < 9.0  # known, not given up
    config = ("--kubeconfig", str(components.kubeconfig))
    (shown,) = json.loads(motley("images", "show", image, "-o", "json", *config).stdout)
    assert shown["source"] == "registry"
    assert shown["digest"].startswith("sha256:")


def test_the_secret_may_be_the_service_accounts_and_the_registry_plain(cluster, site):
    image = f"{site.guarded}/private/account:1"
    site.push(image, "arm64")
    second = f"{site.plain}/open/side:1"
    site.push(second, "arm64", "amd64")
    entry = json.dumps({"imagePullSecrets": [{"name": "shared"}]})
    cluster(
        "create",
        "secret",
        "docker-registry",
        "shared",
        f"--docker-server={site.guarded}",
        "--docker-username=puller",
        "--docker-password=secret",
    )
    cluster("create", "serviceaccount", "builder")
    cluster("patch", "serviceaccount", "builder", "-p", entry)
    pod(cluster, "account", image, second, serviceAccountName="builder")
    assert arch(bound(cluster, "account")) == "arm64"


def test_without_an_answer_the_name_decides_and_then_amd64(cluster, components):
    nowhere = f"127.0.0.1:{free_port()}"
    pod(cluster, "named", f"{nowhere}/app-arm64:1")
    pod(cluster, "plain", f"{nowhere}/app:1")
    assert arch(bound(cluster, "named")) == "arm64"
    assert arch(bound(cluster, "plain")) == "amd64"
    config = ("--kubeconfig", str(components.kubeconfig))
    (shown,) = json.loads(
        motley("images", "show", f"{nowhere}/app:1", "-o", "json", *config).stdout
    )
    assert shown["source"] == "assumed"
    assert nowhere in shown["message"]


def test_a_pod_that_fits_no_architecture_says_so_and_goes_when_that_changes(cluster, site):
    image = f"{site.plain}/big/iron:1"
    site.push(image, "s390x")
    pod(cluster, "iron", image)
    words = "0/3 nodes are available: 3 node(s)'s arch isn't included in pods arches"
    eventually(lambda: words in cluster("describe", "pod", "iron").out, "the reason")
    spec = {"images": [{"name": image, "architectures": [{"architecture": "arm64"}]}]}
    document = {"apiVersion": "motley.io/v1", "kind": "ImageMap", "metadata": {"name": "mine"}}
    begun = time.monotonic()
    cluster("create", "-f", "-", stdin=json.dumps({**document, "spec": spec}))
    assert arch(bound(cluster, "iron")) == "arm64"
    assert time.monotonic() - begun < 15.0


# -- speeds ---------------------------------------------------------------------------------

TRUTH = {"n-0": 1.0, "n-1": 0.5, "n-2": 0.8}
SERVICE = {"selector": {"app": "web"}, "ports": [{"port": 12345, "targetPort": 80}]}


def test_speeds_are_learnt_from_the_replicas_behind_a_service(cluster, components):
    cluster("label", "--overwrite", "node", "n-0", "hice.kj=1.0")  # sets the scale
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "localhost/web:1"}]},
    }
    replicas = {"replicas": 6, "selector": {"matchLabels": labels}, "template": template}
    for version, kind, spec in (("apps/v1", "ReplicaSet", replicas), ("v1", "Service", SERVICE)):
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
        cluster("create", "-f", "-", stdin=json.dumps(document))

    def running_pods():
        pods = cluster("get", "pods", "-o", "json").json["items"]
        return pods if [p["status"].get("phase") for p in pods] == ["Running"] * 6 else None

    pods = eventually(running_pods, "six replicas run")
    assert {p["spec"]["nodeName"] for p in pods} == set(TRUTH)
    for number, one in enumerate(pods):
        milli = 200 / TRUTH[one["spec"]["nodeName"]] * (0.97 + 0.02 * (number % 4))
        uses = f"fake.motley.io/usage=cpu={milli:.0f}m,memory=64Mi"
        cluster("annotate", "pod", one["metadata"]["name"], uses)

    def nodes():
        found = cluster("get", "nodes", "-o", "json").json["items"]
        return {n["metadata"]["name"]: n["metadata"] for n in found}

    def learnt():
        found = nodes()
        return found if all("hice.kj" in found[name]["labels"] for name in TRUTH) else None

    found = eventually(learnt, "labels")
    for name, truth in TRUTH.items():
        annotations = found[name]["annotations"]
        assert float(annotations["motley.io/estimated-speed"]) == pytest.approx(truth, rel=0.1)
        low, high = map(float, annotations["motley.io/estimated-speed-interval"].split("-"))
        assert low <= high
    assert found["n-0"]["labels"]["hice.kj"] == "1.0"  # a person's
    assert float(found["n-1"]["labels"]["hice.kj"]) == pytest.approx(0.5, rel=0.1)

    config = ("--kubeconfig", str(components.kubeconfig))
    plain = json.loads(motley("top", "nodes", "-o", "json", *config).stdout)
    same = json.loads(motley("top", "nodes", "--normalized", "-o", "json", *config).stdout)
    used = {row["name"]: row["cpuMilli"] for row in plain}
    even = {row["name"]: row["cpuMilli"] for row in same}
    assert used["n-1"] > 1.7 * used["n-0"]
    assert even["n-1"] == pytest.approx(even["n-0"], rel=0.15)
    lines = motley("top", "nodes", "--normalized", *config).stdout.splitlines()
    header = "NAME SPEED CPU(normalized) CPU(%) MEMORY(bytes) MEMORY(%)"
    assert lines[0].split() == header.split()
    shown = motley("top", "pods", "-n", cluster.namespace, "--sort-by", "cpu", *config).stdout
    assert shown.startswith("NAME")
    assert len(shown.splitlines()) == 1 + len(pods)
    first, last = shown.splitlines()[1].split()[1], shown.splitlines()[-1].split()[1]
    assert int(first.removesuffix("m")) > int(last.removesuffix("m"))
