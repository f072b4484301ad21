"""The objects that functions are made of: pods, their Service, the runtime's files. Pure.

Every instance begins as the same generic pod: the runtime without code. A pod that was kept warm
and one that was made for a function differ only in their labels, so the first call of a function
can be given a pod that runs already, and there is one way in which code arrives.
Instances belong to their Function directly. A ReplicaSet between them could neither take over a
warm pod nor say which one is to end, and the one to end must be an idle one.

Invariant: no pod of a function can become root, write to its image, or speak to the API server.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.api import quantity
from motley.api.views.base import Key
from motley.api.views.serverless import Function

PREFIX = "motley.io/"
RUNTIME = PREFIX + "runtime"  # on every pod here
FUNCTION = PREFIX + "function"  # whose instance it is
REVISION = PREFIX + "revision"
SERVING = PREFIX + "serving"  # it has its code; what Services select
CLASS = PREFIX + "pool-class"  # which functions a warm pod could serve
POOLED = PREFIX + "pool"  # it waits for a function
DEMAND = "demand." + PREFIX  # annotations by which routers without leadership ask for instances

PORT = 8080
CONTAINER = "function"
DEFAULT_IMAGE = "localhost/motley/python:1"
_NOBODY = 65534
_MOUNT = "/motley/motley_runtime"
_RESOURCES = {
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "256Mi"},
}
_LONGEST_GRACE_S = 300
_LABEL_LENGTH = 63
# Of the memory limit; the rest is for the server and what is shared.
_WORKER_SHARE = 0.85


def label(name: str) -> str:
    """A name as a label's value: long ones are cut, and told apart by a digest."""
    if len(name) <= _LABEL_LENGTH:
        return name
    return f"{name[:50]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def digest(value: Any) -> str:
    """A short name for a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def runtime_files() -> dict[str, str]:
    """The runtime's modules, by file name."""
    directory = Path(__file__).with_name("runtime")
    return {path.name: path.read_text() for path in sorted(directory.glob("*.py"))}


def runtime_config_map(files: Mapping[str, str], namespace: str) -> dict[str, Any]:
    """The ConfigMap that carries the runtime into the pods of a namespace."""
    name = f"motley-function-runtime-{digest(dict(files))}"
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {RUNTIME: "python3"}},
        "data": dict(files),
        "immutable": True,
    }


def revision(function: Function) -> str:
    """Names everything that an instance is made of; a change makes other instances."""
    spec = function.spec
    return digest(
        [
            spec.version,
            spec.code,
            spec.files,
            spec.archive,
            _reference(spec.code_from),
            spec.handler,
            spec.requirements,
            spec.pre_run,
            [[e.name, e.value, _reference(e.value_from)] for e in spec.env],
            spec.resources,
            spec.timeout_seconds,
            spec.concurrency,
            spec.image,
            spec.node_selector,
            spec.public,
        ]
    )


def _reference(source: Any) -> Any:
    if source is None:
        return None
    refs = (source.config_map_key_ref, source.secret_key_ref)
    return [[ref.name, ref.key] if ref else None for ref in refs]


def pool_class(function: Function, default_image: str = DEFAULT_IMAGE) -> str:
    """Functions of one class can be served by the same warm pods."""
    spec = function.spec
    return digest([spec.image or default_image, resources(function), spec.node_selector])


def resources(function: Function) -> dict[str, Any]:
    """What an instance asks for and may use; never without a limit."""
    given = function.spec.resources or {}
    limits = {**_RESOURCES["limits"], **(given.get("limits") or {})}
    requests = {**_RESOURCES["requests"], **(given.get("requests") or {})}
    for name, value in requests.items():
        most = limits.get(name)
        if most is not None and quantity.parse(str(value)) > quantity.parse(str(most)):
            requests[name] = most
    return {"requests": requests, "limits": limits}


def worker_memory_bytes(function: Function) -> int:
    """What one call's process may take of the instance's memory."""
    limit = quantity.parse(str(resources(function)["limits"]["memory"]))
    return int(float(limit) * _WORKER_SHARE)


def instance_token(key: bytes, pod: Key) -> str:
    """What a router shows to an instance; the pod itself holds only its digest."""
    return hmac.new(key, f"instance {pod}".encode(), hashlib.sha256).hexdigest()


