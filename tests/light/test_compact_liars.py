"""Peers that lie about compact filters: the client names each lie and finds the truth, in any order of peers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from spvfilter.errors import PeerError
from spvfilter.filters.bip158 import basic_data, filter_elements
from spvfilter.hashes import sha256d
from spvfilter.light.lies import Lie
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.watch.match import Completeness
from spvfilter.wire.messages.filters import CFHeaders, CFilter
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.lightworld import FAST, Books, Run, World, place, running, where
from support.regtests import wake

LIMITS = replace(FAST, filters=100)
LIED_ABOUT = 1_003  # height


@cache
def world() -> World:
    """Return a chain of more than a thousand blocks, so that there is a checkpoint, with payments at the end. Do not
    change it.
    """
    made = World(5, mature=1_001)
    made.grow(12, share=1)
    return made


class FalseIndex(FilterIndex):
    """Omits the wallet's scripts from the filter of one block, and makes headers that commit to it."""

    def build(self, block: TreeBlock) -> bytes:
        if block.height != LIED_ABOUT:
            return super().build(block)
        outputs, spent = (
            scripts_of(self.chain.txs(block)),
            [coin.script_pubkey for coin in (block.spent or {}).values()],
        )
        left_out = {lock.script_pubkey for lock in world().locks}
        assert left_out & {*outputs, *spent}
        return basic_data(block.hash, filter_elements(outputs, spent) - left_out)


def scripts_of(txs: list[Transaction]) -> list[bytes]:
    return [out.script_pubkey for tx in txs for out in tx.outputs]


class Omits(Responder):
    """Serves filters that fit its headers and lack the wallet's scripts."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.filters = FalseIndex(regtest.chain)


class EmptyIndex(FilterIndex):
    def build(self, block: TreeBlock) -> bytes:
        return b"\0"


class Empties(Omits):
    """Serves only empty filters, with headers that commit to them."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.filters = EmptyIndex(regtest.chain)


class Malformed(EmptyIndex):
    def build(self, block: TreeBlock) -> bytes:
        return super(EmptyIndex, self).build(block) if block.height < LIED_ABOUT else b"\x05\x01"


