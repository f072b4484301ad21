"""Certificates of a machine that has joined: listed, and asked for again before their time.

There is no authority here. The agent renews its certificates by itself when most of their life is
over (`node.rotation`); who cannot wait asks the cluster in the same way, in the node's own name. A
new authority, too, reaches a machine so.

Invariant: a file is replaced only by one with a certificate that the cluster has signed.
"""

from collections.abc import Sequence
from pathlib import Path

from motley.apiserver import rotation, tls
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import clock
from motley.node import bootstrap, csr
from motley.node.rotation import RenewalError
from motley.ops.config import Config
from motley.ops.failure import Failure

NODE, PROXY, SERVING = "node.kubeconfig", "proxy.kubeconfig", "node-serving.pem"
NAMES = (NODE, PROXY, SERVING)


def _file(config: Config, name: str) -> Path:
    return config.root / "pki" / name


def listed(config: Config) -> list[rotation.Listed]:
    """Those that the cluster has given to this machine."""
    found = []
    for name in (NODE, PROXY):
        if (pair := tls.pair_of(_file(config, name))) is not None:
            found += rotation.listed(name, _file(config, name), pair[0])
    serving = _file(config, SERVING)
    if serving.exists():
        found += rotation.listed(SERVING, serving, serving.read_bytes())
    return found


async def renew(
    config: Config, names: Sequence[str], source: clock.Clock = clock.SYSTEM
) -> list[str]:
    """Ask the cluster for certificates again; those named, or all. Raises Failure."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise Failure(f"there is no certificate {unknown[0]}", f"There are {', '.join(NAMES)}.")
    wanted = [name for name in NAMES if not names or name in names]
    try:
        known = kubeconfig.load(_file(config, NODE))
        async with Client(known, user_agent="motley-certs", clock=source) as client:
            for name in wanted:
                await _renew(config, name, client, source)
    except (kubeconfig.ConfigError, RenewalError) as error:
        raise Failure(str(error), "Is the node a member of the cluster? kubectl get csr") from None
    return wanted


async def _renew(config: Config, name: str, client: Client, source: clock.Clock) -> None:
    path = _file(config, name)
    if name == NODE:
        await bootstrap.ClientIdentity(
            path, None, csr.node_client(config.node_name), clock=source
        ).renew(client)
    elif name == PROXY:
        # In the node's name, as the proxy itself does: a certificate of its own is no ground to
        # get another.
        identity = bootstrap.ClientIdentity(
            path, _file(config, NODE), csr.proxy_client(), clock=source, renews_itself=False
        )
        async with Client(kubeconfig.load(path), clock=source) as proxy:
            await identity.renew(proxy)
    else:
        wanted = csr.node_serving(config.node_name, [config.node_ip])
        ca = client.config.ca or b""
        await bootstrap.ServingIdentity(path, wanted, ca, clock=source).renew(client)
