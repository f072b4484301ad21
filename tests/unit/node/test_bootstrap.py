"""A node's certificates: the key, the request, the answer, and when they are renewed."""

import datetime as dt
from ipaddress import ip_address
from itertools import pairwise
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from motley.api import status
from motley.api.views.base import ObjectMeta
from motley.api.views.certificates import (
    CertificateSigningRequest,
    RequestCondition,
    SigningRequestStatus,
)
from motley.client import kubeconfig
from motley.node import bootstrap, csr, rotation
from motley.node.rotation import RenewalError, Validity

NOW = 1_800_000_000.0
DAY = 86400.0


class Clock:
    """Time that passes only by sleeping; the test ends the sleeper at `until`."""

    def __init__(self, until=NOW + 1000 * DAY):
        self.time, self.until, self.slept = NOW, until, []

    def now(self):
        return self.time

    monotonic = now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds
        if self.time > self.until:
            raise TimeoutError


def issued(key, cn="system:node:n1", begins=NOW - 300, ends=NOW + DAY, names=()):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime.fromtimestamp(begins, dt.UTC))
        .not_valid_after(dt.datetime.fromtimestamp(ends, dt.UTC))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def key():
    return ec.generate_private_key(ec.SECP256R1())


# -- when


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.7), (0.5, 0.8), (1.0, 0.9)])
def test_renewal_falls_between_seven_and_nine_tenths_of_a_life(draw, share):
    assert rotation.renew_at(Validity(NOW, NOW + 100), draw) == pytest.approx(NOW + 100 * share)


async def test_a_certificate_is_renewed_in_time_again_and_again():
    clock, renewals = Clock(until=NOW + 300 * DAY), []

    async def renew():
        renewals.append(clock.time)
        return Validity(clock.time, clock.time + 30 * DAY)

    with pytest.raises(TimeoutError):
        await rotation.keep(
            Validity(NOW, NOW + 30 * DAY), renew, what="test", clock=clock, rng=Random(1)
        )
    lives = [b - a for a, b in zip([NOW, *renewals], renewals, strict=False)]
    assert len(lives) >= 11
    assert all(0.7 * 30 * DAY <= life <= 0.9 * 30 * DAY for life in lives)
    assert len({round(life) for life in lives}) == len(lives)  # never the same moment twice
    assert max(clock.slept) <= rotation.LOOK_S


async def test_a_clock_set_forward_is_noticed():
    clock, renewals = Clock(), []

    async def renew():
        renewals.append(clock.time)
        raise TimeoutError

    async def jump(seconds):
        clock.time += 29 * DAY  # somebody sets it while we sleep
        clock.slept.append(seconds)

    clock.sleep = jump
    with pytest.raises(TimeoutError):
        await rotation.keep(Validity(NOW, NOW + 30 * DAY), renew, what="t", clock=clock)
    assert len(clock.slept) == 1
    assert renewals == [NOW + 29 * DAY]


async def test_a_failed_renewal_is_tried_again_with_growing_waits():
    clock, tries = Clock(until=NOW + DAY), []

    async def renew():
        tries.append(clock.time)
        raise RenewalError("not now")

    with pytest.raises(TimeoutError):
        await rotation.keep(None, renew, what="test", clock=clock, rng=Random(1))
    assert tries[0] == NOW  # there is none: at once
    waits = [b - a for a, b in pairwise(tries)]
    assert 2.5 <= waits[0] <= 5.0
    assert 450.0 <= waits[-1] <= 900.0
    assert len(tries) < 300


# -- what


def test_a_key_is_kept_for_its_owner_only_and_found_again(tmp_path):
    path = tmp_path / "pki" / "node.key"
    first = csr.ensure_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert csr.key_pem(csr.ensure_key(path)) == csr.key_pem(first)
    path.write_text("garbage")
    assert csr.key_pem(csr.ensure_key(path)) == path.read_bytes() != csr.key_pem(first)


def test_one_key_and_wish_have_one_name_and_others_another(key):
    names = {
        csr.request_name(key, wanted)
        for wanted in (
            csr.node_client("n1"),
            csr.node_client("n2"),
            csr.node_serving("n1", ["10.0.0.1"]),
            csr.node_serving("n1", ["10.0.0.2"]),
            csr.proxy_client(),
        )
    }
    assert len(names) == 5
    assert csr.request_name(key, csr.node_client("n1")) in names
    other = ec.generate_private_key(ec.SECP256R1())
    assert csr.request_name(other, csr.node_client("n1")) not in names


def test_a_serving_request_names_the_node_and_its_addresses_only(key):
    wanted = csr.node_serving("n1", ["10.0.0.1", "fd00::1"])
    request = x509.load_pem_x509_csr(csr.request_pem(key, wanted))
    assert request.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    found = names.get_values_for_type(x509.IPAddress)
    assert found == [ip_address("10.0.0.1"), ip_address("fd00::1")]


def request(*conditions, certificate=b""):
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="node-csr-x"),
        status=SigningRequestStatus(certificate=certificate, conditions=list(conditions)),
    )


def test_a_request_is_waited_for_until_it_is_signed(key):
    assert csr.answer(request(), key) is None
    assert csr.answer(request(RequestCondition(type="Approved", status="True")), key) is None
    pem = issued(key)
    assert csr.answer(request(certificate=pem), key) == pem


