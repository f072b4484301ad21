"""The dashboard as people have it: a real browser, the dashboard's process, a real API server.

The server finds an hour of history when it starts, and measures on from there what pods on fake
nodes say they use.
"""

import json
import subprocess
import sys

import pytest

from motley.dashboard import figures
from motley.lib.clock import SYSTEM
from motley.metrics.history import NODE, POD, History, Sample, Series
from motley.metrics.history_ring import Ring

from . import browser as browsers

SERVER_OPTIONS = ("--metrics-every-s", "0.5")
HOME, ARROW_RIGHT, ESCAPE = "\ue011", "\ue014", "\ue00c"
CPU_USE, MEMORY_USE = 0.1, 48 * 2.0**20  # an hour ago; since then twice as much every half hour
HOSTILE = "</pre></td><script>window.hit=1;alert(1)</script><img src=x onerror='window.hit=2'>"
# Pages that are opened with #fast live twenty times faster: they refresh themselves every 0.5 s.
FAST = """if (location.hash === "#fast") {
  const real = window.setTimeout;
  window.setTimeout = (what, ms, ...more) => real(what, (ms || 0) / 20, ...more);
}"""
# How far right of the picture's middle the middle of what is drawn lies.
MIDDLE = """const svg = document.querySelector(".chart svg");
const [left, right] = JSON.parse(svg.parentNode.dataset.chart).box;
const width = svg.viewBox.baseVal.width;
return ((left + right - width) / 2) * (svg.clientWidth / width);"""
SHOWN = """const rows = [...document.querySelectorAll("tbody tr:not([hidden])")];
return rows.map((row) => row.cells[0].textContent);"""
DRAWN = """const of = (css, what) => [...document.querySelectorAll(css)].map(what);
return [
  of(".chart figcaption", (caption) => caption.textContent),
  of(".chart .line", (line) => line.getTotalLength()),
  of(".chart .line", (line) => line.getAttribute("d")),
];"""
READS = ["nodes", "pods", "events", "namespaces", "pods/log"]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "looker"},
    "rules": [
        {"apiGroups": [""], "resources": READS, "verbs": ["get", "list"]},
        {
            "apiGroups": ["metrics.k8s.io", "history.motley.io", "apps", "batch"],
            "resources": ["*"],
            "verbs": ["get", "list"],
        },
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "looker"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"},
    "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "shop"}],
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "hostile.1", "namespace": "shop"},
    "type": "Warning",
    "reason": "<b>Bold</b>",
    "message": HOSTILE,
    "count": 2,
    "involvedObject": {"kind": "Pod", "name": "hostile", "namespace": "shop", "apiVersion": "v1"},
}


def prepare_server(directory):
    """What was used in the last hour."""
    now = SYSTEM.now()
    history = History(Ring(directory / "history.ring"))
    for ago in range(3600, 10, -10):
        grown = 2 ** ((3600 - ago) / 1800)
        cpu, memory = CPU_USE * grown, MEMORY_USE * grown
        sample = Sample(cpu, cpu, memory, cpu, memory, 1)
        pod = Series(POD, "shop", "web-0", container="app")
        history.write(now - ago, {pod: sample, Series(NODE, "", "n-0"): sample})
    history.close()


