"""Thousands of made-up requests through the real HTTP stack: none may find the server at a loss.

An answer may be anything but 500, which says that something happened that nobody thought of. The
seed is fixed, so a failure is there again in the next run; `MOTLEY_FUZZ_SEED` and
`MOTLEY_FUZZ_REQUESTS` choose others.
"""

import asyncio
import json
import os
import ssl
from collections import Counter
from typing import Any

import aiohttp
import pytest
import yaml
from yarl import URL

from motley.lib.clock import SYSTEM

from . import specimens
from .fuzzer import DECIDES_ABOUT_OTHERS, Fuzzer, Request

SEED = int(os.environ.get("MOTLEY_FUZZ_SEED", "20261116"))
REQUESTS = int(os.environ.get("MOTLEY_FUZZ_REQUESTS", "5000"))
CONNECTIONS = 8
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "odds.fuzz.example.org"},
    "spec": {
        "group": "fuzz.example.org",
        "scope": "Namespaced",
        "names": {"plural": "odds", "singular": "odd", "kind": "Odd"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].name"},
                    {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 0, "default": 3},
                                    "replicas": {"type": "integer"},
                                    "since": {"type": "string", "format": "date-time"},
                                    "mode": {"type": "string", "enum": ["a", "b"]},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "parts": {
                                        "type": "array",
                                        "maxItems": 20,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string", "maxLength": 100},
                                                "weight": {"type": "number"},
                                            },
                                        },
                                    },
                                },
                                "x-kubernetes-validations": [
                                    {"rule": "!has(self.parts) || size(self.parts) <= self.size"}
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


def trust(kubeconfig: Any) -> ssl.SSLContext:
    """The administrator's certificate, as the kubeconfig has it."""
    import base64
    import tempfile

    config = yaml.safe_load(kubeconfig.read_text())
    user = config["users"][0]["user"]
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    context = ssl.create_default_context(cadata=authority.decode())
    with tempfile.NamedTemporaryFile() as file:
        for key in ("client-certificate-data", "client-key-data"):
            file.write(base64.b64decode(user[key]))
        file.flush()
        context.load_cert_chain(file.name)
    return context


async def send(session: aiohttp.ClientSession, base: str, request: Request) -> tuple[int, bytes]:
    async with session.request(
        request.method,
        URL(base + request.url, encoded=True),
        data=request.body or None,
        headers=request.headers,
        skip_auto_headers=("content-type",),
    ) as response:
        return response.status, await response.read()


async def documents(session: aiohttp.ClientSession, base: str) -> list[dict[str, Any]]:
    async with session.get(f"{base}/openapi/v3") as response:
        index = json.loads(await response.read())
    found = []
    for entry in index["paths"].values():
        async with session.get(base + entry["serverRelativeURL"]) as response:
            found.append(json.loads(await response.read()))
    return found


async def populate(session: aiohttp.ClientSession, base: str) -> None:
    """Objects of every kind for requests to find."""
    odds = base + specimens.path("fuzz.example.org/v1", "Odd", "fuzz")
    async with asyncio.timeout(10):
        while True:
            async with session.get(odds) as response:
                if response.status == 200:
                    break
            await SYSTEM.sleep(0.05)
    for api_version, kind in specimens.kinds():
        if any(word in specimens.plural(api_version, kind) for word in DECIDES_ABOUT_OTHERS):
            continue
        for name in ("a", "b"):
            body = specimens.make(api_version, kind, name)
            path = base + specimens.path(api_version, kind, "fuzz")
            async with session.post(path, json=body) as response:
                assert response.status in (201, 409), await response.text()


@pytest.mark.parametrize("seed", [SEED])
async def test_no_made_up_request_is_answered_with_500(make_server, seed):
    server = make_server("memory")
    codes: Counter[int] = Counter()
    failures: list[str] = []
    connector = aiohttp.TCPConnector(ssl=trust(server.kubeconfig), limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        base = server.url
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": "fuzz"}}),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION),
        ):
            async with session.post(base + path, json=body) as response:
                assert response.status in (201, 409), await response.text()
        await populate(session, base)
        fuzzer = Fuzzer(await documents(session, base), seed)
        requests = fuzzer.requests(REQUESTS)

        async def work() -> None:
            for request in requests:
                try:
                    code, body = await send(session, base, request)
                except (aiohttp.ClientError, TimeoutError) as error:
                    failures.append(f"{error!r}: {request}")
                    continue
                codes[code] += 1
                if code == 500:
                    failures.append(f"{body[:300].decode(errors='replace')}: {request}")

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())
    assert not failures, f"{len(failures)} of {REQUESTS}: " + "\n\n".join(failures[:10])
    assert sum(codes.values()) == REQUESTS
    # What was made up was not all refused at the door.
    assert codes[200] + codes[201] > REQUESTS / 10, codes
    assert codes[422] > REQUESTS / 10, codes
    # What the server cannot do is said with other codes: no node, no endpoint, no such version yet.
    assert {code for code in codes if code >= 500} <= {503, 504}, codes
    log = (server.directory / "server.log").read_text()
    assert "request failed" not in log
    assert "Exception in ASGI" not in log
