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


# Children by the answer they count: to find one through `labels` costs more than counting. As many
# as there are combinations of known words.
_requests: dict[tuple[str, str, str, str, str, int], Counter] = {}
_durations: dict[tuple[str, str], Histogram] = {}


def observe(info: RequestInfo, code: int, took_s: float | None) -> None:
    """Count one answer. Labels come from known words only, so that nobody can inflate them."""
    verb = info.verb if info.verb in _VERBS else "other"
    if info.is_resource and code != 404 and verb != "other":
        words = (verb, info.group, info.version, info.resource, info.subresource, code)
    else:
        words = (verb, "", "", "", "", code)
    requests = _requests.get(words)
    if requests is None:
        requests = _requests[words] = REQUESTS.labels(*words)
    requests.inc()
    if took_s is None:
        return
    duration = _durations.get((verb, words[3]))
    if duration is None:
        duration = _durations[verb, words[3]] = DURATION.labels(verb, words[3])
    duration.observe(took_s)
