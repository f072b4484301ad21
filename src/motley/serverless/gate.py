"""May this caller do that? The API server is asked; functions carry a token of their call.

Calling a function is `create functions/call`, reading a result `get invocations`, cancelling one
`delete invocations`, all in the function's namespace: ordinary RBAC keeps tenants apart.
"""

from collections.abc import Callable
from typing import Any

from motley.api import status
from motley.client.delegation import Delegation
from motley.lib import journal
from motley.serverless.httpd import Request

log = journal.get(__name__)

_CACHE_S = 10.0
_CACHED = 1024


class Gate:
    """Lets callers in, or says why not."""

    def __init__(
        self,
        delegation: Delegation,
        namespace_of: Callable[[str], str | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._delegation = delegation
        self._namespace_of = namespace_of
        self._monotonic = monotonic
        self._certified: dict[Any, tuple[float, int]] = {}

    async def code(
        self,
        request: Request,
        verb: str,
        resource: str,
        namespace: str,
        name: str,
        subresource: str = "",
    ) -> int:
        """200, 401 (who is it?) or 403 (not for them)."""
        header = request.headers.get("authorization", "")
        kind, _, token = header.partition(" ")
        if kind == "Motley":
            found = self._namespace_of(token.strip())
            if found is None:
                return 401
            return 200 if found == namespace and resource == "functions" else 403
        asked = {
            "group": "motley.io",
            "version": "v1",
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "verb": verb,
            **({"subresource": subresource} if subresource else {}),
        }
        if request.certificate and not header:
            return await self._of_certificate(request.certificate, asked)
        # The path is part of what is remembered; the query of a call is not part of the question.
        return await self._delegation.code(f"/{resource}/{namespace}/{name}", header, asked)

    async def _of_certificate(self, certificate: dict[str, Any], asked: dict[str, str]) -> int:
        subject = [(k, v) for part in certificate.get("subject", ()) for k, v in part]
        user = {
            "username": next((v for k, v in subject if k == "commonName"), ""),
            "groups": [v for k, v in subject if k == "organizationName"] + ["system:authenticated"],
        }
        key = (user["username"], tuple(user["groups"]), tuple(sorted(asked.items())))
        now = self._monotonic()
        until, code = self._certified.get(key, (0.0, 0))
        if now < until:
            return code
        try:
            code = 200 if await self._delegation.may(user, "", asked) else 403
        except status.ApiError as error:
            log.warning("cannot ask who is calling", error=error.message)
            return 403
        if len(self._certified) >= _CACHED:
            self._certified.clear()
        self._certified[key] = (now + _CACHE_S, code)
        return code
