"""Minik8s' spellings read as Kubernetes': what `--compat minik8s` makes of a document.

Pure. Every function changes the document it is given, in place, and says of each change what was
read into what; a document without such spellings is left as it is and nothing is said. Parts of
documents (merge patches) may be given as well.

    imagePullPolicy: PullIfNotPresent          IfNotPresent
    restartPolicy: RestartOnFailure            OnFailure
    env value 1, true                          "1", "true"
    volumeMounts, and no volumes at all        an emptyDir for each name
    affinity term without a topologyKey        kubernetes.io/hostname
    v1 DNS                                     motley.io/v1 Route
    v1 Job with cuFilePath                     motley.io/v1 SlurmJob
"""

import shlex
from collections.abc import Iterable, Iterator
from ntpath import basename
from typing import Any
from urllib.parse import urlsplit

from motley.api import codec, motleyio, scheme

Document = dict[str, Any]

_POLICIES = {
    "imagePullPolicy": {
        "PullAlways": "Always",
        "PullIfNotPresent": "IfNotPresent",
        "PullNever": "Never",
    },
    "restartPolicy": {
        "RestartAlways": "Always",
        "RestartOnFailure": "OnFailure",
        "RestartNever": "Never",
    },
}
_HOSTNAME = "kubernetes.io/hostname"
_MAIL_DOMAIN = "sjtu.edu.cn"
_TEMPLATE = ("spec", "template", "spec")
# Where the pod is in an object: by plural.
POD_SPECS: dict[str, tuple[str, ...]] = {
    "pods": ("spec",),
    "podtemplates": ("template", "spec"),
    "cronjobs": ("spec", "jobTemplate", *_TEMPLATE),
    **dict.fromkeys(
        (
            "daemonsets",
            "deployments",
            "jobs",
            "replicasets",
            "replicationcontrollers",
            "statefulsets",
        ),
        _TEMPLATE,
    ),
}


def read(obj: Document) -> list[str]:
    """Rewrite a whole object, whatever it is."""
    said = obj.get("apiVersion"), obj.get("kind")
    if said == ("v1", "DNS"):
        return read_dns(obj)
    if said == ("v1", "Job"):
        return read_job(obj)
    kind = scheme.by_kind(str(said[0]), str(said[1]))
    return read_pods(kind.plural, obj) if kind is not None and kind.plural in POD_SPECS else []


def read_pods(plural: str, obj: Document, *, is_whole: bool = True) -> list[str]:
    """Rewrite the pod in an object; `is_whole`: it is no patch, what is not there is nowhere."""
    path = POD_SPECS[plural]
    spec: Any = obj
    for part in path:
        spec = spec.get(part) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return []
    at = ".".join(path)
    said = list(_pod(spec, at))
    has_claims = bool((obj.get("spec") or {}).get("volumeClaimTemplates"))
    if is_whole and not has_claims and not spec.get("volumes"):
        said += _undeclared_volumes(spec, at)
    return said


def _pod(spec: Document, at: str) -> Iterator[str]:
    yield from _policy(spec, "restartPolicy", at)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(_records(spec.get(field))):
            here = f"{at}.{field}[{index}]"
            yield from _policy(container, "imagePullPolicy", here)
            for number, variable in enumerate(_records(container.get("env"))):
                value = variable.get("value")
                if isinstance(value, bool | int | float):
                    variable["value"] = codec.encode(value).decode()
                    yield _said(f"{here}.env[{number}].value", value, variable["value"])
    affinity = spec.get("affinity")
    for field in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(field) if isinstance(affinity, dict) else None
        if isinstance(part, dict):
            yield from _terms(part, f"{at}.affinity.{field}")


def _policy(record: Document, field: str, at: str) -> Iterator[str]:
    value = record.get(field)
    meant = _POLICIES[field].get(value) if isinstance(value, str) else None
    if meant is not None:
        record[field] = meant
        yield _said(f"{at}.{field}", value, meant)


def _terms(part: Document, at: str) -> Iterator[str]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(_records(part.get(required))):
        yield from _topology(term, f"{at}.{required}[{index}]")
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(_records(part.get(preferred))):
        inner = weighted.get("podAffinityTerm")
        if isinstance(inner, dict):
            yield from _topology(inner, f"{at}.{preferred}[{index}].podAffinityTerm")


