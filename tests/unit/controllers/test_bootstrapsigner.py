"""Signatures of cluster-info by join tokens, as kubeadm checks them."""

import base64
import hashlib
import hmac

import msgspec
import pytest

from motley.api.views.base import ObjectMeta
from motley.api.views.core import ConfigMap, Secret
from motley.controllers import bootstrapsigner

NOW = 1_800_000_000.0


def token(identity="abcdef", **data):
    texts = {
        "token-id": identity,
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-signing": "true",
        **data,
    }
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return Secret(
        metadata=ObjectMeta(name=f"bootstrap-token-{identity}"),
        type="bootstrap.kubernetes.io/token",
        data=encoded,
    )


def padded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_signature_is_a_detached_jws_by_the_tokens_secret():
    header, payload, signature = bootstrapsigner.sign("the text", "abcdef", "secret").split(".")
    assert payload == ""
    assert msgspec.json.decode(padded(header)) == {"alg": "HS256", "kid": "abcdef"}
    whole = f"{header}.{base64.urlsafe_b64encode(b'the text').decode().rstrip('=')}"
    assert padded(signature) == hmac.new(b"secret", whole.encode(), hashlib.sha256).digest()
    assert bootstrapsigner.sign("the text", "abcdef", "other").split(".")[2] != signature


@pytest.mark.parametrize(
    "data",
    [
        {"usage-bootstrap-signing": "false"},
        {"usage-bootstrap-signing": ""},
        {"expiration": "2026-01-01T00:00:00Z"},
        {"expiration": "nonsense"},
        {"token-secret": ""},
    ],
)
def test_a_token_that_is_over_or_not_for_signing_does_not_sign(data):
    assert bootstrapsigner.signers([token(**data)], NOW) == {}


def test_other_secrets_do_not_sign():
    assert bootstrapsigner.signers([Secret(type="Opaque", data=token().data)], NOW) == {}
    good = token(expiration="2030-01-01T00:00:00Z")
    assert bootstrapsigner.signers([good], NOW) == {"abcdef": "0123456789abcdef"}


def test_only_what_differs_is_written_and_what_is_stale_goes():
    right = bootstrapsigner.sign("text", "abcdef", "s")
    info = ConfigMap(data={"kubeconfig": "text", "jws-kubeconfig-gone00": "x"})
    tokens = {"abcdef": "s"}
    change = bootstrapsigner.wanted(info, tokens)
    assert change == {"jws-kubeconfig-abcdef": right, "jws-kubeconfig-gone00": None}
    signed = ConfigMap(data={"kubeconfig": "text", "jws-kubeconfig-abcdef": right})
    assert bootstrapsigner.wanted(signed, tokens) == {}
    changed = ConfigMap(data={**signed.data, "kubeconfig": "another"})
    assert bootstrapsigner.wanted(changed, tokens)["jws-kubeconfig-abcdef"] != right
    assert bootstrapsigner.wanted(ConfigMap(data={}), tokens) == {}
