"""The light client in programs: enter, leave, calls at the wrong time, timeouts and broadcasts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import (
    FormatError,
    NotRunningError,
    ParameterError,
    PrivacyError,
    TxRefusedError,
    UselessPeerError,
)
from spvfilter.kernel import parse_tx, wtxid
from spvfilter.light.client import LightClient
from spvfilter.light.engine import mempool
from spvfilter.light.events import BroadcastChanged, PeerChanged, Progress, Synced
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import SETTINGS, Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.primitives import OutPoint
from spvfilter.wallet import queue
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.table import Inv, InvItem, InvType, Mempool, Message, Tx
from support.lightworld import FAST, IMPATIENT, LOCKS, START, STRANGER, World, place, running, where
from support.locks import build_tx

MODES = pytest.mark.parametrize("mode", ["bip37", "compact", "auto"])
PATIENT = replace(FAST, reply_s=3_600)


def client_of(world: World, *nodes: Node) -> LightClient:
    return LightClient(
        world.watch(), peers=[where(node) for node in nodes], limits=FAST, clock=Clock(wall=lambda: START)
    )


@pytest.mark.parametrize("watch", [["bc1"], "bc1", None, WatchList])
def test_a_watch_list_of_a_wrong_type_is_refused(watch: Any) -> None:
    with pytest.raises(TypeError, match=r"^watch: expected a WatchList, .*from_addresses.*, not (list|str|None|type)"):
        LightClient(watch, peers=["127.0.0.1:8333"])


async def test_calls_of_a_client_that_is_not_running_raise() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client = client_of(world, node)
        for round_ in range(2):
            for ask in (client.matches, lambda: client.broadcast(b""), lambda: client.add_script(b"\x51")):
                with pytest.raises(NotRunningError, match="enter the client first" if not round_ else "is closed"):
                    await ask()
            for name in ("tip_height", "searched_height", "observed_fp_rate"):
                with pytest.raises(NotRunningError):
                    getattr(client, name)
            if not round_:
                with pytest.raises(NotRunningError):
                    client.events()
                async with client:
                    pass
        assert [event async for event in client.events() if isinstance(event, Synced)] == []


async def test_a_client_is_entered_once_at_a_time() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client, before = client_of(world, node), asyncio.all_tasks()
        for _ in range(2):
            async with client:
                with pytest.raises(NotRunningError, match="already running"):
                    await client.__aenter__()
                async for event in client.events():
                    if isinstance(event, Synced):
                        break
            await asyncio.sleep(0)
            assert asyncio.all_tasks() - before == set()


async def test_only_one_of_two_concurrent_entries_succeeds() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client, before = client_of(world, node), asyncio.all_tasks()
        for _ in range(2):
            entered, refused = await asyncio.gather(client.__aenter__(), client.__aenter__(), return_exceptions=True)
            assert entered is client
            assert isinstance(refused, NotRunningError)
            await client.__aexit__(None, None, None)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() - before == set()
        client.watch.add_script(b"\x51")  # the watch list is not locked


async def test_a_cancelled_wait_for_an_event_loses_no_event() -> None:
    world = World(2)
    async with Node(world.regtest) as node, running(world, node) as run:
        events = run.client.events()
        kinds: list[type[object]] = []
        while Synced not in kinds:
            try:
                kinds.append(type(await asyncio.wait_for(anext(events), 0.0005)))
            except TimeoutError:
                kinds.append(TimeoutError)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.001)
        digest = world.receive()
        async with asyncio.timeout(20):
            while not isinstance(event := await anext(events), MatchFound):
                pass
        assert event.match.txid == digest


@pytest.mark.few(2)
@MODES
async def test_a_transaction_may_be_broadcast_again_at_any_time(mode: str) -> None:
    world = World(3)
    world.receive()
    world.regtest.mine()
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node, mode=mode, limits=PATIENT) as run:
        await run.synced(world)
        raw = world.spending(change=LOCKS[1])
        both = await asyncio.gather(run.client.broadcast(raw), run.client.broadcast(raw))
        (first,) = {each.txid for each in (*both, await run.client.broadcast(raw))}
        await run.until(lambda books: first in books.waiting())
        world.regtest.mine()
        await run.synced(world)
        assert (await run.client.broadcast(raw)).txid == first
        assert run.books.confirmed() == world.scan()
        assert not run.books.waiting()


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("ours", [True, False])
async def test_a_transaction_that_a_peer_already_has_is_accepted(mode: str, ours: bool) -> None:
    world = World(4)
    outpoint, value, lock = OutPoint(world.regtest.pay(STRANGER.pays(9_000)), 0), 9_000, STRANGER
    world.regtest.mine()
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node, mode=mode, limits=PATIENT) as run:
        await run.synced(world)
        raw = build_tx(
            [lock.spends(outpoint, value)], [(LOCKS[1] if ours else p2wpkh(b"\x02" + bytes(32))).pays(value - 500)]
        )
        digest = world.regtest.submit_tx(raw)
        assert (await run.client.broadcast(raw)).txid == digest
        await run.until(lambda books: (digest in books.waiting()) is ours)
        assert not run.books.warnings


async def test_a_transaction_that_no_peer_takes_is_an_error() -> None:
    world = World(5)
    world.receive()
    world.regtest.mine()
    async with running(world, "127.0.0.1:1", limits=IMPATIENT) as run:
        with pytest.raises(UselessPeerError, match=r"no connected peer \(0 now\)"):
            await run.client.broadcast(world.spending())


class MinesAtOnce(Responder):
    """Mines each transaction at once."""

    def on_tx(self, raw: bytes) -> None:
        super().on_tx(raw)
        self.regtest.mine()


@MODES
async def test_a_broadcast_is_reported_before_its_confirmation(mode: str) -> None:
    world = World(6)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest, responder=MinesAtOnce) as node, running(world, node, mode=mode) as run:
        await run.synced(world)
        digest = (await run.client.broadcast(world.spending(change=LOCKS[2]))).txid
        await run.synced(world)
        told = [
            type(event)
            for event in run.books.events
            if isinstance(event, MatchFound | MatchConfirmed) and event.match.txid == digest
        ]
        assert told == [MatchFound, MatchFound, MatchConfirmed, MatchConfirmed]
        assert run.books.confirmed() == world.scan()


@pytest.mark.few(1)
@pytest.mark.parametrize("nodes", [1, 3])
async def test_no_payment_in_a_large_mempool_is_missed(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MAX_ASKED_UNFILTERED", 10)
    monkeypatch.setattr(queue.Queue, "MOST", 50)
    monkeypatch.setattr(queue.Queue, "MOST_SIZE", 20_000)
    world = World(7, mature=112)  # coins for short chains: Core's mempool has at most 64 transactions in a cluster

    def busy() -> set[bytes]:
        world.others(150)
        return {world.receive() for _ in range(20)}

    expected = busy()
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(Node(world.regtest)) for _ in range(nodes)]
        run = await stack.enter_async_context(running(world, *peers, mode="compact"))
        await run.synced(world)
        await run.until(lambda books: expected <= books.waiting())
        expected |= busy()
        await run.until(lambda books: expected <= books.waiting())
        world.regtest.mine()
        await run.synced(world)
        assert run.books.confirmed() == world.scan()


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("shared", [0, 50])
async def test_a_node_that_is_behind_does_not_prove_the_tip(mode: str, shared: int, tmp_path: Path) -> None:
    world, store = World(8), tmp_path / "wallet.db"
    world.receive()
    world.regtest.mine(5)
    behind = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1 : shared + 1]:
        behind.submit_block(block.raw)
    behind.mine(10)
    async with Node(world.regtest) as node, Node(behind) as late:
        async with running(world, node, store=store, mode=mode) as run:
            await run.synced(world)
            expected = run.books.confirmed()
        async with running(world, late, store=store, mode=mode) as run:
            await run.until(lambda books: books.warnings)
            assert "does not know block" in str(run.books.warnings[0].error)
            assert run.books.synced is None
            assert {place(found.match) for found in await run.client.matches()} == expected
        async with running(world, late, node, store=store, mode=mode) as run:
            await run.synced(world)
            assert {place(found.match) for found in await run.client.matches()} == expected == world.scan()


class Malleates(Responder):
    """Sends a transaction back with another witness."""

    def on_tx(self, raw: bytes) -> None:
        other = bytearray(raw)
        other[-5] ^= 1
        self.send(Inv((InvItem(InvType.WTX, wtxid(bytes(other), parse_tx(bytes(other)))),)))
        self.send(Tx(bytes(other)))


@pytest.mark.few(2)
@MODES
async def test_a_rebroadcast_has_the_original_witness(mode: str, tmp_path: Path) -> None:
    world, store = World(5, [LOCKS[1]]), tmp_path / "wallet.db"
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest, responder=Malleates) as node, running(world, node, store=store, mode=mode) as run:
        await run.synced(world)
        raw = world.spending(change=LOCKS[1])
        digest = (await run.client.broadcast(raw)).txid
        await run.until(lambda books: digest in books.waiting())
    assert not world.regtest.mempool
    offered = asyncio.Event()

    class Takes(Responder):
        def on_tx(self, raw: bytes) -> None:
            super().on_tx(raw)
            offered.set()

    async with (
        asyncio.timeout(20),
        Node(world.regtest, responder=Takes) as node,
        running(world, node, store=store, mode=mode) as run,
    ):
        await run.synced(world)
        await offered.wait()
        assert [tx.raw for tx in world.regtest.mempool] == [raw]


@pytest.mark.few(2)
@MODES
async def test_a_node_on_an_equal_branch_gets_no_warning(mode: str, tmp_path: Path) -> None:
    world, store = World(8), tmp_path / "wallet.db"
    world.receive()
    world.regtest.mine(5)
    other = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:-1]:
        other.submit_block(block.raw)
    other.mine(transactions=())
    assert other.height == world.regtest.height
    async with Node(world.regtest) as node, running(world, node, store=store, mode=mode) as run:
        await run.synced(world)
    async with Node(other) as node, running(world, node, store=store, mode=mode) as run:
        await run.until(lambda books: any(isinstance(event, Progress | PeerChanged) for event in books.events))
        other.mine()
        await run.until(lambda books: books.synced is not None)
        assert run.books.synced is not None
        assert run.books.synced.hash == other.chain.tip.hash
        assert not run.books.warnings


class BlocksOnly(Responder):
    """Like Core with -blocksonly: disconnects a peer that announces a transaction."""

    def on_inv(self, items: Sequence[InvItem]) -> None:
        self.end("transaction sent in violation of protocol")


@pytest.mark.long
@MODES
async def test_a_peer_without_transaction_relay_receives_no_announcement(mode: str, tmp_path: Path) -> None:
    world, store = World(14), tmp_path / "wallet.db"
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, store=store, mode=mode) as run:
        await run.synced(world)
        raw = world.spending(change=LOCKS[0])
        await run.client.broadcast(raw)
    silent = replace(SETTINGS, relay=False)
    async with (
        Node(world.regtest, responder=BlocksOnly, settings=silent) as node,
        running(world, node, store=store, mode=mode) as run,
    ):
        await run.synced(world)
        with pytest.raises(UselessPeerError):
            await run.client.broadcast(build_tx([STRANGER.spends(OutPoint(bytes(32), 0))], [STRANGER.pays(1)]))
        assert not run.books.warnings


@pytest.mark.few(2)
@MODES
async def test_a_peer_that_leaves_with_the_transaction_is_not_awaited(mode: str) -> None:
    class Leaves(Responder):
        def on_tx(self, raw: bytes) -> None:
            super().on_tx(raw)
            self.end("that was all")

    world = World(15)
    world.receive()
    world.regtest.mine()
    nodes = Node(world.regtest, responder=Leaves), Node(world.regtest, responder=Leaves)
    async with asyncio.timeout(20), nodes[0], nodes[1], running(world, *nodes, mode=mode, limits=PATIENT) as run:
        await run.synced(world)
        digest = (await run.client.broadcast(world.spending(change=LOCKS[0]))).txid
        await run.until(lambda books: digest in books.waiting())


@pytest.mark.long
@MODES
async def test_an_unserved_longer_chain_does_not_stop_the_search(mode: str) -> None:
    class Keeps(Responder):
        def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
            if block.height <= 110:
                super().on_block_wanted(block, kind)

        def on_filters_wanted(self, asked: FilterRequest) -> None:
            stop = self.regtest.chain.blocks.get(asked.stop_hash)
            if stop is not None and stop.height <= 110:
                super().on_filters_wanted(asked)

    world = World(7, mature=110)
    other = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:]:
        other.submit_block(block.raw)
    other.mine(40)
    world.grow(20, share=1)
    async with (
        Node(other, responder=Keeps) as liar,
        Node(world.regtest) as honest,
        running(world, liar, honest, mode=mode) as run,
    ):
        await run.until(lambda books: any(warning.address == where(liar) for warning in books.warnings))
        world.grow(21, share=1)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert all(str(warning.error) for warning in run.books.warnings)
        assert not any(warning.banned for warning in run.books.warnings)


async def test_a_peer_that_withholds_announced_transactions_hides_no_payment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mempool, "MAX_ASKED_UNFILTERED", 10)

    class Promises(Responder):
        def on_bloom(self, message: Message) -> None:
            if isinstance(message, Mempool):
                self.send_inv([InvItem(InvType.WTX, number.to_bytes(32, "big")) for number in range(1, 500)])

        def _answer_txs(self) -> None:
            self._requests.clear()

    world = World(16)
    nodes = Node(world.regtest, responder=Promises), Node(world.regtest)
    async with nodes[0], nodes[1], running(world, *nodes, mode="compact", limits=PATIENT) as run:
        await run.synced(world)
        for _ in range(3):
            world.others(20)
            payment = world.receive()
            # a lambda's default has no type
            await run.until(lambda books, payment=payment: payment in books.waiting())  # type: ignore[misc]


@pytest.mark.few(2)
@MODES
async def test_an_own_transaction_is_announced_again_after_a_reorganization(mode: str) -> None:
    world = World(6)
    world.receive()
    world.regtest.mine()
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node, mode=mode) as run:
        await run.synced(world)
        digest = (await run.client.broadcast(world.spending(change=LOCKS[2]))).txid
        world.regtest.mine()
        await run.synced(world)
        rebuild = world.regtest.mempool.rebuild
        world.regtest.mempool.rebuild = lambda txs: rebuild([])  # type: ignore[method-assign, assignment]
        world.regtest.reorg(1)
        assert digest not in world.regtest.mempool  # the node has dropped it
        await run.synced(world)
        while digest not in world.regtest.mempool:  # noqa: ASYNC110  # the node has no event for it
            await asyncio.sleep(0.01)


@MODES
async def test_a_peer_that_answers_no_pings_loses_its_connection(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6)
    fence, refused = Connection.fence, [True]

    def overdue(self: Connection) -> int:
        if refused and world.regtest.height > 101:
            refused.clear()
            raise ParameterError("1024 pings are unanswered")
        return fence(self)

    monkeypatch.setattr(Connection, "fence", overdue)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        await run.until(lambda books: books.warnings)
        assert "pings are unanswered" in str(run.books.warnings[0].error)
        assert not run.books.warnings[0].banned
        await run.synced(world)
        assert run.books.confirmed() == world.scan()


async def test_a_transaction_that_no_block_can_contain_is_not_broadcast() -> None:
    world = World()
    coin = OutPoint(world.receive(LOCKS[0]), 0)
    spend, null = LOCKS[0].spends(coin, 20_000), STRANGER.spends(OutPoint(bytes(32), 0xFFFFFFFF))
    paid = [STRANGER.pays(1)]
    async with Node(world.regtest) as node, client_of(world, node) as client:
        for raw, reason in (
            (bytes(10), "it has no inputs"),
            (build_tx([spend], []), "it has no outputs"),
            (build_tx([null], paid), "it is a coinbase"),
            (build_tx([null, spend], paid), "it spends the null outpoint"),
            (build_tx([spend] * 2, paid), "it spends an output twice"),
            (
                build_tx([spend], [STRANGER.pays(21_000_000 * 100_000_000), *paid]),
                "the values of its outputs are out of range",
            ),
            (build_tx([replace(spend, script_sig=bytes(1_000_001), spent=None)], paid), "its weight of 4,000,"),
        ):
            with pytest.raises(ParameterError, match=f"no block can contain the transaction: {reason}"):
                await client.broadcast(raw)
        with pytest.raises(FormatError):
            await client.broadcast(b"")


class SaysWhy(Responder):
    """States why it refuses a transaction, as Core did before 0.20."""

    says_why = True


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("responder", [Responder, SaysWhy])
async def test_a_transaction_with_missing_inputs_is_refused_and_not_kept(
    mode: str, responder: type[Responder], tmp_path: Path
) -> None:
    world, store = World(16), tmp_path / "wallet.db"
    raw = build_tx([STRANGER.spends(OutPoint(bytes(32), 0))], [LOCKS[0].pays(777)])
    async with Node(world.regtest, responder=responder) as node:
        limits = replace(FAST, reply_s=6)  # after a third of it, a transaction that is not kept is refused
        async with running(world, node, store=store, mode=mode, limits=limits) as run:
            await run.synced(world)
            with pytest.raises(TxRefusedError) as caught:
                await run.client.broadcast(raw)
            ((peer, reason),) = caught.value.refusals
            assert peer == where(node)
            assert (
                reason == "bad-txns-inputs-missingorspent (0x10)"
                if responder is SaysWhy
                else "does not have it" in reason
            )
            assert (await run.client.balance()).total == 0
            await run.until(
                lambda books: not books.waiting() and any(isinstance(event, BroadcastChanged) for event in books.events)
            )
            assert not run.books.warnings
        async with running(world, node, store=store, mode=mode) as run:
            await run.synced(world)
            assert not await run.client.matches()
            assert [str(entry.status) for entry in await run.client.history()] == ["refused"]


async def test_a_private_transaction_reaches_only_another_host() -> None:
    world = World(17)
    world.receive()
    world.regtest.mine()
    other = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:]:
        other.submit_block(block.raw)
    async with Node(world.regtest) as node, Node(other, host="127.0.0.2") as stranger:
        async with running(world, node, stranger, mode="compact", max_peers=1) as run:
            await run.synced(world)
            known = await run.client.broadcast(world.spending(), private=True)
            there, regtest = (stranger, other) if where(stranger) in known.sent else (node, world.regtest)
            assert known.sent == (where(there),)
            assert known.txid in regtest.mempool
            assert len(world.regtest.mempool) + len(other.mempool) == 1
        async with running(world, node, mode="compact") as run:
            await run.synced(world)
            with pytest.raises(PrivacyError, match="every known address is already connected"):
                await run.client.broadcast(
                    build_tx([STRANGER.spends(OutPoint(bytes(32), 1))], [STRANGER.pays(1)]), private=True
                )
