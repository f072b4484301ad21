"""Rules for the volumes of a pod."""

from typing import Any

from motley.api import names
from motley.api.validation import projected
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    forbidden,
    invalid,
    named,
    one_of,
    required,
)

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
# In the order in which Kubernetes looks at them: the first counts, the others are refused.
_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)


def volumes(field: str, given: list[Any]) -> Errors:
    """All volumes of a pod."""
    seen: set[str] = set()
    for index, volume in enumerate(given):
        at = f"{field}[{index}]"
        name = volume.get("name", "")
        yield from _source(at, volume)
        if not name:
            yield required(f"{at}.name")
        elif wrong := names.check_dns_label(name):
            yield from named(f"{at}.name", name, wrong)
        elif name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)


def usable(given: list[Any]) -> frozenset[str]:
    """Names of the volumes that are well enough to be mounted."""
    return frozenset(
        volume["name"] for volume in given if volume.get("name") and not any(_source("", volume))
    )


def _source(field: str, volume: Document) -> Errors:
    present = [name for name in _SOURCES if volume.get(name) is not None]
    if not present:
        yield required(field, "must specify a volume type")
        return
    for name in present[1:]:
        yield forbidden(f"{field}.{name}", "may not specify more than 1 volume type")
    yield from source(f"{field}.{present[0]}", present[0], volume[present[0]])


def source(field: str, name: str, given: Document) -> Errors:
    """One kind of storage, in a pod or in a PersistentVolume."""
    check = _CHECKS.get(name)
    if check is not None:
        yield from check(field, given)


def _host_path(field: str, source: Document) -> Errors:
    path = source.get("path", "")
    if not path:
        yield required(f"{field}.path")
    elif ".." in path.split("/"):
        yield invalid(f"{field}.path", path, "must not contain '..'")
    yield from one_of(f"{field}.type", source.get("type"), _HOST_PATH_TYPES)


def _claim(field: str, source: Document) -> Errors:
    if not source.get("claimName"):
        yield required(f"{field}.claimName")


def _nfs(field: str, source: Document) -> Errors:
    if not source.get("server"):
        yield required(f"{field}.server")
    path = source.get("path", "")
    if not path:
        yield required(f"{field}.path")
    elif not path.startswith("/"):
        yield invalid(f"{field}.path", path, "must be an absolute path")


_CHECKS = {
    "hostPath": _host_path,
    "secret": projected.secret,
    "configMap": projected.config_map,
    "downwardAPI": projected.downward_api,
    "projected": projected.projected,
    "persistentVolumeClaim": _claim,
    "nfs": _nfs,
}
