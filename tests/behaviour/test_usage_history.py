"""The past over the real API: who may read it, what a Prometheus gets, what `motley` prints.

It survives the death of the server and the replacement of pods.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from motley.api import status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.controllers import service
from motley.controllers.workload import Deployment

SERVER_FLAGS = ("--metrics-every-s", "0.2")
PATH = "/apis/history.motley.io/v1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
TEMPLATE = {
    "metadata": {
        "labels": {"app": "web"},
        "annotations": {"fake.motley.io/usage": "cpu=400m,memory=64Mi"},
    },
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}
WEB = {
    "metadata": {"name": "web"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
}


@pytest.fixture
def motley(shared_server):
    async def run(*arguments, program=(sys.executable, "-m", "motley.cli.main"), code=0):
        process = await asyncio.create_subprocess_exec(
            *program,
            *arguments,
            f"--kubeconfig={shared_server.kubeconfig}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == code, f"{arguments}: {out.decode()}{err.decode()}"
        return out.decode() + err.decode()

    return run


@pytest.fixture
def kubectl(motley):
    program = shutil.which("kubectl") or str(Path(__file__).parents[2] / ".cache/bin/kubectl")

    async def run(*arguments, **options):
        return await motley(*arguments, program=(program,), **options)

    return run


@pytest.fixture
def running(cluster):
    return lambda: cluster(options=service.Options(leader_elect=False))


async def workload(c, **params):
    path = f"{PATH}/namespaces/{c.namespace}/workloads/web"
    found = await c.client.raw("GET", path, params={"from": "-5m", "step": "10s", **params})
    return found["series"][0]


async def past(c):
    try:
        series = await workload(c)
    except status.NotFound:
        return None
    return [v for v in series["cpu"] if v is not None] and series


async def test_a_workload_has_a_past_that_its_pods_do_not_take_along(running, motley, kubectl):
    async with running() as c:
        await c.create(Deployment, WEB)
        await c.eventually(
            lambda: [bool(p.spec.node_name) for p in c.living(app="web")] == [True, True], "pods"
        )
        node = c.living(app="web")[0].spec.node_name
        await c.client.patch(Node, node, "", {"metadata": {"labels": {"hice.kj": "0.5"}}})

        async def is_counted():
            series = await past(c)
            return series and series["cpu"][-1] == 0.8 and series["pods"][-1] == 2 and series

        await c.eventually(is_counted, "both pods")

        async def is_normalized():
            found = (await workload(c))["cpuNormalized"]
            return found[-1] is not None and found[-1] < 0.8

        await c.eventually(is_normalized, "CPU in cores of speed 1")
        before = {p.metadata.name for p in c.living(app="web")}
        for name in before:
            await c.client.delete(Pod, name, c.namespace, grace_period_s=0)
        await c.eventually(
            lambda: len({p.metadata.name for p in c.living(app="web")} - before) == 2, "others"
        )
        listed = await c.client.raw("GET", f"{PATH}/namespaces/{c.namespace}/pods")
        assert listed["kind"] == "PodHistoryList"
        assert before <= {item["metadata"]["name"] for item in listed["items"]}
        workloads = await c.client.raw("GET", f"{PATH}/namespaces/{c.namespace}/workloads")
        assert [i["metadata"]["name"] for i in workloads["items"]] == ["web"]

        async def scraped():
            text = await kubectl("get", "--raw", f"{PATH}/metrics")
            return f'namespace="{c.namespace}"' in text and text

        text = await c.eventually(scraped, "the new pods")
        assert f'motley_node_speed{{node="{node}"}} 0.5 ' in text
        assert 'workload="web",workload_kind="Deployment"' in text

        shown = await motley("top", "workloads", "-n", c.namespace, "--forecast", "5m")
        assert shown.splitlines()[1].startswith("deployment/web")
        assert "too little history" in shown
        found = await c.client.raw(
            "GET",
            f"{EXTERNAL}/namespaces/{c.namespace}/motley_forecast_cpu",
            params={"labelSelector": "workload=web"},
        )
        told = found["items"][0]["metricLabels"]
        assert (told["source"], told["reason"]) == ("measured", "too little history")
        assert node in await motley("top", "nodes", "--history")
        one = json.loads(await motley("top", "pods", "-n", c.namespace, "--history", "-o", "json"))
        assert {row["name"] for row in one} >= before
        assert "No node is hot" in await motley("rebalance")

        async def hot():
            low = ("--high-cpu=1", "--middle-cpu=1")
            found = json.loads(await motley("rebalance", *low, "-o", "json"))
            return {n["name"] for n in found["hotNodes"]} >= {p.spec.node_name for p in c.living()}

        await c.eventually(hot, "with low thresholds both nodes are hot")
        assert len(c.living(app="web")) == 2, "nothing was changed"


async def test_who_may_view_pods_may_view_their_past_and_nobody_else(running, kubectl, motley):
    async with running() as c:
        await c.create(Deployment, WEB)
        await c.eventually(lambda: past(c), "a past")
        path = f"{PATH}/namespaces/{c.namespace}/workloads/web"
        refused = await kubectl("get", "--raw", path, "--as=eve", code=1)
        assert "forbidden" in refused.lower()
        assert (
            "forbidden"
            in (await kubectl("get", "--raw", f"{PATH}/metrics", "--as=eve", code=1)).lower()
        )
        view = ("--clusterrole=view", "--user=eve", f"--namespace={c.namespace}")
        await kubectl("create", "rolebinding", "viewers", *view)

        async def may():
            try:
                return await kubectl("get", "--raw", path, "--as=eve")
            except AssertionError:
                return None

        assert await c.eventually(may, "the past of a namespace")
        forecast = f"{EXTERNAL}/namespaces/{c.namespace}/motley_forecast_cpu"
        assert "which workload?" in await kubectl("get", "--raw", forecast, "--as=eve", code=1)
        other = f"{EXTERNAL}/namespaces/default/motley_forecast_cpu"
        assert "forbidden" in (await kubectl("get", "--raw", other, "--as=eve", code=1)).lower()
        monitoring = ("--as=prometheus", "--as-group=system:monitoring")
        assert "motley_node" in await kubectl("get", "--raw", f"{PATH}/metrics", *monitoring)
        for wrong in ("step=soon", "aggregation=most", "from=-1h&to=-2h"):
            assert "BadRequest" in await kubectl("get", "--raw", f"{path}?{wrong}", code=1)
        assert "NotFound" in await kubectl("get", "--raw", f"{path}x", code=1)


async def test_the_past_survives_the_death_of_the_server(tmp_path, eventually, shared_server):
    server = type(shared_server)(tmp_path, store="sqlite", flags=SERVER_FLAGS)
    try:
        await server.start()
        async with server.client() as client:
            node = {
                "metadata": {"name": "n-1", "annotations": {"motley.io/fake": "true"}},
            }
            await client.create(Node, node)

            async def nodes():
                found = await client.raw("GET", f"{PATH}/nodes", params={"step": "10s"})
                return [v for i in found["items"] for v in i["series"][0]["cpu"] if v is not None]

            await eventually(nodes, "a sample")
            server.kill()
            server.flags = ("--metrics-every-s", "3600")  # nothing new for an hour
            await server.start()
            assert (await eventually(lambda: _listed(client), "the ring"))[0] == "n-1"
            assert await nodes()
    finally:
        server.kill()


async def _listed(client):
    try:
        found = await client.raw("GET", f"{PATH}/nodes")
    except status.ServiceUnavailable:
        return None
    return [item["metadata"]["name"] for item in found["items"]]
