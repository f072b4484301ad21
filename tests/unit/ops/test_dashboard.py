"""The dashboard's image and manifests, and what they become in a cluster of ours."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import motley
from motley.api.views import core
from motley.apiserver import rotation, tls
from motley.apiserver.admission.podsecurity import checks, levels
from motley.client import manifests
from motley.lib import clock
from motley.ops import certificates, dashboard, dashboardfiles, images
from motley.ops import dashboardplan as plan
from motley.ops.config import Config
from motley.ops.failure import Failure

PACKAGE = Path(motley.__file__).parent


def documents(kind=None):
    found = list(manifests.documents(plan.manifest()))
    return [one for one in found if kind in (None, one["kind"])]


# -- the image ------------------------------------------------------------------------------


def test_the_image_has_every_file_of_the_dashboard():
    there = {name.removeprefix("usr/lib/motley/motley/") for name in images.DASHBOARD.files}
    every = (path for path in (PACKAGE / "dashboard").rglob("*") if path.is_file())
    wanted = {str(p.relative_to(PACKAGE)) for p in every if "__pycache__" not in p.parts}
    assert there == wanted | set(dashboardfiles.SHARED)


def test_the_image_changes_with_each_of_its_files():
    for name, text in images.DASHBOARD.files.items():
        changed = {**images.DASHBOARD.files, name: f"{text}\n"}
        other = msgspec.structs.replace(images.DASHBOARD, files=changed)
        assert other.fingerprint() != images.DASHBOARD.fingerprint()


def test_what_is_in_the_image_starts_with_pythons_own_library_alone(tmp_path):
    for name, text in images.DASHBOARD.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (variable,) = (v for v in images.DASHBOARD.config["Env"] if v.startswith("PYTHONPATH="))
    place = tmp_path / variable.partition("=")[2].lstrip("/")
    command = [sys.executable, "-P", "-S", "-B", *images.DASHBOARD.config["Entrypoint"][1:]]
    done = subprocess.run(
        [*command, "--help"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for option in ("--tls-dir", "--api", "--ca"):
        assert option in done.stdout


def test_nobody_in_particular_runs_it():
    assert images.DASHBOARD.config["User"] == "65532:65532"
    assert images.DASHBOARD.reference == "localhost/motley/dashboard:1"
    assert images.DASHBOARD not in images.RECIPES  # made when it is asked for


def test_the_dockerfile_copies_what_the_recipe_has():
    lines = plan.manifest().with_name("Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    shared = {f"src/motley/{name}" for name in dashboardfiles.SHARED}
    assert set(copied) == shared | {"src/motley/dashboard"}


# -- the manifests --------------------------------------------------------------------------


def test_the_pod_is_what_the_restricted_standard_allows():
    (namespace,), (deployment,) = documents("Namespace"), documents("Deployment")
    policies = levels.of(namespace["metadata"]["labels"])
    assert policies.enforce.level == "restricted"
    spec = deployment["spec"]["template"]["spec"]
    assert checks.evaluate(policies.enforce, spec, {}) == []
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_pod_has_no_token_and_nobody_gave_it_rights():
    (deployment,) = documents("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    sources = [s for v in spec["volumes"] for s in v.get("projected", {}).get("sources", ())]
    assert [list(one) for one in sources] == [["configMap"]]
    bound = [s["name"] for b in documents("ClusterRoleBinding") for s in b["subjects"]]
    assert spec["serviceAccountName"] not in bound
    assert set(bound) == {"viewer"}


def test_the_viewer_may_only_look_and_never_at_secrets():
    rules = [rule for role in documents("ClusterRole") for rule in role["rules"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "secrets" not in {resource for rule in rules for resource in rule["resources"]}
    roles = {one["roleRef"]["name"] for one in documents("ClusterRoleBinding")}
    assert roles == {"view", "motley-dashboard-viewer"}


def test_every_object_is_of_a_built_in_kind_and_is_found_again():
    labels = {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in documents()}
    assert labels == {plan.NAMESPACE}
    for one in documents():
        view = manifests.view_of(one)
        assert view.NAMESPACED is (one["metadata"].get("namespace") == plan.NAMESPACE)


# -- what they become -----------------------------------------------------------------------


def service(type_="NodePort", node_port=30123, balanced=()):
    return core.Service.of(
        {
            "metadata": {"name": "dashboard"},
            "spec": {
                "type": type_,
                "clusterIP": "10.96.0.7",
                "clusterIPs": ["10.96.0.7"],
                "ports": [{"port": 443, "nodePort": node_port}],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in balanced]}},
        }
    )


def node(name, address):
    return core.Node.of(
        {
            "metadata": {"name": name},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": address},
                    {"type": "Hostname", "address": name},
                ]
            },
        }
    )


NODES = [node("a", "10.0.0.1"), node("b", "10.0.0.2")]


def test_the_service_is_as_asked_for_and_else_as_it_is():
    assert plan.exposure(None, 0, None) == plan.Exposure("NodePort", 0)
    assert plan.exposure(None, 30443, None) == plan.Exposure("NodePort", 30443)
    assert plan.exposure(None, 0, service()) == plan.Exposure("NodePort", 30123)
    assert plan.exposure("LoadBalancer", 0, service()) == plan.Exposure("LoadBalancer", 30123)
    assert plan.exposure(None, 0, service("ClusterIP", 0)) == plan.Exposure("ClusterIP", 0)
    assert plan.exposure("ClusterIP", 0, service()) == plan.Exposure("ClusterIP", 0)
    assert plan.exposure(None, 30443, service("ClusterIP", 0)) == plan.Exposure("NodePort", 30443)
    with pytest.raises(Failure, match="no port on nodes"):
        plan.exposure("ClusterIP", 30443, None)


def test_pods_stay_where_their_image_is_and_are_replaced_with_it():
    (document,) = documents("Deployment")
    made = plan.deployment(document, "localhost/x:1", ("ab", "cd"), ["a", "b"])
    template = made["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "localhost/x:1"
    (term,) = template["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["a", "b"]
    again = plan.deployment(document, "localhost/x:1", ("ab", "ce"), ["a", "b"])
    assert again["spec"]["template"]["metadata"] != template["metadata"]
    (untouched,) = documents("Deployment")
    assert document == untouched


def test_the_certificate_has_every_name_a_browser_may_use():
    names = plan.serving_names(service(balanced=["192.0.2.9"]), NODES, ["d.example"], "local")
    assert names == [
        *("d.example", "localhost", "127.0.0.1"),
        *("dashboard.motley-dashboard.svc", "dashboard.motley-dashboard.svc.local"),
        *("10.96.0.7", "192.0.2.9", "10.0.0.1", "a", "10.0.0.2", "b"),
    ]


def test_names_asked_for_once_are_remembered_until_others_are():
    secret = core.Secret.of(plan.tls_secret(b"cert", b"key", ["d.example", "e.example"]))
    assert plan.certificate_of(secret) == b"cert"
    assert plan.asked_names((), secret) == ("d.example", "e.example")
    assert plan.asked_names(("f.example",), secret) == ("f.example",)
    assert plan.asked_names((), None) == ()
    assert plan.asked_names((), core.Secret.of(plan.tls_secret(b"", b"", []))) == ()


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (
            service(),
            ["https://d.example:30123/", "https://10.0.0.2:30123/", "https://10.0.0.1:30123/"],
        ),
        (service("ClusterIP", 0), ["https://10.96.0.7/"]),
        (service("LoadBalancer", 0, ["192.0.2.9"]), ["https://192.0.2.9/"]),
        (service("LoadBalancer", 0, ["2001:db8::9"]), ["https://[2001:db8::9]/"]),
    ],
)
def test_people_are_told_the_address_they_can_use(present, expected):
    assert plan.addresses(present, NODES, "10.0.0.2", ["d.example"]) == expected


def test_a_certificate_is_good_while_it_lasts_and_has_the_names(tmp_path):
    class Later:
        def now(self):
            return clock.SYSTEM.now() + 340 * 86400

    pki = tls.ensure(tmp_path, addresses=[])
    pem, _ = tls.issue_server(pki, "x", ["a", "10.0.0.1"])
    assert certificates.is_good_server(pem, pki.ca_pem, ["10.0.0.1"])
    assert not certificates.is_good_server(pem, pki.ca_pem, ["10.0.0.1", "10.0.0.2"])
    assert not certificates.is_good_server(pem, pki.ca_pem, ["a"], Later())
    assert not certificates.is_good_server(b"", pki.ca_pem, ["a"])


class Applying:
    """A client that keeps what is applied."""

    def __init__(self):
        self.secret = None

    async def apply(self, view, document, **_):
        self.secret = core.Secret.of(document)


async def test_a_new_authority_signs_the_certificate_as_soon_as_it_signs_at_all(tmp_path):
    pki = tls.ensure(tmp_path / "apiserver", addresses=[])
    config, client, said = Config(root=tmp_path), Applying(), []

    async def certify():
        return await dashboard.certify(config, client, client.secret, ["a"], [], said.append)

    first = await certify()
    assert await certify() == first
    both = rotation.begin(tmp_path / "apiserver").ca_pem
    second = await certify()
    assert await certify() == second
    assert len(said) == 2
    assert tls.issued_by_us(first, pki.ca_pem)
    assert not tls.issued_by_us(second, pki.ca_pem)
    assert tls.issued_by_us(second, both)
