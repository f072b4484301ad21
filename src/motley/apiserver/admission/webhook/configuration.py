"""A stored webhook, read once per version of its configuration."""

import base64
import ssl
from collections.abc import Mapping
from typing import Any

from motley.api import scheme
from motley.api.cel import CelError, CompileError, Program, compile_expression
from motley.apiserver import document
from motley.apiserver.admission.change import Change
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.matching import Matcher
from motley.apiserver.admission.policy import environment

Document = dict[str, Any]

_TIMEOUT_S = 10  # what a webhook without a timeout gets
CONDITION_NAMES = environment.BASE


class Webhook:
    """One entry of a configuration."""

    def __init__(self, configuration: str, entry: Document) -> None:
        self.configuration = configuration
        self.name = str(entry.get("name", ""))
        self.ignores_failure = entry.get("failurePolicy", "Fail") == "Ignore"
        self.timeout_s = int(entry.get("timeoutSeconds") or _TIMEOUT_S)
        self.side_effects = str(entry.get("sideEffects") or "Unknown")
        self.again = entry.get("reinvocationPolicy") == "IfNeeded"
        self.matcher = Matcher(entry, entry.get("rules") or ())
        self._has_rules = bool(entry.get("rules"))
        client = entry.get("clientConfig") or {}
        self.url: str = client.get("url") or ""
        self.service: Document = client.get("service") or {}
        self._authority = client.get("caBundle") or ""
        self._context: ssl.SSLContext | None = None
        self.problem = ""
        self.conditions: list[Program] = []
        self.asks = False  # whether a condition speaks of the authorizer
        for condition in entry.get("matchConditions") or ():
            try:
                program = compile_expression(str(condition.get("expression")), CONDITION_NAMES)
                self.conditions.append(program)
                self.asks = self.asks or "authorizer" in program.names
            except CompileError as error:
                self.problem = f"compilation failed: {error}"

    @property
    def identity(self) -> str:
        """A name that no other webhook has."""
        return f"{self.configuration}/{self.name}"

    @property
    def may_run_dry(self) -> bool:
        """Whether asking it has no lasting consequence."""
        return self.side_effects in ("None", "NoneOnDryRun")

    async def wants(self, change: Change, lookup: Lookup) -> bool:
        """By its rules and selectors; a webhook without rules wants nothing."""
        return self._has_rules and await self.matcher.matches(change, lookup)

    def is_meant(self, values: Mapping[str, Any]) -> bool:
        """By its conditions; raises CelError when that cannot be told."""
        if self.problem:
            raise CelError(self.problem)
        first: CelError | None = None
        for program in self.conditions:
            try:
                if program.evaluate(values) is not True:
                    return False
            except CelError as error:
                first = first or CelError(f"expression '{program.source}': {error}")
        if first is not None:
            raise first
        return True

    @property
    def context(self) -> ssl.SSLContext:
        """Whom it trusts: the bundle it brings, or the machine's authorities."""
        if self._context is None:
            context = ssl.create_default_context()
            if self._authority:
                context = ssl.create_default_context(
                    cadata=base64.b64decode(self._authority).decode()
                )
            self._context = context
        return self._context


class Webhooks:
    """The stored webhooks of one kind of configuration, in the order they are called."""

    def __init__(self, lookup: Lookup, kind: scheme.Kind) -> None:
        self._lookup = lookup
        self._kind = kind
        self._read: dict[str, tuple[bytes, list[Webhook]]] = {}

    async def current(self) -> list[Webhook]:
        """All of them: by the names of the configurations, then as listed."""
        records = await self._lookup.records(self._kind)
        if not records:
            return []
        found: list[Webhook] = []
        for record in records:
            known = self._read.get(record.key)
            if known is None or known[0] is not record.value:
                configuration = document.decode(record.value)
                name = str(configuration["metadata"]["name"])
                entries = configuration.get("webhooks") or ()
                known = (record.value, [Webhook(name, entry) for entry in entries])
                self._read[record.key] = known
            found += known[1]
        return found
