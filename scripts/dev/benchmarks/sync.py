"""First synchronization of a light client from the embedded node, which runs in a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from measure import Row, p99, record_lag

from spvfilter import LightClient, Node, Synced, WatchList
from spvfilter.light import Mode
from spvfilter.node import Regtest, scripts
from spvfilter.primitives import TxOut

_BLOCKS = 2_000
_TXS = 20  # in each block
_RELEVANT = 100  # one transaction in this many pays the wallet
_HEADERS = 20_000
_KEY = b"\x02" + b"\x11" * 32


def _serve(blocks: int, txs: int, pipe: Connection) -> None:
    """Run a node with `blocks` blocks of `txs` payments each, in a separate process."""
    regtest = Regtest()
    regtest.mine(101 if txs else blocks)
    mine = scripts.p2wpkh(_KEY).script_pubkey
    source = random.Random(1)
    kinds = (scripts.p2pkh, scripts.p2wpkh, scripts.p2tr, scripts.p2pk)
    for number in range(blocks if txs else 0):
        for each in range(txs):
            key = b"\x02" + source.randbytes(32)
            kind = kinds[each % len(kinds)]
            script = kind(key[1:] if kind is scripts.p2tr else key).script_pubkey
            regtest.pay(TxOut(1_000, mine if (number * txs + each) % _RELEVANT == 0 else script))
        regtest.mine()
    answer(regtest, pipe)


def answer(regtest: Regtest, pipe: Connection) -> None:
    """Run a node with this chain until something is received. Its port and height are sent first."""

    async def serve() -> None:
        async with Node(regtest) as node:
            pipe.send((node.port, regtest.height))
            await asyncio.to_thread(pipe.recv)

    asyncio.run(serve())


def sync(_: Path, rounds: int) -> list[Row]:
    """Measure milliseconds per block or header. The goals are given per second."""
    (blocks, lag), (filters, filters_lag) = _measured(_BLOCKS, _TXS, rounds, Mode.BIP37, Mode.COMPACT)
    ((headers, _),) = _measured(_HEADERS, 0, 1, Mode.BIP37)
    return [
        Row(f"{_BLOCKS:,} blocks of {_TXS} transactions, ms each", blocks, 1 / 2, "goal: 2,000 a second", 1.0),
        Row("loop lag p99 meanwhile, ms", lag, 20.0, "goal", 1.0),
        Row(f"{_BLOCKS:,} compact filters of such blocks, ms each", filters, 1 / 3, "goal: 3,000 a second", 1.0),
        Row("loop lag p99 meanwhile, ms", filters_lag, 20.0, "goal", 1.0),
        Row(f"{_HEADERS:,} headers into the store, ms each", headers, 1 / 50, "goal: 50,000 a second", 1.0),
    ]


def _measured(blocks: int, txs: int, rounds: int, *modes: Mode) -> list[tuple[float, float]]:
    """Measure milliseconds per block, and the lag of the event loop, in each mode in turns."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(blocks, txs, theirs), daemon=True)
    server.start()
    port, height = ours.recv()
    try:
        runs = [[asyncio.run(_synchronise(port, height, txs, mode)) for mode in modes] for _ in range(min(rounds, 3))]
    finally:
        ours.send(None)
        server.join()
    return [(min(taken for taken, _ in run) / blocks, min(lag for _, lag in run)) for run in zip(*runs, strict=True)]


async def _synchronise(port: int, height: int, txs: int, mode: Mode) -> tuple[float, float]:
    """Measure the milliseconds to the tip, and the 99th percentile of how late the event loop wakes a sleeper."""
    watch = WatchList("regtest")
    watch.add_script(scripts.p2wpkh(_KEY).script_pubkey)
    delays: list[float] = []

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        first = 0 if txs else height + 1  # headers alone
        store = Path(folder) / "wallet.db"
        async with LightClient(watch, peers=[f"127.0.0.1:{port}"], store=store, from_height=first, mode=mode) as client:
            sleeper = asyncio.create_task(record_lag(delays))
            async for event in client.events():
                if isinstance(event, Synced):
                    break
            taken = (time.perf_counter() - start) * 1e3
            sleeper.cancel()
    return taken, p99(delays)
