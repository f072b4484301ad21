"""Answers of the cluster zone, read by dnspython."""

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.network.dns import wire
from motley.network.dns.forward import Forwarder
from motley.network.dns.resolver import Resolver, Waiting
from motley.network.dns.zone import Zone

WEB = "web.shop.svc.cluster.local."


def service(name="web", **spec):
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    return Service.of(
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.5", "ports": ports, **spec},
        }
    )


def slice_of(*endpoints, **fields):
    return EndpointSlice.of(
        {
            "metadata": {"name": "s", "namespace": "shop"},
            "endpoints": list(endpoints),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            **fields,
        }
    )


def endpoint(ip, hostname="", ready=True):
    return {"addresses": [ip], "hostname": hostname, "conditions": {"ready": ready}}


def resolver_of(*services):
    zone = Zone()
    for made, slices in services:
        zone.put(made.key, made, slices)
    resolver = Resolver(zone, Forwarder(lambda: ()))
    resolver.is_ready = True
    return resolver


def ask(resolver, name, type_="A", *, tcp=False, **options):
    query = dns.message.make_query(name, type_, **options)
    answer = resolver.answer(query.to_wire(), tcp=tcp)
    assert isinstance(answer, bytes)
    message = dns.message.from_wire(answer)
    assert query.is_response(message)
    return message


def texts(message):
    return sorted(str(r) for rrset in message.answer for r in rrset)


def test_a_service_answers_with_its_cluster_address():
    message = ask(resolver_of((service(), [])), WEB)
    assert texts(message) == ["10.96.0.5"]
    assert message.flags & dns.flags.AA
    assert message.flags & dns.flags.RA
    assert message.answer[0].ttl == 5


def test_the_spelling_of_the_question_is_kept_and_does_not_matter():
    message = ask(resolver_of((service(), [])), "wEb.ShOp.SVC.cluster.LOCAL.")
    assert texts(message) == ["10.96.0.5"]
    assert str(message.question[0].name) == "wEb.ShOp.SVC.cluster.LOCAL."


@pytest.mark.parametrize(
    ("name", "type_", "code"),
    [
        (WEB, "AAAA", "NOERROR"),
        (WEB, "MX", "NOERROR"),
        ("shop.svc.cluster.local.", "A", "NOERROR"),
        ("_tcp." + WEB, "A", "NOERROR"),
        ("svc.cluster.local.", "A", "NOERROR"),
        ("cluster.local.", "A", "NOERROR"),
        ("other.shop.svc.cluster.local.", "A", "NXDOMAIN"),
        ("web.other.svc.cluster.local.", "A", "NXDOMAIN"),
        ("x." + WEB, "A", "NXDOMAIN"),
        ("example.com.shop.svc.cluster.local.", "AAAA", "NXDOMAIN"),
        ("9.0.96.10.in-addr.arpa.", "PTR", "NXDOMAIN"),
    ],
)
def test_what_is_not_there_is_denied_with_the_zones_authority(name, type_, code):
    message = ask(resolver_of((service(), [])), name, type_)
    assert dns.rcode.to_text(message.rcode()) == code
    assert not message.answer
    (authority,) = message.authority
    assert authority.rdtype == dns.rdatatype.SOA
    assert str(authority.name) == "cluster.local."


def test_named_ports_have_srv_records_with_the_address_beside_them():
    message = ask(resolver_of((service(), [])), "_http._tcp." + WEB, "SRV")
    assert texts(message) == [f"0 100 80 {WEB}"]
    assert [str(r) for rrset in message.additional for r in rrset] == ["10.96.0.5"]


def test_addresses_lead_back_to_names():
    message = ask(resolver_of((service(), [])), "5.0.96.10.in-addr.arpa.", "PTR")
    assert texts(message) == [WEB]


def test_a_headless_service_answers_with_ready_endpoints_and_their_names():
    piece = slice_of(
        endpoint("10.244.1.2", "web-0"), endpoint("10.244.1.3"), endpoint("10.244.1.4", ready=False)
    )
    resolver = resolver_of((service(clusterIP="None"), [piece]))
    assert texts(ask(resolver, WEB)) == ["10.244.1.2", "10.244.1.3"]
    assert texts(ask(resolver, "web-0." + WEB)) == ["10.244.1.2"]
    assert texts(ask(resolver, "10-244-1-3." + WEB)) == ["10.244.1.3"]
    assert texts(ask(resolver, "2.1.244.10.in-addr.arpa.", "PTR")) == ["web-0." + WEB]
    srv = ask(resolver, "_http._tcp." + WEB, "SRV")
    assert texts(srv) == [f"0 100 8080 10-244-1-3.{WEB}", f"0 100 8080 web-0.{WEB}"]
    assert len(srv.additional) == 2


def test_unready_endpoints_are_published_when_the_service_says_so():
    piece = slice_of(endpoint("10.244.1.4", ready=False))
    made = service(clusterIP="None", publishNotReadyAddresses=True)
    assert texts(ask(resolver_of((made, [piece])), WEB)) == ["10.244.1.4"]


def test_equal_answers_take_turns_in_being_first():
    piece = slice_of(*(endpoint(f"10.244.1.{n}") for n in range(2, 5)))
    resolver = resolver_of((service(clusterIP="None"), [piece]))
    first = {str(ask(resolver, WEB).answer[0][0]) for _ in range(3)}
    assert first == {"10.244.1.2", "10.244.1.3", "10.244.1.4"}


