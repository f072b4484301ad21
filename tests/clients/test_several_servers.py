"""Three API servers over one etcd are one API: whichever is asked, by whichever client.

They are started at the same moment over an empty store, with one authority, as `motley up
--control-planes 3` starts them.
"""

import asyncio
import signal
import ssl
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from kubernetes import client as kubernetes
from kubernetes import config as kubernetes_config

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.ops.etcdbed import Etcd

ADDRESS = "10.9.8.7"  # told to pods, never asked here
COUNT = 3


class Server:
    """One of three `motley apiserver` processes."""

    def __init__(self, directory, port, etcd, servers):
        self.directory, self.port = directory, port
        self.kubeconfig = directory / "admin.kubeconfig"
        self.url = f"https://127.0.0.1:{port}"
        self.process = None
        self._command = [sys.executable, "-m", "motley.cli.main", "apiserver"]
        self._command += ["--data-dir", str(directory), "--port", str(port)]
        self._command += ["--advertise-address", ADDRESS, "--etcd-servers", etcd.url]
        self._command += ["--servers", ",".join(servers)]

    def start(self):
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def is_ready(self):
        assert self.process.poll() is None, (self.directory / "server.log").read_text()[-4000:]
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=2):
                return True
        except OSError:
            return False

    def end(self, number=signal.SIGKILL):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20) if self.process else 0

    @property
    def api(self):
        """The official client, on this server alone."""
        found = kubernetes_config.new_client_from_config(str(self.kubeconfig))
        found.configuration.host = self.url
        return found


@pytest.fixture(scope="module")
def three(tmp_path_factory, until, free_ports):
    """Three servers, started together, that share their certificates and keys."""
    base = tmp_path_factory.mktemp("three")
    etcd = Etcd(base, fsync=False)
    ports = free_ports(COUNT)
    urls = [f"https://127.0.0.1:{port}" for port in ports]
    made = []
    try:
        asyncio.run(etcd.start())
        (base / "pki").mkdir()
        for number, port in enumerate(ports):
            directory = base / f"server{number}"
            directory.mkdir()
            (directory / "pki").symlink_to(Path("..", "pki"))
            made.append(Server(directory, port, etcd, urls))
        for server in made:
            server.start()
        for server in made:
            until(server.is_ready, "the server is ready")
        yield made
    finally:
        for server in made:
            server.end()
        etcd.kill()


@pytest.fixture(scope="module")
def apis(three):
    """The official client on each server."""
    found = [server.api for server in three]
    yield found
    for api in found:
        api.close()


@pytest.fixture
def kubectl(three, kubectl_on):
    return kubectl_on(three[0])


def endpoints(api):
    """Where the `kubernetes` Service leads."""
    listed = kubernetes.DiscoveryV1Api(api).list_namespaced_endpoint_slice(
        "default", label_selector="kubernetes.io/service-name=kubernetes"
    )
    return {
        (address, port.port)
        for one in listed.items
        for endpoint in one.endpoints or ()
        for address in endpoint.addresses
        for port in one.ports
    }


def config_map(name, **metadata):
    return {"metadata": {"name": name, **metadata}, "data": {"k": "v"}}


def code(call, *arguments):
    """The answer's code, whichever it is."""
    try:
        call(*arguments)
    except kubernetes.ApiException as error:
        return error.status
    return 201


def test_servers_that_start_together_make_everything_once(three, apis, until):
    for server in three:  # none stumbled over another and had to be started again
        assert "Traceback" not in (server.directory / "server.log").read_text()
    core = kubernetes.CoreV1Api(apis[0])
    names = [one.metadata.name for one in core.list_namespace().items]
    assert sorted(names) == ["default", "kube-node-lease", "kube-public", "kube-system"]
    wanted = {(ADDRESS, server.port) for server in three}
    for api in apis:
        until(lambda api=api: endpoints(api) == wanted, "every server is an endpoint")


def test_a_token_that_one_server_signed_is_good_at_the_others(three, apis):
    core = kubernetes.CoreV1Api(apis[0])
    core.create_namespaced_service_account("default", {"metadata": {"name": "robot"}})
    asked = {"spec": {"audiences": [], "expirationSeconds": 600}}
    token = core.create_namespaced_service_account_token("robot", "default", asked).status.token
    review = kubernetes.V1TokenReview(spec=kubernetes.V1TokenReviewSpec(token=token))
    for api in apis:
        found = kubernetes.AuthenticationV1Api(api).create_token_review(review).status
        assert found.user.username == "system:serviceaccount:default:robot"


def test_what_one_server_acknowledged_every_other_shows_at_once(apis):
    cores = [kubernetes.CoreV1Api(api) for api in apis]
    for number in range(30):
        writer, reader, lister = (cores[(number + step) % COUNT] for step in range(3))
        name = f"fresh-{number}"
        made = writer.create_namespaced_config_map("default", config_map(name))
        read = reader.read_namespaced_config_map(name, "default")
        assert read.metadata.resource_version == made.metadata.resource_version
        listed = lister.list_namespaced_config_map("default").items
        assert name in {one.metadata.name for one in listed}
        read.data = {"k": "new"}
        reader.replace_namespaced_config_map(name, "default", read)
        assert code(writer.replace_namespaced_config_map, name, "default", made) == 409
        lister.delete_namespaced_config_map(name, "default")
        assert code(writer.read_namespaced_config_map, name, "default") == 404


