"""The dashboard's manifests and its command against a real server; its pods are in other tests."""

import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from motley.api import status
from motley.api.views import core
from motley.cli.main import main
from motley.client import kubeconfig, manifests
from motley.client.rest import Client
from motley.lib import clock
from motley.ops import dashboard
from motley.ops import dashboardplan as plan
from motley.ops.config import Config, current_netns

from .stock import DEPLOY, Stock, eventually


@pytest.fixture(scope="module")
def config(place, tmp_path_factory):
    """The server as that of a cluster, of which nothing else runs."""
    root = tmp_path_factory.mktemp("cluster")
    (root / "apiserver").symlink_to(place.directory)
    made = Config(
        root=root, node_name="n", node_ip="127.0.0.1", api_port=place.port, netns=current_netns()
    )
    made.save()
    return made


@pytest.fixture(scope="module")
def roles(place):
    """The built-in roles, which a Motley cluster has at once: there kube-controller-manager sums
    them up, and what may be done with Motley's kinds comes from `deploy/`."""
    if not isinstance(place, Stock):
        yield
        return
    place.apply(DEPLOY / "roles/roles.yaml")
    with place.workloads():
        words = ("get", "clusterrole", "view", "-o", "yaml")
        eventually(lambda: "decisions" in place.kubectl(*words).out, "the role view")
        yield


@pytest.fixture(scope="module")
def applied(place, roles, kubectl_binary, tmp_path_factory):
    """The manifests as they are; what kubectl said and the server warned of."""
    done = subprocess.run(
        [
            *(kubectl_binary, "--kubeconfig", str(place.kubeconfig)),
            *("apply", "--validate=strict", "-f", str(plan.manifest())),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(tmp_path_factory.mktemp("home")), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done


def motley(*arguments):
    # In a thread of its own: a command runs an event loop, and pytest has one in this thread.
    words = ["dashboard", *map(str, arguments)]
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(CliRunner().invoke, main, words).result(60)


def test_every_object_is_accepted_and_the_pod_is_not_warned_of(applied):
    count = len(list(manifests.documents(plan.manifest())))
    assert applied.stdout.count(" created\n") == count
    assert applied.stderr == ""


RIGHTS = [
    ("viewer", "", "pods", True),
    ("viewer", "", "pods/log", True),
    ("viewer", "", "nodes", True),
    ("viewer", "metrics.k8s.io", "nodes", True),
    ("viewer", "history.motley.io", "pods", True),
    ("viewer", "motley.io", "decisions", True),
    ("viewer", "rbac.authorization.k8s.io", "clusterroles", False),
    ("viewer", "", "secrets", False),
    ("viewer", "", "pods/exec", False),
    ("dashboard", "", "pods", False),
    ("dashboard", "", "nodes", False),
]


async def test_the_viewer_may_look_and_the_dashboard_itself_may_not(applied, place):
    async with Client(kubeconfig.load(place.kubeconfig)) as client:
        for account, group, what, expected in RIGHTS:
            resource, _, subresource = what.partition("/")
            asked = {"verb": "get", "group": group, "resource": resource, "name": "x"}
            asked |= {"subresource": subresource, "namespace": "default"}
            user = f"system:serviceaccount:{plan.NAMESPACE}:{account}"
            review = await client.raw(
                "POST",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                body={
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": {"user": user, "resourceAttributes": asked},
                },
            )
            assert review["status"]["allowed"] is expected, (account, what)


async def test_a_token_is_printed_alone_and_is_the_viewers(applied, place, config):
    answer = motley("token", "--root", config.root)
    assert answer.exit_code == 0, answer.output
    (line,) = answer.stdout.splitlines()
    admin = kubeconfig.load(place.kubeconfig)
    async with Client(kubeconfig.Config(admin.server, ca=admin.ca, token=line)) as client:
        names = [one.metadata.name for one in (await client.list(core.Namespace)).items]
        assert plan.NAMESPACE in names
        with pytest.raises(status.Forbidden, match="motley-dashboard:viewer"):
            await client.list(core.Secret)
    assert (
        "10m is the shortest" in motley("token", "--duration", "1m", "--root", config.root).output
    )


class Later:
    """The same day, eleven and a half months on."""

    def now(self):
        return clock.SYSTEM.now() + 345 * 86400


async def test_the_certificate_is_made_once_and_anew_when_it_ends_or_lacks_a_name(
    applied, place, config
):
    told = []
    async with Client(kubeconfig.load(place.kubeconfig)) as client:

        async def certify(names, source=clock.SYSTEM):
            secret = await dashboard.find(client, core.Secret, plan.TLS_SECRET)
            return await dashboard.certify(
                config, client, secret, names, ["d.example"], told.append, source
            )

        first = await certify(["10.0.0.1"])
        assert await certify(["10.0.0.1"]) == first
        assert told == ["made: there was none"]
        second = await certify(["10.0.0.1", "10.0.0.2"])
        third = await certify(["10.0.0.2"], Later())
        assert len({first, second, third}) == len(told) == 3
        stored = await client.get(core.Secret, plan.TLS_SECRET, plan.NAMESPACE)
        assert plan.certificate_of(stored) == third
        assert stored.type == "kubernetes.io/tls"
        assert plan.asked_names((), stored) == ("d.example",)


async def test_what_was_chosen_for_the_service_stays_when_nothing_is_said(applied, place):
    objects = [d for d in manifests.documents(plan.manifest()) if d["kind"] != "Deployment"]
    async with Client(kubeconfig.load(place.kubeconfig)) as client:

        async def exposed(*wish):
            await dashboard.expose(client, objects, dashboard.Wish(*wish))
            spec = (await client.get(core.Service, plan.NAME, plan.NAMESPACE)).spec
            return spec.type, spec.ports[0].node_port

        assert await exposed("NodePort", 30443) == ("NodePort", 30443)
        assert await exposed() == ("NodePort", 30443)
        assert await exposed("LoadBalancer") == ("LoadBalancer", 30443)
        assert await exposed("ClusterIP") == ("ClusterIP", 0)
        assert await exposed() == ("ClusterIP", 0)


def test_a_cluster_that_does_not_run_is_said_to_be_so(config, tmp_path):
    answer = motley("install", "--root", config.root)
    assert answer.exit_code == 1
    assert "the runtime of n does not run\nStart it: motley up" in answer.output
    answer = motley("install", "--root", tmp_path)
    assert answer.exit_code == 1
    assert "there is no cluster" in answer.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_served_here_it_is_for_whoever_has_the_printed_address(applied, place, number):
    words = ("dashboard", "--kubeconfig", str(place.kubeconfig), "--port", "0")
    command = [sys.executable, "-m", "motley.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            printed = process.stdout.readline().decode().strip()
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(printed.partition("?")[0], timeout=10) as page:
                assert page.url.endswith("/login")
                assert plan.NAMESPACE not in page.read().decode()
            with opener.open(printed, timeout=10) as page:
                assert page.url.startswith("http://127.0.0.1:")
                assert "key=" not in page.url
            kinds = f"{printed.partition('?')[0]}kinds/core/v1/namespaces"
            with opener.open(kinds, timeout=10) as page:
                assert plan.NAMESPACE in page.read().decode()
            process.send_signal(number)
            assert process.wait(30) == 0
        finally:
            process.kill()