def test_an_answer_too_long_for_udp_is_cut_off_and_whole_by_tcp():
    piece = slice_of(*(endpoint(f"10.244.1.{n}") for n in range(2, 102)))
    resolver = resolver_of((service(clusterIP="None"), [piece]))
    short = ask(resolver, WEB)
    assert short.flags & dns.flags.TC
    assert not short.answer
    assert len(texts(ask(resolver, WEB, tcp=True))) == 100
    piece = slice_of(*(endpoint(f"10.244.1.{n}") for n in range(2, 52)))
    resolver = resolver_of((service(clusterIP="None"), [piece]))
    assert ask(resolver, WEB).flags & dns.flags.TC
    assert len(texts(ask(resolver, WEB, use_edns=0, payload=1400))) == 50


def test_edns_is_answered_with_edns():
    message = ask(resolver_of((service(), [])), WEB, use_edns=0, payload=4096)
    assert message.edns == 0
    assert texts(message) == ["10.96.0.5"]


def test_an_external_name_is_an_alias_followed_inside_the_cluster():
    alias = service("alias", type="ExternalName", externalName="web.shop.svc.cluster.local")
    resolver = resolver_of((service(), []), (alias, []))
    message = ask(resolver, "alias.shop.svc.cluster.local.")
    assert texts(message) == ["10.96.0.5", WEB]
    assert texts(ask(resolver, "alias.shop.svc.cluster.local.", "CNAME")) == [WEB]


def test_aliases_that_go_round_fail():
    one = service("one", type="ExternalName", externalName="two.shop.svc.cluster.local")
    two = service("two", type="ExternalName", externalName="one.shop.svc.cluster.local")
    message = ask(resolver_of((one, []), (two, [])), "one.shop.svc.cluster.local.")
    assert message.rcode() == dns.rcode.SERVFAIL


def test_pods_have_names_by_address():
    resolver = resolver_of()
    assert texts(ask(resolver, "10-244-1-7.shop.pod.cluster.local.")) == ["10.244.1.7"]
    for wrong in ("10-244-1.shop", "10-244-1-999.shop", "a.10-244-1-7.shop"):
        message = ask(resolver, f"{wrong}.pod.cluster.local.")
        assert message.rcode() == dns.rcode.NXDOMAIN


def test_the_zone_says_who_serves_it():
    resolver = resolver_of()
    assert texts(ask(resolver, "cluster.local.", "NS")) == ["ns.dns.cluster.local."]
    assert texts(ask(resolver, "ns.dns.cluster.local.")) == ["10.96.0.10"]
    assert ask(resolver, "cluster.local.", "SOA").answer


def test_a_service_that_goes_takes_its_names_with_it():
    zone = Zone()
    fresh = Zone()
    zone.put(Key("shop", "web"), service(), [])
    zone.put(Key("shop", "web"), None, [])
    assert vars(zone).keys() == vars(fresh).keys()
    for name in ("_owned", "_claims", "_names"):
        assert vars(zone)[name] == vars(fresh)[name]
    assert zone._prebuilt.keys() == fresh._prebuilt.keys()


def test_before_the_services_are_known_absence_proves_nothing():
    resolver = resolver_of((service(), []))
    resolver.is_ready = False
    message = ask(resolver, "web.shop.svc.cluster.local.")
    assert message.rcode() == dns.rcode.SERVFAIL


def test_names_outside_wait_for_an_upstream():
    query = dns.message.make_query("notcluster.local.", "A").to_wire()
    assert isinstance(resolver_of().answer(query), Waiting)
    odd = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    odd += b"\x0fx\x07cluster\x05local\x00" + b"\x00\x01\x00\x01"
    assert isinstance(resolver_of().answer(odd), Waiting), "bytes in a label are no labels"


@given(st.binary(max_size=80))
def test_no_packet_breaks_the_resolver(packet):
    answer = resolver_of((service(), [])).answer(packet)
    if isinstance(answer, bytes):
        dns.message.from_wire(answer, ignore_trailing=False, question_only=True)
        assert answer[:2] == packet[:2]
        assert answer[2] & 0x80


@given(
    st.integers(0, 65535),
    st.sampled_from([WEB, "web-0." + WEB, "_http._tcp." + WEB, "cluster.local.", "9.9.9.9."]),
    st.integers(0, 300),
    st.binary(max_size=30),
)
def test_almost_right_packets_break_nothing_either(id_, name, type_, noise):
    resolver = resolver_of((service(), [slice_of(endpoint("10.244.1.2", "web-0"))]))
    packet = id_.to_bytes(2, "big") + bytes.fromhex("01000001000000000001")
    packet += wire.encode_name(name) + type_.to_bytes(2, "big") + b"\0\1" + noise
    answer = resolver.answer(packet)
    if isinstance(answer, bytes):
        assert dns.message.from_wire(answer, question_only=True).id == id_


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(
    st.dictionaries(labels, st.integers(1, 250), min_size=1, max_size=5),
    st.sampled_from([dns.rdatatype.A, dns.rdatatype.AAAA, dns.rdatatype.SRV]),
)
def test_the_fast_way_says_what_the_long_way_says(names, type_):
    zone = Zone()
    for name, number in names.items():
        made = service(name, clusterIP=f"10.96.1.{number}")
        zone.put(made.key, made, [])
    for name in names:
        prefix = "_http._tcp." if type_ == dns.rdatatype.SRV else ""
        query = dns.message.make_query(f"{prefix}{name}.shop.svc.cluster.local.", type_)
        parsed = wire.parse_query(query.to_wire())
        found = zone.resolve(parsed)
        slow = wire.response(
            parsed,
            code=found.code,
            answers=found.answers,
            authorities=found.authorities,
            additionals=found.additionals,
            limit=512,
        )
        assert zone.fast(query.to_wire()) == slow
