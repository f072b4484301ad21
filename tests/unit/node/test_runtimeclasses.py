"""RuntimeClass → handler."""

import pytest

from motley.api import status
from motley.api.views.pod import Pod
from motley.api.views.runtime import RuntimeClass
from motley.node import runtimeclasses
from motley.node.runtimeclasses import RuntimeClassError


class Client:
    def __init__(self, error=None):
        self.error = error
        self.asked = []

    async def get(self, cls, name):
        self.asked.append((cls, name))
        if self.error:
            raise self.error
        return RuntimeClass.of({"metadata": {"name": name}, "handler": "runsc"})


def pod(name):
    return Pod.of({"spec": {"runtimeClassName": name} if name else {}})


async def test_a_class_has_a_handler_and_no_class_the_default():
    client = Client()
    assert await runtimeclasses.handler(client, pod("gvisor")) == "runsc"
    assert await runtimeclasses.handler(client, pod("")) == ""
    assert client.asked == [(RuntimeClass, "gvisor")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (status.not_found("node.k8s.io", "runtimeclasses", "gvisor"), 'RuntimeClass "gvisor" not'),
        (status.ServiceUnavailable("away"), 'RuntimeClass "gvisor": away'),
    ],
)
async def test_a_class_that_cannot_be_had_is_said(error, words):
    with pytest.raises(RuntimeClassError, match=words):
        await runtimeclasses.handler(Client(error), pod("gvisor"))
