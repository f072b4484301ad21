"""The variables by which Minik8s' processes are configured."""

from pathlib import Path

import pytest

from motley.cli import minik8s_environment
from motley.ops.failure import Failure

NODE = Path(__file__).parents[3] / "examples" / "minik8s" / "node.yaml"


def test_the_documents_variables_say_where_the_control_plane_is_and_which_node_this_is():
    environ = {"API_SERVER": "192.168.1.2", "PORT": "8080", "NODE_CONFIG": str(NODE)}
    options = {"node_ip": None, "api_port": None, "node_name": None}
    minik8s_environment.for_up(options, environ)
    assert options == {"node_ip": "192.168.1.2", "api_port": 8080, "node_name": "node1"}
    options = {"node_name": None, "node_labels": None}
    server = minik8s_environment.for_join("", options, environ)
    assert server == "https://192.168.1.2:8080"
    # The manifest's labels are those that the agent sets itself.
    assert options == {"node_name": "node1", "node_labels": None}


def test_an_option_counts_more_than_a_variable(tmp_path):
    file = tmp_path / "node.yaml"
    file.write_text("{kind: Node, metadata: {name: theirs, labels: {rack: '4'}}}")
    environ = {"API_SERVER": "192.168.1.2", "NODE_CONFIG": str(file)}
    options = {"node_name": "mine", "node_labels": None}
    server = minik8s_environment.for_join("https://10.0.0.1:6443", options, environ)
    assert (server, options) == (
        "https://10.0.0.1:6443",
        {"node_name": "mine", "node_labels": "rack=4"},
    )


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"PORT": "http"}, "PORT=http is no port"),
        ({"PORT": "70000"}, "is no port"),
        ({"NODE_CONFIG": "/nowhere"}, "cannot be read"),
        ({"NODE_CONFIG": __file__}, "cannot be read|no manifest"),
    ],
)
def test_what_cannot_be_meant_is_said(environ, said):
    with pytest.raises(Failure, match=said):
        minik8s_environment.read(environ)


def test_a_node_may_not_give_itself_a_role(tmp_path):
    file = tmp_path / "node.yaml"
    file.write_text(
        "{kind: Node, metadata: {name: n, labels: {node-restriction.kubernetes.io/a: b}}}"
    )
    options = {"node_name": None, "node_labels": None}
    # Labels of Kubernetes' own domain are left to the agent and to administrators.
    minik8s_environment.for_join("", options, {"NODE_CONFIG": str(file)})
    assert options["node_labels"] is None
