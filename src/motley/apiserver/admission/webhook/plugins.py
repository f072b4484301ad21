"""MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

Mutating webhooks are asked one after the other and see each other's changes; one that says
`reinvocationPolicy: IfNeeded` is asked once more when somebody changed the object after it.
Validating webhooks are asked at the same time: none of them can change anything.

Invariant: a webhook that cannot be reached refuses the write (`Fail`) or is as good as absent
(`Ignore`); a dry run never reaches one that has side effects.
"""

import asyncio
from random import Random
from typing import Any

from motley.api import codec, names, status
from motley.api.cel import CelError
from motley.api.patch import json as json_patch
from motley.apiserver import document
from motley.apiserver.admission import mutation, review
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.matching import CONFIGURATION
from motley.apiserver.admission.policy import environment
from motley.apiserver.admission.policy.authorizer import Decides
from motley.apiserver.admission.webhook import verdict
from motley.apiserver.admission.webhook.caller import Caller, CallFailed
from motley.apiserver.admission.webhook.configuration import Webhook, Webhooks
from motley.apiserver.admission.webhook.verdict import Verdict
from motley.lib import journal

Document = dict[str, Any]

log = journal.get(__name__)


class _Asking:
    """What both plugins do: choose, ask, and judge failures."""

    def __init__(
        self,
        lookup: Lookup,
        caller: Caller,
        rng: Random,
        plural: str,
        authorizer: Decides | None,
    ) -> None:
        self._lookup = lookup
        self._caller = caller
        self._authorizer = authorizer
        self._rng = rng
        self._webhooks = Webhooks(lookup, kind_of(CONFIGURATION, plural))

    async def wanting(self, change: Change) -> list[Webhook]:
        """Who wants to see a write; its conditions are asked when its turn comes."""
        current = await self._webhooks.current()
        return [w for w in current if await w.wants(change, self._lookup)] if current else []

    async def _values(self, webhook: Webhook, change: Change) -> Document:
        authorizer = self._authorizer if webhook.asks else None
        return await environment.facts(change, self._lookup, authorizer)

    async def ask(self, webhook: Webhook, change: Change) -> Verdict | None:
        """The verdict; None when the webhook does not matter. Raises ApiError."""
        try:
            values = await self._values(webhook, change) if webhook.conditions else {}
            if not webhook.is_meant(values):
                return None
        except CelError as error:
            self._failed(webhook, f"matchConditions: {error}")
            return None
        if change.dry_run and not webhook.may_run_dry:
            raise status.BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
        uid = names.new_uid(self._rng)
        request = {
            "uid": uid,
            **review.about(change),
            "object": review.new_object(change),
            "oldObject": review.old_object(change),
        }
        asked = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }
        try:
            found = verdict.read(await self._caller.call(webhook, asked), uid)
        except CallFailed as problem:
            self._failed(webhook, str(problem))
            return None
        change.warnings += found.warnings
        if not found.allowed:
            raise verdict.refusal(webhook.name, found.result)
        return found

    @staticmethod
    def _failed(webhook: Webhook, problem: str) -> None:
        text = f'failed calling webhook "{webhook.name}": {problem}'
        if webhook.ignores_failure:
            log.warning("webhook failed and is ignored", webhook=webhook.name, problem=problem)
            return
        raise status.InternalError(
            f"Internal error occurred: {text}", details={"causes": [{"message": text}]}
        )


class MutatingAdmissionWebhook:
    """Lets webhooks change objects."""

    name = "MutatingAdmissionWebhook"
    interests = (interest("create update delete connect", subresources="*"),)

    def __init__(
        self,
        lookup: Lookup,
        caller: Caller,
        rng: Random,
        authorizer: Decides | None = None,
    ) -> None:
        configurations = "mutatingwebhookconfigurations"
        self._asking = _Asking(lookup, caller, rng, configurations, authorizer)

    async def mutate(self, change: Change) -> bool:
        """Ask everybody; True when the object was changed and others should look again."""
        wanting = await self._asking.wanting(change)
        if not wanting:
            return False
        # What each webhook left behind, to know in the second round who has seen the latest.
        left: dict[str, bytes] | None = change.notes.get(self.name)
        first_round = left is None
        left = change.notes.setdefault(self.name, {})
        changed = False
        for webhook in wanting:
            if not first_round:
                seen = left.get(webhook.identity)
                if not webhook.again or seen is None or seen == codec.encode(change.new):
                    continue
            found = await self._asking.ask(webhook, change)
            if found is None:
                continue
            if found.patch and change.verb in ("create", "update"):
                changed = self._patch(webhook, change, found.patch) or changed
            left[webhook.identity] = codec.encode(change.new)
        if changed and change.kind.definition is not None:
            latest = codec.encode(change.new)
            mutation.prune(change)
            pruned = codec.encode(change.new)
            left.update({who: pruned for who, seen in left.items() if seen == latest})
        return changed and first_round

    @staticmethod
    def _patch(webhook: Webhook, change: Change, patch: list[Any]) -> bool:
        assert change.new is not None
        before = document.copy(change.new)
        try:
            after = json_patch.apply(review.shown(change, before), patch)
            if not isinstance(after, dict):
                raise status.BadRequest("the patched document is no object")
            for field in ("kind", "apiVersion"):
                if field not in before:
                    after.pop(field, None)
            mutation.become(change, after)
        except status.ApiError as error:
            raise status.InternalError(
                f'Internal error occurred: failed calling webhook "{webhook.name}": '
                f"applying its patch failed: {error.message}"
            ) from None
        return change.new != before


class ValidatingAdmissionWebhook:
    """Lets webhooks refuse objects."""

    name = "ValidatingAdmissionWebhook"
    interests = (interest("create update delete connect", subresources="*"),)

    def __init__(
        self,
        lookup: Lookup,
        caller: Caller,
        rng: Random,
        authorizer: Decides | None = None,
    ) -> None:
        configurations = "validatingwebhookconfigurations"
        self._asking = _Asking(lookup, caller, rng, configurations, authorizer)

    async def validate(self, change: Change) -> None:
        """Ask everybody at once; of several refusals the first webhook's is told."""
        wanting = await self._asking.wanting(change)
        if not wanting:
            return
        refusals: dict[int, status.ApiError] = {}

        async def ask(at: int, webhook: Webhook) -> None:
            try:
                await self._asking.ask(webhook, change)
            except status.ApiError as error:
                refusals[at] = error

        if len(wanting) == 1:
            await ask(0, wanting[0])
        else:
            async with asyncio.TaskGroup() as group:
                for at, webhook in enumerate(wanting):
                    group.create_task(ask(at, webhook))
        if refusals:
            raise refusals[min(refusals)]
