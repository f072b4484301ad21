"""`motley explain`: why a pod is on its node, or on none.

What the scheduler remembers is read from the Decision object or from the scheduler itself; what it
does not remember any more, and every question about the present, is worked out here: the cluster
is read with the caller's own rights and the scheduler's code decides anew, binding nothing.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import aiohttp
import click
import msgspec

from motley.api import motleyio, status
from motley.api.views.decisions import Decision
from motley.api.views.pod import Pod
from motley.cli import explanation, printers
from motley.cli.explanation import Explanation, Source
from motley.client import kubeconfig as kubeconfigs
from motley.client.rest import Client
from motley.lib import clock, journal
from motley.scheduler import explaining, present, profiles
from motley.scheduler.contract import PluginError
from motley.scheduler.plugins.registry import PLUGINS, Registry
from motley.scheduler.present import Present
from motley.scheduler.profiles import ConfigError, Configuration, Profile
from motley.scheduler.records import Records
from motley.scheduler.userplugins import Sources

SCHEDULER = "http://127.0.0.1:10259"
_ASKING_S = 2.0


class _Listing(msgspec.Struct):
    items: list[Decision]


@click.group("explain")
def command() -> None:
    """Say why a pod is on its node, or on none.

    \b
      motley explain pod web-1                  what was decided, and why
      motley explain pod web-1 -o wide          with every reason and every plugin's time
      motley explain pod web-1 --why-not node-3 all that is against one node, or by how
                                                much it scores less than the chosen one
      motley explain pod web-1 -n prod -o json  for programs

    A pending pod is told what would make it fit. The questions about the present (--why-not,
    pending pods, decisions that are forgotten) are answered by reading the cluster and deciding
    anew, so they work on any Kubernetes cluster: name the scheduler's file with --config where
    it is not the default profile.
    """


@command.command("pod")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--why-not", metavar="NODE", help="Explain why the pod is not on this node.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The scheduler's KubeSchedulerConfiguration file, where it has one.",
)
@click.option(
    "--scheduler",
    default=SCHEDULER,
    show_default=True,
    help="The health endpoint of a running scheduler, asked for what it remembers.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="How to reach the API server.")
@click.option(
    "-o", "--output", type=click.Choice(printers.FORMATS), default="table", help="How to print."
)
def pod(
    name: str,
    namespace: str,
    why_not: str | None,
    config: Path | None,
    scheduler: str,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Explain what was decided about one pod.

    \b
      motley explain pod web-1
      motley explain pod web-1 --why-not node-3 --config scheduler.yaml
    """
    journal.configure("error")  # what a plugin cannot find out is in the answer, not in a log
    motleyio.install()
    try:
        configuration = profiles.parse(config.read_text()) if config else Configuration()
        sources = Sources(
            configuration.plugin_sources,
            base=config.parent if config else None,
            named=configuration.named,
        )
        rules = Rules(configuration, sources.load(PLUGINS))
        connection = kubeconfigs.load(kubeconfig)
        made = asyncio.run(_explain(connection, rules, namespace, name, why_not, scheduler))
    except status.NotFound as error:
        raise printers.fail(str(error), "Is it in another namespace? Name it with -n.") from None
    except ConfigError as error:
        raise printers.fail(f"{config}: {error}") from None
    except (status.ApiError, PluginError, present.NotReadable) as error:
        raise printers.fail(str(error)) from None
    except (kubeconfigs.ConfigError, OSError, ValueError) as error:
        raise printers.fail(str(error)) from None
    if output in ("json", "yaml"):
        click.echo(printers.document(made.document(), output))
    else:
        click.echo(explanation.text(made, clock.SYSTEM.now(), wide=output == "wide"))


class Rules(NamedTuple):
    """By what is decided."""

    configuration: Configuration
    registry: Registry


async def _explain(
    connection: kubeconfigs.Config,
    rules: Rules,
    namespace: str,
    name: str,
    why_not: str | None,
    scheduler: str,
) -> Explanation:
    async with Client(connection, user_agent="motley-explain") as client:
        found = await client.get(Pod, name, namespace)
        made = Explanation(found)
        await _recall(client, scheduler, made)
        if why_not is None and made.decision and found.spec.node_name:
            return made
        now = await present.read(client, rules.configuration, registry=rules.registry)
    if rules.configuration.extenders:
        made.notes.append("Extenders are not asked: what they would say is not in here.")
    profile = now.profile_of(found)
    if profile.name != found.spec.scheduler_name:
        made.notes.append(
            f"The pod asks for the scheduler {found.spec.scheduler_name!r}, which is no profile "
            f"here (--config names its file); judged by {profile.name!r}."
        )
    if why_not is not None:
        _ask_about(now, profile, made, why_not)
    else:
        _decide_now(now, profile, made)
    return made


async def _recall(client: Client, scheduler: str, made: Explanation) -> None:
    """Take the newest decision that anybody remembers about this very pod."""
    pod, found = made.pod, await _asked(scheduler, made.pod)
    try:
        found.append(await client.get(Decision, pod.metadata.name, pod.metadata.namespace))
    except (status.NotFound, status.Forbidden):
        pass  # not kept, not served, or not for this user
    own = [d.spec for d in found if d.spec.get("pod", {}).get("uid") == pod.metadata.uid]
    own.sort(key=lambda spec: str(spec.get("decidedAt", "")))
    if own:
        made.decision, made.source = own[-1], Source.RECORD
        made.earlier = [d for d in own[:-1] if d.get("decidedAt") != own[-1].get("decidedAt")]


async def _asked(scheduler: str, pod: Pod) -> list[Decision]:
    """What a scheduler on this machine remembers; nothing where none answers."""
    url = f"{scheduler.rstrip('/')}/decisions"
    patience = aiohttp.ClientTimeout(total=_ASKING_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=patience) as session,
            session.get(url, params={"pod": str(pod.key)}) as answer,
        ):
            if answer.status != 200:
                return []
            return msgspec.json.decode(await answer.read(), type=_Listing).items
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError):
        return []


def _ask_about(now: Present, profile: Profile, made: Explanation, node: str) -> None:
    if node not in now.nodes.rows:
        raise ValueError(f"there is no node {node!r}; kubectl get nodes lists them")
    info = now.pending(made.pod)
    chosen = made.pod.spec.node_name
    made.why_not = explaining.why_not(
        now.cycle(profile), now.handle.nominations, info, node, chosen
    )


def _decide_now(now: Present, profile: Profile, made: Explanation) -> None:
    """The decision anew; for a pending pod also what would help."""
    info = now.pending(made.pod)
    cycle = now.cycle(profile)
    if not made.pod.spec.node_name:
        made.suggestions = explaining.suggestions(cycle, now.handle.nominations, info)
    if made.decision is None:
        decision = cycle.schedule(info)
        with now.handle.nominations.seen_by(info):  # a scheduler in a hurry names no details
            rejections = cycle.explain(info, cycle.evaluate(info))
        decision = replace(decision, rejections=rejections)
        taken = Records({profile.name: profile}).take(info, decision)
        made.decision, made.source = taken.spec(), Source.NOW
