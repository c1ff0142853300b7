"""A light client as a process of its own, to be killed: python lightprocess.py HOST:PORT DATABASE SCRIPT..."""

from __future__ import annotations

import asyncio
import sys

from spvfilter.aio.client import Limits
from spvfilter.aio.events import BlockConnected
from spvfilter.aio.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.watch import WatchList


async def main(address: str, path: str, *scripts: str) -> None:
    """Follow the chain, and write a dot for each block and the like, until killed."""
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(bytes.fromhex(script))
    async with LightClient(watch, peers=[address], store=path, limits=Limits(flight=10)) as client:
        print("ready", flush=True)
        async for event in client.events():
            if isinstance(event, BlockConnected):
                print(".", end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