def account(name):
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def pod(name, **annotations):
    amounts = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "4"}}
    container = {"name": "app", "image": "example.org/web:1", "resources": amounts}
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    spec = {"nodeName": "n-0", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Site:
    """The dashboard, who uses it, and how the cluster is changed behind its back."""

    def __init__(self, url, kubectl):
        self.url, self._kubectl = url, kubectl
        self.token = ""

    def kubectl(self, *arguments, stdin=""):
        done = subprocess.run(
            [*self._kubectl, *arguments], input=stdin, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def apply(self, *objects):
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("create", "-f", "-", stdin=json.dumps(whole))


@pytest.fixture(scope="module")
def site(server, components, kubectl_binary, until, free_ports):
    kubectl = [kubectl_binary, "--kubeconfig", str(server.kubeconfig), "-n", "shop"]
    kubectl += ["--cache-dir", str(server.directory / "kubectl")]
    [port] = free_ports(1)
    command = [sys.executable, "-m", "motley.dashboard", "--port", str(port)]
    command += ["--api", server.url, "--ca", str(server.directory / "pki/ca.crt")]
    with (server.directory / "dashboard.log").open("wb") as log:
        dashboard = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with components(server, ["fake-nodes", "--count", "2", "--prefix", "n-"]):
            made = Site(f"http://127.0.0.1:{port}", kubectl)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
            made.apply(namespace, account("default"), account("looker"), ROLE, BINDING)
            made.token = made.kubectl("create", "token", "looker").strip()
            until(lambda: "n-1" in made.kubectl("get", "nodes"), "the nodes are there")
            used = {"fake.motley.io/usage": "cpu=250m,memory=200Mi"}
            made.apply(pod("web-0", **used), pod("hostile", note=HOSTILE), EVENT)
            yield made
    finally:
        dashboard.terminate()
        assert dashboard.wait(10) == 0, (server.directory / "dashboard.log").read_text()


@pytest.fixture(scope="module")
def window(site):
    with browsers.browser() as opened:
        opened.before_every_page(FAST)
        yield opened


@pytest.fixture
def stranger(window, site):
    """Somebody who is not logged in."""
    window.devtools("Network.clearBrowserCookies", {})
    window.go(site.url)
    return window


@pytest.fixture
def user(window, site):
    """Somebody who is, by now."""
    window.go(site.url)
    if window.find_all("#token"):
        log_in(window, site.token)
        window.eventually(lambda: window.text("h1") == "Overview", "logged in")
    window.log()
    return window


def log_in(window, token):
    window.paste("#token", token)
    window.click(".login button")


def test_a_stranger_sees_where_to_log_in_and_nothing_else(stranger, site):
    for path in ("/", "/nodes", "/pods/shop/web-0"):
        stranger.go(site.url + path)
        assert stranger.url == f"{site.url}/login"
    assert "web-0" not in stranger.text()


def test_a_wrong_token_is_refused_in_words(stranger):
    log_in(stranger, "not-a-token-of-anybody")
    told = stranger.eventually(lambda: stranger.text(".note.bad"), "an answer")
    assert told == "The API server does not accept this token."
    assert stranger.find_all("nav") == []


def test_a_service_accounts_token_lets_in_to_the_nodes(stranger, site):
    log_in(stranger, site.token)
    stranger.eventually(lambda: "2 of 2 ready" in stranger.text(".cards"), "the overview")
    stranger.click("nav a[href='/nodes']")
    stranger.eventually(lambda: stranger.text("nav [aria-current]") == "Nodes", "the nodes")
    assert [row.text.split()[:2] for row in stranger.find_all("tbody tr")] == [
        ["n-0", "Ready"],
        ["n-1", "Ready"],
    ]


def test_a_pods_page_draws_what_it_used_and_uses(user, site):
    user.go(f"{site.url}/pods/shop/web-0#fast")
    captions, lengths, paths = user.run(DRAWN)
    assert captions == ["CPU", "Memory"]
    assert all(path.count("L") > 100 for path in paths)  # an hour, twice a minute
    assert min(lengths) > 300  # of a picture that is 480 wide
    legend = user.eventually(
        lambda: (found := user.text(".chart .legend")) and "250m" in found and found,
        "what is measured now",
    )
    assert "requested\n300m" in legend
    assert "limit\n4\nabove the chart" in legend
    assert "200 MiB" in user.text(".chart:nth-child(2) .legend")


def test_pointer_finger_and_keys_read_values_out(user, site):
    user.go(f"{site.url}/pods/shop/web-0")

    def drawn(nth):
        """The second value of a chart and those about its middle, as the server writes them."""
        chart = json.loads(user.find_all(".chart")[nth].attribute("data-chart") or "")
        values = chart["lines"][0][1]
        write = figures.cores if chart["unit"] == "cores" else figures.size
        middle = chart["count"] // 2
        return write(values[1]), [write(value) for value in values[middle - 1 : middle + 2]]

    def said():
        return user.text(".tip").splitlines()[-1]

    second, middle = drawn(0)
    user.hover(".chart svg", int(user.run(MIDDLE)))
    assert said() in middle
    assert len(user.find_all(".hair circle")) == 1
    user.hover("h1")
    assert user.find_all(".tip") == []
    user.tap(".chart:nth-child(2) svg", int(user.run(MIDDLE)))
    assert said() in drawn(1)[1]
    user.type(".chart svg", HOME + ARROW_RIGHT)
    assert said() == second
    user.type(".chart svg", ESCAPE)
    assert user.find_all(".tip") == []


def test_a_page_refreshes_itself_and_keeps_what_one_did_there(user, site):
    user.go(f"{site.url}/pods?namespace=shop#fast")
    user.run("window.stayed = true")
    user.type("[data-filter]", "web")
    shown = user.run(SHOWN)
    assert shown == ["web-0"]
    site.apply(pod("web-1"), pod("other"))
    user.eventually(lambda: "web-1" in user.text("main"), "the new pod is there")
    shown = user.run(SHOWN)
    assert shown == ["web-0", "web-1"]
    assert user.run("return document.activeElement.value") == "web"
    assert user.run("return window.stayed")


def test_a_page_that_cannot_be_refreshed_says_since_when(user, site):
    user.go(f"{site.url}/pods#fast")
    user.offline(True)
    try:
        note = user.eventually(lambda: user.text(".note.stale"), "a note")
    finally:
        user.offline(False)
    assert note.startswith("Not refreshed since ")
    assert "web-0" in user.text("main")
    user.eventually(lambda: user.find_all(".stale") == [], "it is refreshed again")


def test_nothing_is_replaced_while_somebody_selects_text(user, site):
    user.go(f"{site.url}/pods/shop/web-0#fast")
    user.run("window.main = document.querySelector('main')")
    user.run("getSelection().selectAllChildren(document.querySelector('.facts'))")
    user.run("window.fetched = 0; const f = fetch; window.fetch = (...a) => (fetched++, f(...a))")
    user.run("setTimeout(() => (window.later = true), 24000)")
    user.eventually(lambda: user.run("return window.later"), "the time of two refreshes")
    assert user.run("return [window.main.isConnected, window.fetched]") == [True, 0]
    user.run("getSelection().empty()")
    user.eventually(lambda: not user.run("return window.main.isConnected"), "a refresh")


@pytest.mark.parametrize("path", ["/", "/pods/shop/hostile", "/events"])
def test_what_others_write_is_shown_and_does_not_run(user, site, path):
    user.go(site.url + path)
    user.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert HOSTILE in user.text("main")
    assert user.alert is None
    assert user.run("return window.hit") is None
    assert user.find_all("main script, main img") == []
    assert user.log() == []  # not even a refusal: there was nothing to refuse


@pytest.mark.parametrize("path", ["/", "/nodes", "/nodes/n-0", "/workloads", "/pods", "/kinds"])
def test_the_browser_has_nothing_to_complain_about(user, site, path):
    user.go(site.url + path)
    assert user.log() == []
    assert user.find_all(".note.bad") == []
    wide = "return document.documentElement.scrollWidth - innerWidth"
    assert user.run(wide) <= 0  # nothing is wider than the window


def test_whoever_loses_the_token_is_asked_for_one(user, site):
    user.go(f"{site.url}/pods#fast")
    user.devtools("Network.clearBrowserCookies", {})
    user.eventually(lambda: user.url.startswith(f"{site.url}/login"), "asked to log in")


def test_no_script_can_read_the_token(user, site):
    assert user.run("return document.cookie") == ""
    assert site.token not in user.run("return document.documentElement.outerHTML")


def test_logging_out_forgets_the_token(user, site):
    user.click("header form button")
    user.eventually(lambda: user.url == f"{site.url}/login", "logged out")
    user.go(f"{site.url}/nodes")
    assert user.url == f"{site.url}/login"
    assert user.ask("GET", "cookie") == []


def test_a_phone_shows_it_all(user, site):
    size = {"width": 400, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    user.devtools("Emulation.setDeviceMetricsOverride", size)
    try:
        user.go(f"{site.url}/pods/shop/web-0#fast")
        width = "return document.querySelector('.chart svg')?.clientWidth ?? 0"
        user.eventually(lambda: user.run(width) > 300, "a chart as wide as the screen")
        assert user.run("return document.documentElement.scrollWidth") <= 400
    finally:
        user.devtools("Emulation.clearDeviceMetricsOverride", {})
