"""Requests to paths of Triggers, led to their functions as calls by name are."""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from motley.api.views.base import Key
from motley.api.views.trigger import Trigger
from motley.client.informer import Change, Informer
from motley.serverless.httpd import Caller, Request
from motley.serverless.triggers.routes import Routes

Called = Callable[[Request, Caller, Key, str], Awaitable[None]]


class Paths:
    """Answers what a Trigger has the path of; who may call is asked as everywhere."""

    def __init__(self, triggers: Informer[Trigger], called: Called) -> None:
        self._triggers = triggers
        self._called = called
        self._routes: Routes | None = None
        triggers.add_handler(self._changed)

    def _changed(self, _: Change[Trigger]) -> None:
        self._routes = None  # made anew with the next request: changes come in crowds

    async def answer(self, request: Request, caller: Caller) -> bool:
        """Answer it; false: the path is nobody's."""
        if self._routes is None:
            self._routes = Routes(self._triggers.items())
        path = unquote(request.path.partition("?")[0])
        found = self._routes.find(request.headers.get("host", ""), path)
        if found is None:
            return False
        key = Key(found.namespace, found.function)
        await self._called(request, caller, key, found.rest.strip("/"))
        return True
