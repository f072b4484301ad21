"""Requests made up from the OpenAPI documents a server publishes: many right, many subtly wrong.

Objects are drawn from the schemas, then some of them are damaged; parameters come from the
documents and from what people get wrong. Everything follows from one random generator, so that the
n-th request of a seed is always the same.

A few kinds would, once stored, decide about every later request (webhooks, policies, remote
APIs); they are only ever sent as a dry run.
"""

import base64
import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from . import specimens

Document = dict[str, Any]

JSON = "application/json"
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
DECIDES_ABOUT_OTHERS = ("webhookconfigurations", "admissionpolic", "apiservices")
NAMES = ("a", "a", "a", "b", "b", "c", "d", "e.f", "kubernetes")
ODD_NAMES = ("A", "a_b", "x" * 300, "..", "a:b", "ä", "a b", "\x00", "%", "a/b", "*", "-")
NAMESPACES = (*("fuzz",) * 16, "default", "kube-system", "nope", "Odd_One")
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, 1e300, -0.0),
    *("", " ", "a", "-1", "1e9", "1Ki", "\x00", "\u2028", "é" * 70, "x" * 5000, "{}", "null"),
    *([], [None], [[]], [1], ["a", "a"], [{}], {}, {"": ""}, {"a": None}, {"a": {"b": []}}),
    *("0/5 * * * *", "10.0.0.0/8", "::/0", "999.1.1.1", "2026-01-01T00:00:00Z", "x=y", "a,b"),
)
ODD_QUERY = ("", "0", "-1", "1", "true", "false", "abc", "All", "é", "\x00", "%", "a" * 2000, "1e9")
SELECTORS = (
    *(
        "a=b",
        "a",
        "!a",
        "a in (b,c)",
        "a notin (b)",
        "a in (",
        "a=b,c!=d",
        "=",
        "a==b=c",
        ",",
        "(a)",
    ),
    *("metadata.name=a", "metadata.name!=a", "spec.nodeName=", "bogus=1", "status.phase=x", "a>1"),
)
VERSIONS = ("0", "1", "5", "999999999", "-1", "abc", "", "1.5", "18446744073709551616")
QUERIES: Mapping[str, Sequence[str]] = {
    "labelSelector": SELECTORS,
    "fieldSelector": SELECTORS,
    "resourceVersion": VERSIONS,
    "resourceVersionMatch": ("Exact", "NotOlderThan", "bogus", ""),
    "limit": ("1", "2", "500", "0", "-1", "abc", "9" * 30),
    "continue": (
        "",
        "abc",
        base64.b64encode(b'{"v":"meta.k8s.io/v1","rv":1,"start":"a"}').decode(),
    ),
    "dryRun": ("All", "None", "all", ""),
    "fieldManager": ("me", "", "x" * 200, "a\nb"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "bogus"),
    "force": ("true", "false", "maybe"),
    "gracePeriodSeconds": ("0", "1", "-1", "abc", "9" * 20),
    "propagationPolicy": ("Foreground", "Background", "Orphan", "bogus"),
    "orphanDependents": ("true", "abc"),
    "pretty": ("true", "1"),
    "timeoutSeconds": ("1", "0", "-1", "abc"),
    "container": ("c", "nope"),
    "tailLines": ("1", "-1", "abc"),
    "command": ("ls",),
    "path": ("/", "..", "a b"),
}
ACCEPTS = (
    *(JSON,) * 16,
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    *("application/yaml", "*/*", "", "text/html", ";;;", "application/json;q=x"),
)


@dataclass
class Request:
    """One request, complete."""

    method: str
    url: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.url} {self.headers} {self.body[:2000]!r}"


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    path: str
    method: str
    parameters: tuple[str, ...]
    schema: Document | None
    kind: tuple[str, str]  # apiVersion, kind


