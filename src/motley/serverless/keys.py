"""What the router signs with, so that instances know it and functions can call functions.

One key per cluster, in a Secret that the first router makes. An instance's token is made of the key
and the pod's name, and the pod holds only a digest of it. A call's token lets the function that has
the call reach functions of its own namespace, for as long as the call may take, and nothing else.
"""

import base64
import hashlib
import hmac
import json
import os

from motley.api import status
from motley.api.views.core import Secret
from motley.client.rest import Client

NAME = "motley-functions"
_FIELD = "key"


async def load(client: Client, namespace: str) -> bytes:
    """The cluster's key, made if there is none."""
    while True:
        try:
            secret = await client.get(Secret, NAME, namespace)
            return base64.b64decode(secret.data[_FIELD])
        except status.NotFound:
            fresh = base64.b64encode(os.urandom(32)).decode()
            body = {"metadata": {"name": NAME, "namespace": namespace}, "data": {_FIELD: fresh}}
            try:
                await client.create(Secret, body)
            except status.AlreadyExists:
                continue  # another router was faster: its key counts


def call_token(key: bytes, namespace: str, until: float) -> str:
    """What a function shows to call another one."""
    text = json.dumps([namespace, round(until)]).encode()
    mark = hmac.new(key, b"call " + text, hashlib.sha256).digest()
    return f"{base64.urlsafe_b64encode(text).decode()}.{base64.urlsafe_b64encode(mark).decode()}"


def namespace_of(key: bytes, token: str, now: float) -> str | None:
    """The namespace a call's token is for; None: it is not ours, or too old."""
    first, _, second = token.partition(".")
    try:
        text = base64.urlsafe_b64decode(first)
        mark = base64.urlsafe_b64decode(second)
        expected = hmac.new(key, b"call " + text, hashlib.sha256).digest()
        if not hmac.compare_digest(mark, expected):
            return None
        namespace, until = json.loads(text)
    except (ValueError, TypeError):
        return None
    return str(namespace) if now <= until else None
