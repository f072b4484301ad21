"""Gives a generic instance its function: code, settings, secrets, and what was installed before.

What requirements and preRun made on one instance is fetched from it once, kept in a directory, and
laid under the next ones: a layer, as of an image, but it needs no registry and no rights on nodes.
"""

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import msgspec

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap, Secret
from motley.api.views.serverless import CodeFrom, Function
from motley.client.rest import Client
from motley.lib import atomicfile, journal
from motley.lib.clock import Clock
from motley.serverless import objects
from motley.serverless.channel import Channels, Lost, NotStarted
from motley.serverless.instances import Broken

log = journal.get(__name__)

_FIRST_PAUSE_S = 0.005
_PAUSE_S = 0.02
_LOAD_TIMEOUT_S = 30.0
_SETUP_TIMEOUT_S = 300.0
_MOST_LAYER = 30 << 20  # an instance takes bodies of 48 MiB, and base64 adds a third


class Refused(Exception):
    """The instance is not what it was thought to be: end it and take another."""


class Specialist:
    """Specialises instances."""

    def __init__(
        self,
        client: Client,
        channels: Channels,
        layers: Path | None,
        router: str,
        router_ca: str,
        default_image: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._channels = channels
        self._layers = layers
        self._router = router
        self._router_ca = router_ca
        self._image = default_image
        self._clock = clock

    async def settings(self, function: Function) -> dict[str, Any]:
        """The whole of what an instance must know. Raises Broken when a reference leads nowhere."""
        spec = function.spec
        namespace = function.metadata.namespace
        code = await self._text(namespace, spec.code_from) if spec.code_from else None
        env = {
            one.name: await self._text(namespace, one.value_from) if one.value_from else one.value
            for one in spec.env
        }
        found = objects.settings(
            function, code=code, env=env, router=self._router, router_ca=self._router_ca
        )
        has_setup = bool(objects.layer_key(function, self._image))
        found["loadTimeout_s"] = _LOAD_TIMEOUT_S + (_SETUP_TIMEOUT_S if has_setup else 0.0)
        found["setupTimeout_s"] = _SETUP_TIMEOUT_S
        layer = self._kept(function)
        if layer is not None:
            found["layer"] = base64.b64encode(layer).decode()
        return found

    async def _text(self, namespace: str, source: CodeFrom) -> str:
        """What a reference to a ConfigMap or Secret says."""
        config, secret = source.config_map_key_ref, source.secret_key_ref
        try:
            if config is not None:
                data = (await self._client.get(ConfigMap, config.name, namespace)).data
                return data[config.key]
            if secret is not None:
                held = (await self._client.get(Secret, secret.name, namespace)).data
                return base64.b64decode(held[secret.key]).decode()
        except (status.NotFound, KeyError) as error:
            name = config or secret
            message = f"no {name.name if name else ''}/{name.key if name else ''}: {error}"
            raise Broken({"type": "MissingReference", "message": message}) from error
        raise Broken({"type": "MissingReference", "message": "a reference names nothing"})

    async def specialise(
        self, function: Function, pod: Key, address: str, token: str, timeout_s: float
    ) -> None:
        """Give it the code, as soon as it listens. Raises Broken, Refused, TimeoutError."""
        body = msgspec.json.encode(await self.settings(function))
        headers = {"X-Motley-Instance-Token": token, "Content-Type": "application/json"}
        pause_s = _FIRST_PAUSE_S
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    answer, connection = await self._channels.ask(
                        address, "POST", "/specialise", headers, body
                    )
                    data = await answer.whole()
                    break
                except NotStarted:
                    await self._clock.sleep(pause_s)  # it does not listen yet
                    pause_s = _PAUSE_S
                except Lost as error:
                    raise Refused(f"instance {pod.name} ended: {error}") from error
        said = answer.json(data)
        self._channels.keep(address, connection)
        if answer.status == 422:
            raise Broken(said["error"])
        if answer.status != 200:
            raise Refused(f"instance {pod.name}: {answer.status} {said}")
        if said.get("layer"):
            await self._fetch(function, address, token)

    def _kept(self, function: Function) -> bytes | None:
        path = self._path(function)
        try:
            return path.read_bytes() if path is not None else None
        except FileNotFoundError:
            return None

    def _path(self, function: Function) -> Path | None:
        key = objects.layer_key(function, self._image)
        if self._layers is None or not re.fullmatch(r"[0-9a-f]+", key):
            return None
        return self._layers / f"{key}.tar.gz"

    async def _fetch(self, function: Function, address: str, token: str) -> None:
        """Keep what this instance has installed, for the next ones."""
        path = self._path(function)
        if path is None or path.exists():
            return
        try:
            answer, connection = await self._channels.ask(
                address, "GET", "/layer", {"X-Motley-Instance-Token": token}
            )
            data = await answer.whole()
            self._channels.keep(address, connection)
        except (NotStarted, Lost) as error:
            log.warning("layer not kept", function=function.key, error=str(error))
            return
        if answer.status == 200 and len(data) <= _MOST_LAYER:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomicfile.write(path, data)
        else:
            log.warning("layer too large to keep", function=function.key, size=len(data))