@pytest.mark.parametrize(
    ("condition", "words"),
    [("Denied", "was denied: who are you"), ("Failed", "could not be signed: who are you")],
)
def test_a_refused_request_says_what_to_do(key, condition, words):
    refused = request(RequestCondition(type=condition, status="True", message="who are you"))
    with pytest.raises(csr.BootstrapError, match=words) as caught:
        csr.answer(refused, key)
    assert "kubectl delete csr node-csr-x" in str(caught.value)


def test_a_certificate_for_another_key_is_not_used(key):
    other = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(csr.BootstrapError, match="another key"):
        csr.answer(request(certificate=issued(other)), key)
    with pytest.raises(csr.BootstrapError, match="no certificate"):
        csr.answer(request(certificate=b"nonsense"), key)


class Absent:
    """A client of a server that does not answer."""

    async def get(self, *_):
        raise status.ServiceUnavailable("connection refused")


async def test_asking_goes_on_while_the_server_is_away_until_our_own_certificate_ends(key):
    clock = Clock()
    with pytest.raises(csr.BootstrapError, match="ended before there was another"):
        await csr.obtain(
            Absent(), key, csr.node_client("n1"), clock=clock, rng=Random(1), until=NOW + 3600
        )
    assert NOW + 3600 <= clock.time < NOW + 3610
    assert max(clock.slept) <= 2.0


# -- what is kept


def identity(path, bootstrap_file=None, wanted=None):
    wanted = wanted or csr.node_client("n1")
    return bootstrap.ClientIdentity(path, bootstrap_file, wanted, clock=Clock())


def write(path, pem, key):
    config = kubeconfig.Config(
        server="https://10.0.0.1:6443", ca=pem, client_cert=pem, client_key=csr.key_pem(key)
    )
    path.write_text(kubeconfig.render(config, user="system:node:n1"))


async def test_a_good_certificate_is_used_without_asking_anybody(tmp_path, key):
    path = tmp_path / "node.kubeconfig"
    write(path, issued(key), key)
    left = tmp_path / "node.kubeconfig.key"
    left.write_text("of a life before")
    config = await identity(path).ensure()
    assert config.server == "https://10.0.0.1:6443"
    assert config.client_key == csr.key_pem(key)
    assert not left.exists()


def test_another_authority_or_server_in_the_bootstrap_kubeconfig_is_news(tmp_path, key):
    path, base = tmp_path / "node.kubeconfig", tmp_path / "bootstrap.kubeconfig"
    pem = issued(key)
    write(path, pem, key)
    for server, ca, is_good in (
        ("https://10.0.0.1:6443", pem, True),
        ("https://10.0.0.2:6443", pem, False),
        ("https://10.0.0.1:6443", pem + issued(key), False),
    ):
        config = kubeconfig.Config(server=server, ca=ca, token="t")
        base.write_text(kubeconfig.render(config, user="bootstrap"))
        assert (identity(path, base).current() is not None) == is_good


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (None, "is not there"),
        ({"begins": NOW - 2 * DAY, "ends": NOW - 1}, "has ended"),
        ({"cn": "system:node:another"}, "has ended or cannot be read"),
    ],
)
async def test_without_a_good_certificate_and_a_token_it_is_said_how_to_join_again(
    tmp_path, key, made, why
):
    path = tmp_path / "node.kubeconfig"
    if made is not None:
        write(path, issued(key, **made), key)
    with pytest.raises(csr.BootstrapError, match=why) as caught:
        await identity(path, tmp_path / "bootstrap.kubeconfig").ensure()
    assert "motley token create --print-join-command" in str(caught.value)


def serving(path, key, addresses=("10.0.0.1",)):
    wanted = csr.node_serving("n1", list(addresses))
    return bootstrap.ServingIdentity(path, wanted, issued(key), clock=Clock())


def test_a_serving_certificate_of_an_earlier_life_is_used_if_it_is_still_right(tmp_path, key):
    names = [x509.DNSName("n1"), x509.IPAddress(ip_address("10.0.0.1"))]
    path = tmp_path / "node-serving.pem"
    assert serving(path, key).load() is None
    path.write_bytes(issued(key, names=names) + csr.key_pem(key))
    assert serving(path, key).load() == Validity(NOW - 300, NOW + DAY)
    assert serving(path, key, ["10.0.0.2"]).load() is None  # the node's address changed
    path.write_bytes(issued(key, names=names, ends=NOW - 1) + csr.key_pem(key))
    assert serving(path, key).load() is None
    path.write_bytes(issued(key, names=names))  # without its key
    assert serving(path, key).load() is None
    other = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(issued(other, names=names) + csr.key_pem(other))  # of another authority
    assert serving(path, key).load() is None


def test_a_written_kubeconfig_is_read_back_as_it_was(tmp_path, key):
    path = tmp_path / "k"
    config = kubeconfig.Config(
        server="https://h:1", ca=b"ca", token="t", tls_server_name="n", proxy_url="http://p:1"
    )
    path.write_text(kubeconfig.render(config, user="bootstrap"))
    assert kubeconfig.load(path) == config
