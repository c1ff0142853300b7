"""Search by BIP-37: blocks without a match are recorded together, and count like blocks that are recorded one by
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation import truth
from simulation.behaviours.bloom import Liar, OmitsAll
from simulation.behaviours.faulty import Pruned
from simulation.pipe import Quality
from simulation.world import World
from spvfilter.filters.bip37 import Bip37Filter, MatchedTx
from spvfilter.kernel import Hit
from spvfilter.light.engine import coverage
from spvfilter.light.engine.bloomfilters import BloomFilters
from spvfilter.light.engine.coverage import NOTE, Coverage
from spvfilter.light.engine.effects import Commit, Effect
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.inputs import Input, Instant
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.events import Mode
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import BlockConnected, WalletEvent
from spvfilter.wallet.parts import Parts
from spvfilter.wallet.queue import Queue
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wire.messages import table as wire
from support.blocks.locks import LOCKS, build_tx, key
from support.client.engineparts import bloom_links, searched_parts
from support.client.stage import Prompt, stage

THEIRS = b"\x00\x14" + bytes(20)


def test_blocks_without_a_match_are_recorded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single: list[ScannedBlock] = []
    connect = Books.connect_in_parts

    def recorded(books: Books, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[list[WalletEvent]]:
        single.append(block)
        return connect(books, block, hits)

    monkeypatch.setattr(Books, "connect_in_parts", recorded)
    with stage(tmp_path, Mode.BIP37, Prompt) as world:
        world.boot()
        world.wait_synced(within=120)
        assert world.has_found_all()
        assert all(block.txs or block.raw for block in single)
        assert 0 < len(single) < world.truth.height
        blocks = world.truth.regtest.chain.active
        total = sum(len(world.truth.regtest.chain.txs(block)) for block in blocks)
        assert world.engine.books.filtered.txs == total
        connected = [event for event in world.told if isinstance(event, BlockConnected)]
        assert [event.height for event in connected] == sorted({event.height for event in connected})
        assert (connected[-1].height, connected[-1].hash) == (world.truth.height, world.truth.tip)
        assert all(blocks[event.height].hash == event.hash for event in connected)
        for _ in range(3):
            world.truth.mine()
        world.wait_synced(within=120)
        assert [event.height for event in world.told if isinstance(event, BlockConnected)][-1] == world.truth.height


class OmitsSlowly(OmitsAll):
    """Answers after the other peers, but before a second request can be answered."""

    def quality(self) -> Quality:
        return Quality(0.043, 0.0, 1e7, 0)


class OmitsAtOnce(OmitsAll):
    """Answers before the other peers."""

    def quality(self) -> Quality:
        return Quality(0.01, 0.0, 1e7, 0)


def test_one_honest_answer_bans_three_omitting_peers(
    tmp_path: Path,
) -> None:
    """The client asks the honest peer as soon as one liar has answered. Its answer arrives before the other two."""
    with stage(tmp_path, Mode.BIP37, OmitsAtOnce, OmitsSlowly, OmitsSlowly, Prompt) as world:
        world.nodes[3].is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert not world.has_found_all()
        world.kill()
        world.nodes[3].is_up = True
        world.truth.receive()
        world.truth.mine()
        world.boot()
        world.wait_synced(within=60)
        assert world.banned == {address for node in world.nodes[:3] for address in node.addresses}
        world.pass_time(60)
        hashes = [
            event.hash
            for event in world.told
            if isinstance(event, BlockConnected) and event.height == world.truth.height
        ]
        assert len(hashes) <= 4


@pytest.mark.long
def test_a_block_and_its_witnesses_are_in_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that needs a larger filter causes a commit in the step that records a block. After a crash there, no other
    peer was ever asked for the block.
    """
    recorded = list[tuple[int, Coverage]]()
    step = ClientEngine.step

    def watched(engine: ClientEngine, event: Input, now: Instant) -> list[Effect]:
        effects = step(engine, event, now)
        for effect in effects:
            if isinstance(effect, Commit) and effect.batch.cursor is not None:
                recorded.append((effect.batch.cursor, Coverage.parse(effect.batch.notes.get(NOTE))))
        return effects

    with stage(tmp_path, Mode.BIP37, *[Prompt] * 4, mempool=False) as world:
        world.boot()
        world.wait_synced(within=60)
        for _ in range(1_500):
            world.truth.receive()
        monkeypatch.setattr(ClientEngine, "step", watched)
        world.truth.mine()
        world.wait_synced(within=60)
        assert recorded
        assert not [
            height
            for height, known in recorded
            if not any(span.first <= height <= span.last for span in known.unwitnessed)
        ]


