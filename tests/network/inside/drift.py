"""A syncer without any Service that looks for drift ten times a second."""

import asyncio

from motley.network.proxy.layout import Settings
from motley.network.proxy.nftables import Nft
from motley.network.proxy.syncer import Syncer


class Nothing:
    def keys(self):
        return ()

    def service(self, key):
        return None

    def slices(self, key):
        return ()


async def main():
    syncer = Syncer(Nft(), "motley", Settings("node-1"), Nothing(), drift_s=0.1)
    await syncer.sync()
    print("ready", flush=True)
    await syncer.run()


asyncio.run(main())
