import pytest

from motley.api import codec, defaults, schema, scheme
from motley.api.views.apps import Deployment, ReplicaSet
from motley.api.views.core import EndpointSlice, Namespace, Node, Service
from motley.api.views.pod import Pod


@pytest.mark.parametrize(
    "view", [Deployment, EndpointSlice, Namespace, Node, Pod, ReplicaSet, Service]
)
def test_a_view_reads_what_the_server_makes_of_almost_nothing(view):
    kind = scheme.by_kind(view.API_VERSION, view.KIND)
    assert kind is not None
    obj = {"metadata": {"name": "a"}}
    schema.check(kind, obj)
    defaults.apply(kind, obj)

    read = codec.decode_as(codec.stamp(codec.encode_object(obj), 7), view)
    assert (read.metadata.name, read.metadata.resource_version) == ("a", "7")


def test_an_empty_endpoint_slice_has_lists():
    read = codec.decode_as(b'{"endpoints":null,"ports":null}', EndpointSlice)

    assert (read.endpoints, read.ports) == ([], [])
