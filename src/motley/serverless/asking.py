"""What a request says of the call it wants: how long to wait, with what, what to keep. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from motley.api.views.serverless import Function
from motley.serverless import values
from motley.serverless.httpd import Request


def wait_s(preference: str, default_s: float) -> float:
    """How long a caller waits for a result: `Prefer: wait=3`."""
    found = re.search(r"\bwait=(\d+)", preference)
    return min(float(found[1]), 600.0) if found else default_s


def argument(request: Request) -> dict[str, Any]:
    """Raises ValueError when JSON was promised and is not there."""
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/x-www-form-urlencoded"):
        kind = values.TEXT  # what curl -d says of any text
    return {"arg": values.from_wire(kind, request.body)}


def invocation_spec(function: Function, request: Request) -> dict[str, Any]:
    """What the caller's headers say of an Invocation, without its argument."""
    headers: Mapping[str, str] = request.headers
    spec: dict[str, Any] = {"function": function.metadata.name}
    if headers.get("idempotency-key"):
        spec["idempotencyKey"] = headers["idempotency-key"][:256]
    if headers.get("x-motley-callback-url"):
        spec["callbackURL"] = headers["x-motley-callback-url"]
    return spec
