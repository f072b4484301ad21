"""Pods: the list, and what one of them uses, says and went through."""

from collections.abc import Iterator
from typing import Any

from motley.dashboard import facts, figures, kube
from motley.dashboard.asking import Asked, Page
from motley.dashboard.kube import Api, ApiError
from motley.dashboard.markup import Child, Html, tag, text
from motley.dashboard.pages import decisions, frame, happenings, objects, tables, usage

Document = dict[str, Any]

_LINES = 200  # of a log
_LOG_BYTES = 256 * 1024
_SORTS = (
    ("initContainers", "initContainerStatuses", "init"),
    ("containers", "containerStatuses", ""),
    ("ephemeralContainers", "ephemeralContainerStatuses", "debug"),
)


def listed(api: Api, asked: Asked) -> Page:
    """The pods of a namespace, or of all."""
    main = [frame.namespaces(api, asked), table(api, asked, asked.namespace)]
    return Page("Pods", text(main), "pods", scoped=True)


def table(api: Api, asked: Asked, namespace: str, **query: str) -> Html:
    """As kubectl lists them, with what they use."""
    where = kube.path("api", "v1", *(("namespaces", namespace) if namespace else ()), "pods")
    listing = tables.read(api, where, **query)
    using = usage.now(api, "pods", namespace)
    drawn = usage.small(api, asked, "pods", namespace, len(listing.rows))

    def used(name: str) -> Any:
        shown = figures.cores if name == "cpu" else figures.size

        def cell(row: tables.Row) -> str:
            found = using.get((row.namespace, row.name), {})
            return shown(found[name]) if name in found else ""

        return cell

    def node(row: tables.Row) -> Child:
        name = str(row.cells.get("Node") or "")
        return frame.anchor(name, "nodes", name) if name and name != "<none>" else ""

    return tables.show(
        listing,
        lambda row: frame.anchor(row.name, "pods", row.namespace, row.name),
        [
            ("CPU", used("cpu")),
            ("Memory", used("memory")),
            ("Last hour", lambda row: drawn.get((row.namespace, row.name))),
            ("Node", node),
        ],
        with_namespace=not namespace,
        columns=["Ready", "Status", "Restarts", "Age"],
        empty="There are no pods here.",
    )


def show(api: Api, asked: Asked, namespace: str, name: str) -> Page:
    """One pod."""
    where = kube.path("api", "v1", "namespaces", namespace, "pods", name)
    pod = api.get(where)
    past = usage.past(api, asked, "pods", namespace, name)
    marks = [
        (words, amounts)
        for words, amounts in (("requested", facts.requested(pod)), ("limit", facts.limits(pod)))
        if amounts
    ]
    drawn = past.document and usage.both(past.document, marks, by_container=True)
    charts = drawn or past.missing()
    main = [
        _facts(pod, asked.now),
        frame.section("Use", frame.ranges(asked), charts),
        frame.section("Containers", _containers(api, pod, asked.now)),
        decisions.about(api, namespace, name, asked.now),
        frame.section("Conditions", objects.conditions(pod)),
        frame.section("Events", happenings.about(api, "Pod", namespace, name, asked.now)),
        _log(api, asked, where, pod),
        objects.manifest(pod),
    ]
    return Page(f"Pod {name}", text(main), "pods")


def _facts(pod: Document, now: float) -> Html:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    phase = "Terminating" if "deletionTimestamp" in metadata else status.get("phase", "Unknown")
    ready = facts.condition(pod, "Ready").get("status") == "True"
    node = spec.get("nodeName", "")
    ago = facts.since(metadata.get("creationTimestamp"), now)
    return frame.facts(
        [
            (
                "Status",
                (
                    frame.badge(phase, tables.mood(phase)),
                    " ",
                    frame.badge("ready", "ok") if ready else frame.badge("not ready", "idle"),
                ),
            ),
            ("Reason", ": ".join(filter(None, (status.get("reason"), status.get("message"))))),
            ("Namespace", metadata.get("namespace", "")),
            ("Node", frame.anchor(node, "nodes", node) if node else "none yet"),
            ("Address", status.get("podIP", "")),
            ("Class", status.get("qosClass", "")),
            ("Scheduler", spec.get("schedulerName", "")),
            ("Made by", objects.owner(pod)),
            ("Age", figures.age(ago) if ago is not None else ""),
            ("Labels", frame.labels(metadata.get("labels"))),
        ]
    )


def _containers(api: Api, pod: Document, now: float) -> Html:
    metadata = pod["metadata"]
    where = (*usage.METRICS, "namespaces", metadata["namespace"], "pods", metadata["name"])
    measured = api.find(kube.path(*where)).get("containers") or ()
    using = {c.get("name"): facts.amounts(c.get("usage")) for c in measured}
    heads = ["Container", "State", "Restarts", "CPU", "Memory", "Requests", "Limits", "Image"]

    def row(spec: Document, state: Document, words: str) -> list[Child]:
        used = using.get(spec["name"], {})
        resources = spec.get("resources") or {}
        return [
            (spec["name"], tag("small", f" {words}") if words else None),
            _state(state, now),
            str(state.get("restartCount", "")),
            figures.cores(used["cpu"]) if "cpu" in used else "",
            figures.size(used["memory"]) if "memory" in used else "",
            _amounts(resources.get("requests")),
            _amounts(resources.get("limits")),
            str(spec.get("image") or ""),
        ]

    return frame.table(heads, [row(*one) for one in _parts(pod)], "There are no containers.")


def _parts(pod: Document) -> Iterator[tuple[Document, Document, str]]:
    """Every container with its status, and what sort it is."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    for sort, statuses, words in _SORTS:
        states = {one.get("name"): one for one in status.get(statuses) or ()}
        for container in spec.get(sort) or ():
            sidecar = words == "init" and container.get("restartPolicy") == "Always"
            yield container, states.get(container["name"], {}), "sidecar" if sidecar else words


def _state(status: Document, now: float) -> Child:
    state = status.get("state") or {}
    if "running" in state:
        ago = facts.since(state["running"].get("startedAt"), now)
        words = "Running" if ago is None else f"Running for {figures.age(ago)}"
        return frame.badge(words, "ok" if status.get("ready") else "warn")
    if "terminated" in state:
        ended = state["terminated"]
        code = ended.get("exitCode", 0)
        words = f"{ended.get('reason') or 'Ended'} ({code})"
        return frame.badge(words, "bad" if code else "idle")
    waiting = state.get("waiting") or {}
    words = waiting.get("reason") or "Waiting"
    return (frame.badge(words, tables.mood(words) or "warn"), " ", waiting.get("message") or "")


def _amounts(listed: Document | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (listed or {}).items())


def _log(api: Api, asked: Asked, where: str, pod: Document) -> Html:
    names = [spec["name"] for spec, _, _ in _parts(pod)]
    main = (pod.get("spec") or {}).get("containers") or [{"name": ""}]
    chosen = asked.get("container") if asked.get("container") in names else main[0]["name"]
    try:
        said = api.text(f"{where}/log", container=chosen, tailLines=_LINES, limitBytes=_LOG_BYTES)
        shown = tag("pre", said or "(nothing was said)", class_="log", tabindex=0)
    except ApiError as error:
        if error.code in (0, 401):
            raise
        shown = tag("p", error.message, class_="empty")
    choice = [
        (tag("strong", n), " ")
        if n == chosen
        else (tag("a", n, href=asked.with_(container=n)), " ")
        for n in names
    ]
    return frame.section(
        "Log", tag("p", choice, class_="ranges") if len(names) > 1 else None, shown
    )
