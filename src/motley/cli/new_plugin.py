"""`motley scheduler new-plugin NAME`: a scheduler plugin to begin with, that works as it is.

Three files: the plugin, its test, and a configuration with a profile that uses it.
"""

import re
from pathlib import Path

import click

_PLUGIN = '''\
"""{name}: prefers nodes whose label `{label}` is high, and can insist on a minimum.

A plugin answers for all nodes at once: `nodes` is the cluster as NumPy columns, one row per node.
The points of kube-scheduler it serves are the methods it has; motley.scheduler.contract describes
them all. While the scheduler runs, this file is read anew whenever it changes.
"""

import msgspec
import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.contract import Columns, Mask, PodInfo, Scores

LABEL = "{label}"


class {name}Args(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What `pluginConfig` may say: {{name: {name}, args: {{minimum: 3}}}}."""

    minimum: int = 0


class {name}:
    """A filter and a score by one label of the nodes."""

    name = "{name}"
    reason = "node(s) had too little {label}"  # counted in the pod's FailedScheduling event
    wakes_on = (events.NodeAdded, events.NodeLabelsChanged)  # what may change the filter's mind
    static = True  # answers depend on nodes and the pod's template, not on pods already placed
    Args = {name}Args

    def __init__(self, args: {name}Args, handle: contract.Handle) -> None:
        self._minimum = args.minimum

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the pod can run."""
        return _values(nodes) >= self._minimum

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """How well nodes suit the pod; `normalize` brings it to 0 ... 100."""
        return _values(nodes)

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The highest of the feasible nodes gets 100."""
        highest = scores[feasible].max(initial=0)
        return np.floor(scores * 100 / highest) if highest > 0 else np.zeros(len(scores))


def _values(nodes: Columns) -> Scores:
    """By row: the label as a number; 0 where it is missing or something else."""
    column = nodes.label(LABEL)  # texts are kept as numbers; what they spell is in `nodes.values`
    spelled, is_integer = nodes.values.integers()
    return np.where(is_integer[column], np.maximum(spelled[column], 0), 0).astype(np.float64)
'''

_TEST = '''\
"""{name} on a small cluster in memory: `pytest {test}`."""

from {module} import {name}, {name}Args

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.guard import guarded
from motley.scheduler.images import ImageTable
from motley.scheduler.podinfo import PodInfos


def cluster(**labels):
    """Nodes by name, each with this value of the label."""
    nodes = Columns()
    for name, value in labels.items():
        metadata = {{"name": name, "labels": {{"{label}": value}} if value else {{}}}}
        nodes.set_node(Node.of({{"metadata": metadata}}))
    return nodes


def ask(nodes, **args):
    """What the plugin says of a pod: allowed and score by node."""
    # `guarded` checks shapes and types of all answers, as the scheduler does.
    plugin = guarded({name})({name}Args(**args), Handle(nodes, SYSTEM, ImageTable()))
    pod = PodInfos().of(Pod.of({{"metadata": {{"name": "p", "namespace": "default"}}}}))
    allowed = plugin.filter(pod, nodes)
    scores = plugin.normalize(pod, plugin.score(pod, nodes), allowed)
    return {{name: (bool(allowed[row]), float(scores[row])) for name, row in nodes.rows.items()}}


def test_the_highest_value_scores_best():
    assert ask(cluster(a="1", b="4", c="")) == {{
        "a": (True, 25.0),
        "b": (True, 100.0),
        "c": (True, 0.0),
    }}


def test_nodes_below_the_minimum_are_rejected():
    answers = ask(cluster(a="1", b="4", c="many"), minimum=2)
    assert {{name: allowed for name, (allowed, _) in answers.items()}} == {{
        "a": False,
        "b": True,
        "c": False,
    }}
'''

_CONFIG = """\
# motley scheduler --kubeconfig ~/.kube/config --config {config}
# Pods choose it with spec.schedulerName: {scheduler}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
pluginSources:            # Motley's own field: Python files, relative to this one
  - path: ./{module}.py
profiles:
  - schedulerName: {scheduler}
    plugins:
      multiPoint:
        enabled:
          - name: {name}
            weight: 5
    pluginConfig:
      - name: {name}
        args:
          minimum: 0
"""


@click.command("new-plugin")
@click.argument("name")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="Where to write it.",
)
def new_plugin(name: str, directory: Path) -> None:
    """Write a scheduler plugin to begin with: plugin, test and configuration.

    NAME is the plugin's name in configurations, in CamelCase, such as RackFirst.
    """
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise click.BadParameter("must be CamelCase, such as RackFirst", param_hint="NAME")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    dashed = module.replace("_", "-")
    words = {
        "name": name,
        "module": module,
        "label": f"example.com/{dashed}",
        "scheduler": f"{dashed}-scheduler",
        "test": f"test_{module}.py",
        "config": f"{dashed}.yaml",
    }
    files = {
        f"{module}.py": _PLUGIN,
        words["test"]: _TEST,
        words["config"]: _CONFIG,
    }
    there = [file for file in files if (directory / file).exists()]
    if there:
        raise click.ClickException(f"{directory / there[0]} exists; nothing was written")
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (directory / file).write_text(text.format(**words))
        click.echo(f"wrote {directory / file}")
    click.echo(f"try it:  cd {directory} && pytest {words['test']}")
    click.echo(f"run it:  motley scheduler --config {directory / words['config']}")
