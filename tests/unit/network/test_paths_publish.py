"""What the cluster is told about paths: objects, statuses, names, the hosts file."""

import base64
import subprocess

import pytest

from motley.api.views.core import Secret, Service
from motley.api.views.paths import Ingress, IngressClass, Route
from motley.network.dns import wire
from motley.network.dns.wire import Query
from motley.network.dns.zone import Zone
from motley.network.paths import hostsfile, publish
from motley.network.paths.certificates import Store
from motley.network.paths.sites import Certificate, Owner, Problem, Refused

NOW = "2026-01-02T00:00:00Z"
OWNER = Owner("Route", "default", "r")


def test_a_routes_status_changes_only_when_something_did():
    wanted = publish.route_status(Route(), "10.8.0.1", [], NOW)
    assert wanted["address"] == "10.8.0.1"
    (condition,) = wanted["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Served")
    written = Route.of({"status": wanted})
    assert publish.route_status(written, "10.8.0.1", [], "2026-01-03T00:00:00Z") is None
    worse = publish.route_status(written, "10.8.0.1", [Problem(OWNER, "Bad", "so")], "later")
    assert worse["conditions"][0] == {
        "type": "Ready",
        "status": "False",
        "reason": "Bad",
        "message": "so",
        "lastTransitionTime": "later",
    }


def test_an_ingress_status_of_somebody_else_is_left_alone():
    theirs = Ingress.of({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})
    assert publish.ingress_status(theirs, "", {"10.96.0.3"}) is None
    ours = Ingress.of({"status": {"loadBalancer": {"ingress": [{"ip": "10.96.0.3"}]}}})
    assert publish.ingress_status(ours, "10.96.0.3", {"10.96.0.3"}) is None
    assert publish.ingress_status(ours, "", {"10.96.0.3"}) == {"loadBalancer": {"ingress": []}}


def test_our_class_is_the_default_unless_there_is_one():
    assert "annotations" in publish.ingress_class([])["metadata"]
    marks = {"ingressclass.kubernetes.io/is-default-class": "true"}
    other = IngressClass.of({"metadata": {"name": "nginx", "annotations": marks}})
    assert "annotations" not in publish.ingress_class([other])["metadata"]


def gateway(hosts, name="motley-gateway"):
    metadata = {"name": name, "namespace": "kube-system", "annotations": {"motley.io/hosts": hosts}}
    return Service.of({"metadata": metadata, "spec": {"clusterIP": "10.96.0.3"}})


def ask(zone, name, type_=wire.A):
    owner = wire.encode_name(name)
    question = owner + type_.to_bytes(2, "big") + b"\0\1"
    packet = b"\0\7\1\0\0\1\0\0\0\0\0\0" + question
    found = zone.resolve(Query(7, wire.RD, owner, type_, wire.IN, question, 512, False))
    quick = zone.fast(packet)
    if found is None:
        assert quick is None
        return None
    return found.code, [answer[-4:] for answer in found.answers]


def test_names_of_the_gateway_are_answered_until_they_go():
    zone = Zone()
    service = gateway('{"a.example":"10.8.0.1","*.w.example":"10.96.0.3"}')
    zone.put(service.key, service, [])
    assert ask(zone, "a.example") == (wire.NOERROR, [bytes([10, 8, 0, 1])])
    assert ask(zone, "A.Example") == (wire.NOERROR, [bytes([10, 8, 0, 1])])
    assert ask(zone, "a.example", wire.AAAA) == (wire.NOERROR, [])
    assert ask(zone, "x.w.example") == (wire.NOERROR, [bytes([10, 96, 0, 3])])
    for outside in ("x.y.w.example", "w.example", "b.a.example", "example"):
        assert ask(zone, outside) is None
    zone.put(service.key, gateway("{}"), [])
    assert ask(zone, "a.example") is None
    assert ask(zone, "x.w.example") is None


@pytest.mark.parametrize(
    "service",
    [
        gateway('{"web.default.svc.cluster.local":"10.8.0.1"}'),
        gateway('{"web.default.svc.cluster.local":"10.8.0.1"}', "other"),
        gateway("not json"),
        gateway('{"a.example":"x"}'),
    ],
)
def test_nobody_takes_a_services_name_by_the_way_of_the_gateway(service):
    zone = Zone()
    zone.put(service.key, service, [])
    assert ask(zone, "web.default.svc.cluster.local") == (wire.NXDOMAIN, [])
    assert ask(zone, "a.example") is None


def test_a_hosts_file_keeps_everything_that_is_not_ours(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1\tlocalhost\n# mine")
    assert hostsfile.write(
        path, {"b.example": "10.0.0.2", "*.w": "x", "a.example": "10.0.0.1"}, "m"
    )
    assert path.read_text() == (
        "127.0.0.1\tlocalhost\n# mine\n"
        "# begin m\n10.0.0.1\ta.example\n10.0.0.2\tb.example\n# end m\n"
    )
    assert not hostsfile.write(path, {"a.example": "10.0.0.1", "b.example": "10.0.0.2"}, "m")
    path.write_text(path.read_text() + "::1\tip6\n")
    assert hostsfile.write(path, {}, "m")
    assert path.read_text() == "127.0.0.1\tlocalhost\n# mine\n::1\tip6\n"


@pytest.fixture
def pair(tmp_path):
    files = (tmp_path / "key", tmp_path / "crt")
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    done = ("-subj", "/CN=a", "-keyout", files[0], "-out", files[1])
    subprocess.run(["openssl", *words, *done], check=True, capture_output=True)
    return files[1].read_bytes(), files[0].read_bytes()


def secret(crt, key, version="1"):
    encoded = {"tls.crt": base64.b64encode(crt).decode(), "tls.key": base64.b64encode(key).decode()}
    metadata = {"name": "s", "namespace": "default", "uid": "u", "resourceVersion": version}
    return Secret.of({"metadata": metadata, "type": "kubernetes.io/tls", "data": encoded})


def test_a_certificate_is_kept_for_nginx_alone_and_forgotten_when_it_goes(tmp_path, pair):
    store = Store(tmp_path / "tls")
    (found,) = store.read([secret(*pair)]).values()
    assert isinstance(found, Certificate)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()} == {0o600}
    assert store.read([]) == {}
    store.forget_unused()
    assert list((tmp_path / "tls").iterdir()) == []


@pytest.mark.parametrize("bad", [(b"", b""), (b"x", b"y"), "key of another"])
def test_a_certificate_that_nginx_would_not_take_is_refused(tmp_path, pair, bad):
    crt, key = (pair[0], b"-----BEGIN PRIVATE KEY-----\n") if bad == "key of another" else bad
    store = Store(tmp_path / "tls")
    (found,) = store.read([secret(crt, key)]).values()
    assert isinstance(found, Refused)
    assert not (tmp_path / "tls").exists() or list((tmp_path / "tls").iterdir()) == []