def pod(
    function: Function,
    name: str,
    token: str,
    config_map: str,
    *,
    default_image: str = DEFAULT_IMAGE,
    pooled: bool = False,
) -> dict[str, Any]:
    """A generic pod, of this function or of its class's pool."""
    spec = function.spec
    labels = {RUNTIME: "python3", CLASS: pool_class(function, default_image)}
    meta: dict[str, Any] = {"name": name, "namespace": function.metadata.namespace}
    if pooled:
        labels[POOLED] = "true"
    else:
        labels |= {FUNCTION: label(function.metadata.name), REVISION: revision(function)}
        meta["ownerReferences"] = [owner(function)]
    container = {
        "name": CONTAINER,
        "image": spec.image or default_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "motley_runtime"],
        "ports": [{"containerPort": PORT, "name": "http"}],
        "env": [
            {"name": "PYTHONPATH", "value": _MOUNT.rpartition("/")[0]},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "MOTLEY_DIRECTORY", "value": "/tmp/function"},
            {"name": "MOTLEY_TOKEN_SHA256", "value": hashlib.sha256(token.encode()).hexdigest()},
            {"name": "HOME", "value": "/tmp"},
        ],
        "resources": resources(function),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "runtime", "mountPath": _MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    return {
        "metadata": {**meta, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": min(spec.timeout_seconds + 5, _LONGEST_GRACE_S),
            "containers": [container],
            "volumes": [
                {"name": "runtime", "configMap": {"name": config_map}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "512Mi"}},
            ],
            **({"nodeSelector": spec.node_selector} if spec.node_selector else {}),
        },
    }


def owner(function: Function) -> dict[str, Any]:
    """The reference by which the function's objects go when it does."""
    return {
        "apiVersion": Function.API_VERSION,
        "kind": Function.KIND,
        "name": function.metadata.name,
        "uid": function.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adoption(function: Function, resource_version: str) -> dict[str, Any]:
    """The patch that makes a warm pod an instance; only one can win it."""
    return {
        "metadata": {
            "resourceVersion": resource_version,
            "labels": {
                POOLED: None,
                FUNCTION: label(function.metadata.name),
                REVISION: revision(function),
            },
            "ownerReferences": [owner(function)],
        }
    }


def service(function: Function) -> dict[str, Any]:
    """The address of a function's instances, as the documents have it."""
    name = function.metadata.name
    address = function.spec.address
    return {
        "metadata": {
            "name": name,
            "namespace": function.metadata.namespace,
            "labels": {FUNCTION: label(name)},
            "ownerReferences": [owner(function)],
        },
        "spec": {
            "selector": {SERVING: label(name)},
            "ports": [{"name": "http", "port": 80, "targetPort": PORT}],
            **({"clusterIP": address} if address else {}),
        },
    }


def settings(
    function: Function,
    *,
    code: str | None,
    env: Mapping[str, str],
    router: str,
    router_ca: str,
) -> dict[str, Any]:
    """What makes a generic instance a function's: the body of `POST /specialise`."""
    spec = function.spec
    is_v1 = spec.version == "v1"
    return {
        "function": function.metadata.name,
        "namespace": function.metadata.namespace,
        "revision": revision(function),
        "code": code if code is not None else spec.code,
        "files": spec.files,
        "archive": spec.archive,
        "handler": spec.handler,
        "requirements": spec.requirements,
        "preRun": spec.pre_run,
        "env": dict(env),
        "timeout_s": spec.timeout_seconds,
        "concurrency": 1 if is_v1 else spec.concurrency,
        "single": is_v1,
        "memoryBytes": worker_memory_bytes(function),
        "public": spec.public,
        "router": router,
        "routerCA": router_ca,
    }


def layer_key(function: Function, default_image: str = DEFAULT_IMAGE) -> str:
    """Names what requirements and preRun make; empty: nothing. Tenants never share it."""
    spec = function.spec
    if not spec.requirements and not spec.pre_run.strip():
        return ""
    return digest(
        [
            function.metadata.namespace,
            spec.image or default_image,
            spec.requirements,
            spec.pre_run,
            spec.files,
            spec.archive,
            spec.node_selector,
        ]
    )
