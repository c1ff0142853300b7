"""The block of a match: its time, coinbase and completeness, live, after a restart or reorganization, and in views."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.node.server import Node
from spvfilter.wallet.events import MatchUnconfirmed
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness
from support.client.lightworld import LOCKS, START, World, running


@pytest.mark.parametrize(("mode", "certainty"), [("bip37", Completeness.UNPROVEN), ("compact", Completeness.ONE_PEER)])
async def test_a_match_tells_of_its_block(mode: str, certainty: Completeness, tmp_path: Path) -> None:
    world, path = World(), tmp_path / "w.db"
    world.regtest.mine(to=LOCKS[0].script_pubkey, time=START + 600)
    coinbase = world.regtest.chain.txs(world.regtest.chain.tip)[0].txid
    txid = world.receive(LOCKS[0], 50_000)
    async with Node(world.regtest) as node:
        async with running(world, node, mode=mode, store=path) as run:
            await run.until(lambda books: txid in books.waiting())
            (pending,) = (match for match in run.books.matches.values() if match.txid == txid)
            assert (pending.time, pending.is_coinbase, pending.completeness) == (None, False, None)
            world.regtest.mine(time=START + 700)
            books = await run.synced(world)
            assert {
                (match.txid, match.time, match.is_coinbase, match.completeness) for match in books.matches.values()
            } == {
                (coinbase, START + 600, True, certainty),
                (txid, START + 700, False, certainty),
            }
            coins = {
                bytes(coin.outpoint)[:32]: (coin.time, coin.is_coinbase, coin.completeness)
                for coin in await run.client.coins()
            }
            assert coins == {coinbase: (START + 600, True, certainty), txid: (START + 700, False, certainty)}
            known = books.matches
        async with running(world, node, mode=mode, store=path) as run:
            again = [found.match for found in await run.client.matches()]
            assert again == sorted(known.values(), key=lambda match: match.height or 0)
            assert {match.completeness for match in again} == {certainty}
            await run.synced(world)
            for match in again:
                run.books.matches[str(match.kind), match.txid, match.index] = match
            world.regtest.reorg(1)
            await run.until(lambda books: books.waiting())
            (gone,) = (event.match for event in run.books.events if isinstance(event, MatchUnconfirmed))
            assert (gone.txid, gone.time, gone.height) == (txid, START + 700, 103)
            assert not run.books.withdrawn
    with WalletStore.open(path) as wallet:
        (pending_coin,) = (coin for coin in wallet.coins() if bytes(coin.outpoint)[:32] == txid)
        assert (pending_coin.time, pending_coin.completeness) == (None, None)
        assert [entry.completeness for entry in wallet.history()] == [None, certainty]
