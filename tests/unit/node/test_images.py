"""Pull policies, back-off and credentials."""

import asyncio
import base64
import json

import pytest

from motley.api.views.core import Secret
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.node import images
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.values import Image
from motley.node.images import ImageError, Images
from motley.node.pulledimages import PulledImages


class Clock:
    time = 1000.0

    def now(self):
        return self.time


class Runtime:
    def __init__(self, *present):
        self.present = set(present)
        self.pulled = []
        self.error = None
        self.accepts = None
        self.gate = None

    async def image(self, reference):
        return Image(reference, (), (), 0, None, "") if reference in self.present else None

    async def list_images(self):
        return [await self.image(name) for name in self.present]

    async def pull(self, reference, auth=None):
        self.pulled.append((reference, auth))
        if self.gate is not None:
            await self.gate.wait()
        if self.error:
            raise self.error
        if self.accepts is not None and (auth or {}).get("username") != self.accepts:
            raise RuntimeFailure("401 Unauthorized")
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


async def test_a_back_off_ends_when_the_clock_is_put_back():
    runtime, clock = Runtime(), Clock()
    runtime.error = RuntimeFailure("no such host")
    keeper = Images(runtime, clock=clock)
    for _ in range(2):
        with pytest.raises(ImageError, match="failed to pull"):
            await keeper.ensure("a:1", "IfNotPresent")
        clock.time -= 3600
    assert len(runtime.pulled) == 2


async def test_an_unreachable_runtime_is_not_the_images_fault():
    runtime = Runtime()
    runtime.error = RuntimeUnavailable("restarting")
    with pytest.raises(RuntimeUnavailable):
        await Images(runtime, clock=Clock()).ensure("a:1", "Always")


def _secret(auths, name="s"):
    text = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return Secret.of({"metadata": {"name": name}, "data": {".dockerconfigjson": text}})


def _login(user):
    return {"username": user, "password": "p"}


async def test_the_most_exact_credentials_are_tried_first_and_others_after():
    runtime = Runtime()
    runtime.accepts = "team"
    wide = _secret({"https://reg.example/v1/": _login("wide"), "other.example": _login("other")})
    exact = _secret({"reg.example": _login("host"), "reg.example/team": _login("team")})
    await Images(runtime, clock=Clock()).ensure("reg.example/team/a:1", "Always", [wide, exact])
    assert [auth["username"] for _, auth in runtime.pulled] == ["team"]
    runtime.pulled.clear()
    runtime.accepts = "host"
    await Images(runtime, clock=Clock()).ensure("reg.example/team/a:1", "Always", [wide, exact])
    assert [auth["username"] for _, auth in runtime.pulled] == ["team", "wide", "host"]
    runtime.pulled.clear()
    runtime.accepts = "wide"
    await Images(runtime, clock=Clock()).ensure("reg.example/b:1", "Always", [wide, exact])
    assert [auth["username"] for _, auth in runtime.pulled] == ["wide"]


async def test_a_secret_of_the_older_form_is_read_and_a_broken_one_passed_over():
    runtime = Runtime()
    old = base64.b64encode(json.dumps({"reg.example": {"auth": "dTpw"}}).encode()).decode()
    legacy = Secret.of({"metadata": {"name": "l"}, "data": {".dockercfg": old}})
    broken = Secret.of({"metadata": {"name": "b"}, "data": {".dockerconfigjson": "!!"}})
    await Images(runtime, clock=Clock()).ensure("reg.example/a:1", "Always", [broken, legacy])
    assert runtime.pulled == [("reg.example/a:1", {"username": "u", "password": "p"})]


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        ([], "no credentials: the pod has no imagePullSecrets for reg.example"),
        ([_secret({"other.example": _login("u")})], "imagePullSecrets s hold nothing for reg"),
        ([_secret({"reg.example": _login("u")})], "credentials of imagePullSecrets s were refused"),
    ],
)
async def test_a_refused_pull_says_what_was_tried(secrets, words):
    runtime = Runtime()
    runtime.error = RuntimeFailure("unexpected status: 401 Unauthorized")
    with pytest.raises(ImageError, match=words) as caught:
        await Images(runtime, clock=Clock()).ensure("reg.example/a:1", "IfNotPresent", secrets)
    assert "p" not in str(caught.value).split('"')[2].split()  # never the password


