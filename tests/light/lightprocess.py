"""Light clients in child processes that tests kill: python lightprocess.py forks a client for each line of JSON.

Python, which is slow to start, starts only once. No thread and no loop exists before the fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from spvfilter.light.client import LightClient
from spvfilter.light.events import PeerWarning, Synced
from spvfilter.network import REGTEST
from spvfilter.p2p.limits import Limits
from spvfilter.watch.watchlist import WatchList


async def follow(address: str, path: str, scripts: list[str], options: dict[str, object]) -> None:
    """Follow the chain until killed. Writes an s for a synced event or a warning, and a dot for each other event."""
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(bytes.fromhex(script))
    # by name
    client = LightClient(watch, peers=[address], store=path, limits=Limits(flight=10, filters=10), **options)  # type: ignore[arg-type]
    async with client:
        async for event in client.events():
            os.write(1, b"s" if isinstance(event, Synced | PeerWarning) else b".")


def main() -> None:
    for line in sys.stdin:
        if not (child := os.fork()):
            asyncio.run(follow(**json.loads(line)))
        os.write(1, b"%d\n" % child)
        os.waitpid(child, 0)
        os.write(1, b"\nended\n")


if __name__ == "__main__":
    main()
