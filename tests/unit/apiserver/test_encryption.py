"""Encryption at rest: the file's form, the bytes' form, keys that change."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from motley.apiserver.encryption import Sealer, config
from motley.apiserver.encryption.sealer import resource_of
from motley.store.contract import Put
from motley.store.sealing import Unreadable
from motley.store.sqlite import SqliteStore

KEY = "/registry/secrets/demo/s"
PLACE = KEY.encode()
VALUE = b'{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}'


def secret(fill: int, length: int = 32) -> str:
    return base64.b64encode(bytes([fill]) * length).decode()


def key(name: str, fill: int, length: int = 32) -> dict[str, str]:
    return {"name": name, "secret": secret(fill, length)}


def document(*providers, resources=("secrets",)):
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": list(resources), "providers": list(providers)}],
    }


def sealer(*providers, resources=("secrets",)) -> Sealer:
    return Sealer(tuple(config.parse(document(*providers, resources=resources))))


@pytest.mark.parametrize("kind", ["aesgcm", "aescbc", "secretbox"])
def test_a_value_is_sealed_for_its_place_and_opens_there(kind):
    seal = sealer({kind: {"keys": [key("key1", 1)]}})

    kept = seal.seal(KEY, VALUE, PLACE)

    assert kept.startswith(f"k8s:enc:{kind}:v1:key1:".encode())
    assert b"password" not in kept
    assert seal.seal(KEY, VALUE, PLACE) != kept
    assert seal.open(KEY, kept, PLACE) == VALUE
    assert not seal.is_stale(KEY)


def test_aesgcm_is_the_form_that_kubernetes_writes():
    seal = sealer({"aesgcm": {"keys": [key("key1", 7, 16)]}})
    prefix, nonce = b"k8s:enc:aesgcm:v1:key1:", bytes(12)
    made_by_kubernetes = prefix + nonce + AESGCM(bytes([7]) * 16).encrypt(nonce, VALUE, PLACE)

    assert seal.open(KEY, made_by_kubernetes, PLACE) == VALUE


def test_a_sealed_value_copied_to_another_place_does_not_open():
    seal = sealer({"aesgcm": {"keys": [key("key1", 1)]}})
    kept = seal.seal(KEY, VALUE, PLACE)

    with pytest.raises(Unreadable, match="copied here from elsewhere"):
        seal.open("/registry/secrets/demo/other", kept, b"/registry/secrets/demo/other")


def test_the_first_key_writes_and_every_key_reads():
    old = sealer({"aesgcm": {"keys": [key("key1", 1)]}})
    new = sealer({"aesgcm": {"keys": [key("key2", 2), key("key1", 1)]}}, {"identity": {}})
    kept, plain = old.seal(KEY, VALUE, PLACE), "/registry/secrets/demo/plain"

    assert new.open(KEY, kept, PLACE) == VALUE
    assert new.open(plain, VALUE, plain.encode()) == VALUE
    assert new.is_stale(KEY)
    assert new.is_stale(plain)
    assert new.seal(KEY, VALUE, PLACE).startswith(b"k8s:enc:aesgcm:v1:key2:")
    assert not new.is_stale(KEY)


def test_a_missing_key_and_a_wrong_one_are_told_apart_without_any_secret():
    kept = sealer({"aesgcm": {"keys": [key("key1", 1)]}}).seal(KEY, VALUE, PLACE)

    with pytest.raises(Unreadable) as missing:
        sealer({"aesgcm": {"keys": [key("key2", 2)]}}).open(KEY, kept, PLACE)
    with pytest.raises(Unreadable) as wrong:
        sealer({"aesgcm": {"keys": [key("key1", 9)]}}).open(KEY, kept, PLACE)
    with pytest.raises(Unreadable) as nothing:
        Sealer().open(KEY, kept, PLACE)

    assert "encrypted with the aesgcm key 'key1'" in str(missing.value)
    assert "cannot be decrypted with the aesgcm key 'key1'" in str(wrong.value)
    assert "--encryption-provider-config does not have" in str(nothing.value)
    assert secret(9) not in str(wrong.value)


def test_without_identity_what_lies_open_is_refused():
    seal = sealer({"aesgcm": {"keys": [key("key1", 1)]}})

    with pytest.raises(Unreadable, match="identity"):
        seal.open(KEY, VALUE, PLACE)


@pytest.mark.parametrize(
    ("resources", "key_", "is_sealed"),
    [
        (["secrets"], KEY, True),
        (["secrets"], "/registry/configmaps/demo/c", False),
        (["*."], "/registry/configmaps/demo/c", True),
        (["*."], "/registry/apps/deployments/demo/d", False),
        (["*.apps"], "/registry/apps/deployments/demo/d", True),
        (["deployments.apps"], "/registry/apps/deployments/demo/d", True),
        (["*.*"], "/registry/example.com/widgets/demo/w", True),
        (["widgets.example.com"], "/registry/example.com/widgets/demo/w", True),
    ],
)
def test_resources_are_chosen_by_name_and_group(resources, key_, is_sealed):
    seal = sealer({"aesgcm": {"keys": [key("key1", 1)]}}, resources=resources)

    assert seal.seal(key_, VALUE, b"").startswith(b"k8s:enc:") is is_sealed


def test_a_key_of_the_store_names_its_resource():
    assert resource_of("/registry/secrets/demo/apps") == ("secrets", "")
    assert resource_of("/registry/batch/jobs/demo/j") == ("jobs", "batch")


def broken(change):
    whole = document({"aesgcm": {"keys": [key("key1", 1)]}})
    change(whole)
    return whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(kind="X"), "kind: must be EncryptionConfiguration"),
        (lambda d: d.update(apiVersion="v1"), "apiVersion: must be"),
        (lambda d: d.update(resources=[]), "resources: at least one"),
        (lambda d: d["resources"][0].update(providers=[]), "resources[0].providers: at least"),
        (
            lambda d: d["resources"][0].update(providers=[{"kms": {"name": "x"}}]),
            "resources[0].providers[0].kms: key management services are not supported",
        ),
        (
            lambda d: d["resources"][0]["providers"][0]["aesgcm"].update(keys=[]),
            "resources[0].providers[0].aesgcm.keys: at least one",
        ),
        (
            lambda d: d["resources"][0]["providers"][0]["aesgcm"].update(keys=[key("a", 1, 5)]),
            "aesgcm.keys[0].secret: has 5 bytes, must have 16 or 24 or 32",
        ),
        (
            lambda d: d["resources"][0]["providers"][0]["aesgcm"].update(
                keys=[{"name": "a", "secret": "%%%"}]
            ),
            "aesgcm.keys[0].secret: secrets must be base64",
        ),
        (
            lambda d: d["resources"][0]["providers"][0]["aesgcm"].update(
                keys=[key("a", 1), key("a", 2)]
            ),
            "aesgcm.keys[1].name: a is there twice",
        ),
        (
            lambda d: d["resources"][0]["providers"][0].update(identity={}),
            "resources[0].providers[0]: must hold exactly one",
        ),
        (lambda d: d["resources"][0].update(resources=["*"]), "resources[0].resources[0]: use"),
        (
            lambda d: d["resources"][0].update(resources=["secrets", "*."]),
            "resources[0].resources[1]: overlaps",
        ),
        (lambda d: d["resources"][0].update(extra=1), "resources[0].extra: unknown field"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(tmp_path, change, words):
    path = tmp_path / "encryption.yaml"
    path.write_text(json.dumps(broken(change)))

    with pytest.raises(config.BadConfig) as refused:
        config.load(path)

    assert words in str(refused.value)
    assert str(path) in str(refused.value)
    assert secret(1) not in str(refused.value)


def test_a_file_that_is_no_yaml_is_refused_without_quoting_it(tmp_path):
    path = tmp_path / "encryption.yaml"
    path.write_text("secret: 'c2VjcmV0")

    with pytest.raises(config.BadConfig) as refused:
        config.load(path)

    assert "c2VjcmV0" not in str(refused.value)


async def test_the_file_holds_nothing_readable_and_watches_see_everything(tmp_path):
    path = tmp_path / "store.db"
    seal = sealer({"aesgcm": {"keys": [key("key1", 1)]}})
    store = await SqliteStore.open(path, seal=seal)
    watch = store.watch("/", await store.revision())
    done = await store.commit([Put(KEY, VALUE, 0)])
    (event,) = await anext(watch)
    await watch.aclose()
    await store.close()

    assert event.value == done.records[0].value == VALUE
    assert all(b"aHVudGVyMg" not in p.read_bytes() for p in tmp_path.iterdir())

    again = await SqliteStore.open(path, seal=seal)
    assert (await again.get(KEY)).value == VALUE
    (replayed,) = await anext(again.watch("/", 0))
    assert replayed.value == VALUE
    await again.close()
    with pytest.raises(Unreadable):
        await SqliteStore.open(path, seal=sealer({"aesgcm": {"keys": [key("key2", 2)]}}))


async def test_a_key_that_was_taken_away_costs_only_the_past(tmp_path):
    from motley.store.contract import Compacted

    path = tmp_path / "store.db"
    store = await SqliteStore.open(path, seal=sealer({"aesgcm": {"keys": [key("key1", 1)]}}))
    await store.commit([Put(KEY, VALUE, 0)])
    await store.close()
    both = sealer({"aesgcm": {"keys": [key("key2", 2), key("key1", 1)]}})
    store = await SqliteStore.open(path, seal=both)
    assert both.is_stale(KEY)
    await store.commit([Put(KEY, VALUE)])
    await store.close()

    store = await SqliteStore.open(path, seal=sealer({"aesgcm": {"keys": [key("key2", 2)]}}))

    assert (await store.get(KEY)).value == VALUE
    with pytest.raises(Compacted):
        await anext(store.watch("/", 0))
    with pytest.raises(Compacted):
        await store.range("/", at=1)
    done = await store.commit([Put(KEY, VALUE + b" ")])
    assert done.revision == 3
    await store.close()
