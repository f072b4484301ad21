import http.server
import json
import socket
import threading

import pytest

from motley.client import kubeconfig
from motley.ops import testlookup
from motley.ops.testlookup import Lookup, Question, understand

CORE = {
    "items": [
        {
            "metadata": {},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": "pods",
                            "singularResource": "pod",
                            "shortNames": ["po"],
                            "scope": "Namespaced",
                        },
                        {"resource": "nodes", "singularResource": "node", "scope": "Cluster"},
                    ],
                }
            ],
        }
    ]
}
GROUPS = {
    "items": [
        {
            "metadata": {"name": "metrics.k8s.io"},
            "versions": [
                {
                    "version": "v1beta1",
                    "resources": [
                        {"resource": "pods", "singularResource": "pod", "scope": "Namespaced"},
                        {"resource": "figures", "scope": "Namespaced"},
                    ],
                }
            ],
        }
    ]
}


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        (("pods",), Question("pods")),
        (("pod", "a", "-n", "there"), Question("pod", "a", "there")),
        (("pod", "a", "--namespace=there"), Question("pod", "a", "there")),
        (("pods", "-A"), Question("pods", is_everywhere=True)),
        (("pods", "-l", "a=b"), Question("pods", selectors=(("labelSelector", "a=b"),))),
        (
            ("events", "--field-selector", "reason=x"),
            Question("events", selectors=(("fieldSelector", "reason=x"),)),
        ),
        (("pods", "a", "b"), None),
        (("pods,services",), None),
        (("pod/a",), None),
        (("pods", "--watch"), None),
        ((), None),
    ],
)
def test_what_kubectl_was_asked_is_understood_or_left_to_it(words, meaning):
    assert understand(words) == meaning


class Api(http.server.BaseHTTPRequestHandler):
    """Answers what it knows, keeps connections, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[int, str]]

    def do_GET(self):
        self.asked.append((id(self.connection), self.path))
        known = {
            "/api": CORE,
            "/apis": GROUPS,
            "/api/v1/namespaces/default/pods/a": {"kind": "Pod"},
            "/api/v1/namespaces/there/pods?labelSelector=app%3Dx": {"kind": "PodList", "items": []},
            "/api/v1/pods": {"kind": "PodList", "items": ["all"]},
            "/api/v1/nodes/n": {"kind": "Node"},
            "/apis/metrics.k8s.io/v1beta1/namespaces/default/figures": {"kind": "FigureList"},
        }
        found = known.get(self.path)
        body = json.dumps(found or {}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    handler = type("Handler", (Api,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def lookup(api, tmp_path, monkeypatch):
    def connect(_namespace, address, timeout_s=5.0):
        return socket.create_connection(address, timeout_s)

    monkeypatch.setattr(testlookup, "connect_inside", connect)
    path = tmp_path / "kubeconfig"
    config = kubeconfig.Config(server=f"http://127.0.0.1:{api.server_port}", token="x")
    path.write_text(kubeconfig.render(config, user="admin"))
    found = Lookup(lambda: path, tmp_path)
    yield found
    found.close()


def test_names_mean_what_the_server_says_and_the_core_group_comes_first(lookup, api):
    assert lookup.get("pod", "a") == lookup.get("po", "a") == {"kind": "Pod"}
    assert lookup.get("pods", "-A")["items"] == ["all"]
    assert lookup.get("pods", "-l", "app=x", "-n", "there")["items"] == []
    assert lookup.get("node", "n") == {"kind": "Node"}
    assert lookup.get("figures") == {"kind": "FigureList"}
    asked = api.RequestHandlerClass.asked
    assert len({connection for connection, _ in asked}) == 1
    assert [path for _, path in asked].count("/apis") == 1


def test_what_is_not_found_or_not_known_is_left_to_kubectl(lookup):
    assert lookup.get("pod", "nobody") is None
    assert lookup.get("dragons") is None


def test_a_connection_that_ended_is_made_again_and_a_server_that_is_away_left_to_kubectl(
    lookup, api
):
    assert lookup.get("pod", "a")
    lookup._connection.sock.shutdown(socket.SHUT_RDWR)
    assert lookup.get("pod", "a") == {"kind": "Pod"}
    lookup.close()
    api.server_close()
    assert lookup.get("pod", "a") is None
