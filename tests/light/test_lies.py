"""Scripted lies and faults: each is named, only a proven lie bans, and the honest peer's data is unharmed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spvfilter.errors import (
    DifficultyError,
    DiscontinuousHeadersError,
    EnvelopeError,
    LieError,
    MedianTimeError,
    MessageError,
    PeerError,
    ProofError,
    ProofOfWorkError,
    UselessPeerError,
)
from spvfilter.filters.bip37 import MatchedTx
from spvfilter.light.lies import Lie
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.build import BITS, mine
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import Flaw, MerkleBlock
from support.build import sha256d
from support.lightworld import START, World, running
from support.nodeclient import MAGIC
from support.sessionparts import send_raw


class WithholdsTxs(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        self.send(MerkleBlock.from_txids(block.header, block.txids, [match.position for match in matched]))


class SendsOthers(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        self.send(MerkleBlock.from_txids(block.header, block.txids, [match.position for match in matched]))
        for match in matched:
            self.send(wire.Tx(other_tx()))
            self.send(wire.Tx(match.stripped))


class SendsUnasked(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, matched)
        self.send(wire.Tx(other_tx()))


class SendsAnotherBlock(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        other_header = mine(replace(block.header, time=block.header.time + 1))
        self.send(MerkleBlock.from_txids(other_header, block.txids, []))


class SwapsBlocks(Responder):
    held: TreeBlock | None = None

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        if block.height == 5:
            self.held = block
            return
        super().send_merkleblock(block, matched)


class InjectsTxs(Responder):
    """Proves and sends all transactions, regardless of the filter."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        txs = self.regtest.chain.txs(block)
        self.send(MerkleBlock.from_txids(block.header, block.txids, range(len(txs))))
        for tx in txs:
            self.send(wire.Tx(tx.stripped))


class Omits(Responder):
    """Sends no own transaction."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [])


class OmitsSpends(Responder):
    """Sends the wallet's receipts, but not its spends."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, matched[:1])


