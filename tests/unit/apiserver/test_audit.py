"""The audit log: what is recorded of a request, by which rule, and where it goes."""

import asyncio
import json
from pathlib import Path

import pytest

from motley.apiserver import audit, document, request, server
from motley.apiserver.audit import policy as policies
from motley.apiserver.audit.auditlog import DROPPED, AuditFile
from motley.apiserver.authn import TokenFile, User
from motley.lib.clock import SYSTEM
from motley.store.memory import MemoryStore

ALICE = User("alice", ("developers", "system:authenticated"))
MAPS = "/api/v1/namespaces/demo/configmaps"
SECRETS = "/api/v1/namespaces/demo/secrets"


def policy(*rules, **more):
    return policies.parse(
        {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}
    )


class Audited:
    """An API whose audit events are kept."""

    def __init__(self, api, events):
        self.api = api
        self.events = events

    def taken(self):
        found, self.events[:] = list(self.events), []
        return found


@pytest.fixture
async def audited(api):
    """Has the API audited by a policy."""

    def make(chosen=policies.DEFAULT):
        events = []
        api.app._auditor = audit.Auditor(events.append, SYSTEM, chosen)
        return Audited(api, events)

    return make


async def test_by_default_who_did_what_is_recorded_and_health_is_not(audited):
    seen = audited()
    await seen.api.get("/healthz")
    reply = await seen.api.create(
        MAPS, {"metadata": {"name": "a"}, "data": {"k": "text"}}, headers={"user-agent": "me/1"}
    )

    (event,) = seen.taken()

    assert event["kind"] == "Event"
    assert event["apiVersion"] == "audit.k8s.io/v1"
    assert (event["level"], event["stage"], event["verb"]) == (
        "Metadata",
        "ResponseComplete",
        "create",
    )
    assert event["auditID"] == reply.headers["audit-id"]
    assert event["user"]["username"] == "admin"
    assert event["userAgent"] == "me/1"
    assert event["requestURI"] == MAPS
    assert event["objectRef"] == {
        "resource": "configmaps",
        "namespace": "demo",
        "apiVersion": "v1",
    }
    assert event["responseStatus"] == {"metadata": {}, "code": 201}
    assert event["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert event["requestReceivedTimestamp"] <= event["stageTimestamp"]
    assert "text" not in json.dumps(event)


async def test_a_refusal_says_why(audited):
    seen = audited()
    reply = await seen.api.get(MAPS, token="alice")

    (event,) = seen.taken()

    assert event["user"]["username"] == "alice"
    assert event["responseStatus"]["code"] == 403
    assert event["responseStatus"]["reason"] == "Forbidden"
    assert event["responseStatus"]["message"] == reply.message
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


async def test_wrong_credentials_are_recorded_without_a_user(audited):
    seen = audited()
    await seen.api.get(MAPS, token="nobody-knows")

    (event,) = seen.taken()

    assert (event["user"], event["responseStatus"]["code"]) == ({}, 401)
    assert "nobody-knows" not in json.dumps(event)


async def test_both_users_of_an_impersonation_are_named(audited):
    seen = audited()
    await seen.api.get(MAPS, headers={"impersonate-user": "bob"})

    (event,) = seen.taken()

    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"]["username"] == "bob"


async def test_a_client_may_name_its_request_itself(audited):
    seen = audited()
    reply = await seen.api.get(MAPS, headers={"audit-id": "mine"})
    odd = await seen.api.get(MAPS, headers={"audit-id": "x" * 200})

    assert reply.headers["audit-id"] == "mine"
    assert len(odd.headers["audit-id"]) == 36
    assert [event["auditID"] for event in seen.taken()] == ["mine", odd.headers["audit-id"]]


async def test_stages_of_a_watch_are_its_beginning_and_its_end(audited):
    seen = audited(policy({"level": "Metadata"}))
    async with seen.api.watch(f"{MAPS}?watch=true"):
        assert [e["stage"] for e in seen.events] == ["RequestReceived", "ResponseStarted"]

    assert [e["stage"] for e in seen.taken()][2:] == ["ResponseComplete"]


async def test_a_bug_is_recorded_as_panic(audited, monkeypatch):
    seen = audited()

    async def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(seen.api.app._core.writer, "create", broken)
    await seen.api.create(MAPS, {"metadata": {"name": "a"}})

    (event,) = seen.taken()
    assert (event["stage"], event["responseStatus"]["code"]) == ("Panic", 500)


async def test_bodies_are_kept_when_the_policy_says_so(audited):
    seen = audited(
        policy(
            {
                "level": "RequestResponse",
                "omitStages": ["RequestReceived"],
                "omitManagedFields": True,
                "resources": [{"group": "", "resources": ["configmaps"]}],
            }
        )
    )
    await seen.api.create(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    await seen.api.get("/api/v1/namespaces/demo/pods")

    (event,) = seen.taken()

    assert event["requestObject"] == {"metadata": {"name": "a"}, "data": {"k": "v"}}
    assert event["responseObject"]["data"] == {"k": "v"}
    assert "managedFields" not in event["responseObject"]["metadata"]


async def test_a_secret_is_not_written_down_unless_it_is_named(audited):
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    seen = audited(policy({"level": "RequestResponse", "resources": [{"group": "*"}]}))
    await seen.api.create(SECRETS, secret)

    events = seen.taken()
    assert {event["level"] for event in events} == {"Metadata"}
    assert "hunter2" not in json.dumps(events)

    named = [{"group": "", "resources": ["secrets"]}]
    seen = audited(policy({"level": "Request", "resources": named}))
    await seen.api.create(SECRETS, {**secret, "metadata": {"name": "t"}})
    assert "hunter2" in json.dumps(seen.taken())


async def test_pod_security_tells_what_it_enforced_and_what_it_would_refuse(audited, a_pod):
    seen = audited()
    labels = {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/audit": "restricted",
    }
    await seen.api.create("/api/v1/namespaces", {"metadata": {"name": "safe", "labels": labels}})
    account = "/api/v1/namespaces/safe/serviceaccounts"
    await seen.api.create(account, {"metadata": {"name": "default"}})
    seen.taken()

    made = await seen.api.create("/api/v1/namespaces/safe/pods", a_pod())

    assert made.code == 201, made.message
    notes = seen.taken()[-1]["annotations"]
    assert notes["pod-security.kubernetes.io/enforce-policy"] == "baseline:latest"
    found = notes["pod-security.kubernetes.io/audit-violations"]
    assert found.startswith('would violate PodSecurity "restricted:latest": ')


@pytest.mark.parametrize(
    ("rule", "method", "path", "level"),
    [
        ({"users": ["alice"]}, "GET", "/api/v1/pods", "Metadata"),
        ({"users": ["bob"]}, "GET", "/api/v1/pods", "None"),
        ({"userGroups": ["developers"]}, "GET", "/api/v1/pods", "Metadata"),
        ({"verbs": ["create"]}, "GET", "/api/v1/pods", "None"),
        ({"verbs": ["list"]}, "GET", "/api/v1/pods", "Metadata"),
        ({"namespaces": ["demo"]}, "GET", MAPS, "Metadata"),
        ({"namespaces": [""]}, "GET", MAPS, "None"),
        ({"resources": [{"resources": ["nodes/*"]}]}, "GET", "/api/v1/pods", "None"),
        (
            {"resources": [{"resources": ["*/log"]}]},
            "GET",
            "/api/v1/namespaces/d/pods/p/log",
            "Metadata",
        ),
        ({"resources": [{"group": "apps"}]}, "GET", "/apis/apps/v1/deployments", "Metadata"),
        ({"nonResourceURLs": ["/api*"]}, "GET", "/apis", "Metadata"),
        ({"nonResourceURLs": ["/api*"]}, "GET", "/api/v1/pods", "None"),
    ],
)
def test_the_first_rule_that_matches_decides(rule, method, path, level):
    chosen = policy({"level": "Metadata", **rule})

    assert chosen.recording(ALICE, request.parse(method, path)).level == level


@pytest.mark.parametrize(
    ("document_", "words"),
    [
        ({"kind": "Policy", "apiVersion": "v1"}, "apiVersion: must be audit.k8s.io/v1"),
        ({"kind": "Other"}, "kind: must be Policy"),
        ({"rules": []}, "rules: at least one"),
        ({"rules": [{"level": "All"}]}, "rules[0].level: must be one of"),
        ({"rules": [{"level": "None", "verb": ["get"]}]}, "rules[0].verb: unknown field"),
        ({"rules": [{"level": "None", "omitStages": ["End"]}]}, "rules[0].omitStages"),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["/a*b"]}]},
            "rules[0].nonResourceURLs",
        ),
    ],
)
def test_a_wrong_policy_is_refused_with_the_field(tmp_path, document_, words):
    full = {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", **document_}
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(full))

    with pytest.raises(policies.BadPolicy) as refused:
        policies.load(path)

    assert words in str(refused.value)
    assert str(path) in str(refused.value)


