"""Scripted lies and faults: each is named, only a proven lie bans, and the honest peer's data is unharmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from light.engine.test_bounds import Run
from simulation.truth import START
from simulation.violation import Violation
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
from spvfilter.kernel import chain_filter_headers
from spvfilter.light.engine.inputs import Heard
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.build import BITS, mine
from spvfilter.node.responder import Responder
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.protocol import HEADER_SIZE
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import MatchFound
from spvfilter.wire.events import Service
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import Flaw, MerkleBlock
from spvfilter.wire.transport import V2Policy
from support.blocks.build import sha256d
from support.blocks.locks import LOCKS, build_tx
from support.client.engineparts import context_of
from support.client.stage import Prompt, Stage, answering, stage
from support.peers.nodeclient import MAGIC
from support.peers.sessionparts import send_raw


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
        if self.held is None:
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
        pass


class InjectsIntoMempool(Responder):
    """Announces and sends a transaction that does not match the filter."""

    def _wants(self, tx: Transaction) -> bool:
        return True


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


def with_headers(make: Callable[[Responder], list[Header]]) -> type[Responder]:
    """Return a responder that answers with these headers."""

    class TellsHeaders(Responder):
        def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
            self.send(wire.Headers(tuple(map(bytes, make(self)))))

    return TellsHeaders


def with_gap(responder: Responder) -> list[Header]:
    blocks = responder.regtest.chain.active
    return [blocks[1].header, blocks[3].header]


def without_work(responder: Responder) -> list[Header]:
    header = responder.regtest.chain.active[1].header
    while header.hash[31] <= 0x7F:
        header = replace(header, nonce=header.nonce + 1)
    return [header]


def upon_genesis(responder: Responder, **changes: Any) -> list[Header]:
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
    "gap in headers": (with_headers(with_gap), DiscontinuousHeadersError, None),
    "no work": (with_headers(without_work), ProofOfWorkError, None),
    "other bits": (with_headers(lambda responder: upon_genesis(responder, bits=0x207FFFFE)), DifficultyError, None),
    "old time": (with_headers(lambda responder: upon_genesis(responder, time=1)), MedianTimeError, None),
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
    "missing blocks": (SkipsBlocks, UselessPeerError, ""),
    "unmatched": (InjectsIntoMempool, LieError, Lie.FILTERED_OUT_TX),
}


def check_all(world: Stage) -> None:
    """Let the client find everything, and then follow new blocks until it has warned of every peer but the last."""
    world.truth.others(3)
    world.boot()
    world.wait_synced(within=60)
    while len({event.address for event in world.warnings}) < len(world.nodes) - 1:
        assert world.timeline.now < 600, world.warnings
        world.truth.receive()
        world.truth.mine()
        world.pass_time(20)
    world.truth.receive()
    world.truth.mine()
    world.wait_synced(within=60)
    assert world.has_found_all()


def test_each_lie_is_named_and_harms_nothing(tmp_path: Path) -> None:
    liars = [answering(responder) for responder, _, _ in LIES.values()]
    with stage(tmp_path, Mode.BIP37, *liars, Prompt, max_peers=len(liars) + 1) as world:
        check_all(world)
        bans = [event for event in world.warnings if event.banned]
        assert len(bans) == len(LIES)  # each peer is banned once
        told = {event.address: event.error for event in bans}
        for node, (name, (_, error, cause)) in zip(world.nodes, LIES.items(), strict=False):
            found = told.pop(node.addresses[0])
            assert type(found) is error, name
            assert cause is None or found.cause == cause, name  # type: ignore[attr-defined]  # some errors have a cause
        assert not told


def check_faults(world: Stage, faults: Iterable[tuple[type[PeerError], str]]) -> None:
    """Check that each of the first peers loses its connection with this error, but is not banned."""
    check_all(world)
    assert not world.banned
    first = {event.address: event.error for event in reversed(world.warnings)}
    for node, (error, words) in zip(world.nodes, faults, strict=False):
        found = first.pop(node.addresses[0])
        # a false length of an encrypted packet may also look like the start of a long one
        is_waiting = world.options.v2 is V2Policy.REQUIRE and isinstance(found, UselessPeerError)
        assert type(found) is error or is_waiting, node
        assert words in str(found) or words == getattr(found, "cause", None), node
    assert not first


def test_a_fault_ends_the_connection_without_a_ban(tmp_path: Path) -> None:
    faulty = [answering(responder) for responder, _, _ in FAULTS.values()]
    with stage(tmp_path, Mode.BIP37, *faulty, Prompt, max_peers=len(faulty) + 1) as world:
        check_faults(world, [(error, words) for _, error, words in FAULTS.values()])


@pytest.mark.v2
def test_garbage_ends_an_encrypted_connection_without_a_ban(tmp_path: Path) -> None:
    services = Prompt.services | Service.P2P_V2
    faulty = [answering(each, services=services) for each in (BreaksMessages, BreaksChecksums, SendsGarbage)]
    honest = answering(Responder, is_honest=True, services=services)
    with stage(tmp_path, Mode.BIP37, *faulty, honest, v2=V2Policy.REQUIRE) as world:
        check_faults(world, [(EnvelopeError, "")] * len(faulty))


def test_a_client_with_only_lying_peers_ends_with_an_error(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, answering(SendsAnotherBlock), answering(with_headers(without_work))) as world:
        world.boot()
        with pytest.raises(Violation, match=r"UselessPeerError.*all of them lied"):
            world.pass_time(60)
        assert world.banned
        assert not any(isinstance(event, MatchFound) for event in world.told)


def test_after_one_lie_the_client_waits_for_another_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, answering(SendsAnotherBlock), Prompt) as world:
        liar, honest = world.nodes
        honest.is_up = False
        world.boot()
        world.pass_time(60)
        assert world.banned == set(liar.addresses)
        honest.is_up = True
        world.wait_synced(within=600)
        assert world.has_found_all()


def sending_blocks(change: Callable[[bytes], bytes], sent: list[bytes]) -> type[Responder]:
    """Return a responder that changes whole blocks, and records their headers."""

    class SendsBlocks(Responder):
        def send(self, message: wire.Message) -> None:
            if isinstance(message, wire.Block):
                sent.append(message.raw[:HEADER_SIZE])
                message = wire.Block(change(message.raw))
            super().send(message)

    return SendsBlocks


@pytest.mark.parametrize("lies", [False, True])
def test_a_block_with_a_small_own_transaction_is_fetched_whole(lies: bool, tmp_path: Path) -> None:
    """A transaction of 64 bytes looks like a node of the merkle tree, so a merkle block does not prove it."""
    sent, lied = list[bytes](), list[bytes]()
    honest = answering(sending_blocks(lambda raw: raw, sent), is_honest=True)
    liar = answering(sending_blocks(lambda raw: raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:], lied))
    with stage(tmp_path, Mode.BIP37, liar if lies else honest, honest) as world:
        world.truth.receive(LOCKS[1])
        world.truth.mine()
        coin = world.truth.coins.pop()
        small = build_tx([coin.spend()], [TxOut(1_000, b"\x51" * 4)])
        assert len(Transaction.parse(small).stripped) == 64
        world.truth.regtest.mine(transactions=[small])
        world.nodes[1].is_up = not lies
        world.boot()
        world.pass_time(20)
        world.nodes[1].is_up = True
        world.pass_time(100)
        world.wait_synced(within=60)
        assert world.has_found_all()
        header = world.truth.regtest.chain.tip.raw[:HEADER_SIZE]
        assert header in sent
        assert (header in lied) == lies
        causes = [getattr(event.error, "cause", None) for event in world.warnings if event.banned]
        assert causes == [Lie.FALSE_BLOCK] * lies
        assert lies or not world.warnings


@pytest.mark.parametrize("is_false", [False, True])
def test_filter_headers_must_agree_with_the_checkpoints(is_false: bool) -> None:
    run, filter_hash = Run(Mode.COMPACT), sha256d(b"\x00")
    chain = run.engine.chain
    known = bytes(32) if is_false else chain_filter_headers(filter_hash, bytes(32))
    chain.network = replace(chain.network, filter_checkpoints=((0, known),))
    run.do(Heard(1, wire.CFHeaders(0, chain.tip_hash, bytes(32), (filter_hash,))))
    assert [*run.engine.pool.bans] == ["10.1.0.1:1"] * is_false
    assert context_of(run.engine).rows.height == -is_false
