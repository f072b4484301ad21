"""`kubectl get componentstatuses`: deprecated, and still the first thing many people type.

Nothing is stored. The store answers for itself; the scheduler and the controllers are asked on the
ports where they say how they are.
"""

import asyncio
from typing import Any

from motley.api import status
from motley.apiserver import tables
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.verbs.call import Call, in_media_type

Document = dict[str, Any]

# Their usual health ports; a component that was told another one shows as unhealthy here.
_PORTS = {"controller-manager": 10257, "scheduler": 10259}
_TIMEOUT_S = 2.0
_REQUEST = b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"


async def listed(core: Core, call: Call) -> Answer:
    """200 with every component."""
    tables.check_list_form(call.kind, call.wanted)
    found = [await _component(core, name) for name in (*_PORTS, "etcd-0")]
    include = call.info.query.text("includeObject")
    if call.wanted.transform == "Table":
        shown = tables.of_list(call.kind, found, include, call.wanted.version)
    elif call.wanted.transform:
        shown = tables.partial_list(found, call.wanted.version)
    else:
        items = [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in found]
        shown = {"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items}
    return in_media_type(shown, call.wanted.media_type)


async def get(core: Core, call: Call) -> Answer:
    """200 with one component."""
    name = call.info.name
    if name not in (*_PORTS, "etcd-0"):
        raise status.not_found("", "componentstatuses", name)
    include = call.info.query.text("includeObject")
    shown = tables.transformed(call.kind, await _component(core, name), call.wanted, include)
    return in_media_type(shown, call.wanted.media_type)


async def _component(core: Core, name: str) -> Document:
    problem = await _asked(_PORTS[name]) if name in _PORTS else await _store(core)
    condition = {
        "type": "Healthy",
        "status": "False" if problem else "True",
        "message": problem or "ok",
    }
    return {
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [condition],
    }


async def _store(core: Core) -> str:
    await core.store.revision()  # a store that fails fails the request, too
    return ""


async def _asked(port: int) -> str:
    """What is wrong with the component on a port; empty when it is well."""
    what = f'Get "http://127.0.0.1:{port}/healthz"'
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(_REQUEST)
                head = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else repr(error)
        return f"{what}: dial tcp 127.0.0.1:{port}: connect: {reason}"
    return "" if b" 200 " in head else f"{what}: {head.decode('latin-1').strip()}"