def _topology(term: Document, at: str) -> Iterator[str]:
    if not term.get("topologyKey"):
        term["topologyKey"] = _HOSTNAME
        yield f'{at}: no topologyKey, read as "{_HOSTNAME}"'


def _undeclared_volumes(spec: Document, at: str) -> Iterator[str]:
    names: dict[str, None] = {}
    for field in ("initContainers", "containers"):
        for container in _records(spec.get(field)):
            for mount in _records(container.get("volumeMounts")):
                if isinstance(mount.get("name"), str):
                    names[mount["name"]] = None
    if names:
        spec["volumes"] = [{"name": name, "emptyDir": {}} for name in names]
    for name in names:
        yield f'{at}.volumes: no volume "{name}", read as an emptyDir that the containers share'


def _records(value: Any) -> Iterable[Document]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _said(at: str, value: Any, meant: str) -> str:
    return f'{at}: {codec.encode(value).decode()} read as "{meant}"'


def read_dns(obj: Document) -> list[str]:
    """A `v1 DNS` becomes a Route."""
    said = [f"v1 DNS read as {motleyio.GROUP}/{motleyio.VERSION} Route"]
    if isinstance(obj.get("name"), str):
        name = obj.pop("name")
        metadata = obj.get("metadata")
        obj["metadata"] = {"name": name, **(metadata if isinstance(metadata, dict) else {})}
        said.append(f'name: "{name}" read as metadata.name')
    _rename(obj, "Route")
    spec = obj.get("spec")
    if isinstance(spec, dict):
        for ours, theirs in (("host", "hostname"), ("address", "serviceAddress")):
            if theirs in spec:
                spec[ours] = spec.pop(theirs)
        if isinstance(spec.get("mappings"), list):
            spec["paths"] = [_path(mapping) for mapping in spec.pop("mappings")]
    return said


def _path(mapping: Any) -> Any:
    """`{address: http://10.6.1.1:80, path: /world}`, where the address may name a Service too."""
    if not isinstance(mapping, dict) or not isinstance(mapping.get("address"), str):
        return mapping
    address = mapping["address"]
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port or 80
    except ValueError:
        return mapping  # the schema says what is wrong with it
    return {"path": mapping.get("path"), "service": parts.hostname or "", "port": port}


def read_job(obj: Document) -> list[str]:
    """A `v1 Job` becomes a SlurmJob: the CUDA program it names is built and run by Slurm."""
    said = [f"v1 Job read as {motleyio.GROUP}/{motleyio.VERSION} SlurmJob"]
    _rename(obj, "SlurmJob")
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return said
    if isinstance(source := spec.get("cuFilePath"), str):
        del spec["cuFilePath"]
        name = basename(source)  # of a path as either system writes it
        program = name.removesuffix(".cu")
        spec["sourcePath"] = source
        spec["build"] = shlex.join(["nvcc", "-O3", "-o", program, name])
        spec["command"] = shlex.quote(f"./{program}")
        spec["gpuResources"] = 1  # a CUDA program needs one, and its queue gives none by itself
    arguments = spec.pop("args", None)
    for field, value in (arguments if isinstance(arguments, dict) else {}).items():
        if field == "gpuResources":
            spec["gpuResources"] = _gpus(value)
        elif field == "mail" and isinstance(value, dict):
            spec["mail"] = {"type": value.get("type", "all"), "user": _mailbox(value)}
        else:
            spec[field] = value
    return said


def _mailbox(mail: Document) -> Any:
    """The document's users are those of one university."""
    user = mail.get("userName", "")
    return user if not user or "@" in str(user) else f"{user}@{_MAIL_DOMAIN}"


def _gpus(value: Any) -> Any:
    """A number, or as Slurm writes it: `gpu:2`."""
    last = str(value).rpartition(":")[2]
    return int(last) if last.isdigit() else value


def _rename(obj: Document, kind: str) -> None:
    obj["apiVersion"] = f"{motleyio.GROUP}/{motleyio.VERSION}"
    obj["kind"] = kind
