"""What extenders think of a pod, as a plugin like any other.

    feasible nodes ─► filter, one extender after the other ─► prioritize, all at once ─► opinion

Extenders are asked beside the scheduling loop (see `consulting`); what they said is then an opinion
that the cycle meets as the plugin `Extender`: a filter that rejects the nodes the extenders
rejected, a score that adds theirs, a binder that has one of them bind.
Invariant: nothing here waits while a cycle runs.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp
import msgspec
import numpy as np

from motley.api.views.base import Key, Object
from motley.api.views.pod import Pod
from motley.client.informer import Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.scheduler import contract
from motley.scheduler.candidates import Candidate
from motley.scheduler.contract import (
    SKIP,
    Api,
    Columns,
    Mask,
    Nomination,
    PluginError,
    PodInfo,
    Reject,
    Scores,
    Verdict,
)
from motley.scheduler.extenders import ExtenderConfig, ExtenderError, HttpExtender
from motley.scheduler.feed import Feed

log = journal.get(__name__)

NAME = "Extender"  # as kube-scheduler calls them where a plugin's name is wanted

_DROPPED = "node(s) didn't pass an extender"


class WholeNode(Object):
    """A Node with all its fields, for extenders that keep no copy of their own."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"
    PLURAL: ClassVar[str] = "nodes"
    NAMESPACED: ClassVar[bool] = False

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class Opinion:
    """What a pod's extenders said about the nodes they were asked about."""

    asked: frozenset[str]
    failed: dict[str, str] = field(default_factory=dict)  # node → why
    unresolvable: set[str] = field(default_factory=set)  # of those: no preemption helps
    scores: dict[str, float] = field(default_factory=dict)
    only_asked: bool = False  # nodes that have become feasible since do not count


