"""`motley apiserver`: the API server in the foreground."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from motley.cli import component_options, etcd_options, guard_options, history_options
from motley.cli.guard_options import Guard
from motley.cli.history_options import HistoryOptions
from motley.lib import journal, tasks
from motley.store.etcd.config import Config as EtcdConfig

if TYPE_CHECKING:
    from motley.apiserver.extension import Factory


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where the store, the certificates and admin.kubeconfig live.",
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=6443, show_default=True, help="Port."
)
@click.option(
    "--advertise-address",
    default="",
    help="Address of the `kubernetes` Service's endpoint; by default --bind.",
)
@click.option(
    "--servers",
    default="",
    metavar="URLS",
    help="Every API server of the cluster, with commas: what admin.kubeconfig leads to.",
)
@click.option(
    "--store",
    type=click.Choice(["sqlite", "memory", "etcd"]),
    help="Where objects are kept; by default sqlite, or etcd when --etcd-servers names one. memory"
    " forgets them.",
)
@etcd_options.options
@click.option("--service-cluster-ip-range", default="10.96.0.0/16", show_default=True)
@click.option("--service-node-port-range", default="30000-32767", show_default=True)
@click.option(
    "--token-auth-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV of static tokens: token,user,uid[,groups].",
)
@click.option(
    "--service-account-issuer",
    default="https://kubernetes.default.svc.cluster.local",
    show_default=True,
    help="Who service-account tokens say they are from, and whom they are for by default.",
)
@click.option(
    "--disable-admission-plugins",
    default="",
    metavar="NAMES",
    help="Admission plugins to leave out, separated by commas.",
)
@click.option(
    "--runtime-config",
    default="",
    metavar="VERSIONS",
    help="API versions to leave out: extensions/v1beta1=false,motley.io/v1=false. Only versions"
    " that nothing is kept in.",
)
@click.option(
    "--metrics-every-s",
    type=click.FloatRange(min=0.0),
    default=0.0,
    show_default=True,
    help="Ask node agents this often what pods use, and serve it as metrics.k8s.io; 0: never.",
)
@history_options.options
@click.option(
    "--compat",
    type=click.Choice(["minik8s"]),
    help="Also read another system's spellings of manifests; answers warn of each.",
)
@guard_options.options
@component_options.log_level
def command(
    data_dir: Path,
    bind: str,
    port: int,
    advertise_address: str,
    servers: str,
    store: str | None,
    etcd: EtcdConfig | None,
    service_cluster_ip_range: str,
    service_node_port_range: str,
    token_auth_file: Path | None,
    service_account_issuer: str,
    disable_admission_plugins: str,
    runtime_config: str,
    guard: Guard,
    metrics_every_s: float,
    kept: HistoryOptions,
    compat: str | None,
    log_level: str,
) -> None:
    """Run the API server in the foreground.

    Writes DATA-DIR/admin.kubeconfig before it is ready; `GET /readyz` says when it is. SIGUSR1:
    forget every revision but the present one.
    """
    if store == "etcd" and etcd is None:
        raise click.UsageError("--store etcd needs --etcd-servers (or $ETCD_SERVER)")
    from motley.apiserver import audit, server
    from motley.store.contract import StoreError

    journal.configure(log_level)
    config = server.Config(
        data_dir=data_dir,
        bind=bind,
        port=port,
        advertise_address=advertise_address,
        servers=tuple(filter(None, servers.split(","))),
        store=store or ("etcd" if etcd else "sqlite"),
        etcd=etcd,
        service_cidr=service_cluster_ip_range,
        node_ports=service_node_port_range,
        token_file=token_auth_file,
        service_account_issuer=service_account_issuer,
        disabled_admission=frozenset(filter(None, disable_admission_plugins.split(","))),
        max_requests=guard.max_requests,
        audit_log=audit.Options(
            guard.audit_path,
            guard.audit_max_size_mb,
            guard.audit_max_backups,
            guard.audit_max_age_days,
        )
        if guard.audit_path
        else None,
        audit_policy=guard.audit_policy,
        encryption=guard.encryption,
        compat=compat or "",
        runtime_config=runtime_config,
    )
    try:
        tasks.run(server.run(config, extensions=_extensions(data_dir, metrics_every_s, kept)))
    except* (OSError, ValueError, StoreError) as group:
        raise click.ClickException(str(group.exceptions[0])) from None


def _extensions(data_dir: Path, every_s: float, kept: HistoryOptions) -> "Sequence[Factory]":
    """What this server serves beside the API's own groups."""
    if not every_s:
        return []
    from motley.metrics import serving

    path = data_dir / "history.ring" if kept.series else None
    return serving.extensions(every_s, path, kept.series, kept.remote)
