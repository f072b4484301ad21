"""A small API server: lists and watches what the test puts on its stdin, one JSON event a line.

{"plural": "services", "type": "ADDED" | "MODIFIED" | "DELETED", "object": {…}}
"""

import asyncio
import json
import sys
import time

from aiohttp import web

KINDS = {
    "services": ("v1", "Service"),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "namespaces": ("v1", "Namespace"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
}


class Api:
    def __init__(self):
        # A new start has forgotten the history: older versions are Gone.
        self.revision = self.first = time.monotonic_ns()
        self.objects = {plural: {} for plural in KINDS}
        self.log = []
        self.changed = asyncio.Condition()

    async def put(self, plural, type_, obj):
        async with self.changed:
            self.revision += 1
            version, kind = KINDS[plural]
            obj = {"apiVersion": version, "kind": kind, **obj}
            obj["metadata"]["resourceVersion"] = str(self.revision)
            name = (obj["metadata"].get("namespace"), obj["metadata"]["name"])
            if type_ == "DELETED":
                self.objects[plural].pop(name, None)
            else:
                self.objects[plural][name] = obj
            self.log.append((self.revision, plural, {"type": type_, "object": obj}))
            self.changed.notify_all()

    async def handle(self, request):
        plural = request.path.rsplit("/", 1)[1]
        if request.query.get("watch") in ("1", "true"):
            if int(request.query["resourceVersion"]) < self.first:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                return web.json_response(gone, status=410)
            return await self.watch(request, plural)
        version, kind = KINDS[plural]
        meta = {"resourceVersion": str(self.revision)}
        items = list(self.objects[plural].values())
        return web.json_response(
            {"apiVersion": version, "kind": f"{kind}List", "metadata": meta, "items": items}
        )

    async def watch(self, request, plural):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = int(request.query.get("resourceVersion") or 0)
        while True:
            fresh = [(r, e) for r, p, e in self.log if p == plural and r > seen]
            for revision, event in fresh:
                await response.write(json.dumps(event).encode() + b"\n")
                seen = revision
            async with self.changed:
                if self.revision <= seen or not any(
                    p == plural and r > seen for r, p, _ in self.log
                ):
                    await self.changed.wait()


async def main():
    api = Api()
    app = web.Application()
    for plural, (version, _) in KINDS.items():
        group = f"apis/{version}" if "/" in version else f"api/{version}"
        app.router.add_get(f"/{group}/{plural}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1]), reuse_address=True).start()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        event = json.loads(line)
        await api.put(event["plural"], event["type"], event["object"])
        print("ok", flush=True)


asyncio.run(main())
