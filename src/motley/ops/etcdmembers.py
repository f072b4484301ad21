"""etcd as the cluster's store: its members on this machine, under the supervisor.

Each member has a directory of its own under ROOT/etcd and listens on loopback only. Members and
clients prove who they are by certificates of an authority that signs nothing else: whoever holds
one of the cluster's, as every node does, must not be able to read every Secret past the API.

Invariant: what a member was started with first (its name, its peers) is what it is started with.
"""

from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from motley.apiserver import tls
from motley.lib import clock
from motley.ops import install
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.planes import Plane
from motley.ops.supervision import Spec
from motley.store.etcd import config as etcd

ETCD = "etcd"
_HOST = "127.0.0.1"
_NAMES = (_HOST, "localhost")


class Access(msgspec.Struct, frozen=True):
    """How the API servers reach etcd; files are empty where none is needed."""

    servers: tuple[str, ...]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    prefix: str = etcd.DEFAULT_PREFIX

    def options(self, plane: Plane) -> dict[str, object]:
        """For an API server, which asks its own plane's member first."""
        turn = (plane.number - 1) % len(self.servers)
        files = {
            "etcd-cafile": self.cafile,
            "etcd-certfile": self.certfile,
            "etcd-keyfile": self.keyfile,
        }
        return {
            "store": "etcd",
            "etcd-servers": ",".join(self.servers[turn:] + self.servers[:turn]),
            **{name: path for name, path in files.items() if path},
            "etcd-prefix": self.prefix,
        }


def directory(config: Config) -> Path:
    """Where the members' authority and certificates are."""
    return config.root / "pki" / ETCD


def access(config: Config) -> Access | None:
    """How the cluster's etcd is reached; None when its store is another."""
    if config.etcd_servers:
        every = config.etcd_servers.split(",")
        return Access(
            # One on this machine first: it is there whenever we are.
            tuple(sorted(every, key=lambda url: urlsplit(url).hostname != config.node_ip)),
            config.etcd_cafile,
            config.etcd_certfile,
            config.etcd_keyfile,
            config.etcd_prefix,
        )
    if not config.has_own_etcd:
        return None
    files = directory(config)
    return Access(
        tuple(f"https://{_HOST}:{plane.etcd_port}" for plane in config.planes),
        str(files / "ca.crt"),
        str(files / "client.crt"),
        str(files / "client.key"),
        config.etcd_prefix,
    )


def programs(config: Config) -> tuple[tuple[str, str], ...]:
    """What must be installed for it: programs and their packages."""
    return (("etcd", "etcd-server"),) if config.has_own_etcd else ()


def prepare(config: Config, say: install.Say, source: clock.Clock) -> None:
    """The program, the certificates and the directories of the members. Raises Failure."""
    if config.has_own_etcd:
        install.further({package: (program,) for program, package in programs(config)}, say)
        certify(config, source)
        for plane in config.planes:
            data(config, plane).mkdir(parents=True, exist_ok=True, mode=0o700)
        return
    reached = access(config)
    for path in (reached.cafile, reached.certfile, reached.keyfile) if reached else ():
        if path and not Path(path).is_file():
            raise Failure(f"{path}: there is no such file", "It is to prove who we are to etcd.")


def certify(config: Config, source: clock.Clock, anew: Collection[str] = ()) -> None:
    """Certificates of the members, and of the API servers as their clients.

    Made where they are missing or near their end, or their names are in `anew`.
    """
    files = directory(config)
    files.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = tls.separate_authority(files, source)
    for name, path in leaves(config).items():
        pair = path, path.with_suffix(".key")
        if name in anew or not tls.is_good(*pair, authority, source):
            issued = tls.issue_peer if path.stem == "member" else tls.issue_client
            names = _NAMES if path.stem == "member" else ()
            tls.write_pair(*pair, issued(authority, f"motley-{name}", names, now=source))


def leaves(config: Config) -> dict[str, Path]:
    """The certificates by the names people know them by; none where etcd is not ours."""
    files = directory(config)
    found = {f"{ETCD}-{name}": files / f"{name}.crt" for name in ("member", "client")}
    return found if config.has_own_etcd else {}


def data(config: Config, plane: Plane) -> Path:
    """Where a member keeps what it knows."""
    return config.root / ETCD / plane.name(ETCD)


def specs(config: Config) -> list[Spec]:
    """The members, none of which waits for another: they come up together or not at all."""
    if not config.has_own_etcd:
        return []
    peers = ",".join(f"{plane.name(ETCD)}={_peer(plane)}" for plane in config.planes)
    return [_spec(config, plane, peers) for plane in config.planes]


def _peer(plane: Plane) -> str:
    return f"https://{_HOST}:{plane.etcd_peer_port}"


def _spec(config: Config, plane: Plane, peers: str) -> Spec:
    files = directory(config)
    client = f"https://{_HOST}:{plane.etcd_port}"
    health = f"http://{_HOST}:{plane.etcd_health_port}"
    options: dict[str, object] = {
        "name": plane.name(ETCD),
        "data-dir": data(config, plane),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": _peer(plane),
        "initial-advertise-peer-urls": _peer(plane),
        "initial-cluster": peers,
        "initial-cluster-token": config.cgroup_root.strip("/"),
        "listen-metrics-urls": health,
        "client-cert-auth": "true",
        "peer-client-cert-auth": "true",
        "logger": "zap",
        "log-level": "warn",
    }
    for prefix in ("", "peer-"):
        options[f"{prefix}trusted-ca-file"] = files / "ca.crt"
        options[f"{prefix}cert-file"] = files / "member.crt"
        options[f"{prefix}key-file"] = files / "member.key"
    command = ("etcd", *(f"--{name}={value}" for name, value in options.items()))
    return Spec(name=plane.name(ETCD), command=command, probe=f"{health}/health")
