"""Payments that some peers hide: other peers reveal them after a restart, in another mode, or after a new entry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.filters.bip37 import MatchedTx
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import BlockConnected
from spvfilter.watch.match import Completeness
from spvfilter.wire.messages import Message, table as wire
from spvfilter.wire.messages.inventory import InvItem, InvType
from spvfilter.wire.session import Session
from support.lightworld import FAST, LOCKS, World, key, running
from support.regtests import wake


class Omits(Responder):
    """Omits all matches from its filtered blocks."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [])


def paid(seed: int) -> World:
    """Return a chain with a payment that peers may hide."""
    world = World(seed)
    world.receive(LOCKS[1], 50_000_000)
    world.regtest.mine(4)
    return world


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_blocks_with_one_witness_are_checked_after_a_restart(mode: str, tmp_path: Path) -> None:
    world = paid(4)
    store = tmp_path / "wallet.db"
    async with Node(world.regtest, responder=Omits) as liar, Node(world.regtest) as one, Node(world.regtest) as other:
        async with running(world, liar, store=store) as run:
            await run.synced(world)
            assert not run.books.confirmed()
        world.regtest.mine()
        async with running(world, one, other, liar, store=store, mode=mode) as run:
            await run.until(lambda books: books.confirmed() == world.scan())


async def test_blocks_with_one_witness_are_checked_despite_a_new_entry() -> None:
    world = paid(5)
    async with Node(world.regtest) as absent:
        port = absent.port
    async with Node(world.regtest, responder=Omits) as liar, running(world, liar, f"127.0.0.1:{port}") as run:
        await run.synced(world)
        before = run.books.synced
        await run.client.add_script(p2wpkh(key(500)).script_pubkey, from_height=world.regtest.height)
        await run.until(lambda books: books.synced is not before)
        assert not run.books.confirmed()
        async with Node(world.regtest, port=port):
            await run.until(lambda books: books.confirmed() == world.scan())


class Holds(Responder):
    """Answers requests for headers only when it is released. Connections after that are answered at once."""

    is_free = False  # state of all connections

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.held: list[wire.GetHeaders] = []

    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        if self.is_free:
            super().on_getheaders(asked)
        else:
            self.held.append(asked)

    def free(self) -> None:
        """Answer all held requests."""
        for asked in self.held:
            self.on_getheaders(asked)


@pytest.mark.slow
async def test_two_early_liars_hide_nothing_from_six_honest_peers() -> None:
    class Holding(Holds):
        """A class with its own state."""

    world = paid(6)
    async with AsyncExitStack() as stack:
        liars = [await stack.enter_async_context(Node(world.regtest, responder=Omits)) for _ in range(2)]
        honest = [await stack.enter_async_context(Node(world.regtest, responder=Holding)) for _ in range(6)]
        run = await stack.enter_async_context(running(world, *liars, *honest, limits=replace(FAST, reply_s=30)))
        await run.until(lambda books: any(isinstance(event, BlockConnected) for event in books.events))
        assert not run.books.confirmed()
        Holding.is_free = True
        for node in honest:
            for responder in node.responders:
                assert isinstance(responder, Holds)
                responder.free()
            wake(node)
        for _ in range(3):
            world.receive(LOCKS[1])
            world.regtest.mine()
        await run.until(lambda books: books.confirmed() == world.scan())


class Invents(Responder):
    """Announces a fake payment and serves it on request."""

    raw = build_tx([TxIn(OutPoint(b"\x42" * 32, 0))], [LOCKS[1].pays(21_000_000 * 10**8)])

    def on_message(self, message: Message) -> None:
        tx = Transaction.parse(self.raw)
        match message:
            case wire.GetData(items) if any(item.hash in (tx.txid, tx.wtxid) for item in items):
                self.send(wire.Tx(self.raw))
            case wire.FilterLoad() | wire.GetHeaders():  # before and after it accepts announcements
                super().on_message(message)
                self.send(wire.Inv((InvItem(InvType.TX, tx.txid), InvItem(InvType.WTX, tx.wtxid))))
            case _:
                super().on_message(message)


@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_fake_payment_is_pending_and_one_host_proves_nothing(mode: str) -> None:
    world = paid(7)
    nodes = Node(world.regtest, responder=Invents), Node(world.regtest)
    async with nodes[0], nodes[1], running(world, *nodes, mode=mode) as run:
        await run.synced(world)
        await run.until(lambda books: books.waiting())
        balance = await run.client.balance()
        assert (balance.confirmed, balance.spendable) == (50_000_000, 50_000_000)
        assert balance.pending_in == 21_000_000 * 10**8
        assert run.books.synced is not None
        assert run.books.synced.proven_height == -1
        assert {match.completeness for match in await run.client.matches()} <= {
            Completeness.ONE_PEER,
            Completeness.UNPROVEN,
        }
