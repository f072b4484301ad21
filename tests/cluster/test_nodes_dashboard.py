"""The dashboard as a pod: put into the cluster by one command, used with a token, taken out again.

Browsers are in other tests; here it is a client that keeps cookies, on a machine that trusts the
cluster's authority. The tests build on each other, in the order of the file.
"""

import re
import subprocess
import sys
from html import unescape

import msgspec
import pytest

from motley.ops import images
from motley.ops.testbed import eventually

pytestmark = pytest.mark.root
NAMESPACE = "motley-dashboard"

# visit.py ADDRESS CA TOKEN PATH …: what the login answers, then every page, as JSON.
VISIT = """
import http.cookiejar, json, ssl, sys, urllib.error, urllib.parse, urllib.request
address, authority, token, *paths = sys.argv[1:]
jar = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)),
    urllib.request.HTTPCookieProcessor(jar),
)
def ask(path, data=None):
    try:
        with opener.open(address + path, data, timeout=10) as answer:
            return [answer.status, answer.url, answer.read().decode()]
    except urllib.error.HTTPError as error:
        with error:
            return [error.code, error.url, error.read().decode()]
login = ask("login", urllib.parse.urlencode({"token": token}).encode())
cookies = [[c.secure, sorted(c._rest)] for c in jar]
print(json.dumps([login, cookies, *(ask(path) for path in paths)]))
"""


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share."""
    return three


@pytest.fixture(scope="module")
def installed(cluster):
    """The dashboard, put there by the command; what it said."""
    told = cluster.motley("dashboard", "install", "-o", "json")
    yield msgspec.json.decode(told)
    if cluster.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found"):  # a test failed
        cluster.motley("dashboard", "remove")


def visit(cluster, installed, token, *paths, where=0):
    """Log in at one of the addresses and look at pages, from the first node."""
    address, authority = installed["addresses"][where], installed["certificateAuthority"]
    command = [*cluster.inside, sys.executable, "-c", VISIT, address, authority, token, *paths]
    return msgspec.json.decode(subprocess.check_output(command, timeout=60))


def words(page):
    return unescape(re.sub(r"<[^>]+>", " ", page))


def test_the_page_is_reached_by_an_address_that_the_clusters_authority_vouches_for(
    cluster, installed
):
    assert len(installed["addresses"]) == 3  # a port of every node
    (pod,) = cluster.get("pods", "-n", NAMESPACE)["items"]
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["containers"][0]["image"] == images.DASHBOARD.reference
    for where in range(3):
        login, cookies, start = visit(cluster, installed, "nobodys", "", where=where)
        assert login[0] == 401
        assert cookies == []
        assert start[1].endswith("/login")  # strangers are shown nothing else


def test_a_pods_page_shows_what_that_pod_uses(cluster, installed):
    token = cluster.motley("dashboard", "token").strip()

    def used():
        told = cluster.kubectl("top", "pod", "web-2", "--no-headers")
        return int(told.split()[2].removesuffix("Mi"))

    def shown():
        login, cookies, overview, page = visit(cluster, installed, token, "", "pods/default/web-2")
        assert login[:2] == [200, installed["addresses"][0]]
        assert cookies == [[True, ["HttpOnly", "SameSite"]]]
        assert all(name in words(overview[2]) for name in ("node-1", "node-2", "node-3"))
        assert page[0] == 200
        assert "Pod web-2" in words(page[2])
        cpu = re.search(r'aria-label="CPU: used now ([0-9.]+)(m?),', page[2])
        memory = re.search(r'aria-label="Memory: used now ([0-9.]+) MiB,', page[2])
        return cpu and memory and float(memory[1])

    memory_mib = eventually(shown, 60, pause_s=0.5)
    assert memory_mib == pytest.approx(eventually(used, 30), rel=0.25)


def test_the_viewer_sees_no_secret_and_the_pod_has_no_token_of_its_own(cluster, installed):
    token = cluster.motley("dashboard", "token", "--duration", "10m").strip()
    *_, secrets, secret = visit(
        cluster,
        installed,
        token,
        "kinds/core/v1/secrets",
        f"kinds/core/v1/secrets/{NAMESPACE}/dashboard-tls",
    )
    for page in (secrets, secret):
        assert "secrets" in words(page[2])
        assert "is forbidden" in words(page[2])
        assert "tls.key" not in page[2]

    mounted = cluster.kubectl(
        *("exec", "-n", NAMESPACE, "deploy/dashboard", "--"),
        *("ls", "/var/run/secrets/kubernetes.io/serviceaccount"),
    )
    assert mounted.split() == ["ca.crt"]


def test_doing_it_again_changes_nothing_and_removing_leaves_nothing(cluster, installed):
    before = cluster.get("pods,services,secrets", "-n", NAMESPACE)["items"]
    assert msgspec.json.decode(cluster.motley("dashboard", "install", "-o", "json")) == installed
    after = cluster.get("pods,services,secrets", "-n", NAMESPACE)["items"]
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]
    cluster.motley("dashboard", "remove")
    kinds = "namespaces,clusterroles,clusterrolebindings"
    names = [one["metadata"]["name"] for one in cluster.get(kinds)["items"]]
    assert [name for name in names if "dashboard" in name] == []
    assert images.DASHBOARD.reference not in cluster.motley("image", "list")
    code, _, said = cluster.answer(
        *(sys.executable, "-m", "motley.cli.main", "dashboard", "token", "--root", cluster.root)
    )
    assert code == 1
    assert "motley dashboard install" in said
