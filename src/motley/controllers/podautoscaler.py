"""HorizontalPodAutoscaler: keeps the number of pods in step with their load.

Every fifteen seconds, and at once when its spec changes, an autoscaler is looked at: read the
target's scale, read the metrics, ask `autoscale.hpa`, write the scale, say why. Nothing is decided
here.
Invariant: one look writes the target's scale at most once, and a change always leaves an event.
"""

from motley.api import status
from motley.api.selectors import Selector, SelectorError
from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.autoscale import hpa as autoscaling
from motley.autoscale import predicting, proposals, rules
from motley.autoscale.calculator import MetricError, Pods, Settings
from motley.autoscale.hpa import ABLE, ACTIVE, Conditions, Decision, Event, Failure, Proposal
from motley.autoscale.past import ApiPasts, Pasts
from motley.autoscale.predictor import Ahead, Predictor
from motley.autoscale.readers import Readers
from motley.autoscale.rules import History
from motley.autoscale.scales import Found, Mapper, NoScale, Scales
from motley.client.index import by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal

log = journal.get(__name__)


class _Unselectable(Exception):
    """The target's selector is of no use; conditions and events already say so."""


class HorizontalPodAutoscalerController:
    """See the module's docstring."""

    name = "horizontalpodautoscaling"
    workers = 5  # kube-controller-manager's --concurrent-horizontal-pod-autoscaler-syncs

    def __init__(
        self, context: Context, settings: Settings | None = None, pasts: Pasts | None = None
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._settings = settings or Settings()
        self._recorder = context.recorder.source("horizontal-pod-autoscaler")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        mapper = Mapper(context.client, context.clock)
        self._scales = Scales(context.client, mapper)
        self._readers = Readers(context.client, mapper)
        self._predictor = Predictor(pasts or ApiPasts(context.client), context.clock)
        self._histories: dict[Key, History] = {}
        self._selectors: dict[Key, Selector] = {}
        self._autoscalers = context.informers.of(HorizontalPodAutoscaler)
        self._pods = context.informers.of(Pod)
        self._pods.add_index("namespace", by_namespace)
        self._autoscalers.add_handler(self._changed)

    def _changed(self, change: Change[HorizontalPodAutoscaler]) -> None:
        old, new = change.old, change.new
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._histories.pop(change.key, None)
            self._selectors.pop(change.key, None)
            self._predictor.forget(change.key)
        if new is not None and (
            old is None
            or old.metadata.uid != new.metadata.uid
            or old.spec != new.spec
            or old.metadata.annotations != new.metadata.annotations
        ):
            self.queue.add(change.key)  # what only our own status changed waits for its turn

    async def reconcile(self, key: Key) -> Requeue | None:
        """Look at one autoscaler, then come back after the interval, whatever happened: load does
        not announce itself, and a failure is no reason to ask more often."""
        hpa = self._autoscalers.get(key)
        if hpa is None:
            return None
        conditions = Conditions(hpa.status.get("conditions") or (), self._clock.now())
        try:
            found = await self._scales.get(hpa.spec.scale_target_ref, key.namespace)
        except NoScale as error:
            text = f"the HPA controller was unable to get the target's current scale: {error}"
            conditions.set(ABLE, False, "FailedGetScale", text)
            self._tell(hpa, [Event("Warning", "FailedGetScale", str(error))])
            await self._write(hpa, autoscaling.status(hpa, 0, None, conditions, 0.0))
        else:
            text = "the HPA controller was able to get the target's current scale"
            conditions.set(ABLE, True, "SucceededGetScale", text)
            await self._look(hpa, found, conditions)
        return Requeue(self._settings.sync_s)

    async def _look(
        self, hpa: HorizontalPodAutoscaler, found: Found, conditions: Conditions
    ) -> None:
        scale = found.scale
        now = self._clock.now()
        history = self._histories.get(hpa.key, History()).begun(scale.wanted, now)
        if autoscaling.needs_metrics(hpa, scale, conditions):
            try:
                outcomes = await self._outcomes(hpa, scale, conditions)
            except _Unselectable as error:
                failed = Event("Warning", "FailedComputeMetricsReplicas", str(error))
                decision = Decision(scale.wanted, history, has_failed=True, events=[failed])
            else:
                now = self._clock.now()
                decision = autoscaling.decide(
                    hpa, scale, outcomes, conditions, history, now, self._settings
                )
        else:
            decision = autoscaling.without_metrics(hpa, scale, conditions, history)
        self._tell(hpa, decision.events)
        if decision.rescale:
            await self._rescale(hpa, found, decision, conditions, now)
        if self._autoscalers.get(hpa.key) is not None:
            self._histories[hpa.key] = decision.history
        await self._write(hpa, autoscaling.status(hpa, scale.wanted, decision, conditions, now))

    async def _outcomes(
        self, hpa: HorizontalPodAutoscaler, scale: autoscaling.Scale, conditions: Conditions
    ) -> list[Proposal | Failure]:
        """What each metric asks for, in their order."""
        chosen = self._chosen(hpa, scale.selector, conditions)
        tolerances = rules.tolerances(hpa, self._settings)
        expected = await self._expected(hpa, conditions)
        outcomes: list[Proposal | Failure] = []
        for index, spec in enumerate(hpa.spec.metrics):
            try:
                reading = await self._readers.read(spec, hpa.metadata.namespace, scale.selector)
                pods = Pods(chosen, self._settings, self._clock.now())
                made = proposals.propose(spec, reading, scale, pods, tolerances)
                if expected is not None and (coming := expected.forecasts.get(index)):
                    made = predicting.ahead(
                        spec, made, coming, chosen, scale.wanted, tolerances, expected.wish
                    )
                outcomes.append(made)
            except MetricError as error:
                outcomes.append(proposals.failed(spec, str(error)))
        return outcomes

    async def _expected(self, hpa: HorizontalPodAutoscaler, conditions: Conditions) -> Ahead | None:
        """What is to come, where the autoscaler wants that known; a condition tells of it."""
        try:
            asked = predicting.wish(hpa)
        except ValueError as error:
            conditions.set(predicting.CONDITION, False, "InvalidAnnotation", str(error))
            return None
        if asked is None:
            conditions.drop(predicting.CONDITION)
            return None
        found = await self._predictor.look(hpa, asked)
        conditions.set(predicting.CONDITION, *predicting.told(hpa, found.forecasts, found.problem))
        return found

    def _chosen(self, hpa: HorizontalPodAutoscaler, text: str, conditions: Conditions) -> list[Pod]:
        """The target's pods. Raises _Unselectable when they cannot be told, or are not this
        autoscaler's alone."""
        if not text:
            missing = "the HPA target's scale is missing a selector"
            self._refuse(hpa, conditions, "InvalidSelector", missing, "SelectorRequired")
            raise _Unselectable("selector is required")
        try:
            selector = Selector.parse(text)
        except SelectorError as error:
            problem = (
                f"couldn't convert selector into a corresponding internal selector object: {error}"
            )
            self._refuse(hpa, conditions, "InvalidSelector", problem, "InvalidSelector")
            raise _Unselectable(problem) from None
        self._selectors[hpa.key] = selector
        pods = [
            pod
            for pod in self._pods.by_index("namespace", hpa.metadata.namespace)
            if selector.matches(pod.metadata.labels)
        ]
        rivals = sorted(str(key) for key in self._selecting(hpa.metadata.namespace, pods))
        if len(rivals) > 1:
            problem = (
                f"pods by selector {text} are controlled by more than one HPA"
                f" (e.g. [{' '.join(rivals[:2])}])"
            )
            self._refuse(hpa, conditions, "AmbiguousSelector", problem, "AmbiguousSelector")
            raise _Unselectable(problem)
        return pods

    def _selecting(self, namespace: str, pods: list[Pod]) -> list[Key]:
        # Pods of one template are labelled alike: each set of labels is judged once.
        unlike = {frozenset(p.metadata.labels.items()): p.metadata.labels for p in pods}.values()
        return [
            key
            for key, selector in self._selectors.items()
            if key.namespace == namespace
            and self._autoscalers.get(key) is not None
            and any(selector.matches(labels) for labels in unlike)
        ]

    def _refuse(
        self,
        hpa: HorizontalPodAutoscaler,
        conditions: Conditions,
        reason: str,
        message: str,
        event: str,
    ) -> None:
        conditions.set(ACTIVE, False, reason, message)
        told = "selector is required" if event == "SelectorRequired" else message
        self._tell(hpa, [Event("Warning", event, told)])

    async def _rescale(
        self,
        hpa: HorizontalPodAutoscaler,
        found: Found,
        decision: Decision,
        conditions: Conditions,
        now: float,
    ) -> None:
        before = found.scale.wanted
        try:
            await self._scales.set(found, decision.desired)
        except status.ApiError as error:
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            conditions.set(ABLE, False, "FailedUpdateScale", text)
            message = f"New size: {decision.desired}; reason: {decision.reason}"
            told = Event("Warning", "FailedRescale", f"{message}; error: {error.message}")
            self._tell(hpa, [told])
            decision.rescale, decision.has_failed = False, True
            return
        keep_s = autoscaling.remembered_s(hpa)
        decision.history = decision.history.scaled(before, decision.desired, now, keep_s)
        self._tell(hpa, [autoscaling.rescaled(hpa, before, decision, conditions)])
        log.info(
            "rescaled",
            autoscaler=hpa.key,
            before=before,
            after=decision.desired,
            reason=decision.reason,
        )

    def _tell(self, hpa: HorizontalPodAutoscaler, events: list[Event]) -> None:
        for event in events:
            self._recorder.event(hpa, event.type, event.reason, event.message)

    async def _write(self, hpa: HorizontalPodAutoscaler, wanted: autoscaling.Document) -> None:
        """Write the status if it says something new; who wrote meanwhile is looked at again."""
        have = {name: value for name, value in hpa.status.items() if value is not None}
        if have == {name: value for name, value in wanted.items() if value is not None}:
            return
        gone = {name: None for name in hpa.status if name not in wanted}
        body = {"metadata": {"uid": hpa.metadata.uid}, "status": {**wanted, **gone}}
        try:
            await self._client.patch(
                HorizontalPodAutoscaler,
                hpa.metadata.name,
                hpa.metadata.namespace,
                body,
                subresource="status",
            )
        except (status.NotFound, status.Conflict) as error:
            log.debug("status not written", autoscaler=hpa.key, error=error.message)
        except status.ApiError as error:
            self._tell(hpa, [Event("Warning", "FailedUpdateStatus", error.message)])
