"""A bearer token among a WebSocket's subprotocols: browsers can set no header on one.

`base64url.bearer.authorization.k8s.io.TOKEN` stands beside the subprotocol that is meant, which
alone is answered.

Invariant: the token is in nothing that is passed on or sent back.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

from motley.api import status

PREFIX = "base64url.bearer.authorization.k8s.io."
_ABOUT_THE_SOCKET = "sec-websocket-"


def credentials(
    headers: Mapping[str, str], offered: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The headers with the token where others have it, and the subprotocols without it.

    A token in the header has the say. 401 for more than one token, for one that is no base64, and
    for one that has no subprotocol beside it to answer.
    """
    plain = {k: v for k, v in headers.items() if not k.startswith(_ABOUT_THE_SOCKET)}
    tokens = [name.removeprefix(PREFIX) for name in offered if name.startswith(PREFIX)]
    others = [name for name in offered if name and not name.startswith(PREFIX)]
    if not tokens or "authorization" in plain:
        return plain, others
    if len(tokens) > 1 or not others:
        raise status.Unauthorized("Unauthorized")
    padding = "=" * (-len(tokens[0]) % 4)
    try:
        token = base64.b64decode(tokens[0] + padding, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise status.Unauthorized("Unauthorized") from None
    return {**plain, "authorization": f"Bearer {token}"}, others