class SkipsBlocks(Responder):
    """Answers the fence without the blocks before it."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        if block.height < 50:
            super().send_merkleblock(block, matched)


class BreaksMessages(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        send_raw(self.session, envelope(b"merkleblock", b"\x01" * 90))


class BreaksChecksums(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        send_raw(self.session, envelope(b"merkleblock", b"\x01" * 90, b"\0\0\0\0"))


class SendsGarbage(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        send_raw(self.session, b"\xa5" * 5_000)


class SendsTooMuch(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        start = envelope(b"block", b"")[:16]
        send_raw(self.session, start + (4_000_001).to_bytes(4, "little") + bytes(4))


def envelope(command: bytes, payload: bytes, checksum: bytes | None = None) -> bytes:
    return (
        MAGIC
        + command.ljust(12, b"\0")
        + len(payload).to_bytes(4, "little")
        + (checksum or sha256d(payload)[:4])
        + payload
    )


def other_tx() -> bytes:
    return build_tx([TxIn(OutPoint(b"\x07" * 32, 0))], [TxOut(1, b"\x51")])


def forged(change: Callable[[MerkleBlock], MerkleBlock]) -> type[Responder]:
    """Return a responder that changes every proof of a block with more than one transaction."""

    class Forges(Responder):
        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            if len(block.txids) < 2:
                super().send_merkleblock(block, matched)
                return
            whole = MerkleBlock.from_txids(block.header, block.txids, range(len(block.txids)))
            self.send(change(whole))
            for tx in self.regtest.chain.txs(block):
                self.send(wire.Tx(tx.stripped))

    return Forges


def with_headers(change: Callable[[Responder, list[Header]], list[Header]]) -> type[Responder]:
    """Return a responder that changes the headers in its answers."""

    class TellsHeaders(Responder):
        def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
            told = change(self, [block.header for block in blocks]) if blocks else []
            self.send(wire.Headers(tuple(bytes(header) for header in told)))

    return TellsHeaders


def bad_work(responder: Responder, headers: list[Header]) -> list[Header]:
    nonce = 0
    while (bad := replace(headers[0], nonce=nonce)).hash[31] <= 0x7F:
        nonce += 1
    return [bad]


def upon_tip(responder: Responder, **changes: Any) -> list[Header]:
    header = Header(0x20000000, responder.regtest.chain.active[0].hash, bytes(32), START, BITS, 0)
    return [mine(replace(header, **changes))]


LIES: dict[str, tuple[type[Responder], type[PeerError], str | None]] = {
    "another block": (SendsAnotherBlock, LieError, Lie.UNASKED_BLOCK),
    "omitted": (Omits, LieError, Lie.OMITTED_TX),
    "omitted spends": (OmitsSpends, LieError, Lie.OMITTED_TX),
    "wrong root": (forged(lambda m: replace(m, hashes=(b"\x01" * 32, *m.hashes[1:]))), ProofError, Flaw.WRONG_ROOT),
    "no transactions": (forged(lambda m: replace(m, total=0)), ProofError, Flaw.NO_TRANSACTIONS),
    "too many transactions": (forged(lambda m: replace(m, total=20_000)), ProofError, Flaw.TOO_MANY_TRANSACTIONS),
    "too many hashes": (forged(lambda m: replace(m, total=1)), ProofError, Flaw.TOO_MANY_HASHES),
    "too few bits": (forged(lambda m: replace(m, flags=b"")), ProofError, Flaw.TOO_FEW_BITS),
    "unused bits": (forged(lambda m: replace(m, flags=m.flags + b"\0")), ProofError, Flaw.UNUSED_BITS),
    "unused hashes": (
        forged(lambda m: replace(m, total=m.total, flags=bytes(len(m.flags)))),
        ProofError,
        Flaw.UNUSED_HASHES,
    ),
    "missing hashes": (forged(lambda m: replace(m, hashes=m.hashes[:-1])), ProofError, Flaw.HASHES_EXHAUSTED),
    "equal siblings": (
        forged(lambda m: replace(m, hashes=m.hashes[:1] * len(m.hashes))),
        ProofError,
        Flaw.EQUAL_SIBLINGS,
    ),
    "gap in headers": (with_headers(lambda s, h: [h[0], h[2]]), DiscontinuousHeadersError, None),
    "no work": (with_headers(bad_work), ProofOfWorkError, None),
    "other bits": (with_headers(lambda s, h: upon_tip(s, bits=0x207FFFFE)), DifficultyError, None),
    "old time": (with_headers(lambda s, h: upon_tip(s, time=1)), MedianTimeError, None),
}

FAULTS: dict[str, tuple[type[Responder], type[PeerError], str]] = {  # a failing node or line does the same: no ban
    "withheld": (WithholdsTxs, LieError, Lie.WITHHELD_TX),
    "unproved": (SendsOthers, LieError, Lie.UNPROVED_TX),
    "unasked": (SendsUnasked, LieError, Lie.UNASKED_TX),
    "out of order": (SwapsBlocks, LieError, Lie.BLOCK_OUT_OF_ORDER),
    "injected": (InjectsTxs, LieError, Lie.FILTERED_OUT_TX),
    "malformed": (BreaksMessages, MessageError, "merkleblock"),
    "checksum": (BreaksChecksums, EnvelopeError, "checksum"),
    "garbage": (SendsGarbage, EnvelopeError, "magic"),
    "oversize": (SendsTooMuch, EnvelopeError, "4000001"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", LIES)
async def test_a_lie_is_named_and_harms_nothing(name: str) -> None:
    responder, error, cause = LIES[name]
    world = World(30, mature=110)
    world.grow(25, share=0.8)
    async with (
        Node(world.regtest, responder=responder) as liar,
        Node(world.regtest) as honest,
        running(world, liar, honest, v2="off") as run,  # so that the liar answers first
    ):
        await run.until(lambda books: any(warning.banned for warning in books.warnings))
        await run.synced(world)
        await run.until(lambda books: books.confirmed() == world.scan())
        told = [warning for warning in run.books.warnings if warning.banned]
        assert [warning.address for warning in told] == [f"{liar.host}:{liar.port}"]
        assert type(told[0].error) is error
        assert cause is None or told[0].error.cause == cause  # type: ignore[attr-defined]  # some errors have a cause
        world.grow(3, share=1.0)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_the_connection_without_a_ban(name: str) -> None:
    await check_fault(*FAULTS[name], v2="off")


@pytest.mark.few(1)
@pytest.mark.v2
@pytest.mark.parametrize("responder", [BreaksMessages, BreaksChecksums, SendsGarbage])
async def test_garbage_ends_an_encrypted_connection_without_a_ban(responder: type[Responder]) -> None:
    await check_fault(responder, EnvelopeError, "", v2="require")


async def check_fault(responder: type[Responder], error: type[PeerError], words: str, *, v2: str) -> None:
    """Check that a peer with this fault loses its connection with this error, while an honest peer serves the
    client.
    """
    world = World(30, mature=110)
    world.grow(25, share=0.8)
    async with (
        Node(world.regtest, responder=responder) as faulty,
        Node(world.regtest) as honest,
        running(world, faulty, honest, v2=v2) as run,
    ):
        await run.until(lambda books: books.warnings)
        await run.synced(world)
        await run.until(lambda books: books.confirmed() == world.scan())
        assert {warning.address for warning in run.books.warnings} == {f"{faulty.host}:{faulty.port}"}
        assert not any(warning.banned for warning in run.books.warnings)
        first = run.books.warnings[0].error
        # a false length of a packet may also look like the start of a long packet
        assert type(first) is error or (v2 == "require" and isinstance(first, UselessPeerError))
        assert words in str(first) or words == getattr(first, "cause", None)


async def test_missing_blocks_are_requested_elsewhere_and_are_no_lie() -> None:
    world = World(31)
    world.grow(20, share=0.8)
    async with (
        Node(world.regtest, responder=SkipsBlocks) as lazy,
        Node(world.regtest) as honest,
        running(world, lazy, honest) as run,
    ):
        await run.until(lambda books: books.warnings)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert isinstance(run.books.warnings[0].error, UselessPeerError)
        assert not any(warning.banned for warning in run.books.warnings)


async def test_a_client_with_only_lying_peers_ends_with_an_error() -> None:
    world = World(32)
    world.grow(10, share=0.8)
    async with (
        Node(world.regtest, responder=SendsAnotherBlock) as one,
        Node(world.regtest, responder=with_headers(bad_work)) as two,
    ):
        with pytest.raises(UselessPeerError, match="all of them lied"):
            async with running(world, one, two) as run:
                await run.until(lambda books: False)
        assert len(run.books.warnings) == 2
        assert not run.books.matches


def small_tx(outpoint: OutPoint) -> bytes:
    """Return a transaction of 64 bytes without witness: one input without a script, one output with a script of four
    bytes.
    """
    raw = build_tx([TxIn(outpoint)], [TxOut(1_000, b"\x51\x51\x51\x51")])
    assert len(Transaction.parse(raw).stripped) == 64
    return raw


class SendsFalseBlocks(Responder):
    def send(self, message: object) -> None:
        if isinstance(message, wire.Block):
            message = wire.Block(message.raw[:-5] + bytes([message.raw[-5] ^ 1]) + message.raw[-4:])
        super().send(message)  # type: ignore[arg-type]


@pytest.mark.few(1)
@pytest.mark.parametrize("lies", [False, True])
async def test_a_block_with_a_small_own_transaction_is_fetched_whole(lies: bool) -> None:
    world = World(33)
    world.regtest.mine(to=b"\x51")
    coin = OutPoint(world.regtest.chain.txs(world.regtest.chain.tip)[0].txid, 0)
    world.regtest.mine(100)
    watch = world.watch()
    watch.add_outpoint(coin, "anyone's")
    world.regtest.mine(transactions=[small_tx(coin)])
    world.grow(5, share=1.0)
    expected = world.scan(watch.copy())
    assert any(kind == "input" for kind, *_ in expected)
    responder = SendsFalseBlocks if lies else Responder
    async with (
        Node(world.regtest, responder=responder) as node,
        Node(world.regtest) as honest,
        running(world, node, honest, watch=watch) as run,
    ):
        await run.synced(world)
        await run.until(lambda books: books.confirmed() == expected)
        assert lies or not run.books.warnings
        for warning in run.books.warnings:  # only if a random choice asked the liar for the block
            assert isinstance(warning.error, LieError)
            assert warning.error.cause == Lie.FALSE_BLOCK


class InjectsIntoMempool(Responder):
    """Announces and sends a transaction that does not match the filter."""

    def _wants(self, tx: Transaction) -> bool:
        return True


async def test_an_unmatched_unconfirmed_transaction_ends_the_connection() -> None:
    world = World(34)
    world.others(3)
    async with Node(world.regtest, responder=InjectsIntoMempool) as node, running(world, node) as run:
        await run.until(lambda books: books.warnings)
        warning = run.books.warnings[0]
        assert isinstance(warning.error, LieError)
        assert warning.error.cause == Lie.FILTERED_OUT_TX
        assert not warning.banned
