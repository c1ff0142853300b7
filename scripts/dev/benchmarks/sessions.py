"""The Electrum server under load: 100 sessions with 1,000 subscriptions each, their answers, and a block."""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from measure import Row

from spvfilter import LightClient, Node, TxOut, WatchList
from spvfilter.electrum import ElectrumServer
from spvfilter.electrum.histories import Histories
from spvfilter.store.scriptviews import OutputEffect, TxEffects

_SESSIONS, _SCRIPTS, _PAID, _LONG = 100, 1_000, 50, 10_000
_METHODS = ("subscribe", "get_history", "get_balance", "listunspent")


def electrum(_: Path, rounds: int) -> list[Row]:
    """Measure the server in a process of its own. The sessions are in this process."""
    words = [sys.executable, __file__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            return asyncio.run(_measured(child, rounds))
        finally:
            child.kill()


def _script(number: int) -> bytes:
    return b"\x00\x14" + number.to_bytes(20, "big")


_HASHES = [hashlib.sha256(_script(number)).digest()[::-1].hex() for number in range(_SCRIPTS)]


class _Session:
    """One connection: its answers, and the notifications that are due."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.number = 0

    async def ask(self, method: str, *arguments: object) -> float:
        """Send a request, and return the time until its answer in milliseconds."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": arguments}
        begun = time.perf_counter()
        self._writer.write(json.dumps(request).encode() + b"\n")
        while json.loads(await self._reader.readline()).get("id") != self.number:
            pass
        return (time.perf_counter() - begun) * 1e3

    async def subscribe(self) -> None:
        await self.ask("server.version", "bench", "1.4")
        await self.ask("blockchain.headers.subscribe")
        method = "blockchain.scripthash.subscribe"
        for first in range(0, _SCRIPTS, 100):
            batch = [
                {"id": each, "method": method, "params": [script_hash]}
                for each, script_hash in enumerate(_HASHES[first : first + 100])
            ]
            self._writer.write(json.dumps(batch).encode() + b"\n")
            await self._reader.readline()

    async def notices(self, count: int) -> None:
        """Wait until a number of notifications has come."""
        while count:
            count -= "method" in json.loads(await self._reader.readline())


async def _measured(child: subprocess.Popen[bytes], rounds: int) -> list[Row]:
    assert child.stdin is not None
    assert child.stdout is not None
    port = int(child.stdout.readline())
    sessions = [_Session(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)) for _ in range(_SESSIONS)]
    begun = time.perf_counter()
    await asyncio.gather(*(each.subscribe() for each in sessions))
    subscribed = (time.perf_counter() - begun) * 1e3
    alone = [
        await session.ask(f"blockchain.scripthash.{_METHODS[number % 4]}", _HASHES[number * 7 % _SCRIPTS])
        for number, session in enumerate(sessions * 5)
    ]

    async def some(session: _Session) -> list[float]:
        return [await session.ask("blockchain.scripthash.get_history", each) for each in _HASHES[:20]]

    together = [each for found in await asyncio.gather(*map(some, sessions)) for each in found]
    blocks = []
    for _ in range(rounds):
        child.stdin.write(b"pay\n")  # one notification for each script
        child.stdin.flush()
        await asyncio.gather(*(each.notices(_PAID) for each in sessions))
        begun = time.perf_counter()
        child.stdin.write(b"mine\n")  # and one for the header
        child.stdin.flush()
        await asyncio.gather(*(each.notices(_PAID + 1) for each in sessions))
        blocks.append(time.perf_counter() - begun)
    return [
        Row("100 sessions subscribe to 1,000 scripts each, ms", subscribed, 10_000, "10 s"),
        Row("an answer with 100 sessions, median ms", statistics.median(alone), 5, "5 ms", 1),
        Row("an answer while 100 sessions ask, median ms", statistics.median(together), 5, "5 ms"),
        Row("a block's notifications to 100 sessions, s", statistics.median(blocks), 0.2, "0.2 s", 1),
        Row("a payment to a script of 10,000 transactions, processor ms", min(_payments(rounds)), 1, "1 ms", 1),
    ]


def _payments(rounds: int) -> Iterator[float]:
    """Measure how long a script's status takes after a payment, in processor time of this process."""
    histories = Histories()

    def paid(number: int) -> TxEffects:
        txid = hashlib.sha256(b"%d" % number).digest()
        return TxEffects(txid, number, 0, (OutputEffect(_script(0), txid + bytes(4), 5_000, is_spend=False),))

    histories.replace(map(paid, range(_LONG)))
    for number in range(_LONG, _LONG + rounds):
        begun = time.process_time()
        histories.replace([paid(number)], [])
        histories.status(_HASHES[0])
        yield (time.process_time() - begun) * 1e3


async def _serve() -> None:
    """Run a node, a client and the server. Carry out the commands of standard input."""
    watch = WatchList("regtest")
    for number in range(_SCRIPTS):
        watch.add_script(_script(number))
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node())
        node.regtest.mine(110)
        node.regtest.pay(*(TxOut(5_000, _script(number)) for number in range(_SCRIPTS)))
        node.regtest.mine()
        peers = [f"{node.host}:{node.port}"]
        client = await stack.enter_async_context(LightClient(watch, peers=peers, mode="compact"))
        await client.wait_synced()
        server = await stack.enter_async_context(ElectrumServer(client, port=0))
        print(server.port, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "pay\n":
                node.regtest.pay(*(TxOut(5_000, _script(number)) for number in range(_PAID)))
            else:
                node.regtest.mine()


if __name__ == "__main__":
    asyncio.run(_serve())
