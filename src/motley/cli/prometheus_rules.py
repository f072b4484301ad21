"""`motley prometheus-rules`: what a Prometheus must record for plugins that go by measured use."""

from pathlib import Path

import click
import yaml

from motley.lib import durations
from motley.metrics import prometheus_rules


def _duration(_: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    return value


@click.command("prometheus-rules")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file.")
@click.option("--window", default="5m", show_default=True, callback=_duration, help="To average.")
@click.option("--step", default="1m", show_default=True, callback=_duration, help="Within it.")
@click.option("--rate", default="1m", show_default=True, callback=_duration, help="Of CPU time.")
@click.option("--operator", is_flag=True, help="As an object for the Prometheus Operator.")
@click.option("--namespace", default="monitoring", show_default=True, help="Of that object.")
def command(
    output: Path | None, window: str, step: str, rate: str, operator: bool, namespace: str
) -> None:
    """Write the rules that record node_mem_usage_avg_5m and node_cpu_usage_avg_5m.

    MemRealUsage and CpuRealUsage ask a Prometheus for these series, LoadAware and Overcommit for
    node_mem_usage and node_cpu_usage. They are made from node_exporter's; give each target the
    label `node` with the name of the Node.

    \b
    motley prometheus-rules -o /etc/prometheus/motley.yml     # and name it in rule_files
    motley prometheus-rules --operator | kubectl apply -f -
    """
    document = prometheus_rules.rules(window=window, step=step, rate=rate)
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
