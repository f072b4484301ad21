"""Begins the trail of a request: the one thing the application calls."""

from collections.abc import Mapping, MutableMapping
from typing import Any

from motley.apiserver.audit.policy import DEFAULT, Policy
from motley.apiserver.audit.trail import CURRENT, Trail, Write
from motley.apiserver.request import RequestInfo
from motley.lib.clock import Clock


class Auditor:
    """Records requests by a policy."""

    def __init__(self, write: Write, clock: Clock, policy: Policy = DEFAULT) -> None:
        self._write = write
        self._clock = clock
        self._policy = policy

    def begin(
        self,
        audit_id: str,
        info: RequestInfo,
        headers: Mapping[str, str],
        scope: MutableMapping[str, Any],
    ) -> Trail:
        """The trail of a request that has just come in; it is the current one from now on."""
        query = scope["query_string"]
        uri = scope["path"] + (f"?{query.decode('latin-1')}" if query else "")
        client = scope.get("client")
        trail = Trail(
            audit_id,
            info,
            headers,
            uri,
            client[0] if client else "",
            policy=self._policy,
            write=self._write,
            clock=self._clock,
        )
        CURRENT.set(trail)
        return trail
