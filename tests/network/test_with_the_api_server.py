"""The proxy against Motley's own API server, with kubectl as the user."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

MANIFEST = """
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  type: NodePort
  ports: [{{name: http, port: 80, targetPort: 8080, nodePort: 30123}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {{kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}}}]
"""


def test_what_kubectl_applies_can_be_called(make_node):
    node = make_node()
    node.ensure()
    data = node.directory / "api"
    motley = (sys.executable, "-m", "motley.cli.main")
    words = ("apiserver", "--data-dir", data, "--bind", "0.0.0.0", "--port", "6443")
    api = node.spawn(node.command(*motley, *words), ready=False)
    kubeconfig = data / "admin.kubeconfig"

    def kubectl(*words, **options):
        return node.run("kubectl", "--kubeconfig", kubeconfig, *words, **options)

    node.eventually(lambda: kubectl("get", "--raw", "/readyz", check=False).stdout == "ok")
    node.start_proxy("--kubeconfig", kubeconfig)
    pod = node.add_pod("a")
    kubectl("apply", "-f", "-", input=MANIFEST.format(ip=pod.ip))
    address = kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}").stdout
    node.eventually(lambda: node.http(address) == [["a", "10.244.1.1"]])
    assert node.http("127.0.0.1", 30123)[0][0] == "a"
    api.kill()
    assert node.http(address)[0][0] == "a"
    assert "Traceback" not in Path(node.proxy.log).read_text()
