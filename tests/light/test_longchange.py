"""Long changes of the books in a running client: other tasks and timers get their turns, and calls wait for commits."""

from __future__ import annotations

import asyncio

import pytest

from spvfilter import LightClient
from spvfilter.light.engine import longchange
from spvfilter.light.engine.effects import Effect, Wake
from spvfilter.light.engine.inputs import Committed, Input, Instant, Tick
from spvfilter.node.server import Node
from support.blocks.build import TxIn, TxOut, tx
from support.blocks.locks import LOCKS, STRANGER, build_tx
from support.client.engineparts import engine_of, queue_of, running_of
from support.client.lightworld import World, running


async def test_an_abandoned_transaction_is_stored_after_a_long_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node) as run:
        world.receive(LOCKS[0], 50_000)
        world.regtest.mine()
        await run.synced(world)
        (coin,) = await run.client.coins()
        raw = build_tx([LOCKS[0].spends(coin.outpoint, coin.value)], [STRANGER.pays(49_000)])
        txid = (await run.client.broadcast(raw)).txid
        await run.until(lambda books: books.waiting() == {txid})
        monkeypatch.setattr(longchange, "AT_ONCE", 1)
        queue_of(engine_of(run.client)).put(
            tx([TxIn(bytes([1]) * 32, 0)], [TxOut(1_000, LOCKS[1].script_pubkey)] * 300), "a group"
        )
        await run.client.abandon(txid)
        assert (await run.client.balance()).spendable == 50_000


async def test_inputs_in_each_turn_let_a_due_tick_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    world, taken = World(), list[Input]()

    def step(event: Input, now: Instant) -> list[Effect]:
        taken.append(event)
        return [Wake(now.monotonic)]

    async with LightClient(world.watch(), peers=["127.0.0.1:1"]) as client:
        running = running_of(client)
        monkeypatch.setattr(running.engine, "step", step)
        for _ in range(100):  # a peer that sends without a pause
            running.feed(Committed(-1))
            await asyncio.sleep(0)
    assert sum(isinstance(each, Tick) for each in taken) > 50