def test_a_list_begun_at_one_server_goes_on_at_another(apis):
    cores = [kubernetes.CoreV1Api(api) for api in apis]
    for number in range(7):
        cores[0].create_namespaced_config_map(
            "default", config_map(f"page-{number}", labels={"pages": "yes"})
        )
    names, token, turn = [], None, 0
    while token is not None or not names:
        chosen = {"label_selector": "pages=yes", "limit": 2, "_continue": token}
        page = cores[turn % COUNT].list_namespaced_config_map("default", **chosen)
        names += [one.metadata.name for one in page.items]
        token, turn = page.metadata._continue, turn + 1
    assert names == [f"page-{number}" for number in range(7)]
    assert turn == 4


def test_a_quota_holds_whichever_servers_are_asked_at_once(apis):
    cores = [kubernetes.CoreV1Api(api) for api in apis]
    cores[0].create_namespace({"metadata": {"name": "narrow"}})
    hard = {"count/configmaps": "20"}
    quota = {"metadata": {"name": "few"}, "spec": {"hard": hard}}
    cores[0].create_namespaced_resource_quota("narrow", quota)
    # The quota controller, which does not run here, begins the count.
    state = {"status": {"hard": hard, "used": {"count/configmaps": "0"}}}
    cores[0].patch_namespaced_resource_quota_status("few", "narrow", state)
    for core in cores:  # each knows the quota
        core.list_namespaced_resource_quota("narrow")

    def make(number):
        core = cores[number % COUNT]
        return code(core.create_namespaced_config_map, "narrow", config_map(f"q{number}"))

    with ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(make, range(60)))
    assert sorted(codes) == [201] * 20 + [403] * 40
    assert len(cores[1].list_namespaced_config_map("narrow").items) == 20
    used = cores[2].read_namespaced_resource_quota("few", "narrow").status.used
    assert used == {"count/configmaps": "20"}


DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.example.com}
spec:
  group: example.com
  names: {plural: gears, singular: gear, kind: Gear}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def test_a_kind_that_one_server_has_established_can_be_used_at_every_other(apis, kubectl):
    kubectl("apply", "-f", "-", stdin=DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/gears.example.com", "--timeout=20s")
    for number, api in enumerate(apis):
        gear = {"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": f"g{number}"}}
        custom = kubernetes.CustomObjectsApi(api)
        custom.create_namespaced_custom_object("example.com", "v1", "default", "gears", gear)
    assert kubectl("get", "gears", "-o", "name").out.split() == [
        f"gear.example.com/g{number}" for number in range(COUNT)
    ]
    services = kubectl("get", "apiservice", "v1.example.com", "-o", "name").out
    assert services.strip() == "apiservice.apiregistration.k8s.io/v1.example.com"


def test_kubectl_passes_over_the_list_of_servers_and_keeps_it(three, kubectl_on, tmp_path):
    path = tmp_path / "config"
    path.write_bytes(three[0].kubeconfig.read_bytes())
    kubectl = kubectl_on(three[0], path)
    change = ("config", "set-context", "--current", "--namespace=kube-system")
    subprocess.run([kubectl.binary, f"--kubeconfig={path}", *change], check=True, timeout=30)
    assert yaml.safe_load(path.read_text())["contexts"][0]["context"]["namespace"] == "kube-system"
    found = kubeconfig.load(path)
    assert found.servers == tuple(server.url for server in three)
    assert kubectl("get", "--raw", "/readyz").out == "ok"


async def test_a_client_with_the_list_does_not_mind_a_server_that_dies(three, until):
    config = kubeconfig.load(three[1].kubeconfig)
    made = set()
    try:
        async with Client(config, user_agent="list") as client:
            for number in range(60):
                if number == 20:
                    three[0].end(signal.SIGKILL)
                try:
                    await client.create(ConfigMap, config_map(f"l{number}"), "default")
                except status.GatewayTimeout:
                    continue  # it was under way: whether it happened is for the caller to find out
                made.add(f"l{number}")
            listed = await client.list(ConfigMap, namespace="default")
        assert made <= {one.metadata.name for one in listed.items}
        assert len(made) >= 59
    finally:
        three[0].start()
        until(three[0].is_ready, "the server is ready again")


def test_a_server_that_is_stopped_leaves_the_service_at_once_and_comes_back(three, apis, until):
    wanted = {(ADDRESS, server.port) for server in three}
    until(lambda: endpoints(apis[1]) == wanted, "every server is an endpoint")
    assert three[2].end(signal.SIGTERM) == 0
    try:
        assert endpoints(apis[1]) == wanted - {(ADDRESS, three[2].port)}
    finally:
        three[2].start()
        until(three[2].is_ready, "the server is ready again")
    until(lambda: endpoints(apis[1]) == wanted, "it is an endpoint again")
