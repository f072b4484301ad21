"""`motley apiserver`: the API server in the foreground."""

from pathlib import Path

import click

from motley.cli import etcd_options
from motley.lib import journal, tasks
from motley.store.etcd.config import Config as EtcdConfig


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
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
def command(
    data_dir: Path,
    bind: str,
    port: int,
    advertise_address: str,
    store: str | None,
    etcd: EtcdConfig | None,
    service_cluster_ip_range: str,
    service_node_port_range: str,
    token_auth_file: Path | None,
    service_account_issuer: str,
    disable_admission_plugins: str,
    log_level: str,
) -> None:
    """Run the API server in the foreground.

    Writes DATA-DIR/admin.kubeconfig before it is ready; `GET /readyz` says when it is.
    """
    if store == "etcd" and etcd is None:
        raise click.UsageError("--store etcd needs --etcd-servers (or $ETCD_SERVER)")
    from motley.apiserver import server
    from motley.store.contract import StoreError

    journal.configure(log_level)
    config = server.Config(
        data_dir=data_dir,
        bind=bind,
        port=port,
        advertise_address=advertise_address,
        store=store or ("etcd" if etcd else "sqlite"),
        etcd=etcd,
        service_cidr=service_cluster_ip_range,
        node_ports=service_node_port_range,
        token_file=token_auth_file,
        service_account_issuer=service_account_issuer,
        disabled_admission=frozenset(filter(None, disable_admission_plugins.split(","))),
    )
    try:
        tasks.run(server.run(config))
    except* (OSError, ValueError, StoreError) as group:
        raise click.ClickException(str(group.exceptions[0])) from None