class At:
    """A clock that is set by hand."""

    def __init__(self, now):
        self.time = now

    def now(self):
        return self.time

    def monotonic(self):
        return self.time


def test_a_full_log_is_renamed_and_old_ones_go(tmp_path):
    path = tmp_path / "audit.log"
    clock = At(1_800_000_000.0)
    file = AuditFile(audit.Options(str(path), max_size_mb=1, max_backups=2), clock)
    line = b"x" * 600_000 + b"\n"
    for _ in range(5):
        clock.time += 1.5
        file.write([line])
    file.close()

    rotated = sorted(p.name for p in tmp_path.iterdir() if p != path)
    assert rotated == ["audit-2027-01-15T08-00-06.000.log", "audit-2027-01-15T08-00-07.500.log"]
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in tmp_path.iterdir())
    assert path.read_bytes() == line


def test_what_a_slow_disk_cannot_take_is_dropped_and_counted(tmp_path, monkeypatch):
    import threading

    gate = threading.Event()
    real = AuditFile.write

    def slow(self, lines):
        gate.wait(10)
        real(self, lines)

    monkeypatch.setattr(AuditFile, "write", slow)
    before = DROPPED._value.get()
    log = audit.AuditLog(audit.Options(str(tmp_path / "a.log")), buffer=3)
    for number in range(600):
        log.write({"n": number})
    gate.set()
    log.close()

    written = [json.loads(line) for line in (tmp_path / "a.log").read_bytes().splitlines()]
    assert len(written) + DROPPED._value.get() - before == 600
    assert 0 < len(written) < 600


async def test_events_reach_the_file_before_the_log_is_closed(tmp_path):
    path = tmp_path / "sub" / "audit.log"
    log = audit.AuditLog(audit.Options(str(path)))
    config = server.Config(Path("/nonexistent"), bind="10.0.0.1", store="memory")
    users = TokenFile({"admin": User("admin", ("system:masters",))})
    auditor = audit.Auditor(log.write, SYSTEM)
    store = MemoryStore(document.stamp)
    async with server.assemble(config, store, None, users, SYSTEM, auditor=auditor) as app:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/pods",
            "query_string": b"limit=1",
            "headers": [(b"authorization", b"Bearer admin")],
            "client": ("192.0.2.7", 999),
            "state": {},
        }

        async def receive():
            await asyncio.get_running_loop().create_future()

        async def send(message):
            pass

        await app(scope, receive, send)
    log.close()

    (event,) = map(json.loads, path.read_bytes().splitlines())
    assert event["requestURI"] == "/api/v1/pods?limit=1"
    assert event["sourceIPs"] == ["192.0.2.7"]