def test_pruned_peers_are_named_if_no_peer_has_old_blocks(tmp_path: Path) -> None:
    """The client waited without a warning."""
    with stage(tmp_path, Mode.BIP37, Pruned, Pruned, Prompt) as world:
        world.truth.mine(300)
        world.nodes[2].is_up = False
        world.boot()
        world.pass_time(60)
        told = [warning for warning in world.warnings if "keeps only recent blocks" in str(warning.error)]
        assert {warning.address for warning in told} == {
            address for node in world.nodes[:2] for address in node.addresses
        }
        assert len(told) == 2
        assert not any(warning.banned for warning in told)
        world.nodes[2].is_up = True
        world.wait_synced(within=400)
        assert world.has_found_all()
        assert len([warning for warning in world.warnings if "keeps only recent blocks" in str(warning.error)]) == 2


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
@pytest.mark.parametrize("depth", [250, 287, 288])
def test_pruned_node_serves_a_start_within_288_blocks(
    mode: Mode, depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BIP-159 promises the last 288 blocks: depths 0 to 287."""
    monkeypatch.setattr(truth, "_LONG_SHARE", 1.0)
    start = truth.template(truth.LONG).regtest.height - depth
    with stage(tmp_path, mode, Pruned, from_height=start) as world:
        assert world.truth.height - depth == start
        world.boot()
        if depth < 288 or mode is Mode.COMPACT:
            world.wait_synced(within=60)
            assert not world.warnings
        else:
            world.pass_time(60)
            assert not world.synced
            assert ["keeps only recent blocks" in str(each.error) for each in world.warnings] == [True]


def test_a_pruned_peer_is_a_witness_of_recent_blocks(tmp_path: Path) -> None:
    """The client asked it only for the lowest unwitnessed block, which it does not have."""
    with stage(tmp_path, Mode.BIP37, OmitsAll, Pruned) as world:
        world.truth.mine(300)
        world.nodes[1].is_up = False
        world.boot()
        world.wait_synced(within=60)
        world.truth.receive()
        world.truth.mine(20)
        paid = world.truth.height - 19
        world.wait_synced(within=60)
        engine = world.engine
        assert 1 not in engine.books.positions_at(paid)
        world.nodes[1].is_up = True
        world.pass_time(400)
        assert 1 in engine.books.positions_at(paid)
        assert world.banned == set(world.nodes[0].addresses)


def test_waiting_answers_of_a_proven_liar_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers waited for a slow disk when it was banned, and the liar then counted as a witness."""
    is_slow = [True]
    monkeypatch.setattr(Outbox, "is_backed_up", property(lambda out: is_slow[0]))
    with stage(tmp_path, Mode.BIP37, OmitsAll, Prompt) as world:
        world.nodes[1].is_up = False
        world.boot()
        engine = world.engine
        is_slow[0] = False
        while not searched_parts(engine):  # the peer is asked for the first blocks
            world.pass_time(0.01)
        is_slow[0] = True
        world.pass_time(5)
        assert any(part.answers for part in searched_parts(engine) if not part.is_recorded)
        (end,) = world.nodes[0].ends
        end.session.send(wire.Block(world.truth.regtest.chain.active[3].raw))
        end.work()
        world.pass_time(5)
        assert world.banned == set(world.nodes[0].addresses)
        is_slow[0] = False
        world.nodes[1].is_up = True
        world.pass_time(400)
        assert world.has_found_all()
        assert all(span.witnesses.addresses == set(world.nodes[1].addresses) for span in engine.coverage.unwitnessed)


def test_joined_unwitnessed_ranges_are_requested_once_per_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges that the peer had answered for were joined with other ranges. The client then requested them from it
    forever.
    """
    monkeypatch.setattr(coverage, "MAX_UNWITNESSED_RANGES", 1)
    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, timeouts=PeerTimeouts(flight=20)) as world:
        world.boot_without(1)
        (other,) = [each for each in world.running.connections.values() if each.node is world.nodes[1]]
        assert 1 <= other.sent["getdata"] <= world.truth.height // 20 + 1


def test_learned_elements_are_not_looked_up_in_a_filter_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each recorded batch, the client looked up all elements of the wallet for every peer: 20 ms for 10,000
    elements.
    """
    looked_up = Counter[tuple[int, bytes]]()
    contains = Bip37Filter.__contains__

    def counted(made: Bip37Filter, element: object) -> bool:
        assert isinstance(element, bytes)
        looked_up[id(made), element] += 1
        return contains(made, element)

    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, mempool=False) as world:
        world.boot()
        world.wait_synced(within=60)
        coins = len(world.truth.coins)
        monkeypatch.setattr(Bip37Filter, "__contains__", counted)
        for _ in range(3):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=60)
        assert world.has_found_all()
        assert looked_up.total() < coins
        assert max(looked_up.values()) == 1


class _KeepsBlocksResponder(Responder):
    """Sends no whole block."""

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if kind == wire.InvType.FILTERED_BLOCK:
            super().on_block_wanted(block, kind)


class _OmitsSmallResponder(_KeepsBlocksResponder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [each for each in matched if len(each.stripped) != 64])


class OmitsSmall(Liar):
    """Omits transactions of 64 bytes, which make a proof ambiguous."""

    omits = True
    responder = _OmitsSmallResponder