class Extenders:
    """The extenders of a profile, as one plugin."""

    name = NAME
    reason = _DROPPED
    scope = "node"
    Args = contract.NoArgs

    def __init__(self, written: Sequence[ExtenderConfig]) -> None:
        self.all = [HttpExtender(config) for config in written]
        self._opinions: dict[str, Opinion] = {}  # by the pod's uid, for the time of its cycle
        self._nodes: Informer[WholeNode] | None = None
        self._connected: asyncio.Future[tuple[aiohttp.ClientSession, Client]] | None = None

    # -- the plugin -------------------------------------------------------------------------

    def follow(self, feed: Feed) -> None:
        """Whole nodes are kept only where some extender wants to be told them."""
        if any(
            not each.config.node_cache_capable
            and (each.config.filter_verb or each.config.prioritize_verb)
            for each in self.all
        ):
            self._nodes = feed.informer(WholeNode)

    async def background(self, client: Client) -> None:
        """Keep the connections open, until cancelled."""
        async with aiohttp.ClientSession(trust_env=True) as session:
            self._connection().set_result((session, client))
            try:
                await asyncio.Event().wait()
            finally:
                self._connected = None

    def _connection(self) -> "asyncio.Future[tuple[aiohttp.ClientSession, Client]]":
        if self._connected is None:
            self._connected = asyncio.get_running_loop().create_future()
        return self._connected

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Nothing to check before, or without, an opinion."""
        return None if pod.uid in self._opinions else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """False where an extender said no."""
        opinion = self._opinions[pod.uid]
        if opinion.only_asked:
            mask = np.zeros(nodes.size, np.bool_)
            mask[nodes.rows_named(opinion.asked)] = True
        else:
            mask = np.ones(nodes.size, np.bool_)
        mask[nodes.rows_named(opinion.failed)] = False
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mapping[str, int]:
        """The extenders' own words, counted."""
        opinion = self._opinions[pod.uid]
        names = (nodes.names[row] for row in np.flatnonzero(rejected).tolist())
        return Counter(opinion.failed.get(name) or _DROPPED for name in names)

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Where an extender said that no end of other pods would help."""
        mask = np.zeros(nodes.size, np.bool_)
        mask[nodes.rows_named(self._opinions[pod.uid].unresolvable)] = True
        return mask

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """No opinion scores nothing."""
        opinion = self._opinions.get(pod.uid)
        return None if opinion is not None and opinion.scores else SKIP

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The sum of the extenders' scores, weighted."""
        scores = np.zeros(nodes.size)
        for name, score in self._opinions[pod.uid].scores.items():
            if name in nodes.rows:
                scores[nodes.rows[name]] = score
        return scores

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """Have the extender bind that says it does; SKIP: the profile's binder does."""
        for extender in self.all:
            if not extender.config.bind_verb or not extender.is_interested(pod):
                continue
            session, _ = await self._connection()
            try:
                await extender.bind(session, pod, node)
            except ExtenderError as error:
                if not extender.config.ignorable:
                    raise
                log.warning("extender ignored", url=extender.url, verb="bind", error=str(error))
                continue
            return None
        return SKIP

    # -- asking -----------------------------------------------------------------------------

    def concern(self, pod: PodInfo) -> bool:
        """Must an extender be asked before this pod is decided?"""
        return any(
            (each.config.filter_verb or each.config.prioritize_verb or each.config.preempt_verb)
            and each.is_interested(pod)
            for each in self.all
        )

    def hold(self, pod: PodInfo, opinion: Opinion) -> None:
        """Let the cycle see the opinion until it is dropped."""
        self._opinions[pod.uid] = opinion

    def drop(self, pod: PodInfo) -> None:
        """The pod's cycle is over."""
        self._opinions.pop(pod.uid, None)

    async def ask(self, pod: PodInfo, names: list[str]) -> Opinion:
        """What the extenders think of these nodes. Raises PluginError and NotFound."""
        session, client = await self._connection()
        opinion = Opinion(frozenset(names))
        interested = [each for each in self.all if each.is_interested(pod)]
        document = await _whole(client, pod)
        nodes = self._documents(names, interested)
        left = names
        for extender in interested:
            if not left or not extender.config.filter_verb:
                continue
            try:
                found = await extender.filter(session, document, nodes, left)
            except ExtenderError as error:
                if not extender.config.ignorable:
                    raise PluginError(NAME, "Filter", error) from error
                log.warning("extender ignored", url=extender.url, verb="filter", error=str(error))
                continue
            reasons = {**found.failed, **found.unresolvable}
            kept = set(found.names)
            for name in left:
                if name not in kept:
                    opinion.failed[name] = reasons.get(name, "")
            opinion.unresolvable |= found.unresolvable.keys() & opinion.failed.keys()
            left = found.names
        if len(left) > 1:  # with one node left there is nothing to compare
            await self._prioritize(session, pod, document, nodes, left, interested, opinion)
        return opinion

    async def _prioritize(
        self,
        session: aiohttp.ClientSession,
        pod: PodInfo,
        document: dict[str, Any],
        nodes: dict[str, Any],
        names: list[str],
        interested: list[HttpExtender],
        opinion: Opinion,
    ) -> None:
        async def one(extender: HttpExtender) -> dict[str, float]:
            try:
                return await extender.prioritize(session, document, nodes, names)
            except ExtenderError as error:
                # As in kube-scheduler: without this score the others decide.
                log.warning(
                    "extender gives no scores", url=extender.url, pod=pod.key, error=str(error)
                )
                return {}

        asked = [each for each in interested if each.config.prioritize_verb]
        for scores in await asyncio.gather(*map(one, asked)):
            for name, score in scores.items():
                opinion.scores[name] = opinion.scores.get(name, 0.0) + score

    def _documents(self, names: list[str], interested: list[HttpExtender]) -> dict[str, Any]:
        if self._nodes is None or all(each.config.node_cache_capable for each in interested):
            return {}
        return {
            node.metadata.name: {
                "metadata": node.metadata,
                "spec": node.spec,
                "status": node.status,
            }
            for name in names
            if (node := self._nodes.get(Key("", name))) is not None
        }

    async def preempt(
        self, pod: PodInfo, nodes: Columns, wanted: Nomination
    ) -> Nomination | Reject:
        """The extenders' say about who is to be ended. Raises PluginError and NotFound."""
        asked = [e for e in self.all if e.config.preempt_verb and e.is_interested(pod)]
        if not asked or not wanted.candidates:
            return wanted
        session, client = await self._connection()
        document = await _whole(client, pod)
        left = {candidate.node: candidate for candidate in wanted.candidates}
        for extender in asked:
            try:
                left = await self._preempt(extender, session, document, nodes, left)
            except ExtenderError as error:
                if not extender.config.ignorable:
                    raise PluginError(NAME, "PostFilter", error) from error
                log.warning("extender ignored", url=extender.url, verb="preempt", error=str(error))
            if not left:
                return Reject("preemption: no candidate node for preemption")
        best = min(left.values(), key=lambda candidate: candidate.rank)
        said = f"found a potential placement for pod on node {best.node}"
        return Nomination(
            best.node,
            tuple(victim.info for victim in best.victims),
            f"preemption: {said}, preempting {len(best.victims)} victims",
        )

    async def _preempt(
        self,
        extender: HttpExtender,
        session: aiohttp.ClientSession,
        document: dict[str, Any],
        nodes: Columns,
        candidates: dict[str, Candidate],
    ) -> dict[str, Candidate]:
        victims = {
            node: ([victim.info for victim in found.victims], found.violations)
            for node, found in candidates.items()
        }
        left: dict[str, Candidate] = {}
        for node, (uids, violations) in (
            await extender.preempt(session, document, victims)
        ).items():
            here = nodes.pods_on(node)
            missing = [uid for uid in uids if uid not in here]
            if missing:
                raise ExtenderError(
                    f"extender {extender.url!r} claims to preempt pod {missing[0]} on node "
                    f"{node!r}, but the pod is not found on that node"
                )
            if not uids:
                if extender.config.ignorable:
                    continue
                raise ExtenderError(f"expected at least one victim pod on node {node!r}")
            left[node] = Candidate(node, tuple(here[uid] for uid in uids), violations)
        return left


async def _whole(client: Client, pod: PodInfo) -> dict[str, Any]:
    """The pod with all its fields: an extender may look at any of them."""
    return await client.document(Pod, pod.key.name, pod.key.namespace)
