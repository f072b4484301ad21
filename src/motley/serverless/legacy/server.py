"""`/api/funcs`, as the document has it: templates, calls, results by id.

    GET|POST        /api/funcs/template        all templates; a new one
    GET|PUT|DELETE  /api/funcs/template/NAME   one of them
    POST            /api/funcs/NAME            call it: the result, or its id when that takes long
    GET             /api/funcs/ID              the result of a call
    PUT             /api/funcs/NAME/ID         go on with call ID at NAME; RETURN stores a result

The document's server asks nobody who they are, and its scripts send no credentials: so this one is
off unless asked for, speaks plain HTTP, and belongs on loopback.

Invariant: every call is an Invocation before it is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec

from motley.api import status
from motley.api.conversion import minik8s_func
from motley.api.views.base import Key
from motley.api.views.serverless import Function, Invocation
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib.clock import SYSTEM, Clock, rfc3339
from motley.serverless.httpd import Caller, Request

MANAGER = "motley-func-legacy"
_PREFIX = "/api/funcs/"
_TEMPLATE = "template"
_TEXT = "text/plain; charset=utf-8"


class Legacy:
    """Answers the document's requests."""

    def __init__(
        self,
        client: Client,
        invocations: Informer[Invocation],
        *,
        wait_s: float = 10.0,
        namespace: str = minik8s_func.NAMESPACE,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._invocations = invocations
        self._wait_s = wait_s
        self._namespace = namespace
        self._clock = clock

    async def handle(self, request: Request, caller: Caller) -> None:
        """One request, to its answer."""
        path = unquote(urlsplit(request.path).path)
        words = [word for word in path.removeprefix(_PREFIX).split("/") if word]
        try:
            act = self._route(request.method, words) if path.startswith(_PREFIX) else None
            if act is None:
                said = f"{request.method} {path} is not one of the document's requests"
                caller.error(404, "NotFound", said)
                return
            await act(request, caller)
        except status.ApiError as error:
            caller.error(error.code, error.reason, str(error))

    def _route(
        self, method: str, words: list[str]
    ) -> Callable[[Request, Caller], Awaitable[None]] | None:
        match method, words:
            case "GET", ["template"]:
                return self._templates
            case "POST", ["template"]:
                return self._upload
            case (("GET" | "PUT" | "DELETE"), ["template", name]):
                verb = {"GET": self._template, "PUT": self._update, "DELETE": self._delete}[method]
                return lambda request, caller: verb(name, request, caller)
            case "POST", [name]:
                return lambda request, caller: self._call(name, request, caller)
            case "GET", [id_]:
                return lambda request, caller: self._result(id_, request, caller)
            case "PUT", [name, id_]:
                return lambda request, caller: self._go_on(name, id_, request, caller)
        return None

    async def _templates(self, request: Request, caller: Caller) -> None:
        listed = await self._client.list(Function, namespace=self._namespace)
        documents = [
            await self._client.document(Function, one.metadata.name, self._namespace)
            for one in listed.items
        ]
        items = [minik8s_func.to_template(one) for one in documents]
        caller.json(200, {"apiVersion": "v1", "kind": "FuncList", "items": items})

    async def _template(self, name: str, request: Request, caller: Caller) -> None:
        caller.json(200, minik8s_func.to_template(await self._document(name)))

    async def _upload(self, request: Request, caller: Caller) -> None:
        """A new template; one of the same name is replaced, as the document's uploader does."""
        await self._store(_json(request.body), caller)

    async def _update(self, name: str, request: Request, caller: Caller) -> None:
        await self._document(name)
        template = _json(request.body)
        said = (template.get("spec") or {}).get("name") or name
        if said != name:
            raise status.BadRequest(f"spec.name: {said!r} is not the {name!r} of the URL")
        await self._store(template, caller)

    async def _store(self, template: dict[str, Any], caller: Caller) -> None:
        function = minik8s_func.to_function(template)
        name = minik8s_func.name_of(function)
        key = function["metadata"]["name"], function["metadata"]["namespace"]
        try:
            minik8s_func.refuse_another(await self._client.document(Function, *key), name)
        except status.NotFound:
            pass
        await self._client.apply(Function, function, field_manager=MANAGER, force=True)
        caller.json(200, minik8s_func.to_template(await self._client.document(Function, *key)))

    async def _delete(self, name: str, request: Request, caller: Caller) -> None:
        document = await self._document(name)
        await self._client.delete(Function, document["metadata"]["name"], self._namespace)
        caller.send(200, _TEXT, b"")

    async def _document(self, name: str) -> dict[str, Any]:
        object_name = minik8s_func.object_name(name)
        try:
            found = await self._client.document(Function, object_name, self._namespace)
        except status.NotFound:
            raise status.NotFound(f"there is no function {name!r}") from None
        minik8s_func.refuse_another(found, name)
        return found

    async def _call(self, name: str, request: Request, caller: Caller) -> None:
        document = await self._document(name)
        id_ = str(uuid4())
        await self._accept(id_, document["metadata"]["name"], _argument(request.body))
        found = await self._finished(id_)
        if found is None:
            caller.send(202, _TEXT, id_.encode())
        else:
            _answer(found, caller)

    async def _result(self, id_: str, request: Request, caller: Caller) -> None:
        found = await self._client.get(Invocation, id_, self._namespace)
        if found.is_finished:
            _answer(found, caller)
        else:
            caller.send(202, _TEXT, b"")

    async def _go_on(self, name: str, id_: str, request: Request, caller: Caller) -> None:
        """What a chain's step asks for: the next one, or the end. The same twice is one."""
        argument = _argument(request.body)
        if name != minik8s_func.RETURN:
            document = await self._document(name)
            await self._accept(id_, document["metadata"]["name"], argument)
            caller.send(202, _TEXT, id_.encode())
            return
        found = await self._client.get(Invocation, id_, self._namespace)
        if not found.is_finished:
            said = {
                "phase": "Succeeded",
                "result": argument,
                "completionTime": rfc3339(self._clock.now()),
            }
            await self._client.patch(
                Invocation, id_, self._namespace, {"status": said}, subresource="status"
            )
        caller.send(200, _TEXT, b"")

    async def _accept(self, id_: str, function: str, argument: str) -> None:
        body = {
            "metadata": {"name": id_, "namespace": self._namespace},
            "spec": {"function": function, "arg": argument},
        }
        try:
            await self._client.create(Invocation, body, self._namespace)
        except status.AlreadyExists:
            found = await self._client.get(Invocation, id_, self._namespace)
            if (found.spec.function, found.spec.arg) != (function, argument):
                raise status.Conflict(f"{id_} is another call's id") from None

    async def _finished(self, id_: str) -> Invocation | None:
        """The call once it has ended; None when it takes longer than a caller is made to wait."""
        key = Key(self._namespace, id_)
        ended: asyncio.Future[Invocation] = asyncio.get_running_loop().create_future()

        def note(change: Change[Invocation]) -> None:
            if change.key == key and change.new and change.new.is_finished and not ended.done():
                ended.set_result(change.new)

        self._invocations.add_handler(note)
        try:
            async with asyncio.timeout(self._wait_s):
                return await ended
        except TimeoutError:
            return None
        finally:
            self._invocations.remove_handler(note)


def _answer(found: Invocation, caller: Caller) -> None:
    if found.status.phase == "Succeeded":
        result = found.status.result
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
        caller.send(200, _TEXT, text.encode())
        return
    message = found.status.message or str(found.status.error or "")
    phrase = HTTPStatus.INTERNAL_SERVER_ERROR.phrase.replace(" ", "")
    caller.error(500, found.status.phase or phrase, message)


def _argument(body: bytes) -> str:
    """The document's argument is a text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise status.BadRequest("the argument is no text in UTF-8") from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status.BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise status.BadRequest("the body is no template")
    return found