def spend_in_64_bytes(world: World) -> None:
    """Mine a spend of the wallet that might be an inner node of a Merkle tree (CVE-2017-12842)."""
    lock = LOCKS[1]  # P2WPKH, whose signature is not in these bytes
    coin = world.truth.regtest.pay(lock.pays(20_000))
    world.truth.mine()
    raw = build_tx([lock.spends(OutPoint(coin, 0), 20_000)], [TxOut(19_000, b"\x51" * 4)])
    assert len(Transaction.parse(raw).stripped) == 64
    world.truth.regtest.mine(transactions=[raw])


def test_a_peer_becomes_a_witness_when_its_block_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was killed before the whole block arrived never checked the block, and requested it from no other
    peer.
    """
    with stage(tmp_path, Mode.BIP37, OmitsSmall, Prompt, mempool=False) as world:
        liar, honest = world.nodes
        honest.is_up = False
        spend_in_64_bytes(world)
        world.boot()
        world.wait_synced(within=60)
        assert not world.has_found_all()
        honest.is_up = True
        with monkeypatch.context() as patch:
            patch.setattr(Prompt, "responder", _KeepsBlocksResponder)
            while not honest.ends:
                world.pass_time(1)
            world.pass_time(2)
        assert not world.has_found_all()
        world.kill()
        world.boot()
        world.pass_time(120)
        assert world.has_found_all()
        assert world.banned == set(liar.addresses)


class _OmitsOldResponder(_KeepsBlocksResponder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, matched if block.height >= self.regtest.height - 1 else [])


class OmitsOld(Liar):
    """Omits all matches except in the last two blocks."""

    omits = True
    responder = _OmitsOldResponder


@pytest.mark.parametrize("is_killed", [False, True])
def test_blocks_below_an_ambiguous_block_are_unwitnessed_at_once(is_killed: bool, tmp_path: Path) -> None:
    """They became unwitnessed only after the whole block arrived. If the client was killed before, or banned its peer,
    it asked no other peer for them.
    """
    with stage(tmp_path, Mode.BIP37, OmitsOld, Prompt, mempool=False, timeouts=PeerTimeouts(flight=1_000)) as world:
        liar, honest = world.nodes
        honest.is_up = False
        spend_in_64_bytes(world)
        world.boot()
        world.pass_time(10)
        engine = world.engine
        assert engine.books.cursor == world.truth.height - 1
        if is_killed:
            world.kill()
            liar.is_up = False
            world.boot()
        else:
            (end,) = liar.ends
            end.session.send(wire.Block(world.truth.regtest.chain.active[3].raw))
            end.work()
        honest.is_up = True
        world.wait_synced(within=400)
        world.pass_time(60)
        assert world.has_found_all()


@pytest.mark.slow
def test_announcements_during_a_filter_reload_cost_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old filter may have matched the transaction. The peer's new filter did not learn it, and so the peer omits
    the spend.
    """
    drifted: list[object] = []
    monkeypatch.setattr(BloomFilters, "has_drifted", lambda filters, loaded: any(loaded is each for each in drifted))
    with stage(tmp_path, Mode.BIP37, *[Prompt] * 6) as world:
        regtest, lock = world.truth.regtest, p2wpkh(key(77))
        world.watch_lock(lock)
        world.boot()
        world.wait_synced(within=60)
        links = bloom_links(world.engine)
        for _ in range(20):
            coin = OutPoint(regtest.pay(lock.pays(50_000)), 0)
            drifted[:] = [link.filter for link in links.values()]
            world.pass_time(60)
            world.truth.mine()
            world.wait_synced(within=60)
            regtest.submit_tx(build_tx([lock.spends(coin, 50_000)], [TxOut(40_000, THEIRS)]))
            world.pass_time(60)
            world.truth.mine()
            world.wait_synced(within=60)
        world.pass_time(60)
        assert not world.warnings
        assert world.has_found_all()


def test_repeated_requests_after_a_filter_reload_cost_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction was evicted from the queue and had matched the old filter. The new filter need not match it, and
    has not learned it.
    """
    gone, put = list[bytes](), Queue.put

    def put_instead(queue: Queue, raw: bytes, group: str = "") -> list[bytes] | None:
        left = put(queue, raw, group)
        return left if left is None else [*left, *(gone.pop() for _ in gone[:1])]

    monkeypatch.setattr(Queue, "put", put_instead)
    with stage(tmp_path, Mode.BIP37, *[Prompt] * 2) as world:
        regtest, lock, others = world.truth.regtest, p2wpkh(key(77)), p2wpkh(key(78))
        world.watch_lock(lock)
        world.watch_lock(others)
        world.boot()
        world.wait_synced(within=60)
        payment = regtest.find_tx(regtest.pay(lock.pays(50_000)))
        assert payment is not None
        world.pass_time(20)
        world.forget_lock(lock)
        world.wait_synced(within=60)
        world.pass_time(20)
        gone.append(payment.raw)
        regtest.pay(others.pays(50_000))
        world.pass_time(60)
        assert not gone
        assert not world.warnings
