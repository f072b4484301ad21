"""Pull policies, back-off and credentials."""

import base64
import json

import pytest

from motley.api.views.core import Secret
from motley.node import images
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.values import Image
from motley.node.images import ImageError, Images


class Clock:
    time = 1000.0

    def now(self):
        return self.time


class Runtime:
    def __init__(self, *present):
        self.present = set(present)
        self.pulled = []
        self.error = None

    async def image(self, reference):
        return Image(reference, (), (), 0, None, "") if reference in self.present else None

    async def pull(self, reference, auth=None):
        self.pulled.append((reference, auth))
        if self.error:
            raise self.error
        self.present.add(reference)
        return reference


@pytest.mark.parametrize(
    ("policy", "reference", "expected"),
    [
        ("", "a", "Always"),
        ("", "a:latest", "Always"),
        ("", "a:1", "IfNotPresent"),
        ("", "host:5000/a", "Always"),
        ("", "a@sha256:1", "IfNotPresent"),
        ("Never", "a", "Never"),
    ],
)
def test_the_policy_follows_the_tag_where_none_is_given(policy, reference, expected):
    assert images.pull_policy(policy, reference) == expected


async def test_a_present_image_is_pulled_only_when_always():
    runtime = Runtime("a:1")
    keeper = Images(runtime, clock=Clock())
    assert (await keeper.ensure("a:1", "IfNotPresent"))[1] is False
    assert runtime.pulled == []
    assert (await keeper.ensure("a:1", "Always"))[1] is True
    assert runtime.pulled == [("a:1", None)]


async def test_never_means_never():
    runtime = Runtime()
    with pytest.raises(ImageError) as caught:
        await Images(runtime, clock=Clock()).ensure("a:1", "Never")
    assert caught.value.reason == "ErrImageNeverPull"
    assert runtime.pulled == []


async def test_failed_pulls_back_off_and_double():
    runtime, clock = Runtime(), Clock()
    runtime.error = RuntimeFailure("no such host")
    keeper = Images(runtime, clock=clock)

    async def reason():
        with pytest.raises(ImageError) as caught:
            await keeper.ensure("a:1", "IfNotPresent")
        return caught.value.reason, caught.value.retry_at - clock.time

    assert await reason() == ("ErrImagePull", 1.0)
    clock.time += 1
    assert await reason() == ("ImagePullBackOff", 9.0)
    clock.time += 9
    assert (await reason())[0] == "ErrImagePull"
    clock.time += 1
    assert await reason() == ("ImagePullBackOff", 19.0)
    assert len(runtime.pulled) == 2
    clock.time += 19
    runtime.error = None
    assert (await keeper.ensure("a:1", "IfNotPresent"))[1] is True


async def test_an_unreachable_runtime_is_not_the_images_fault():
    runtime = Runtime()
    runtime.error = RuntimeUnavailable("restarting")
    with pytest.raises(RuntimeUnavailable):
        await Images(runtime, clock=Clock()).ensure("a:1", "Always")


def _secret(auths):
    text = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return Secret.of({"metadata": {"name": "s"}, "data": {".dockerconfigjson": text}})


def test_credentials_are_those_of_the_images_registry():
    secret = _secret({"https://reg.example/v1/": {"username": "u", "password": "p", "email": "e"}})
    assert images.credentials([secret], "reg.example/a:1") == {"username": "u", "password": "p"}
    assert images.credentials([secret], "other.example/a:1") is None
    hub = _secret({"https://index.docker.io/v1/": {"auth": "eA=="}})
    assert images.credentials([hub], "library/a") == {"auth": "eA=="}
    broken = Secret.of({"metadata": {"name": "b"}, "data": {".dockerconfigjson": "!!"}})
    assert images.credentials([broken, secret], "reg.example/a")["username"] == "u"
