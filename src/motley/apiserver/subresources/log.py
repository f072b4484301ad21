"""`pods/log`: a container's output, passed on from the agent of its node as it comes."""

from collections.abc import AsyncIterator

import aiohttp

from motley.api import status
from motley.apiserver import agents, answer
from motley.apiserver.answer import Stream
from motley.apiserver.core import Core
from motley.apiserver.verbs.call import Call
from motley.lib import journal

log = journal.get(__name__)

_PASSED_ON = (
    "follow",
    "tailLines",
    "previous",
    "timestamps",
    "sinceSeconds",
    "sinceTime",
    "limitBytes",
    "stream",
)
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")


async def get(core: Core, call: Call) -> Stream:
    """200 with plain text, which goes on while the container runs if `follow` is set."""
    query = call.info.query
    for number in _NUMBERS:
        query.integer(number)
    target = await core.agents.target(call.namespace, call.info.name, query.text("container"))
    passed = [(key, query.text(key)) for key in _PASSED_ON if key in query]
    url = target.url("containerLogs", passed)
    try:
        response = await core.agents.session().get(url)
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("node agent unreachable", host=target.host, port=target.port, error=str(error))
        raise status.InternalError(f'Get "{url}": cannot reach the node agent: {error}') from None
    if response.status != 200:
        raise await agents.refusal(response)
    return Stream(_chunks(response), content_type=answer.TEXT, close=response.close)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        log.warning("log stream of a node agent broke", error=str(error))
