"""`motley prometheus-rules`: what a Prometheus must record for plugins that go by measured use."""

import re
from pathlib import Path

import click
import yaml

from motley.lib import durations
from motley.metrics import prometheus_rules

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # what Prometheus allows


def _duration(_: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    return value


def _metric(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _METRIC.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no name of a metric", param=parameter)
    return value


@click.command("prometheus-rules")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file.")
@click.option("--window", default="5m", show_default=True, callback=_duration, help="To average.")
@click.option("--step", default="1m", show_default=True, callback=_duration, help="Within it.")
@click.option("--rate", default="1m", show_default=True, callback=_duration, help="Of CPU time.")
@click.option(
    "--http-requests-metric",
    metavar="COUNTER",
    callback=_metric,
    help="Record node_http_requests_percent, too, from this counter with the label `node`.",
)
@click.option(
    "--http-requests-per-node-max",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Requests a second that are 100 % of a node.",
)
@click.option("--operator", is_flag=True, help="As an object for the Prometheus Operator.")
@click.option("--namespace", default="monitoring", show_default=True, help="Of that object.")
def command(
    output: Path | None,
    window: str,
    step: str,
    rate: str,
    http_requests_metric: str | None,
    http_requests_per_node_max: float | None,
    operator: bool,
    namespace: str,
) -> None:
    """Write the rules that record node_mem_usage_avg_5m and node_cpu_usage_avg_5m.

    MemRealUsage and CpuRealUsage ask a Prometheus for these series, LoadAware and Overcommit for
    node_mem_usage and node_cpu_usage. They are made from node_exporter's; give each target the
    label `node` with the name of the Node.

    \b
    motley prometheus-rules -o /etc/prometheus/motley.yml     # and name it in rule_files
    motley prometheus-rules --operator | kubectl apply -f -
    motley prometheus-rules --http-requests-metric http_requests_total \\
      --http-requests-per-node-max 500
    """
    requests = None
    if http_requests_metric is not None and http_requests_per_node_max is not None:
        requests = prometheus_rules.HttpRequests(http_requests_metric, http_requests_per_node_max)
    elif http_requests_metric is not None or http_requests_per_node_max is not None:
        raise click.UsageError(
            "--http-requests-metric and --http-requests-per-node-max go together"
        )
    document = prometheus_rules.rules(window=window, step=step, rate=rate, http_requests=requests)
    if operator:
        document = prometheus_rules.custom_resource(document, namespace=namespace)
    text = yaml.dump(document, sort_keys=False, width=1000)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise click.ClickException(str(error)) from None
