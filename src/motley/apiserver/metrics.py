"""The server's own numbers, under kube-apiserver's names where it has them."""

from prometheus_client import Counter, Histogram

from motley.apiserver.request import RequestInfo

REQUESTS = Counter(
    "apiserver_request_total",
    "Requests by verb, group, version, resource, subresource and answer.",
    ["verb", "group", "version", "resource", "subresource", "code"],
)
DURATION = Histogram(
    "apiserver_request_duration_seconds",
    "Time from a request's head to its answer, by verb and resource; streams are not counted.",
    ["verb", "resource"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
REFUSED = Counter(
    "apiserver_dropped_requests_total", "Requests refused because too many were in flight."
)
_VERBS = frozenset(
    ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
)


def observe(info: RequestInfo, code: int, took_s: float | None) -> None:
    """Count one answer. Labels come from known words only, so that nobody can inflate them."""
    served = info.is_resource and code != 404 and info.verb in _VERBS
    resource = info.resource if served else ""
    verb = info.verb if info.verb in _VERBS else "other"
    group, version = (info.group, info.version) if served else ("", "")
    subresource = info.subresource if served else ""
    REQUESTS.labels(verb, group, version, resource, subresource, code).inc()
    if took_s is not None:
        DURATION.labels(verb, resource).observe(took_s)
