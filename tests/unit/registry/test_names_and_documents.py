"""Image names, pull secrets and what registries answer, as values."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.core import Secret
from motley.registry import credentials, manifests, platforms, references, settings
from motley.registry.credentials import Login
from motley.registry.manifests import Part, Unreadable
from motley.registry.platforms import Platform

DIGEST = "sha256:" + "ab" * 32
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("nginx", "docker.io", "library/nginx", "latest", ""),
        ("user/app:1.2", "docker.io", "user/app", "1.2", ""),
        ("index.docker.io/nginx:1", "docker.io", "library/nginx", "1", ""),
        ("local-registry:5000/web", "local-registry:5000", "web", "latest", ""),
        ("local-registry:5000/a/b:v1", "local-registry:5000", "a/b", "v1", ""),
        ("ghcr.io/a/b@" + DIGEST, "ghcr.io", "a/b", "", DIGEST),
        ("ghcr.io/a/b:v1@" + DIGEST, "ghcr.io", "a/b", "v1", DIGEST),
        ("127.0.0.1:5000/x:latest-arm64", "127.0.0.1:5000", "x", "latest-arm64", ""),
        ("[::1]:5000/x", "[::1]:5000", "x", "latest", ""),
        ("localhost/motley/busybox:1", "localhost", "motley/busybox", "1", ""),
    ],
)
def test_an_image_name_has_a_registry_a_repository_and_a_version(
    text, host, repository, tag, digest
):
    found = references.parse(text)
    assert found == (host, repository, tag, digest)
    assert found.version == (digest or tag)
    assert references.parse(str(found)).repository == repository


@pytest.mark.parametrize(
    "text",
    ["", "A/B", "a b", "x@sha256:12", "h:5/x:", "reg.io/../etc", "a/b:t?x=1", "a//b", "h:65536/x"],
)
def test_what_is_no_image_name_is_refused(text):
    with pytest.raises(ValueError, match="is no"):
        references.parse(text)


@given(st.text(max_size=80))
def test_any_text_is_an_image_name_or_refused(text):
    try:
        references.parse(text)
    except ValueError:
        pass
    assert references.tagged(text).startswith(text)


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("arm64", ("linux", "arm64", "")),
        ("linux/arm64", ("linux", "arm64", "")),
        ("linux/arm64/v8", ("linux", "arm64", "")),
        ("arm/v7", ("linux", "arm", "v7")),
        ("windows/amd64", ("windows", "amd64", "")),
        ("aarch64", ("linux", "arm64", "")),
        ("x86_64", ("linux", "amd64", "")),
    ],
)
def test_platforms_are_read_in_every_spelling(text, platform):
    assert platforms.parse(text) == platform


def test_variants_have_an_order():
    assert sorted(["v8", "v7", "", "v6", "v10"], key=platforms.rank) == [
        "",
        "v6",
        "v7",
        "v8",
        "v10",
    ]
    assert str(Platform("linux", "arm", "v7")) == "linux/arm/v7"


# -- pull secrets ---------------------------------------------------------------------------


def secret(document, file=".dockerconfigjson"):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Secret.of({"data": {file: base64.b64encode(text).decode()}})


def auth(user, password):
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_the_most_exact_entry_of_the_secrets_comes_first():
    entries = {
        "https://reg.example.com": auth("host", "1"),
        "reg.example.com/team/app": {"username": "path", "password": "2"},
        "*.example.com": auth("star", "3"),
        "other.example.org": auth("other", "4"),
        "reg.example.com/elsewhere": auth("elsewhere", "5"),
    }
    found = credentials.logins(
        [secret({"auths": entries})], references.parse("reg.example.com/team/app:1")
    )
    assert [login.username for login in found] == ["path", "host", "star"]


def test_a_registry_at_an_address_of_ipv6_has_its_own_credentials():
    entries = {"[fd00::1]:5000": auth("six", "1"), "https://[fd00::2]": auth("other", "2")}
    for image, users in (("[fd00::1]:5000/app:1", ["six"]), ("[fd00::2]/app", ["other"])):
        found = credentials.logins([secret({"auths": entries})], references.parse(image))
        assert [login.username for login in found] == users


def test_the_old_format_and_docker_hubs_names_are_read():
    old = secret({"https://index.docker.io/v1/": auth("me", "pass:word")}, ".dockercfg")
    assert credentials.logins([old], references.parse("nginx")) == [Login("me", "pass:word")]
    token = secret({"auths": {"docker.io": {"identitytoken": "t"}}})
    assert credentials.logins([token], references.parse("a/b")) == [Login(identity_token="t")]


@pytest.mark.parametrize(
    "broken",
    [
        *(b"", b"{", b"[]", b'{"auths": []}', b'{"auths": {"r.io": 1}}', b"\xff\xfe"),
        *(b'{"auths": {"r.io": {}}}', b'{"auths": {"r.io": {"auth": "*"}}}'),
    ],
)
def test_a_broken_secret_is_passed_over(broken):
    good = secret({"auths": {"r.io": auth("me", "x")}})
    assert credentials.logins([secret(broken), good], references.parse("r.io/a")) == [
        Login("me", "x")
    ]


# -- manifests ------------------------------------------------------------------------------


def entry(arch, os="linux", **more):
    platform = {"architecture": arch, "os": os} | (
        {"variant": more.pop("v")} if "v" in more else {}
    )
    return {"mediaType": MANIFEST, "digest": DIGEST, "size": 1, "platform": platform, **more}


def read(document):
    return manifests.manifest(json.dumps(document).encode())


def test_an_index_names_its_platforms_with_variants_and_systems():
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            entry("amd64"),
            entry("arm", v="v6"),
            entry("arm", v="v7"),
            entry("arm64", v="v8"),
            entry("amd64", os="windows"),
            entry("unknown", os="unknown"),
        ],
    }
    assert [str(p) for p in read(index).platforms] == [
        "linux/amd64",
        "linux/arm/v6",
        "linux/arm/v7",
        "linux/arm64",
        "windows/amd64",
    ]


def test_a_plain_manifest_leads_to_its_configuration():
    manifest = {"schemaVersion": 2, "config": {"mediaType": CONFIG, "digest": DIGEST}, "layers": []}
    assert read(manifest).parts == (Part(DIGEST, is_manifest=False),)
    body = b'{"architecture": "s390x", "os": "linux", "rootfs": {}}'
    assert manifests.configuration(body) == ("linux", "s390x", "")


def test_an_index_without_platforms_leads_to_its_manifests():
    bare = {"mediaType": MANIFEST, "digest": DIGEST}
    attached = {**bare, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    found = read({"manifests": [bare, attached]})
    assert found == ((), (Part(DIGEST, is_manifest=True),))


def test_a_manifest_of_the_first_schema_says_it_itself():
    assert read({"schemaVersion": 1, "architecture": "amd64"}).platforms == (
        ("linux", "amd64", ""),
    )


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"manifests": []},
        {"manifests": [1]},
        {"manifests": [{"platform": {"architecture": 7}}]},
        {"manifests": [entry("x" * 100)]},
        {"manifests": [{"mediaType": MANIFEST, "digest": "md5:1"}]},
        {"config": {"digest": DIGEST, "mediaType": "application/vnd.cncf.helm.config.v1+json"}},
        {"config": {"digest": 3}},
        {"config": None},
        {"manifests": [entry("amd64")] * 1000},
    ],
)
def test_what_is_no_image_is_unreadable(document):
    with pytest.raises(Unreadable):
        read(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["manifests", "platform", "config", "digest", "mediaType", "architecture", "os"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=64), json_values.map(lambda v: json.dumps(v).encode())))
def test_any_answer_is_read_or_unreadable(body):
    for reading in (manifests.manifest, manifests.configuration):
        with contextlib.suppress(Unreadable):
            reading(body)


def test_nesting_without_end_is_unreadable():
    with pytest.raises(Unreadable):
        manifests.manifest(b"[" * 100_000)


# -- how registries are reached -------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("ghcr.io", ["https://ghcr.io"]),
        ("docker.io", ["https://registry-1.docker.io"]),
        ("local-registry:5000", ["https://local-registry:5000", "http://local-registry:5000"]),
        ("127.0.0.1:5000", ["https://127.0.0.1:5000", "http://127.0.0.1:5000"]),
        ("8.8.8.8:5000", ["https://8.8.8.8:5000"]),
        ("registry.example.com:5000", ["https://registry.example.com:5000"]),
    ],
)
def test_plain_http_is_tried_only_nearby(host, addresses):
    assert settings.Registries().of(host).addresses() == addresses


def test_registries_are_read_from_a_file_that_must_be_right(tmp_path):
    file = tmp_path / "registries.yaml"
    file.write_text("registries: [{host: 'r:5000', plainHTTP: true}]")
    assert settings.load(file).of("r:5000").addresses() == ["http://r:5000"]
    for wrong in ("registries: [{plainHTTP: true}]", "registries: [{host: a, other: 1}]", "- a: ["):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"registries\.yaml"):
            settings.load(file)
    file.write_text("registries: [{host: a, caFile: /does/not/exist}]")
    with pytest.raises(OSError, match="No such file"):
        settings.load(file)