class Truncates(Omits):
    """Serves malformed filters, with headers that commit to them."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.filters = Malformed(regtest.chain)


class SendsWrongFilters(Responder):
    def send(self, message: Message) -> None:
        if isinstance(message, CFilter):
            message = replace(message, data=b"\0")
        super().send(message)


class TellsWrongHeaders(Responder):
    """States filter hashes of no filter, but serves true filters."""

    def send(self, message: Message) -> None:
        if isinstance(message, CFHeaders):
            message = replace(message, filter_hashes=(*message.filter_hashes[:-1], sha256d(message.filter_hashes[-1])))
        super().send(message)


class CutsHeaders(Responder):
    def send(self, message: Message) -> None:
        if isinstance(message, CFHeaders):
            message = replace(message, filter_hashes=message.filter_hashes + message.filter_hashes[-1:])
        super().send(message)


class SendsUnasked(Responder):
    def send(self, message: Message) -> None:
        super().send(message)
        if isinstance(message, CFHeaders):
            super().send(CFilter(0, b"\x01" * 32, b"\0"))


class Slow(Responder):
    """Honest, but withholds filter headers until it is released."""

    release = False

    def _answer_filters(self) -> bool:
        return self.release and super()._answer_filters()


LIARS: list[tuple[type[Responder], set[Lie]]] = [
    (Omits, {Lie.FALSE_FILTER_HEADER}),
    (Empties, {Lie.FALSE_FILTER_HEADER}),
    (Truncates, {Lie.FALSE_FILTER_HEADER}),
    (SendsWrongFilters, {Lie.FALSE_FILTER}),
    (TellsWrongHeaders, {Lie.FALSE_FILTER, Lie.CONTRADICTION}),
    (CutsHeaders, {Lie.UNASKED_FILTER}),
    (SendsUnasked, {Lie.UNASKED_FILTER}),
]


def causes(books: Books) -> dict[str, str]:
    """Return the cause of each ban, by the address of the peer."""
    return {warning.address: getattr(warning.error, "cause", "") for warning in books.warnings if warning.banned}


async def truth(run: Run, liars: int) -> Books:
    """Wait until the true matches are found and every liar is banned."""
    wanted = world().scan()
    await run.until(lambda books: books.confirmed() == wanted and len(causes(books)) >= liars and books.synced)
    return run.books


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("responder", "names"), LIARS, ids=lambda value: value.__name__ if isinstance(value, type) else ""
)
@pytest.mark.parametrize("liar_first", [True, False])
async def test_a_liar_is_banned_for_its_lie(responder: type[Responder], names: set[Lie], liar_first: bool) -> None:
    made = world()
    async with Node(made.regtest) as honest, Node(made.regtest, responder=responder) as liar:
        peers = (liar, honest) if liar_first else (honest, liar)
        async with running(made, *peers, limits=LIMITS, mode="compact") as run:
            if responder is SendsWrongFilters and not liar_first:
                await run.until(lambda books: books.synced)  # the liar may never receive a request for a filter
            else:
                await truth(run, 1)
            assert run.books.confirmed() == made.scan()
            assert set(causes(run.books)) <= {where(liar)}
            assert set(causes(run.books).values()) <= names


@pytest.mark.slow
async def test_one_honest_peer_of_eight_wins() -> None:
    made = world()
    responders = ([responder for responder, _ in LIARS if responder is not SendsWrongFilters] * 3)[:7]
    async with AsyncExitStack() as stack:
        liars = [await stack.enter_async_context(Node(made.regtest, responder=responder)) for responder in responders]
        honest = await stack.enter_async_context(Node(made.regtest))
        async with running(made, *liars, honest, limits=LIMITS, mode="compact") as run:
            books = await truth(run, len(liars))
            assert causes(books).keys() == {where(liar) for liar in liars}
            assert all(isinstance(warning.error, PeerError) for warning in books.warnings)


@pytest.mark.slow
async def test_a_slow_honest_peer_wins_against_seven_liars() -> None:
    made = world()
    slow = type("SlowOne", (Slow,), {"release": False})
    async with AsyncExitStack() as stack:
        liars = [await stack.enter_async_context(Node(made.regtest, responder=Omits)) for _ in range(7)]
        honest = await stack.enter_async_context(Node(made.regtest, responder=slow))
        async with running(made, *liars, honest, limits=replace(LIMITS, reply_s=60), mode="compact") as run:
            await run.until(lambda books: books.synced)
            lied = run.books.confirmed()
            assert lied < made.scan()
            assert not causes(run.books)
            slow.release = True  # type: ignore[attr-defined]  # only of this class
            wake(honest)
            books = await truth(run, 7)
            assert causes(books).keys() == {where(liar) for liar in liars}
            assert set(causes(books).values()) == {Lie.FALSE_FILTER_HEADER}


@pytest.mark.slow
async def test_a_stored_lie_is_reverted_after_a_restart(tmp_path: Path) -> None:
    made = world()
    store = tmp_path / "wallet.db"
    async with Node(made.regtest, responder=Omits) as liar, Node(made.regtest) as honest:
        async with running(made, liar, limits=LIMITS, mode="compact", store=store) as run:
            await run.until(lambda books: books.synced)
            lied = run.books.confirmed()
            assert lied < made.scan()
            assert not run.books.warnings
        async with running(made, honest, limits=LIMITS, mode="compact", store=store) as run:
            await run.until(lambda books: {*lied, *books.confirmed()} == made.scan() and books.synced)
            assert {place(found.match) for found in await run.client.matches()} == made.scan()
            assert not run.books.warnings


async def test_an_honest_peer_ends_the_agreement_of_two_liars() -> None:
    made = world()
    async with (  # noqa: SIM117
        Node(made.regtest, responder=Omits) as one,
        Node(made.regtest, responder=Omits) as two,
        Node(made.regtest) as honest,
    ):
        async with running(made, one, two, honest, limits=LIMITS, mode="compact") as run:
            books = await truth(run, 2)
            assert causes(books).keys() == {where(one), where(two)}
            late = [
                event for event in books.events if isinstance(event, MatchFound) and event.match.height == LIED_ABOUT
            ]
            assert {event.completeness for event in late} <= {Completeness.ONE_PEER, Completeness.PROVEN}
            assert late
