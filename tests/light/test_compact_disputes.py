"""Disputes over compact filters that no block decides: no honest peer is banned, no payment is hidden, and silent peers
do no harm.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from spvfilter.filters.bip158 import basic_data, filter_elements
from spvfilter.hashes import hash160
from spvfilter.light.engine.filterheaders import MAX_UNDECIDED
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import SIGNATURE, Lock, p2tr, push
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint
from spvfilter.wire.messages.inventory import GetHeaders
from spvfilter.wire.session import Session
from support.lightworld import FAST, STRANGER, Run, World, running, where
from support.locks import build_tx

ANYBODY = p2tr(sha256(b"anybody").digest())
# 33 bytes that look like a public key; a valid P2SH redeem script
REDEEM = bytes.fromhex("02aabb7575") + b"\x61" * 27 + b"\x51"
LOOKALIKE = Lock(b"\xa9\x14" + hash160(REDEEM) + b"\x87", push(SIGNATURE) + push(REDEEM))


@dataclass
class Lie:
    """Elements that a liar adds to its filters or removes from them, by height."""

    more: dict[int, bytes] = field(default_factory=dict)
    fewer: dict[int, set[bytes]] = field(default_factory=dict)

    def responder(self) -> type[Responder]:
        lie = self

        class Index(FilterIndex):
            def build(self, block: TreeBlock) -> bytes:
                outputs = [out.script_pubkey for tx in self.chain.txs(block) for out in tx.outputs]
                elements = filter_elements(outputs, [coin.script_pubkey for coin in (block.spent or {}).values()])
                more = {lie.more[block.height]} if block.height in lie.more else set()
                return basic_data(block.hash, (elements | more) - lie.fewer.get(block.height, set()))

        class Liar(Responder):
            def __init__(self, regtest: Regtest, session: Session) -> None:
                super().__init__(regtest, session)
                self.filters = Index(regtest.chain)

        return Liar


def transfer(world: World, lock: Lock) -> int:
    """Spend a foreign coin to an output with the same lock, so that a filter of the block could have one more element.
    Return the height.
    """
    coin = world.regtest.pay(lock.pays(1_000_000))
    world.regtest.mine()
    world.regtest.submit_tx(build_tx([lock.spends(OutPoint(coin, 0))], [lock.pays(999_000)]))
    world.regtest.mine()
    return world.regtest.height


def hidden_payment(world: World) -> tuple[int, set[bytes]]:
    """Mine a block that pays the wallet. Return its height and the elements that a liar omits from its filter."""
    world.regtest.mine(3)
    world.receive(world.locks[1], 50_000_000)
    world.regtest.mine()
    at = world.regtest.height
    world.regtest.mine(3)
    return at, {lock.script_pubkey for lock in world.locks}


async def finds_all(run: Run, world: World, liar: Node) -> None:
    """Wait until every payment is found and the liar is banned. No honest peer may be banned."""
    wanted = world.scan()
    await run.until(
        lambda books: books.synced and books.confirmed() == wanted and any(warning.banned for warning in books.warnings)
    )
    assert {warning.address for warning in run.books.warnings if warning.banned} == {where(liar)}


@pytest.mark.few(2)
@pytest.mark.parametrize("honest", [1, 7])
@pytest.mark.parametrize("liar_first", [True, False])
async def test_a_false_element_hides_no_payment_in_a_later_block(honest: int, liar_first: bool) -> None:
    world = World(3)
    odd = transfer(world, ANYBODY)
    lie = Lie({odd: b"\x00\x14" + b"bogus element here!!"}, dict([hidden_payment(world)]))
    async with AsyncExitStack() as stack:
        liar = await stack.enter_async_context(Node(world.regtest, responder=lie.responder()))
        others = [await stack.enter_async_context(Node(world.regtest)) for _ in range(honest)]
        async with running(
            world, *([liar, *others] if liar_first else [*others, liar]), limits=FAST, mode="compact"
        ) as run:
            await finds_all(run, world, liar)


@pytest.mark.parametrize("liar_first", [True, False])
async def test_an_ambiguous_script_of_an_input_bans_no_peer(liar_first: bool) -> None:
    world = World(3)
    coin = world.regtest.pay(LOOKALIKE.pays(1_000_000))
    world.regtest.mine()
    world.regtest.submit_tx(build_tx([LOOKALIKE.spends(OutPoint(coin, 0))], [STRANGER.pays(999_000)]))
    world.regtest.mine()
    odd = world.regtest.height
    at, scripts = hidden_payment(world)
    lie = Lie({odd: b"\x76\xa9\x14" + hash160(REDEEM) + b"\x88\xac"}, {odd: {LOOKALIKE.script_pubkey}, at: scripts})
    async with AsyncExitStack() as stack:
        liar = await stack.enter_async_context(Node(world.regtest, responder=lie.responder()))
        others = [await stack.enter_async_context(Node(world.regtest)) for _ in range(7)]
        async with running(
            world, *([liar, *others] if liar_first else [*others, liar]), limits=FAST, mode="compact"
        ) as run:
            await finds_all(run, world, liar)


async def test_an_undecided_spend_is_found_by_the_disputed_block() -> None:
    """The coin is older than the search. The liar's filters omit its spend, and no block refutes these filters."""
    world = World(3)
    world.receive(world.locks[1], 50_000_000)
    world.regtest.mine()
    world.spend()
    world.regtest.mine()
    world.regtest.mine(2)
    lie = Lie(
        fewer={height: {lock.script_pubkey for lock in world.locks} for height in range(world.regtest.height + 1)}
    )
    async with AsyncExitStack() as stack:
        liar = await stack.enter_async_context(Node(world.regtest, responder=lie.responder()))
        honest = await stack.enter_async_context(Node(world.regtest))
        async with running(world, liar, honest, limits=FAST, mode="compact") as run:
            wanted = world.scan()
            await run.until(lambda books: books.synced and books.confirmed() == wanted)
            assert where(honest) not in {warning.address for warning in run.books.warnings if warning.banned}


