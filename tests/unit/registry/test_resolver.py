"""Asking registries: tokens and passwords, redirects, and every kind of bad answer."""

import asyncio
import base64
import hashlib
import json
import random

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict, CIMultiDictProxy

from motley.api.views.core import Secret
from motley.registry import platforms, pulling, references
from motley.registry import resolver as resolving
from motley.registry.manifests import Unreadable
from motley.registry.pulling import Missing
from motley.registry.resolver import ASSUMPTION, KEYWORD, REGISTRY, Resolver
from motley.registry.settings import Registries, Registry

INDEX = "application/vnd.oci.image.index.v1+json"
LISTED = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
USER = base64.b64encode(b"me:secret").decode()


def encoded(document):
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def digest(body):
    return "sha256:" + hashlib.sha256(body).hexdigest()


class Fake:
    """A registry that says what a test wants; it notes what it was asked, and with which header."""

    def __init__(self):
        self.manifests = {}
        self.blobs = {}
        self.asked = []
        self.challenge = None
        self.token = "a-token"
        self.token_answer = None
        self.wants = None
        self.special = None

    def put(self, version, document):
        body = encoded(document)
        self.manifests[version] = self.manifests[digest(body)] = body
        return digest(body)

    def image(self, version, arch, **more):
        config = encoded({"architecture": arch, "os": "linux", **more})
        self.blobs[digest(config)] = config
        described = {"mediaType": CONFIG, "digest": digest(config), "size": len(config)}
        return self.put(version, {"schemaVersion": 2, "config": described, "layers": []})

    async def handle(self, request):
        self.asked.append((request.path, request.headers.get("Authorization")))
        if request.path == "/token":
            if self.token_answer is not None:
                return self.token_answer(request)
            return web.json_response({"token": self.token, "query": dict(request.query)})
        if self.special is not None and (answer := self.special(request)) is not None:
            return answer
        if self.wants and request.headers.get("Authorization") != self.wants:
            return web.Response(status=401, headers={"WWW-Authenticate": self.challenge})
        *_, kind, version = request.path.split("/")
        body = (self.manifests if kind == "manifests" else self.blobs).get(version)
        return web.Response(status=404) if body is None else web.Response(body=body)


