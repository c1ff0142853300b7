"""Delivery: a short run waits until nodes have requested the wallet's own transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from spvfilter.light import LightClient
from spvfilter.primitives import hash_to_hex

DELIVER_S = 10.0
"""Longest time that a run waits (our choice). Core requests a transaction 2 s after it is announced."""
LOOK_S = 0.2  # time between two checks (our choice)
_MOST_NAMED = 3


async def deliver(client: LightClient, tell: Callable[[str], None], besides: Collection[bytes] = ()) -> None:
    """Wait up to `DELIVER_S` seconds until a node has requested or knows each of the wallet's pending transactions.

    Args:
        client: The client.
        tell: Called with a sentence if transactions are still waiting.
        besides: Txids of transactions that the run does not wait for.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + DELIVER_S
    while unsent := [txid for txid in (await client.status()).unsent if txid not in besides]:
        if loop.time() >= until:
            break
        await asyncio.sleep(LOOK_S)
    if unsent:
        named = ", ".join(map(hash_to_hex, unsent[:_MOST_NAMED])) + (", …" if len(unsent) > _MOST_NAMED else "")
        told = "1 transaction is waiting for a node to request it; the next run announces it again"
        if (number := len(unsent)) > 1:
            told = f"{number:,} transactions are waiting for a node to request them; the next run announces them again"
        tell(f"{told}: {named}")
