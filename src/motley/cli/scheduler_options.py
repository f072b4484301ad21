"""Options of the scheduler that keep kube-scheduler's names, so that its manifests work unchanged.

Three groups: how to reach the API server, who of several schedulers works, and the port on which
health and figures are served.
"""

import functools
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from motley.client import kubeconfig as kubeconfigs
from motley.client.kubeconfig import Config
from motley.lib import durations, selfsigned
from motley.scheduler.profiles import Configuration

PORT = 10259  # kube-scheduler's

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Kube(NamedTuple):
    """What the options said; None: not given."""

    kubeconfig: Path | None
    master: str | None
    authentication_kubeconfig: Path | None
    authorization_kubeconfig: Path | None
    address: str | None
    health_port: int | None
    bind_address: str | None
    secure_port: int | None
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    leader_elect: bool | None
    no_leader_elect: bool
    lease_duration: str | None
    renew_deadline: str | None
    retry_period: str | None
    resource_lock: str | None
    resource_name: str | None
    resource_namespace: str | None
    v: int | None


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them as `kube`."""

    @click.option("--kubeconfig", type=_FILE, help="How to reach the API server.")
    @click.option("--master", help="The API server's URL, instead of the kubeconfig's.")
    @click.option(
        "--authentication-kubeconfig",
        type=_FILE,
        help="Serve HTTPS, and ask this server by TokenReview who wants to see /metrics.",
    )
    @click.option(
        "--authorization-kubeconfig",
        type=_FILE,
        help="Serve HTTPS, and ask this server by SubjectAccessReview whether they may.",
    )
    @click.option("--address", help="Where to serve in the clear.  [default: 127.0.0.1]")
    @click.option(
        "--health-port",
        "--port",
        "health_port",
        type=int,
        help=f"Port in the clear; 0 serves none.  [default: {PORT}, without a secure port]",
    )
    @click.option("--bind-address", help="Where to serve HTTPS.  [default: 0.0.0.0]")
    @click.option(
        "--secure-port",
        type=int,
        help=f"Port with HTTPS; 0 serves none.  [default: {PORT} with one of the two kubeconfigs]",
    )
    @click.option("--tls-cert-file", type=_FILE, help="Its certificate; else it makes itself one.")
    @click.option("--tls-private-key-file", type=_FILE, help="The certificate's key.")
    @click.option(
        "--leader-elect",
        is_flag=False,
        flag_value="true",
        type=bool,
        default=None,
        metavar="[true|false]",
        help="Work only while holding the Lease; the configuration decides unless given.",
    )
    @click.option("--no-leader-elect", is_flag=True, help="The same as --leader-elect=false.")
    @click.option("--leader-elect-lease-duration", "lease_duration", metavar="15s")
    @click.option("--leader-elect-renew-deadline", "renew_deadline", metavar="10s")
    @click.option("--leader-elect-retry-period", "retry_period", metavar="2s")
    @click.option("--leader-elect-resource-lock", "resource_lock", metavar="leases")
    @click.option("--leader-elect-resource-name", "resource_name", metavar="NAME")
    @click.option("--leader-elect-resource-namespace", "resource_namespace", metavar="NAMESPACE")
    @click.option("--v", "-v", "v", type=int, help="kube-scheduler's verbosity; 4 and more: debug.")
    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        kube = Kube(**{name: given.pop(name) for name in Kube._fields})
        command(kube=kube, **given)

    return wrapped


def connection(kube: Kube, configuration: Configuration) -> Config:
    """The API server that pods are scheduled on. Raises kubeconfig.ConfigError."""
    path = kube.kubeconfig or configuration.client_connection.kubeconfig or None
    try:
        found = kubeconfigs.load(path)
    except kubeconfigs.ConfigError:
        if path or not kube.master:
            raise
        found = Config(kube.master)
    return replace(found, server=kube.master.rstrip("/")) if kube.master else found


def elect(kube: Kube, configuration: Configuration) -> None:
    """Flags win over the file. Raises ValueError."""
    settings = configuration.leader_election
    if kube.leader_elect is not None:
        settings.leader_elect = kube.leader_elect
    if kube.no_leader_elect:
        settings.leader_elect = False
    for name in ("lease_duration", "renew_deadline", "retry_period"):
        text = getattr(kube, name)
        if text:
            durations.seconds(text)
            setattr(settings, name, text)
    settings.resource_name = kube.resource_name or settings.resource_name
    settings.resource_namespace = kube.resource_namespace or settings.resource_namespace
    if kube.resource_lock not in (None, "leases"):
        raise ValueError(
            f"--leader-elect-resource-lock {kube.resource_lock!r}: there is only leases"
        )


def secure(kube: Kube) -> tuple[str, int]:
    """Where to serve HTTPS; port 0: nowhere."""
    asked = kube.authentication_kubeconfig or kube.authorization_kubeconfig
    port = kube.secure_port if kube.secure_port is not None else PORT if asked else 0
    return kube.bind_address or kube.address or "0.0.0.0", port


def plain(kube: Kube, configuration: Configuration) -> tuple[str, int]:
    """Where to serve in the clear; port 0: nowhere. Raises ValueError."""
    written = configuration.healthz_bind_address
    host, colon, port = written.rpartition(":")
    if kube.address is None and kube.health_port is None and colon:
        if not port.isdigit():
            raise ValueError(f"healthzBindAddress {written!r} is not of the form address:port")
        return host.strip("[]") or "0.0.0.0", int(port)
    default = 0 if secure(kube)[1] else PORT
    return (
        kube.address or "127.0.0.1",
        kube.health_port if kube.health_port is not None else default,
    )


def tls(kube: Kube) -> ssl.SSLContext:
    """The certificate to serve with. Raises ValueError and OSError."""
    if bool(kube.tls_cert_file) != bool(kube.tls_private_key_file):
        raise ValueError("--tls-cert-file and --tls-private-key-file go together")
    if kube.tls_cert_file is None:
        try:
            return selfsigned.context("motley-scheduler")
        except ModuleNotFoundError as error:
            raise ValueError(
                "to serve HTTPS give --tls-cert-file and --tls-private-key-file, or install"
                " motley[scheduler] with cryptography"
            ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(kube.tls_cert_file, kube.tls_private_key_file)
    return context
