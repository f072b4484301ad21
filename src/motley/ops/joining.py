"""`motley join`: this machine becomes a node of a cluster that runs elsewhere.

    ask anybody who answers for the cluster's authority      nothing is believed, nothing is told
    compare its public key with the hash in the command      from here on every word is verified
    show the token, learn the address ranges                 a bad token ends it here
    containerd, images, agent, proxy under the supervisor    as `motley up` does
    the agent asks for its certificate, the node gets Ready  the token is deleted from this machine

Every step looks first whether its work is done: a join that was interrupted is repeated with the
same command, and on a machine that has joined `motley join` alone starts what does not run.

Invariant: nothing secret is sent to a server that has not proved to be the one meant.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.apiserver.authz import restriction
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import atomicfile, clock
from motley.ops import components, install, preflight, tokens, up
from motley.ops import config as configs
from motley.ops.cluster import Cluster
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.progress import Progress
from motley.ops.tokens import NodeSettings

_NEW_COMMAND = "On the control plane, for a command that works: motley token create"


class Invitation(msgspec.Struct, frozen=True):
    """What the join command says."""

    server: str
    token: str
    ca_hashes: tuple[str, ...]


class Discovered(msgspec.Struct, frozen=True):
    """What a cluster said of itself, once it had proved to be the one meant."""

    ca: bytes
    settings: NodeSettings
    further: tuple[str, ...] = ()  # API servers beside the one that was asked


def invitation(server: str, token: str, hashes: tuple[str, ...]) -> Invitation:
    """The join command's parts, checked for sense. Raises Failure."""
    parts = urlsplit(server if "://" in server else f"https://{server}")
    if parts.scheme != "https" or not parts.hostname:
        raise Failure(f"{server} is no address such as https://10.0.0.1:6443")
    if not token:
        raise Failure("a token is needed: --token", _NEW_COMMAND)
    if not hashes:
        raise Failure(
            "the authority's hash is needed: --ca-hash",
            f"Without it another machine could pretend to be the cluster.\n{_NEW_COMMAND}",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Invitation(
        server=f"https://{host}:{parts.port or 6443}",
        token=tokens.check(token),
        ca_hashes=tuple(map(tokens.check_hash, hashes)),
    )


async def discover(asked: Invitation, source: clock.Clock = clock.SYSTEM) -> Discovered:
    """The cluster's authority and settings. Raises Failure."""
    stranger = kubeconfig.Config(server=asked.server, insecure=True)
    try:
        async with Client(stranger, user_agent="motley-join", clock=source) as client:
            info = await client.get(ConfigMap, tokens.CLUSTER_INFO, tokens.PUBLIC_NAMESPACE)
    except (status.NotFound, status.Forbidden, status.Unauthorized):
        raise Failure(
            f"{asked.server} is an API server that has not been told to let nodes join",
            _NEW_COMMAND,
        ) from None
    except status.ApiError as error:
        raise _unreachable(asked.server, error) from None
    published = info.data.get("kubeconfig", "")
    ca = trusted(published, asked)
    known = kubeconfig.Config(server=asked.server, ca=ca, token=asked.token)
    try:
        async with Client(known, user_agent="motley-join", clock=source) as client:
            found = await client.get(ConfigMap, tokens.SETTINGS, tokens.NAMESPACE)
    except (status.Unauthorized, status.Forbidden):
        raise Failure(
            "the cluster does not know this token, or its time is over",
            "On the control plane: motley token list shows those that are good;\n"
            "motley token create --print-join-command makes another.",
        ) from None
    except status.ApiError as error:
        raise _unreachable(asked.server, error) from None
    try:
        settings = msgspec.convert(found.data, NodeSettings)
    except msgspec.ValidationError as error:
        raise Failure(f"the cluster's settings cannot be read: {error}", _NEW_COMMAND) from None
    return Discovered(ca, settings, others(published, asked))


def others(text: str, asked: Invitation) -> tuple[str, ...]:
    """The API servers that a published kubeconfig names beside the one that was asked.

    They need not be vouched for: whoever answers there must show the same authority.
    """
    try:
        known = kubeconfig.parse(text)
    except kubeconfig.ConfigError:
        return ()
    return tuple(url for url in known.servers if url != asked.server)


def trusted(text: str, asked: Invitation) -> bytes:
    """The authorities of a published kubeconfig that the command vouches for. Raises Failure."""
    try:
        document = yaml.safe_load(text)
        cluster = document["clusters"][0]["cluster"]
        ca = msgspec.convert(cluster["certificate-authority-data"], bytes)
        found = tokens.ca_hashes(ca)
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        raise Failure(f"{asked.server} tells no authority that could be checked") from None
    good = [pem for name, pem in found.items() if name in asked.ca_hashes]
    if not good:
        raise Failure(
            f"{asked.server} is not the cluster of this join command: its authority's hash is "
            f"{', '.join(found)}",
            "Either the authority was changed after the command was made, or somebody else "
            f"answers in the cluster's place. The token was not sent.\n{_NEW_COMMAND}",
        )
    return b"".join(good)


def _unreachable(server: str, error: status.ApiError) -> Failure:
    return Failure(
        f"{server} cannot be used: {error.message}",
        "Is this its address, can this machine reach it, is its port open?",
    )


def address_towards(server: str) -> str:
    """The address by which the control plane sees this machine; no packet is sent."""
    parts = urlsplit(server)
    try:
        family, kind, _, _, target = socket.getaddrinfo(
            parts.hostname, parts.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Failure(f"there is no way to {parts.hostname}: {error.strerror}") from None


def check_labels(text: str) -> None:
    """Refuse labels that a node may not give itself. Raises Failure."""
    for item in filter(None, text.split(",")):
        key, equals, _ = item.partition("=")
        if not equals or not key:
            raise Failure(f"{item!r} is no label of the form key=value")
        if not restriction.may_label(key):
            raise Failure(
                f"a node may not give itself the label {key}",
                "An administrator may: kubectl label node NAME KEY=VALUE",
            )


def resolve(
    root: Path, server: str, settings: NodeSettings | None, given: Mapping[str, Any]
) -> Config:
    """What this machine will be. Raises Failure when it already is something else.

    Without settings: those that it joined with.
    """
    before = configs.load(root)
    refuse_other(before, server)
    options = {name: value for name, value in given.items() if value is not None}
    if "node_ip" not in options and (before is None or not configs.is_local(before.node_ip)):
        options["node_ip"] = address_towards(server)
    shared = msgspec.structs.asdict(settings) if settings is not None else {}
    return configs.resolve(root, {**options, "server": server, **shared})


def refuse_other(before: Config | None, server: str = "") -> None:
    """One root directory belongs to one cluster. Raises Failure."""
    if before is None or (before.is_joined and server in ("", before.server)):
        return
    what = f"a node of {before.server}" if before.is_joined else "a cluster of its own"
    way_out = "motley leave" if before.is_joined else "motley down --delete-data"
    raise Failure(
        f"{before.root} holds {what}",
        f"Give it up first ({way_out} --root {before.root}), or use another --root.",
    )


async def join(
    config: Config,
    asked: Invitation | None,
    found: Discovered | None,
    progress: Progress,
    *,
    restart: bool = False,
    source: clock.Clock = clock.SYSTEM,
) -> None:
    """Make this machine the node that `config` describes, and wait until it is Ready.

    Without an invitation: start again what has joined before.
    """
    preflight.require_root()
    cluster = Cluster(config, source)
    with progress.step("packages"):
        install.packages(progress.say)
    with progress.step("machine"):
        preflight.check(config, up.held_ports(cluster))
    with cluster.exclusive():
        config.save()
        token_file = bootstrap_kubeconfig(config)
        if asked is not None and found is not None:
            invited = kubeconfig.Config(
                server=asked.server, further=found.further, ca=found.ca, token=asked.token
            )
            token_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = kubeconfig.render(invited, user="bootstrap")
            atomicfile.write(token_file, text.encode())
            restart = restart or trusts_other(config.node_kubeconfig, invited)
        try:
            await up.start(cluster, components.joined(config), progress, restart=restart)
            with progress.step(f"node {config.node_name} is Ready"):
                await up.wait_node(config, config.node_kubeconfig, source)
        except Failure as failure:
            undo = f"Its components are tried again; to give up: motley leave --root {config.root}"
            raise Failure(failure.message, f"{failure.advice}\n{undo}".lstrip()) from None
        token_file.unlink(missing_ok=True)  # it has done its work


def trusts_other(path: Path, invited: kubeconfig.Config) -> bool:
    """Does a node work with another authority or address than it is now invited with?"""
    try:
        known = kubeconfig.load(path)
    except kubeconfig.ConfigError:
        return False
    return (known.servers, known.ca) != (invited.servers, invited.ca)


def plan(config: Config) -> str:
    """What a join would do, for `--dry-run`."""
    return "\n".join(
        [
            f"This machine would become node {config.node_name} ({config.node_ip}) "
            f"of the cluster at {config.server}:",
            f"  files         {config.root}",
            f"  components    {', '.join(spec.name for spec in components.joined(config))}",
            f"  ports         {', '.join(map(str, sorted(config.ports)))}",
            f"  pods          of {config.pod_cidr}, on bridge {config.bridge}",
            f"  services      {config.service_cidr}, in table {config.table}",
            f"  DNS           {config.cluster_dns}, {config.cluster_domain}",
            f"  labels        {config.node_labels or 'none'}",
            "Nothing was changed.",
        ]
    )


def bootstrap_kubeconfig(config: Config) -> Path:
    """Where the token is between the command and the node's own certificate."""
    return config.root / "pki" / "bootstrap.kubeconfig"
