"""Workloads: what keeps pods running, and what its pods use together."""

from typing import Any

from motley.dashboard import facts, figures, kube
from motley.dashboard.asking import Asked, Page
from motley.dashboard.kube import Api, ApiError
from motley.dashboard.markup import Child, Html, text
from motley.dashboard.pages import frame, happenings, objects, pods, tables, usage

Document = dict[str, Any]

_LISTED = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
_AUTOSCALERS = (
    ("autoscaling", "v2", "horizontalpodautoscalers", "scaleTargetRef"),
    ("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "targetRef"),
)


def listed(api: Api, asked: Asked) -> Page:
    """Every kind of workload that there is."""
    main: list[Child] = [frame.namespaces(api, asked)]
    for kind in _LISTED:
        listing = tables.read(api, _path(kind, asked.namespace))
        if not listing.rows:
            continue

        def link(row: tables.Row, kind: str = kind) -> Child:
            return frame.anchor(row.name, "workloads", row.namespace, kind, row.name)

        shown = tables.show(listing, link, with_namespace=not asked.namespace)
        main.append(frame.section(f"{kind}s", shown))
    if len(main) == 1:
        main.append(frame.table([], [], "There are no workloads here."))
    return Page("Workloads", text(main), "workloads", scoped=True)


def show(api: Api, asked: Asked, namespace: str, kind: str, name: str) -> Page:
    """One workload with its pods."""
    if kind not in objects.WORKLOADS:
        raise ApiError(404, f"{kind} is no kind of workload")
    found = api.get(_path(kind, namespace, name))
    past = usage.past(api, asked, "workloads", namespace, name, kind)
    selector = _selector(found)
    there = (
        frame.section("Pods", pods.table(api, asked, namespace, labelSelector=selector))
        if selector
        else None
    )
    main = [
        _facts(found, asked.now),
        frame.section("Use", frame.ranges(asked), usage.both(past.document))
        if past.document
        else None,
        there,
        _autoscalers(api, namespace, kind, name),
        frame.section("Conditions", objects.conditions(found)),
        frame.section("Events", happenings.about(api, kind, namespace, name, asked.now)),
        objects.manifest(found),
    ]
    return Page(f"{kind} {name}", text(main), "workloads")


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    where = ("namespaces", namespace) if namespace else ()
    group, plural = objects.WORKLOADS[kind]
    return kube.path("apis", group, "v1", *where, plural, name)


def _facts(found: Document, now: float) -> Html:
    metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    ago = facts.since(metadata.get("creationTimestamp"), now)
    template = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    counts = [
        f"{status[key]} {words}"
        for key, words in (
            ("readyReplicas", "ready"),
            ("updatedReplicas", "updated"),
            ("unavailableReplicas", "unavailable"),
            ("numberReady", "ready"),
            ("active", "active"),
            ("succeeded", "succeeded"),
            ("failed", "failed"),
        )
        if isinstance(status.get(key), int)
    ]
    wanted = spec.get("replicas", spec.get("parallelism", status.get("desiredNumberScheduled")))
    return frame.facts(
        [
            ("Namespace", metadata.get("namespace", "")),
            ("Wanted", "" if wanted is None else str(wanted)),
            ("Pods", ", ".join(counts)),
            ("Images", ", ".join(str(c.get("image")) for c in template)),
            ("Schedule", str(spec.get("schedule") or "")),
            ("Made by", objects.owner(found)),
            ("Age", figures.age(ago) if ago is not None else ""),
            ("Labels", frame.labels(metadata.get("labels"))),
        ]
    )


def _selector(found: Document) -> str:
    """The workload's selector as a query; empty where it selects nothing itself."""
    given = (found.get("spec") or {}).get("selector") or {}
    parts = [f"{k}={v}" for k, v in (given.get("matchLabels") or {}).items()]
    for one in given.get("matchExpressions") or ():
        key, values = one.get("key", ""), ",".join(one.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(one.get("operator", ""), key)
        )
    return ",".join(parts)


def _autoscalers(api: Api, namespace: str, kind: str, name: str) -> Html | None:
    """What changes its size."""
    rows: list[list[Child]] = []
    for group, version, plural, field in _AUTOSCALERS:
        where = kube.path("apis", group, version, "namespaces", namespace, plural)
        for one in api.find(where, limit=500).get("items") or ():
            target = (one.get("spec") or {}).get(field) or {}
            if (target.get("kind"), target.get("name")) == (kind, name):
                own = one["metadata"]["name"]
                link = frame.anchor(own, "kinds", group, version, plural, namespace, own)
                rows.append([link, str(one.get("kind") or plural), _says(one)])
    return (
        frame.section("Autoscaling", frame.table(["Name", "Kind", "Says"], rows, ""))
        if rows
        else None
    )


def _says(autoscaler: Document) -> str:
    status = autoscaler.get("status") or {}
    if "desiredReplicas" in status:
        return f"{status.get('currentReplicas', 0)} pods, {status['desiredReplicas']} wanted"
    listed = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    return "; ".join(
        f"{c.get('containerName')}: "
        + ", ".join(f"{k} {v}" for k, v in (c.get("target") or {}).items())
        for c in listed
    )
