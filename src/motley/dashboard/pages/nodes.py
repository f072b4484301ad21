"""Nodes: unlike machines side by side, and each of them alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from motley.dashboard import charts, facts, figures, kube
from motley.dashboard.asking import Asked, Page
from motley.dashboard.facts import Amounts
from motley.dashboard.kube import Api
from motley.dashboard.markup import Child, Html, tag, text
from motley.dashboard.pages import frame, happenings, objects, pods, tables, usage

Document = dict[str, Any]

MOST = 5000  # nodes that Kubernetes, too, is made for
_PODS = 10_000
_ROLE = "node-role.kubernetes.io/"


def listed(api: Api, asked: Asked) -> Page:
    """All nodes."""
    found = list(api.items("/api/v1/nodes", MOST))
    held = counted(api)
    using = usage.now(api, "nodes")
    return Page("Nodes", table(found, held, using, asked.now), "nodes")


class Held:
    """What pods hold of the cluster's nodes, and how the pods are."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.requests: dict[str, Amounts] = {}

    def add(self, pod: Document) -> None:
        """Count one more pod; one that is over holds nothing."""
        self.phases[(pod.get("status") or {}).get("phase", "Unknown")] += 1
        if not facts.is_over(pod):
            node = (pod.get("spec") or {}).get("nodeName", "")
            self.pods[node] += 1
            before = self.requests.get(node, {})
            self.requests[node] = facts.total([before, facts.requested(pod)])

    def of(self, node: str) -> Amounts:
        """What is requested of a node."""
        return self.requests.get(node) or facts.total([])

    @property
    def total(self) -> Amounts:
        """What is requested of all, also by pods that have no node yet."""
        return facts.total(self.requests.values())


def counted(api: Api) -> Held:
    """All pods, or as many as can be looked at while somebody waits."""
    held = Held()
    for pod in api.items("/api/v1/pods", _PODS):
        held.add(pod)
    return held


def table(
    found: Iterable[Document],
    held: Held,
    using: Mapping[tuple[str, str], Amounts],
    now: float,
) -> Html:
    """Nodes with what they have, what was promised of it, and what is used."""

    def row(node: Document) -> list[Child]:
        metadata, status = node["metadata"], node.get("status") or {}
        name = metadata["name"]
        have = facts.amounts(status.get("allocatable"))
        asked_for = held.of(name)
        used = using.get(("", name), {})
        info = status.get("nodeInfo") or {}
        ago = facts.since(metadata.get("creationTimestamp"), now)
        return [
            frame.anchor(name, "nodes", name),
            _state(node),
            str(info.get("architecture") or ""),
            facts.speed(node),
            _bar(used, have, asked_for, "cpu"),
            _bar(used, have, asked_for, "memory"),
            str(held.pods[name]),
            figures.age(ago) if ago is not None else "",
        ]

    heads = ["Node", "Status", "Architecture", "Speed", "CPU", "Memory", "Pods", "Age"]
    return frame.table(heads, map(row, found), "There are no nodes.")


def show(api: Api, asked: Asked, name: str) -> Page:
    """One node."""
    node = api.get(kube.path("api", "v1", "nodes", name))
    chosen = f"spec.nodeName={name}"
    held = Held()
    for pod in api.items("/api/v1/pods", _PODS, fieldSelector=chosen):
        held.add(pod)
    status = node.get("status") or {}
    have = facts.amounts(status.get("allocatable"))
    asked_for = held.of(name)
    past = usage.past(api, asked, "nodes", name=name)
    marks = [("requested", asked_for), ("allocatable", have)]
    main = [
        _facts(node, asked_for, asked.now),
        frame.section(
            "Use",
            frame.ranges(asked),
            usage.both(past.document, marks) if past.document else past.missing(),
        ),
        frame.section("Pods", pods.table(api, asked, "", fieldSelector=chosen)),
        frame.section("Conditions", objects.conditions(node)),
        frame.section("Events", happenings.about(api, "Node", "", name, asked.now)),
        objects.manifest(node),
    ]
    return Page(f"Node {name}", text(main), "nodes")


def _facts(node: Document, asked_for: Amounts, now: float) -> Html:
    metadata, status = node["metadata"], node.get("status") or {}
    info = status.get("nodeInfo") or {}
    have = facts.amounts(status.get("allocatable"))
    roles = [k.removeprefix(_ROLE) for k in metadata.get("labels") or {} if k.startswith(_ROLE)]
    taints = (node.get("spec") or {}).get("taints") or ()
    ago = facts.since(metadata.get("creationTimestamp"), now)
    return frame.facts(
        [
            ("Status", _state(node)),
            ("Roles", ", ".join(roles)),
            ("Machine", f"{info.get('operatingSystem', '')}/{info.get('architecture', '')}"),
            ("Speed", facts.speed(node)),
            ("Allocatable", f"{_amount(have, 'cpu')} cores, {_amount(have, 'memory')}"),
            ("Requested", f"{_amount(asked_for, 'cpu')} cores, {_amount(asked_for, 'memory')}"),
            ("System", str(info.get("osImage") or "")),
            ("Kernel", str(info.get("kernelVersion") or "")),
            ("Agent", str(info.get("kubeletVersion") or "")),
            ("Runtime", str(info.get("containerRuntimeVersion") or "")),
            (
                "Addresses",
                ", ".join(a.get("address", "") for a in status.get("addresses") or ()),
            ),
            (
                "Taints",
                [
                    (tag("code", f"{t.get('key')}={t.get('value', '')}:{t.get('effect')}"), " ")
                    for t in taints
                ],
            ),
            ("Age", figures.age(ago) if ago is not None else ""),
            ("Labels", frame.labels(metadata.get("labels"))),
        ]
    )


def _state(node: Document) -> Html:
    ready = facts.condition(node, "Ready").get("status")
    words = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown")
    if (node.get("spec") or {}).get("unschedulable"):
        words += ",SchedulingDisabled"
    return frame.badge(words, tables.mood(words))


def _bar(used: Amounts, have: Amounts, asked_for: Amounts, name: str) -> Child:
    whole = have.get(name, 0.0)
    if not whole:
        return ""
    shown = f"{_amount(used, name)} used, {_amount(asked_for, name)} requested of"
    label = f"{shown} {_amount(have, name)}"
    return (
        charts.bar(used.get(name, 0.0), whole, asked_for.get(name), label=label),
        " ",
        figures.share(used[name] / whole) if name in used else "–",
    )


def _amount(of: Amounts, name: str) -> str:
    if name not in of:
        return "–"
    return figures.cores(of[name]) if name == "cpu" else figures.size(of[name])
