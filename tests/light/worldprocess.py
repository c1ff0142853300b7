"""A World with its node in a child process, so that the memory of the test's process is the client's: python
worldprocess.py SEED.

Prints the node's port; then, for each line it reads ("mempool", "mine", "reorg N" or "tip"), the tip.
"""

from __future__ import annotations

import asyncio
import sys

from spvfilter.node.server import Node
from support.client.lightworld import START, World

BLOCK_S = 600.0


async def main(seed: int) -> None:
    now = [float(START)]
    world = World(seed, clock=lambda: now[0])
    world.grow(10)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with Node(world.regtest) as node:
        print(node.port, flush=True)
        while order := (await reader.readline()).decode().split():
            match order:  # anything else changes nothing
                case ["mempool"]:
                    world.others(3)
                    world.receive()
                    while len(world.coins) > 5:
                        world.spend(change=world.rng.choice(world.locks) if world.rng.random() < 0.3 else None)
                case ["mine"]:
                    now[0] += BLOCK_S
                    world.regtest.mine()
                case ["reorg", depth]:
                    world.regtest.reorg(int(depth))
            print(world.regtest.chain.tip.hash.hex(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