class Fuzzer:
    """Draws requests from a server's documents."""

    def __init__(self, documents: Sequence[Document], seed: int) -> None:
        self._rng = random.Random(seed)
        self._schemas: Document = {}
        self._operations: list[Operation] = []
        for document in documents:
            self._schemas |= document["components"]["schemas"]
            self._operations += _operations(document)

    def requests(self, count: int) -> Iterator[Request]:
        """So many requests, every operation about equally often."""
        rng = self._rng
        order: list[Operation] = []
        pending: list[Request] = []
        for _ in range(count):
            if not pending:
                order = order or rng.sample(self._operations, len(self._operations))
                operation = order.pop()
                pending.append(self._request(operation))
                if "{name}" in operation.path and rng.random() < 0.3:
                    pending += _creation(operation)  # there shall be something to find
            yield pending.pop()

    def _request(self, operation: Operation) -> Request:
        rng = self._rng
        headers = {"accept": rng.choice(ACCEPTS)}
        body = b""
        if operation.method == "patch":
            body, headers["content-type"] = self._patch(operation)
        elif operation.method in ("post", "put"):
            body, headers["content-type"] = self._written(self._object(operation))
        elif operation.method == "delete" and rng.random() < 0.4:
            body, headers["content-type"] = self._written(self._delete_options())
        method = operation.method.upper()
        if rng.random() < 0.02:
            method = rng.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
        return Request(method, self._url(operation, method), body, headers)

    def _url(self, operation: Operation, method: str) -> str:
        rng = self._rng
        chance = rng.random()
        name = rng.choice(ODD_NAMES if chance < 0.05 else NAMES if chance < 0.4 else NAMES[:1])
        path = operation.path.replace("{namespace}", quote(rng.choice(NAMESPACES), safe=""))
        path = path.replace("{name}", quote(name, safe=""))
        query: dict[str, str] = {}
        for parameter in (*operation.parameters, *QUERIES):
            if parameter == "watch":
                if rng.random() < 0.02:  # a watch lasts a second
                    query["watch"] = "true"
            elif rng.random() < (0.1 if parameter in operation.parameters else 0.005):
                known = QUERIES.get(parameter, ODD_QUERY)
                query[parameter] = rng.choice(known if rng.random() < 0.85 else ODD_QUERY)
        if method == "DELETE" and "{name}" not in operation.path and rng.random() < 0.8:
            query["labelSelector"] = "app=nothing"  # else hardly anything would be left
        if query.get("watch"):
            query["timeoutSeconds"] = "1"
        if method != "GET" and any(word in path for word in DECIDES_ABOUT_OTHERS):
            query["dryRun"] = "All"
        return f"{path}?{urlencode(query)}" if query else path

    # Bodies

    def _object(self, operation: Operation) -> Any:
        """A specimen, with or without fields drawn beside its own, or all drawn; damaged or not."""
        api_version, kind = operation.kind
        chance = self._rng.random()
        if operation.kind in specimens.kinds() and chance < 0.85:
            document = specimens.make(api_version, kind, self._rng.choice(NAMES))
            if chance < 0.3:
                _add(document, self._drawn(operation.schema or {}, "", 1))
                document["metadata"] |= self._metadata()
            return self._damaged(document) if self._rng.random() < 0.5 else document
        drawn = self._drawn(operation.schema or {}, "", 0)
        document = drawn if isinstance(drawn, dict) else {}
        document |= {"apiVersion": api_version, "kind": kind}
        document["metadata"] = self._metadata()
        if self._rng.random() < 0.5:
            return self._damaged(document)
        return document

    def _metadata(self) -> Document:
        rng = self._rng
        metadata: Document = {"name": rng.choice(NAMES)}
        if rng.random() < 0.1:
            metadata = {"generateName": rng.choice(("a-", "", "x" * 100))}
        if rng.random() < 0.4:
            drawn = self._drawn(self._schemas[_OBJECT_META], "metadata", 3)
            metadata = {**drawn, **metadata}
            for key in ("namespace", "uid", "resourceVersion", "finalizers"):
                if rng.random() < 0.9:
                    metadata.pop(key, None)
        return metadata

    def _delete_options(self) -> Any:
        options = self._drawn(self._schemas.get(_DELETE_OPTIONS, {}), "", 2)
        return self._damaged(options) if self._rng.random() < 0.3 else options

    def _written(self, document: Any) -> tuple[bytes, str]:
        """The body and its type: nearly always what it says it is."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.05:
            return yaml.safe_dump(document, allow_unicode=True).encode(), "application/yaml"
        body = json.dumps(document).encode()
        if chance < 0.07:
            return body, rng.choice(
                ("text/plain", "application/vnd.kubernetes.protobuf", "", "x/y")
            )
        if chance < 0.10:
            cut = rng.randrange(len(body) + 1)
            junk = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
            return body[:cut] + junk + body[cut + rng.randrange(3) :], JSON
        return body, JSON

    def _patch(self, operation: Operation) -> tuple[bytes, str]:
        rng = self._rng
        kind = rng.choice(PATCHES)
        document = self._object(operation)
        if kind == PATCHES[0]:
            return json.dumps(
                [self._json_operation(document) for _ in range(rng.randrange(4))]
            ).encode(), kind
        if kind == PATCHES[2] and isinstance(document, dict):
            self._add_directives(document)
        if kind == PATCHES[3] and rng.random() < 0.5:
            return yaml.safe_dump(document, allow_unicode=True).encode(), kind
        if isinstance(document, dict) and rng.random() < 0.5 and kind != PATCHES[3]:
            kept = rng.sample(list(document), rng.randrange(len(document) + 1))
            document = {key: document[key] for key in kept}
        return json.dumps(document).encode(), kind

    def _json_operation(self, document: Any) -> Any:
        rng = self._rng
        pointers = ["", "/", "/metadata/labels/x", "/spec/-", *_pointers(document)]
        step: Document = {
            "op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "bogus")),
            "path": rng.choice(pointers) + rng.choice(("", "", "", "/0", "/-", "/~", "/~1")),
        }
        if rng.random() < 0.8:
            step["value"] = self._odd()
        if rng.random() < 0.5:
            step["from"] = rng.choice(pointers)
        return self._odd() if rng.random() < 0.03 else step

    def _add_directives(self, document: Document) -> None:
        rng = self._rng
        for holder in list(_objects(document)):
            if rng.random() < 0.15:
                holder["$patch"] = rng.choice(("delete", "replace", "merge", "bogus", 1))
            for key in list(holder):
                if rng.random() < 0.05:
                    prefix = rng.choice(
                        ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys/")
                    )
                    holder[prefix + key] = copy.deepcopy(rng.choice((holder[key], *ODD_VALUES)))
            if rng.random() < 0.05:
                holder["$retainKeys"] = copy.deepcopy(rng.choice((["a"], *ODD_VALUES)))

    def _odd(self) -> Any:
        return copy.deepcopy(self._rng.choice(ODD_VALUES))

    def _damaged(self, document: Any) -> Any:
        """The document with one to three places changed into something else."""
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            holders = [h for h in _objects(document) if h] + [h for h in _lists(document) if h]
            if not holders:
                return self._odd()
            holder = rng.choice(holders)
            key: Any = (
                rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
            )
            action = rng.random()
            if action < 0.7:
                holder[key] = self._odd()
            elif action < 0.8:
                del holder[key]
            elif action < 0.9 and isinstance(holder, dict):
                holder[rng.choice(("", "x", "Name", "é", "\r\n", "\x00\x1b", "\U000f57ae"))] = (
                    holder.pop(key)
                )
            else:
                holder[key] = [copy.deepcopy(holder[key])]
        return self._odd() if rng.random() < 0.02 else document

    # Values by schema

    def _drawn(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        rng = self._rng
        if reference := schema.get("$ref"):
            return self._drawn(self._schemas[reference.rpartition("/")[2]], name, depth)
        if all_of := schema.get("allOf"):
            return self._drawn(all_of[0], name, depth)
        if enum := schema.get("enum"):
            return copy.deepcopy(rng.choice(enum))
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            return self._drawn_object(schema, depth)
        if kind == "array":
            count = 0 if depth > 8 else rng.choice((0, 1, 1, 1, 2))
            return [self._drawn(schema.get("items", {}), name, depth + 1) for _ in range(count)]
        if kind == "integer":
            return rng.choice((0, 1, 1, 2, 5, 80, 3600, -1))
        if kind == "number":
            return rng.choice((0, 1, 0.5))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return self._drawn_text(schema, name)
        return rng.choice((1, "a", "25%", {"a": rng.choice(("b", "c"))}))

    def _drawn_object(self, schema: Mapping[str, Any], depth: int) -> Document:
        rng = self._rng
        required = schema.get("required", ())
        chance = max(0.05, 0.45 - 0.05 * depth)
        found: Document = {}
        for key, inner in schema.get("properties", {}).items():
            if key in ("apiVersion", "kind", "metadata") and depth == 0:
                continue
            if (key in required and depth < 12) or (depth < 8 and rng.random() < chance):
                found[key] = self._drawn(inner, key, depth + 1)
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and depth < 8:
            for key in rng.sample(("app", "cpu", "memory", "a.b/c"), rng.randrange(3)):
                found[key] = self._drawn(values, key, depth + 1)
        return found

    def _drawn_text(self, schema: Mapping[str, Any], name: str) -> str:
        rng = self._rng
        form = schema.get("format")
        if form == "byte":
            return rng.choice(("", "YQ==", "!"))
        if form == "date-time":
            return rng.choice(("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", "x"))
        if form == "int-or-string":
            return rng.choice(("50%", "http", "8080"))
        known = _TEXTS.get(name)
        if known and rng.random() < 0.9:
            return rng.choice(known)
        if name in ("cpu", "memory") or "uantity" in str(schema.get("description", ""))[:200]:
            return rng.choice(("1", "100m", "1Gi", "0", "-1", "1e3", "x"))
        return rng.choice(("a", "b", "web", "app", "x-1", "", "1"))


_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_TEXTS: Mapping[str, Sequence[str]] = {
    "name": ("a", "b", "c", "http"),
    "namespace": ("fuzz", "default"),
    "image": ("nginx", "nginx:1"),
    "protocol": ("TCP", "UDP", "SCTP"),
    "restartPolicy": ("Always", "Never", "OnFailure"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt"),
    "effect": ("NoSchedule", "NoExecute", ""),
    "apiGroup": ("rbac.authorization.k8s.io", "", "apps"),
    "kind": ("Role", "ClusterRole", "User", "Group", "ServiceAccount", "Pod", "Deployment"),
    "apiVersion": ("v1", "apps/v1"),
    "schedule": ("* * * * *", "@daily", "0 0 31 2 *"),
    "mountPath": ("/a", "/b", "a"),
    "path": ("/", "/a", "a"),
    "pathType": ("Prefix", "Exact", "ImplementationSpecific"),
    "clusterIP": ("None", "10.96.3.4", ""),
    "type": (
        "ClusterIP",
        "NodePort",
        "ExternalName",
        "Opaque",
        "Ready",
        "Resource",
        "RollingUpdate",
    ),
    "status": ("True", "False", "Unknown"),
    "topologyKey": ("kubernetes.io/hostname",),
    "expression": ("true", "object.metadata.name == 'a'", "1 +", "self.x"),
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany"),
    "verbs": ("get", "*", "create"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "signerName": ("kubernetes.io/kube-apiserver-client", "a.b/c"),
    "usages": ("client auth", "digital signature"),
}


def _creation(operation: Operation) -> list[Request]:
    """What makes the object that most names mean, where it may be stored."""
    collection, _, _ = operation.path.partition("/{name}")
    known = [k for k in specimens.kinds() if collection.endswith(f"/{specimens.plural(*k)}")]
    known = [k for k in known if f"/{k[0]}/" in collection]
    if not known or any(word in collection for word in DECIDES_ABOUT_OTHERS):
        return []
    body = json.dumps(specimens.make(*known[0], NAMES[0])).encode()
    path = specimens.path(*known[0], NAMESPACES[0])
    return [Request("POST", path, body, {"accept": JSON, "content-type": JSON})]


def _add(document: Document, more: Any) -> None:
    """Put in what the document does not have."""
    for key, value in more.items() if isinstance(more, dict) else ():
        if isinstance(document.get(key), dict):
            _add(document[key], value)
        elif key not in document:
            document[key] = value


def _operations(document: Document) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            content = operation.get("requestBody", {}).get("content", {})
            schema = next((c["schema"] for c in content.values()), None)
            mark = operation["x-kubernetes-group-version-kind"]
            if method == "patch":  # a patch is made from the object it would change
                schema = _put_schema(item) or schema
            yield Operation(
                path,
                method,
                tuple(p["name"] for p in operation["parameters"]),
                schema,
                ("/".join(p for p in (mark["group"], mark["version"]) if p), mark["kind"]),
            )


def _put_schema(item: Document) -> Document | None:
    content = item.get("put", {}).get("requestBody", {}).get("content", {})
    return next((c["schema"] for c in content.values()), None)


def _objects(value: Any) -> Iterator[Document]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


def _lists(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _lists(inner)
    elif isinstance(value, list):
        yield value
        for inner in value:
            yield from _lists(inner)


def _pointers(value: Any, before: str = "") -> Iterator[str]:
    pairs: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    for key, inner in pairs:
        pointer = f"{before}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield pointer
        yield from _pointers(inner, pointer)
