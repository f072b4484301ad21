"""Links between objects, and an object as it is."""

import json
import re
from collections.abc import Iterator
from typing import Any

from motley.dashboard.markup import Child, Html, tag
from motley.dashboard.pages import frame

Document = dict[str, Any]

# Kind → group and resource.
WORKLOADS = {
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
    "DaemonSet": ("apps", "daemonsets"),
    "ReplicaSet": ("apps", "replicasets"),
    "Job": ("batch", "jobs"),
    "CronJob": ("batch", "cronjobs"),
}
_PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9 /_.@%+,-]*(:[A-Za-z0-9/_.@%+-]+)*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_HIDDEN = "(hidden)"


def reference(to: Document) -> Child:
    """A link to the object that another one names, where there is a page for it."""
    kind, name, namespace = (str(to.get(k) or "") for k in ("kind", "name", "namespace"))
    words = f"{kind}/{name}"
    if kind == "Pod":
        return frame.anchor(words, "pods", namespace, name)
    if kind == "Node":
        return frame.anchor(words, "nodes", name)
    if kind in WORKLOADS and namespace:
        return frame.anchor(words, "workloads", namespace, kind, name)
    return words


def owner(document: Document) -> Child:
    """Who made an object."""
    metadata = document.get("metadata") or {}
    listed = metadata.get("ownerReferences") or ()
    found = next((o for o in listed if o.get("controller")), None)
    if found is None:
        return None
    return reference({**found, "namespace": metadata.get("namespace")})


def conditions(document: Document) -> Html:
    """How an object is."""
    listed = (document.get("status") or {}).get("conditions") or ()
    rows = [[str(c.get(k) or "") for k in ("type", "status", "reason", "message")] for c in listed]
    return frame.table(["Condition", "Status", "Reason", "Message"], rows, "Nothing is said.")


def manifest(document: Document, *, is_open: bool = False) -> Html:
    """The object as YAML, folded; what Secrets hold is not shown, nor who wrote which field."""
    shown = {**document, "metadata": dict(document.get("metadata") or {})}
    shown["metadata"].pop("managedFields", None)
    if document.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if document.get(part):
                shown[part] = dict.fromkeys(document[part], _HIDDEN)
        notes = shown["metadata"].get("annotations") or {}
        last = "kubectl.kubernetes.io/last-applied-configuration"
        if last in notes:
            shown["metadata"]["annotations"] = {**notes, last: _HIDDEN}
    body = tag("pre", yaml(shown), class_="yaml")
    return tag("details", tag("summary", "YAML"), body, open=is_open)


def yaml(value: Any) -> str:
    """A document as YAML that any reader takes, in the order it came."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _entry(f"{_scalar(key)}:", one, "  ")
    elif isinstance(value, list) and value:
        for one in value:
            yield from _item(one)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        step = "" if isinstance(value, list) else indent
        for line in _lines(value):
            yield step + line
    elif isinstance(value, str) and _is_text(value):
        yield f"{head} |{'' if value.endswith(chr(10)) else '-'}"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{indent}{line}" if line else ""
    else:
        yield f"{head} {_scalar(value)}"


def _is_text(value: str) -> bool:
    """Several lines that can stand as they are."""
    lines = value.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all(line == "" or line.isprintable() for line in lines)
        and not lines[0].startswith(" ")
        and lines[0] != ""
        and lines[-1] != ""
    )


def _item(value: Any) -> Iterator[str]:
    lines = list(_lines(value))
    yield f"- {lines[0]}"
    for line in lines[1:]:
        yield f"  {line}"


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        shown = json.dumps(value)  # an exponent without a point is no number to every reader
        return shown.replace("e", ".0e") if isinstance(value, float) and "." not in shown else shown
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and value == value.strip():
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