@pytest.mark.few(1)
@pytest.mark.parametrize("liar_first", [True, False])
async def test_a_repeated_disputer_is_dropped_and_hides_nothing(liar_first: bool) -> None:
    world = World(3)
    odd = [transfer(world, ANYBODY) for _ in range(MAX_UNDECIDED + 5)]
    lie = Lie(dict.fromkeys(odd, b"\x00\x14" + b"bogus element here!!"), dict([hidden_payment(world)]))
    async with AsyncExitStack() as stack:
        liar = await stack.enter_async_context(Node(world.regtest, responder=lie.responder()))
        others = [await stack.enter_async_context(Node(world.regtest, f"127.{at}.0.1")) for at in (1, 2, 3)]
        async with running(
            world, *([liar, *others] if liar_first else [*others, liar]), limits=FAST, mode="compact"
        ) as run:
            wanted = world.scan()
            await run.until(
                lambda books: (
                    books.synced
                    and books.confirmed() == wanted
                    and any(warning.address == where(liar) for warning in books.warnings)
                )
            )
            assert not [warning for warning in run.books.warnings if warning.banned]
            assert run.books.synced is not None
            assert run.books.synced.disputed


class Mute(Responder):
    """Completes the handshake and then sends nothing."""

    mute = False

    def on_getheaders(self, asked: GetHeaders) -> None:
        self.mute = True

    def step(self) -> bool:
        return not self.mute and super().step()


@pytest.mark.few(2)
@pytest.mark.parametrize("mutes", [1, 3])
@pytest.mark.parametrize("mode", ["compact", "auto"])
async def test_silent_peers_do_not_stop_the_client(mutes: int, mode: str) -> None:
    world = World(4)
    async with AsyncExitStack() as stack:
        honest = await stack.enter_async_context(Node(world.regtest))
        silent = [await stack.enter_async_context(Node(world.regtest, responder=Mute)) for _ in range(mutes)]
        async with running(world, honest, *silent, limits=FAST, mode=mode) as run:
            for _ in range(3):
                world.receive()
                world.regtest.mine()
                wanted = world.scan()
                # a lambda's default has no type
                await run.until(lambda books, wanted=wanted: books.confirmed() == wanted)  # type: ignore[misc]
