"""Where a cluster keeps its objects is chosen once, and by what the store can do.

SQLite serves one API server; several need etcd, which they share. Objects do not move by themselves
from one store to another, so a later `motley up` that names another store is refused, with what to
do instead.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from motley.ops import planes
from motley.ops.failure import Failure
from motley.store.etcd import config as etcd

if TYPE_CHECKING:
    from motley.ops.config import Config

DEFAULT = "sqlite"
KINDS = (DEFAULT, "etcd")
_SAVE = {DEFAULT: "motley backup FILE", "etcd": "etcdctl snapshot save FILE"}


def refuse_other(before: "Config", after: "Config") -> None:
    """Raise a Failure when a cluster would no longer find its objects."""
    anew = f"motley down --delete-data --root {before.root}"
    was, will = before.store or DEFAULT, after.store or DEFAULT
    if was != will:
        raise Failure(
            f"this cluster keeps its objects in {was}",
            f"Keep it. To move to {will}: save a copy ({_SAVE[was]}), write down what is to\n"
            f"come along (kubectl get KINDS -A -o yaml), start anew ({anew};\n"
            f"motley up --store {will}) and apply that.",
        )
    if before.has_own_etcd and not after.has_own_etcd:
        raise Failure(
            "this cluster has an etcd of its own, and its objects are there",
            "Take them along first: etcdctl snapshot save, and restore that where they are to be.",
        )
    if before.has_own_etcd and before.control_planes != after.control_planes:
        raise Failure(
            f"this cluster's etcd was made with {before.control_planes} members",
            f"Keep that number, or start anew: {anew}",
        )


def check(config: "Config") -> None:
    """Refuse what cannot work, before anything is started. Raises Failure."""
    if problem := planes.check(config.control_planes):
        raise Failure(problem)
    if (config.store or DEFAULT) not in KINDS:
        raise Failure(f"there is no store {config.store}", f"There are {' and '.join(KINDS)}.")
    if config.store != "etcd" and (config.is_shared or config.etcd_servers):
        raise Failure(
            "several control planes need a store that they can share", "Say --store etcd."
        )
    for url in filter(None, config.servers.split(",")):
        if not url.startswith("https://"):
            raise Failure(f"{url} is no address such as https://10.0.0.1:6443")
    try:
        if config.etcd_servers:
            key, cert, ca = _files(config)
            etcd.Config(config.etcd_servers, key, cert, ca).addresses()
    except ValueError as error:
        raise Failure(str(error)) from None
    if max(config.ports) > 65535:
        raise Failure(
            f"port {max(config.ports)} is above 65535", "Choose a lower --port-base or --port."
        )


def _files(config: "Config") -> list[Path | None]:
    named = (config.etcd_keyfile, config.etcd_certfile, config.etcd_cafile)
    return [Path(name) if name else None for name in named]