@pytest.fixture
async def fake(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Fake()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    async with TestServer(app) as server:
        made.host = f"127.0.0.1:{server.port}"
        yield made


async def ask(fake, image="team/app:1", secrets=(), **registry):
    known = Registries([Registry(fake.host, plain_http=True, **registry)])
    async with Resolver(known) as resolver:
        return await resolver.resolve(f"{fake.host}/{image}", secrets)


def names(answer):
    return [str(p) for p in answer.platforms]


def pull_secret(host, **entry):
    data = json.dumps({"auths": {host: entry or {"auth": USER}}}).encode()
    return Secret.of({"data": {".dockerconfigjson": base64.b64encode(data).decode()}})


@pytest.mark.parametrize("kind", [INDEX, LISTED])
async def test_an_index_says_all_its_platforms(fake, kind):
    entries = [
        {"digest": digest(b"x"), "platform": {"os": "linux", "architecture": "amd64"}},
        {
            "digest": digest(b"y"),
            "platform": {"os": "linux", "architecture": "arm", "variant": "v7"},
        },
    ]
    put = fake.put("1", {"schemaVersion": 2, "mediaType": kind, "manifests": entries})
    answer = await ask(fake)
    assert names(answer) == ["linux/amd64", "linux/arm/v7"]
    assert (answer.source, answer.digest, answer.problem) == (REGISTRY, put, "")


async def test_a_plain_manifest_is_read_through_its_configuration(fake):
    fake.image("1", "riscv64")
    assert names(await ask(fake)) == ["linux/riscv64"]
    assert [path.split("/")[-2] for path, _ in fake.asked] == ["manifests", "blobs"]


async def test_an_image_can_be_named_by_digest_and_a_wrong_body_is_refused(fake):
    put = fake.image("1", "arm64")
    assert names(await ask(fake, f"team/app@{put}")) == ["linux/arm64"]
    fake.manifests[put] = encoded({"manifests": []})
    answer = await ask(fake, f"team/app@{put}")
    assert answer.source == ASSUMPTION
    assert "is not sha256" in answer.problem


async def test_an_index_within_an_index_and_without_platforms_is_followed(fake):
    inner = fake.image("a", "amd64")
    deeper = fake.put("b", {"manifests": [{"mediaType": MANIFEST, "digest": inner}]})
    fake.put("1", {"manifests": [{"mediaType": INDEX, "digest": deeper}]})
    assert names(await ask(fake)) == ["linux/amd64"]


async def test_a_token_is_fetched_where_the_registry_says_with_the_pods_credentials(fake):
    fake.image("1", "arm64")
    fake.wants = "Bearer a-token"
    fake.challenge = f'Bearer realm="http://{fake.host}/token",service="reg",scope="x"'
    assert names(await ask(fake, secrets=[pull_secret(fake.host)])) == ["linux/arm64"]
    asked = dict(fake.asked)
    assert asked["/token"] == f"Basic {USER}"
    fake.asked.clear()
    assert names(await ask(fake)) == ["linux/arm64"]  # anonymous tokens are tokens, too
    assert dict(fake.asked)["/token"] is None


async def test_an_identity_token_buys_a_token(fake):
    fake.image("1", "arm64")
    fake.wants, fake.challenge = "Bearer bought", f'Bearer realm="http://{fake.host}/token"'
    fake.token_answer = lambda request: web.json_response({"access_token": "bought"})
    secret = pull_secret(fake.host, identitytoken="refresh")
    assert names(await ask(fake, secrets=[secret])) == ["linux/arm64"]


async def test_a_password_is_given_where_one_is_wanted_and_the_next_secret_is_tried(fake):
    fake.image("1", "arm64")
    fake.wants, fake.challenge = f"Basic {USER}", 'Basic realm="here"'
    wrong = pull_secret(fake.host, username="me", password="wrong")
    assert names(await ask(fake, secrets=[wrong, pull_secret(fake.host)])) == ["linux/arm64"]
    answer = await ask(fake, secrets=[wrong])
    assert answer.source == ASSUMPTION
    assert "wrong" not in answer.problem  # a password is no reason


async def test_credentials_do_not_go_over_plain_http_unless_the_registry_is_listed(fake):
    fake.image("1", "arm64")
    fake.wants, fake.challenge = f"Basic {USER}", 'Basic realm="here"'
    async with Resolver() as resolver:
        image = f"{fake.host}/team/app:1"
        answer = await resolver.resolve(image, [pull_secret(fake.host)])
    assert not answer.is_certain
    assert {header for _, header in fake.asked} == {None}


async def test_a_registry_nearby_that_speaks_no_tls_is_found_without_being_listed(fake):
    fake.image("1", "s390x")
    async with Resolver() as resolver:
        assert names(await resolver.resolve(f"{fake.host}/team/app:1")) == ["linux/s390x"]


async def test_blobs_may_lie_elsewhere_but_credentials_stay(fake):
    fake.image("1", "arm64")
    fake.wants, fake.challenge = f"Basic {USER}", 'Basic realm="here"'
    elsewhere = fake.host.replace("127.0.0.1", "localhost")

    def away(request):
        if "/blobs/" in request.path and "/moved" not in request.path:
            target = f"http://{elsewhere}/moved{request.path}"
            return web.Response(status=307, headers={"Location": target})
        if "/moved" in request.path:
            return web.Response(body=fake.blobs[request.path.split("/")[-1]])
        return None

    fake.special = away
    assert names(await ask(fake, secrets=[pull_secret(fake.host)])) == ["linux/arm64"]
    moved = [header for path, header in fake.asked if path.startswith("/moved")]
    assert moved == [None]


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
async def test_whoever_is_redirected_to_cannot_ask_for_credentials(fake, scheme):
    """Their challenge is theirs, not the registry's: their token server would get the password."""
    fake.image("1", "arm64")
    elsewhere = fake.host.replace("127.0.0.1", "localhost")
    realm = f'{scheme} realm="http://{elsewhere}/token"'

    def away(request):
        if request.path.startswith("/moved"):
            return web.Response(status=401, headers={"WWW-Authenticate": realm})
        if "/blobs/" in request.path:
            target = f"http://{elsewhere}/moved{request.path}"
            return web.Response(status=307, headers={"Location": target})
        return None

    fake.special = away
    answer = await ask(fake, secrets=[pull_secret(fake.host)])
    assert not answer.is_certain
    assert {header for _, header in fake.asked} == {None}
    assert "/token" not in {path for path, _ in fake.asked}


async def test_a_password_that_tls_protected_is_not_sent_in_the_clear_when_tls_breaks_off(
    monkeypatch,
):
    sent = []

    async def once(self, method, url, headers, data=None):
        sent.append((url.partition(":")[0], headers.get("Authorization")))
        if url.startswith("http:"):
            return 404, b"", CIMultiDictProxy(CIMultiDict())
        if "Authorization" in headers:
            raise pulling._NoConnection("reset")
        return 401, b"", CIMultiDictProxy(CIMultiDict({"WWW-Authenticate": 'Basic realm="x"'}))

    monkeypatch.setattr(pulling.Puller, "_once", once)
    async with Resolver() as resolver:
        await resolver.resolve("10.1.2.3:5000/app:1", [pull_secret("10.1.2.3:5000")])
    assert ("https", f"Basic {USER}") in sent
    assert {header for scheme, header in sent if scheme == "http"} == {None}


async def test_a_redirect_that_names_the_usual_port_stays_at_home(monkeypatch):
    sent = []

    async def once(self, method, url, headers, data=None):
        sent.append((url, headers.get("Authorization")))
        if ":443" in url:
            return 404, b"", CIMultiDictProxy(CIMultiDict())
        if "Authorization" in headers:
            where = {"Location": url.replace("r.example", "r.example:443")}
            return 307, b"", CIMultiDictProxy(CIMultiDict(where))
        return 401, b"", CIMultiDictProxy(CIMultiDict({"WWW-Authenticate": 'Basic realm="x"'}))

    monkeypatch.setattr(pulling.Puller, "_once", once)
    async with Resolver() as resolver:
        await resolver.resolve("r.example/app:1", [pull_secret("r.example")])
    assert ("https://r.example:443/v2/app/manifests/1", f"Basic {USER}") in sent


async def test_of_several_challenges_in_one_header_each_keeps_its_words(fake):
    fake.image("1", "arm64")
    fake.wants = "Bearer a-token"
    fake.challenge = f'Bearer realm="http://{fake.host}/token", Basic realm="here"'
    assert names(await ask(fake)) == ["linux/arm64"]


async def test_answers_are_asked_for_as_they_are(fake):
    """They are not unpacked, so that their size is what it seems: they must not come packed."""
    fake.image("1", "arm64")
    asked = []
    fake.special = lambda request: asked.append(request.headers.get("Accept-Encoding"))
    assert names(await ask(fake)) == ["linux/arm64"]
    assert set(asked) == {"identity"}


@pytest.mark.parametrize("kind", ["sha384", "sha512"])
async def test_digests_of_other_kinds_are_verified_too(fake, kind):
    put = fake.image("1", "arm64")
    body = fake.manifests[put]
    right = f"{kind}:{hashlib.new(kind, body).hexdigest()}"
    fake.manifests[right] = body
    assert names(await ask(fake, f"team/app@{right}")) == ["linux/arm64"]
    fake.manifests[right] = body + b" "
    assert f"is not {kind}" in (await ask(fake, f"team/app@{right}")).problem
    assert "no known kind" in (await ask(fake, f"team/app@md5:{'0' * 32}")).problem


async def test_a_mirror_is_asked_instead(fake):
    fake.image("1", "arm64")
    known = Registries([Registry("ghcr.io", endpoint=f"http://{fake.host}")])
    async with Resolver(known) as resolver:
        assert names(await resolver.resolve("ghcr.io/team/app:1")) == ["linux/arm64"]


# -- bad answers ----------------------------------------------------------------------------


def loop(request):
    return web.Response(status=302, headers={"Location": str(request.rel_url)})


def huge(request):
    return web.Response(body=b"[" + b"1," * (3 << 20))


def bad_location(request):
    return web.Response(status=302, headers={"Location": "ftp://x/y"})


BAD = {
    "loop": (loop, "redirects more than"),
    "huge": (huge, "more than 4194304 bytes"),
    "scheme": (bad_location, "leads away"),
    "truncated": (lambda r: web.Response(body=b'{"manifests": [{"dig'), "not JSON"),
    "types": (lambda r: web.json_response({"manifests": [{"platform": []}]}), "digest"),
    "list": (lambda r: web.json_response([1, 2]), "not an object"),
    "500": (lambda r: web.Response(status=500), "answers 500"),
    "404": (lambda r: web.Response(status=404), "answers 404"),
    "401": (lambda r: web.Response(status=401), "wants credentials"),
    "junk challenge": (
        lambda r: web.Response(status=401, headers={"WWW-Authenticate": "Bearer realm=,,=\"'"}),
        "wants credentials",
    ),
    "token server": (
        lambda r: web.Response(
            status=401, headers={"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:1/t"'}
        ),
        "127.0.0.1:1",
    ),
    "half a location": (
        lambda r: web.Response(status=302, headers={"Location": "http://[x"}),
        "leads nowhere",
    ),
    "half a realm": (
        lambda r: web.Response(
            status=401, headers={"WWW-Authenticate": 'Bearer realm="http://[x"'}
        ),
        "no token server",
    ),
    "realm of no port": (
        lambda r: web.Response(
            status=401, headers={"WWW-Authenticate": 'Bearer realm="http://x:99999/t"'}
        ),
        "no token server",
    ),
    "strange realm": (
        lambda r: web.Response(
            status=401, headers={"WWW-Authenticate": 'Bearer realm="file:///etc/passwd"'}
        ),
        "no token server",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_answer_ends_in_a_guess_that_says_why(fake, name):
    fake.special, why = BAD[name]
    answer = await ask(fake)
    assert (names(answer), answer.source) == (["linux/amd64"], ASSUMPTION)
    assert why in answer.problem
    keyword = await ask(fake, "team/app-arm64:1")
    assert (names(keyword), keyword.source) == (["linux/arm64"], KEYWORD)


async def test_bad_tokens_are_no_tokens(fake):
    fake.wants, fake.challenge = "Bearer x", f'Bearer realm="http://{fake.host}/token"'
    for body in (b"", b"{", b"[]", b'{"token": 1}', b'{"token": "a\\r\\nX: y"}', b'{"token": ""}'):
        fake.token_answer = lambda request, body=body: web.Response(body=body)
        assert "token" in (await ask(fake)).problem


async def test_a_registry_that_hangs_is_left_after_a_while(fake, monkeypatch):
    never = asyncio.Event()

    async def hang(request):
        await never.wait()

    monkeypatch.setattr(resolving, "_IN_ALL_S", 0.2)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hang)
    async with TestServer(app) as server:
        fake.host = f"127.0.0.1:{server.port}"
        answer = await ask(fake)
        never.set()
    assert "no answer within" in answer.problem


@pytest.mark.parametrize(
    "image",
    ["Not An Image", "localhost/motley/busybox:1", "x@sha256:1", "[1.2.3]:5000/app:1", "[::g]/a"],
)
async def test_what_no_registry_has_is_not_asked_for(image):
    async with Resolver() as resolver:
        assert not (await resolver.resolve(image)).is_certain


async def test_broken_answers_of_every_kind_never_raise(fake):
    """Whole answers, cut and changed at random places."""
    rng = random.Random(7)
    fake.image("1", "arm64")
    whole = [*fake.manifests.values(), *fake.blobs.values()]

    def broken(request):
        body = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        status = rng.choice([200, 200, 200, 201, 301, 400, 429, 502])
        return web.Response(body=bytes(body[: rng.randrange(len(body))]), status=status)

    fake.special = broken
    for _ in range(60):
        assert not (await ask(fake)).is_certain


async def test_the_same_failure_is_told_in_the_same_words():
    async with Resolver() as resolver:
        told = {(await resolver.resolve("127.0.0.1:1/app:1")).problem for _ in range(2)}
    (words,) = told
    assert "0x" not in words


def variant(name):
    return {"variant": name.partition("/")[2]} if "/" in name else {}


async def pin(fake, platform, image="team/app:1"):
    known = Registries([Registry(fake.host, plain_http=True)])
    async with Resolver(known) as resolver:
        name = references.parse(f"{fake.host}/{image}")
        return (await resolver.pin(name, platforms.parse(platform))).digest


async def test_a_machine_is_given_the_manifest_of_its_platform(fake):
    made = {arch: fake.image(f"x-{arch}", arch) for arch in ("amd64", "arm64")}
    made |= {f"arm/{v}": fake.image(f"x-{v}", "arm", variant=v) for v in ("v6", "v7")}
    entries = [
        {"digest": found, "platform": {"architecture": name.partition("/")[0], **variant(name)}}
        for name, found in made.items()
    ]
    fake.put("1", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
    assert await pin(fake, "arm64") == made["arm64"]
    assert await pin(fake, "arm/v7") == made["arm/v7"]
    assert await pin(fake, "arm/v6") == made["arm/v6"]
    assert await pin(fake, "arm") == made["arm/v6"]  # the oldest, where the machine does not say
    for missing in ("riscv64", "arm/v5", "windows/amd64"):
        with pytest.raises(Unreadable, match=f"no match for platform .*{missing}"):
            await pin(fake, missing)


async def test_a_plain_manifest_is_given_only_to_its_own_platform(fake):
    digest = fake.image("1", "arm64")
    assert await pin(fake, "arm64") == digest
    assert await pin(fake, "arm64", f"team/app@{digest}") == digest
    with pytest.raises(Unreadable, match="it is for linux/arm64"):
        await pin(fake, "amd64")


async def test_an_index_that_does_not_say_its_platforms_is_looked_into(fake):
    digests = [fake.image(arch, arch) for arch in ("amd64", "arm64")]
    fake.put("1", {"schemaVersion": 2, "manifests": [{"digest": one} for one in digests]})
    assert await pin(fake, "arm64") == digests[1]


async def test_an_index_without_end_and_a_registry_that_fails_are_said(fake):
    fake.put("1", {"schemaVersion": 2, "manifests": [{"digest": digest(b"gone")}]})
    with pytest.raises(Missing):
        await pin(fake, "arm64")
    inner = fake.image("x", "arm64")
    for _ in range(4):
        inner = fake.put("2", {"schemaVersion": 2, "manifests": [{"digest": inner}]})
    with pytest.raises(Unreadable, match="too deep"):
        await pin(fake, "arm64", "team/app:2")