async def test_other_credentials_do_not_wait_for_the_back_off_of_wrong_ones():
    runtime, keeper = Runtime(), None
    runtime.accepts = "right"
    keeper = Images(runtime, clock=Clock())
    for reason in ("ErrImagePull", "ImagePullBackOff"):
        with pytest.raises(ImageError) as caught:
            await keeper.ensure(
                "reg.example/a:1", "Always", [_secret({"reg.example": _login("w")})]
            )
        assert caught.value.reason == reason
    right = [_secret({"reg.example": _login("right")})]
    assert (await keeper.ensure("reg.example/a:1", "Always", right))[1] is True


async def test_who_could_not_pull_an_image_does_not_get_it_from_another(tmp_path):
    runtime, clock = Runtime(), Clock()
    runtime.accepts = "right"
    right = [_secret({"reg.example": _login("right")})]
    keeper = Images(runtime, pulled=PulledImages(tmp_path / "pulls.json"), clock=clock)
    await keeper.ensure("reg.example/a:1", "IfNotPresent", right)
    # Also under the next agent, which reads what this one wrote.
    keeper = Images(runtime, pulled=PulledImages(tmp_path / "pulls.json"), clock=clock)
    assert (await keeper.ensure("reg.example/a:1", "IfNotPresent", right))[1] is False
    assert (await keeper.ensure("reg.example/a:1", "Never", right))[1] is False
    for policy, reason in (("IfNotPresent", "ErrImagePull"), ("Never", "ErrImageNeverPull")):
        with pytest.raises(ImageError) as caught:
            await keeper.ensure("reg.example/a:1", policy)
        assert caught.value.reason == reason
    # With other credentials it is tried, and then known.
    runtime.accepts = "other"
    other = [_secret({"reg.example": _login("other")})]
    assert (await keeper.ensure("reg.example/a:1", "IfNotPresent", other))[1] is True
    assert (await keeper.ensure("reg.example/a:1", "Never", other))[1] is False
    text = (tmp_path / "pulls.json").read_text()
    assert "right" not in text
    assert (tmp_path / "pulls.json").stat().st_mode & 0o777 == 0o600


async def test_what_nobody_needed_credentials_for_is_everybodys(tmp_path):
    runtime = Runtime("imported:1")
    keeper = Images(runtime, clock=Clock())
    assert (await keeper.ensure("imported:1", "Never"))[1] is False
    await keeper.ensure("public:1", "IfNotPresent")
    assert (await keeper.ensure("public:1", "Never", [_secret({})]))[1] is False


async def test_an_image_that_is_gone_is_forgotten_and_may_be_imported_later():
    runtime = Runtime()
    runtime.accepts = "u"
    keeper = Images(runtime, clock=Clock())
    mine = [_secret({"reg.example": _login("u")})]
    await keeper.ensure("reg.example/a:1", "Always", mine)
    runtime.present.clear()
    await keeper.ensure("reg.example/b:1", "Always", mine)
    runtime.present.add("reg.example/a:1")
    assert (await keeper.ensure("reg.example/a:1", "Never"))[1] is False


async def test_what_is_no_image_name_is_said_and_not_pulled():
    runtime = Runtime()
    with pytest.raises(ImageError) as caught:
        await Images(runtime, clock=Clock()).ensure("Not A Name", "IfNotPresent")
    assert caught.value.reason == "InvalidImageName"
    assert runtime.pulled == []


async def test_no_more_pulls_run_at_once_than_allowed_and_one_per_image():
    runtime = Runtime()
    runtime.gate = asyncio.Event()
    keeper = Images(runtime, parallel=2, clock=Clock())
    async with asyncio.TaskGroup() as group:
        made = [
            group.create_task(keeper.ensure(name, "IfNotPresent"))
            for name in ("a:1", "a:1", "b:1", "c:1", "d:1")
        ]
        for _ in range(20):
            await SYSTEM.sleep(0)
        assert [name for name, _ in runtime.pulled] == ["a:1", "b:1"]
        runtime.gate.set()
    assert sorted(name for name, _ in runtime.pulled) == ["a:1", "b:1", "c:1", "d:1"]
    assert [task.result()[1] for task in made] == [True, False, True, True, True]


def test_pull_secrets_that_are_missing_are_named():
    pod = Pod.of({"spec": {"imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}})

    class Lookup:
        def secret(self, name):
            return _secret({}, name) if name == "a" else None

    found, missing = images.pull_secrets(pod, Lookup())
    assert [s.metadata.name for s in found] == ["a"]
    assert missing == ["b"]
