"""Blocking of the event loop by a wallet of many keychains, and by a wallet of many payments.

Each row of a phase is the longest processor time of the loop's thread between two turns in that phase. The lag on the
clock also has the time in which another thread holds the GIL, and other load of the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from measure import Row, record_lag

from spvfilter import LightClient, WatchList
from spvfilter.light import Mode
from spvfilter.node import Node, Regtest
from spvfilter.primitives import TxOut

_KEYCHAINS = 4_000
_PAYMENTS = 10_000
_PER_BLOCK = 100
_IN_BLOCK = 3_000
_ADDRESSES = 1_000
_ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
_LAG = "longest lag of the loop on the clock, in both runs, ms"
_CALLS = 20  # the best of which counts
_GOAL_TURN_MS = 20
_GOAL_ADDRESS_MS = 1
_GOAL_REVEAL_MS = 1.0
_GOAL_START_MS = 1_000
_GOAL_LEAVE_MS = 200

Phase = Callable[[LightClient], Awaitable[object]]


def _script(keychain: int, index: int) -> bytes:
    digest = hashlib.sha256(keychain.to_bytes(4, "little") + index.to_bytes(4, "little")).digest()
    return b"\x00\x14" + digest[:20]


def _serve(payments: int, pipe: Connection) -> None:
    """Run a node whose blocks pay the first keychain, in a process of its own."""
    regtest = Regtest()
    regtest.mine(101)
    for number in range(payments):
        regtest.pay(TxOut(1_000 + number, _script(0, number % _ADDRESSES)))
        if number % _PER_BLOCK == _PER_BLOCK - 1:
            regtest.mine()

    async def serve() -> None:
        async with Node(regtest) as node:
            pipe.send((node.port, regtest.height))
            while scripts := await asyncio.to_thread(pipe.recv):
                for each in scripts:
                    regtest.pay(*(TxOut(1_000, script) for script in each))
                regtest.mine()
                pipe.send(regtest.height)

    asyncio.run(serve())


def loop(_: Path, rounds: int) -> list[Row]:
    """Measure both wallets, in a first run and after a restart."""
    many_keychains = _rows(rounds, f"{_KEYCHAINS:,} keychains", _KEYCHAINS, 20, 0)
    return many_keychains + _rows(rounds, f"{_PAYMENTS:,} payments", 1, _ADDRESSES, _PAYMENTS)


def _rows(rounds: int, title: str, keychains: int, lookahead: int, payments: int) -> list[Row]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(payments, theirs), daemon=True)
    server.start()
    port, _ = ours.recv()
    try:
        runs = [asyncio.run(_measured(port, ours, keychains, lookahead)) for _ in range(min(rounds, 3))]
    finally:
        ours.send(None)
        server.join()
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    goals = {
        _LAG: None,
        "start again until synced, processor ms": _GOAL_START_MS if payments else None,
        "leave for the first time, processor ms": _GOAL_LEAVE_MS,
        "next_address(), ms": _GOAL_ADDRESS_MS,
        "reveal_address(), processor ms": _GOAL_REVEAL_MS,
    }
    rows = []
    for name, taken in best.items():
        goal = goals.get(name, _GOAL_TURN_MS)
        rows.append(
            Row(f"{title}: {name}", taken, goal or 1_000, "goal" if goal else "1 second", 1.0 if goal else None)
        )
    return rows


async def _measured(port: int, node: Connection, keychains: int, lookahead: int) -> dict[str, float]:
    """Measure two runs of a client on a new database. `node` takes the scripts that each payment of a block pays."""
    watch, found, delays = WatchList("regtest"), dict[str, float](), list[float]()
    for number in range(keychains):
        with watch.within_account("shop" if number == 1 else None):
            watch.add_keychain(f"chain {number}", partial(_script, number), f"label {number}", lookahead=lookahead)
    sleeper = asyncio.ensure_future(record_lag(delays))
    with tempfile.TemporaryDirectory() as folder:
        for run in ("first run", "restart"):
            client = LightClient(
                watch, peers=[f"127.0.0.1:{port}"], store=Path(folder) / "wallet.db", mode=Mode.COMPACT
            )
            begun = time.process_time()
            found[f"longest turn, enter, {run}, ms"] = await _longest(client.__aenter__())
            found[f"longest turn, sync, {run}, ms"] = await _longest(client.wait_synced())
            if run == "restart":
                found["start again until synced, processor ms"] = (time.process_time() - begun) * 1e3
                found |= await _views(client, keychains)
                found |= await _blocks(client, node, keychains)
                if keychains > 1:
                    found["longest turn, remove_account(), ms"] = await _longest(client.remove_account("shop"))
            begun = time.process_time()
            found[f"longest turn, leave, {run}, ms"] = await _longest(client.__aexit__(None, None, None))
            if run == "first run":
                found["leave for the first time, processor ms"] = (time.process_time() - begun) * 1e3
    sleeper.cancel()
    return found | {_LAG: max(delays)}


async def _views(client: LightClient, keychains: int) -> dict[str, float]:
    phases: dict[str, Phase] = {
        "coins()": lambda client: client.coins(),
        "history(limit=None)": lambda client: client.history(limit=None),
        "matches()": lambda client: client.matches(),
        "keychains()": lambda client: client.keychains(),
        "balance() of a keychain": lambda client: client.balance(keychain="chain 0"),
        "add_address()": lambda client: client.add_address(_ADDRESS),
        "remove()": lambda client: client.remove(_ADDRESS),
    }
    found = {f"longest turn, {name}, ms": await _longest(phase(client)) for name, phase in phases.items()}
    times: list[float] = []
    for _ in range(_CALLS):
        begun = time.perf_counter()
        await client.next_address(f"label {keychains - 1}")
        times.append((time.perf_counter() - begun) * 1e3)
    begun = time.process_time()
    for _ in range(_CALLS):
        await client.reveal_address(f"label {keychains - 1}")
    revealed = (time.process_time() - begun) * 1e3 / _CALLS
    return found | {"next_address(), ms": min(times), "reveal_address(), processor ms": revealed}


async def _blocks(client: LightClient, node: Connection, keychains: int) -> dict[str, float]:
    """Measure blocks with many payments to the wallet."""
    scripts = [_script(number % keychains, number // keychains) for number in range(_IN_BLOCK)]
    blocks = {"one payment of 3,000 outputs": [scripts], "3,000 payments": [[script] for script in scripts]}
    found = dict[str, float]()
    for name, paid in blocks.items():
        node.send(paid)
        height = await asyncio.to_thread(node.recv)

        async def come(height: int = height) -> None:
            while client.tip_height < height:  # noqa: ASYNC110  no event of the client tells it
                await asyncio.sleep(0.01)
            await client.wait_synced()

        found[f"longest turn, a block with {name}, ms"] = await _longest(come())
    return found


async def _longest(phase: Awaitable[object]) -> float:
    """Await something, and return the longest processor time of the loop's thread between two turns, in milliseconds.

    Processor time is what callbacks take by themselves. Other load of the machine has little effect on it.
    """
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            begun = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, (time.thread_time() - begun) * 1e3)

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    await phase
    await asyncio.sleep(0.005)  # a last callback counts as well
    beating.cancel()
    return longest
