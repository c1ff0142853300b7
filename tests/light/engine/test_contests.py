"""Filter headers that a peer has contradicted stay in doubt after it is gone, also after a restart. The doubt ends when
the peer is heard again or enough peers contradict it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from simulation import oracle
from simulation.behaviours.compact import FalseFilters, HidesBehindDoubt
from simulation.truth import LATE_LOCKS, late_lock
from simulation.world import World
from spvfilter.light.engine.coverage import MAX_DISPUTED, MAX_FILTER_DISPUTES, MAX_UNDECIDED_RANGES, Coverage
from spvfilter.light.engine.effects import Connect
from spvfilter.light.engine.inputs import Lost, PeerConnected, Tick
from spvfilter.light.engine.netgroups import host_of
from spvfilter.light.events import Mode
from spvfilter.node.blocktree import TreeBlock
from spvfilter.watch.match import Completeness
from support.client.discovery import Run
from support.client.engineparts import filter_headers_of, is_judging
from support.client.stage import Prompt, Stage, stage
from support.client.swarm import START

LATE = {late_lock(number).script_pubkey for number in range(LATE_LOCKS)}
ONE, OTHER = "10.1.0.1:1", "10.2.0.1:1"


def doubts(coverage: Coverage) -> list[tuple[int, int]]:
    return [(first, last) for first, last in coverage.in_doubt]


def covered(height: int = 100) -> Coverage:
    """Return a coverage on which two peers agree."""
    coverage = Coverage()
    coverage.agreed(height)
    return coverage


def test_doubt_of_many_ranges_is_bounded_and_never_lost() -> None:
    """Peers may dispute any block. Above the limit, the nearest ranges become one."""
    coverage, rng, doubted = covered(1_000_000), random.Random(4), set[int]()
    for _ in range(3 * MAX_UNDECIDED_RANGES):
        doubted.add(height := rng.randrange(1_000_000))
        coverage.add_undecided(height, height)
        assert len(coverage.undecided) <= MAX_UNDECIDED_RANGES
        assert coverage.undecided == sorted(coverage.undecided)
    assert all(coverage.completeness(height) is Completeness.ONE_PEER for height in doubted)
    assert Coverage.parse(coverage.encode()).undecided == coverage.undecided
    assert sum(last - first + 1 for first, last in coverage.undecided) < 500_000


def test_a_forgotten_disputed_block_is_in_doubt() -> None:
    """A search for a new entry would use a filter that a peer has contradicted."""
    coverage = covered(2 * MAX_DISPUTED)
    for height in range(MAX_DISPUTED):
        coverage.dispute(height, bytes(32))
    assert doubts(coverage) == []
    for height in range(MAX_DISPUTED, MAX_DISPUTED + 10):
        coverage.dispute(height, bytes(32))
    assert len(coverage.disputed) == MAX_DISPUTED
    assert doubts(coverage) == [(0, 9)]
    assert coverage.completeness(0) is Completeness.ONE_PEER


def test_heights_that_were_not_compared_are_in_doubt() -> None:
    coverage = covered()
    assert doubts(coverage) == []
    coverage.add_filter_dispute(ONE, 9, 80)
    assert doubts(coverage) == [(10, 80)]
    assert coverage.completeness(9) is Completeness.PROVEN
    assert coverage.completeness(10) is coverage.completeness(80) is Completeness.ONE_PEER
    assert coverage.completeness(81) is Completeness.PROVEN
    assert coverage.proven_matches == 9
    coverage.compared(ONE, 50)
    coverage.add_filter_dispute(OTHER, 59, 70)
    coverage.add_undecided(20, 30)
    assert doubts(coverage) == [(20, 30), (51, 80)]
    coverage.compared(ONE, 90)  # the peer has stated more filter headers since
    assert doubts(coverage) == [(20, 30), (60, 70)]
    coverage.remove_filter_dispute(OTHER)
    assert doubts(coverage) == [(20, 30)]
    assert coverage.proven_matches == 19


def test_agreement_withdraws_the_dispute_below_its_height() -> None:
    coverage = covered()
    coverage.add_filter_dispute(ONE, -1, 80)
    coverage.agrees(ONE, 40)
    assert doubts(coverage) == [(41, 80)]
    coverage.agrees(ONE, 30)
    assert doubts(coverage) == [(41, 80)]
    coverage.agrees(OTHER, 80)
    coverage.agrees(ONE, 80)
    assert doubts(coverage) == []
    assert not coverage.filter_disputes


def test_a_repeated_dispute_withdraws_nothing() -> None:
    coverage = covered()
    coverage.add_filter_dispute(ONE, 9, 80)
    coverage.compared(ONE, 70)
    coverage.add_filter_dispute(ONE, 9, 60)
    assert doubts(coverage) == [(10, 80)]


def test_disconnected_blocks_are_not_in_doubt() -> None:
    coverage = covered()
    coverage.add_filter_dispute(ONE, 9, 80)
    coverage.add_filter_dispute(OTHER, 60, 70)
    coverage.limit(50)
    assert doubts(coverage) == [(10, 50)]
    assert coverage.is_changed


def test_forgotten_disputing_addresses_leave_their_doubt() -> None:
    coverage = covered()
    for number in range(MAX_FILTER_DISPUTES):
        coverage.add_filter_dispute(f"10.{number}.0.1:1", 9 + number, 80)
    coverage.compared("10.3.0.1:1", 80)
    assert coverage.disputing[-1] == "10.3.0.1:1"
    coverage.add_filter_dispute("10.9.0.1:1", 20, 80)  # it replaces an address that leaves no doubt
    assert len(coverage.filter_disputes) == MAX_FILTER_DISPUTES
    assert "10.3.0.1:1" not in coverage.filter_disputes
    coverage.add_filter_dispute("10.8.0.1:1", 20, 90)
    assert len(coverage.filter_disputes) == MAX_FILTER_DISPUTES
    assert "10.0.0.1:1" not in coverage.filter_disputes
    coverage.add_filter_dispute("10.8.0.1:2", 20, 90)  # one host evicts no other host
    assert "10.8.0.1:1" not in coverage.filter_disputes
    assert "10.1.0.1:1" in coverage.filter_disputes
    for address in coverage.disputing:
        coverage.agrees(address, 100)
    assert not coverage.filter_disputes
    assert doubts(coverage) == [(10, 90)]  # the doubt of forgotten addresses, which cannot withdraw it
    assert doubts(Coverage.parse(coverage.encode())) == [(10, 90)]
    coverage.outweigh(89, ())
    assert doubts(coverage) == [(10, 90)]
    coverage.limit(85)
    assert doubts(coverage) == [(10, 85)]
    coverage.outweigh(85, ())
    assert doubts(coverage) == []


def test_a_peer_that_left_early_is_heard_after_other_peers() -> None:
    coverage = Coverage()
    for address in ("10.1.0.1:1", "10.2.0.1:1", "10.3.0.1:1"):
        coverage.add_filter_dispute(address, 4, 9)
    coverage.add_filter_dispute("10.1.0.1:1", 4, 9)
    assert coverage.disputing == ["10.1.0.1:1", "10.2.0.1:1", "10.3.0.1:1"]
    coverage.left("10.1.0.1:1")
    assert coverage.disputing == ["10.2.0.1:1", "10.3.0.1:1", "10.1.0.1:1"]
    coverage.compared("10.3.0.1:1", 9)
    coverage.left("10.3.0.1:1")
    coverage.left("10.4.0.1:1")
    assert coverage.disputing == ["10.2.0.1:1", "10.1.0.1:1", "10.3.0.1:1"]
    assert list(coverage.filter_disputes) == ["10.2.0.1:1", "10.3.0.1:1", "10.1.0.1:1"]


def test_three_agreeing_peers_outweigh_only_absent_peers() -> None:
    coverage = covered()
    coverage.add_filter_dispute(ONE, 9, 80)
    coverage.add_filter_dispute(OTHER, 9, 90)
    coverage.outweigh(79, ())
    coverage.outweigh(100, {ONE, OTHER})
    assert doubts(coverage) == [(10, 90)]
    coverage.outweigh(85, {ONE})
    assert doubts(coverage) == [(10, 90)]
    coverage.outweigh(90, {ONE})
    assert doubts(coverage) == [(10, 80)]
    coverage.outweigh(90, ())
    assert doubts(coverage) == []
    assert set(coverage.disputing) == {ONE, OTHER}


def test_former_supporters_contradict_the_new_filter_headers() -> None:
    coverage = covered()
    coverage.lost_supporters(10, 80, {ONE: 50, OTHER: 70})
    assert doubts(coverage) == [(10, 70)]
    assert coverage.disputing == [ONE, OTHER]
    coverage.agrees(OTHER, 90)
    assert doubts(coverage) == [(10, 50)]
    coverage.agrees(ONE, 90)
    assert doubts(coverage) == []
    coverage.lost_supporters(10, 80, {})
    assert doubts(Coverage.parse(coverage.encode())) == [(10, 80)]
    assert coverage.disputing == []


def test_disputes_survive_a_restart_and_older_databases_have_none() -> None:
    coverage = covered()
    coverage.add_filter_dispute(ONE, 9, 80)
    coverage.add_filter_dispute(OTHER, -1, 3)
    raw = coverage.encode()
    assert not coverage.is_changed
    assert Coverage.parse(raw) == coverage
    before = raw.replace(b'"contests":[["10.1.0.1:1",9,80],["10.2.0.1:1",-1,3]],"unheard":null,', b"")
    assert before != raw
    assert Coverage.parse(before).in_doubt == ()


def begin_to_contradict(world: Stage) -> None:
    """Two liars, which no block refutes, agree. An honest peer contradicts them and leaves before all is compared."""
    honest = world.nodes[-1]
    honest.is_up = False
    world.boot()
    world.wait_synced(within=60)
    assert not world.has_found_all()
    assert world.synced[-1].disputed == ()
    honest.is_up = True
    engine = world.engine
    coverage = engine.coverage
    for _ in range(100_000):
        world.pass_time(0.01)
        if coverage.in_doubt and coverage.disputed:
            break
    assert coverage.in_doubt
    honest.is_up = False
    honest.hang_up()
    world.pass_time(5)


@pytest.mark.few(1)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_doubt_lasts_until_the_contradicting_peer_is_heard_again(tmp_path: Path, is_restarted: bool) -> None:
    with stage(tmp_path, Mode.COMPACT, HidesBehindDoubt, HidesBehindDoubt, Prompt) as world:
        begin_to_contradict(world)
        if is_restarted:
            world.kill()
            world.pass_time(60)
        world.truth.mine()
        world.wait_synced(within=600)
        assert world.synced[-1].disputed
        world.nodes[-1].is_up = True
        world.pass_time(1_800)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.has_found_all()
        assert world.synced[-1].disputed == ()
        assert not world.banned & set(world.nodes[-1].addresses)


def test_three_peers_outweigh_the_contradiction_of_an_absent_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, HidesBehindDoubt, HidesBehindDoubt, HidesBehindDoubt, Prompt) as world:
        world.nodes[2].is_up = False
        begin_to_contradict(world)
        world.truth.mine()
        world.wait_synced(within=600)
        assert world.synced[-1].disputed
        world.nodes[2].is_up = True
        world.pass_time(1_800)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.synced[-1].disputed == ()


class HidesFrom(FalseFilters):
    """Adds an undecidable element to filters up to a height, and omits our scripts above it."""

    height = 10**9

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        if block.height > self.height:
            return elements - self.world.truth.scripts()
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        has_room = any(script[:1] == b"\x51" for script in spent & paid)
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if has_room else elements


@pytest.mark.few(1)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_compared_peer_that_contradicts_a_new_block_leaves_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """The other peers hide a payment in the new block. The honest peer leaves before that block is judged."""
    # the honest peer is heard before the other peers suffice for Synced
    monkeypatch.setattr("simulation.node._RELAY_S", 0.0)
    liars: list[HidesFrom] = []

    def liar(rng: random.Random, world: World) -> HidesFrom:
        liars.append(HidesFrom(rng, world))
        return liars[-1]

    with stage(tmp_path, Mode.COMPACT, liar, liar, Prompt) as world:
        for each in liars:
            each.height = world.truth.height
        honest = world.nodes[-1]
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = True
        world.pass_time(400)
        engine = world.engine
        assert engine.coverage.filter_disputes
        assert not engine.coverage.in_doubt
        world.truth.receive()
        world.truth.mine()
        for _ in range(2_000):
            world.pass_time(0.002)
            if is_judging(engine):
                break
        honest.is_up = False
        honest.hang_up()
        if is_killed:
            while world.running.disk.waiting:
                world.pass_time(0.01)
            world.kill()
            world.pass_time(60)
        world.wait_synced(within=60)
        assert not world.has_found_all()
        assert world.synced[-1].disputed
        honest.is_up = True
        world.pass_time(1_800)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.has_found_all()
        assert world.synced[-1].disputed == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("after_s", [0.0, 5.0])
def test_doubt_lasts_until_a_former_supporter_returns(tmp_path: Path, after_s: float, is_restarted: bool) -> None:
    """The client takes the filter headers of the last connected peer, which may hide a payment. They stay in doubt."""
    with stage(tmp_path, Mode.COMPACT, Prompt, HidesFrom) as world:
        honest, liar = world.nodes
        liar.is_up = False
        world.boot()
        world.wait_synced(within=60)
        liar.is_up = True
        engine = world.engine
        for _ in range(100_000):
            world.pass_time(0.002)
            if is_judging(engine):
                break
        world.pass_time(after_s)
        apart = min(engine.coverage.disputed, default=engine.coverage.filter_disputes[liar.addresses[0]].compared + 1)
        searched_whole = dict(engine.coverage.disputed)
        honest.is_up = False
        if is_restarted:
            world.kill()
        honest.hang_up()
        world.pass_time(60)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.synced[-1].peers == tuple(liar.addresses)
        assert world.synced[-1].disputed == ((apart, world.truth.height - 1),)
        engine = world.engine
        assert searched_whole.items() <= engine.coverage.disputed.items()
        if not is_restarted:  # otherwise the peers of the earlier run have no names
            honest.is_up = True
            world.pass_time(1_800)
            world.truth.mine()
            world.wait_synced(within=120)
            assert not world.synced[-1].disputed
        assert world.has_found_all()
        assert not world.banned


class HidesLate(FalseFilters):
    """Omits the scripts that the wallet watches later from all filters."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - LATE


def test_a_lie_below_the_start_repeats_searches_of_all_entries(tmp_path: Path) -> None:
    """An entry may have been added with a start below the wallet's."""
    with stage(tmp_path, Mode.COMPACT, Prompt, HidesLate, from_height=150) as world:
        honest, _ = world.nodes
        blocks = [block.raw for block in world.truth.regtest.chain.active]
        hidden = oracle.scan(blocks[:150], LATE)
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        for number in range(LATE_LOCKS):
            world.watch_lock(late_lock(number), 10)
        world.wait_synced(within=60)
        world.pass_time(60)
        assert not hidden <= world.running.books.confirmed()
        honest.is_up = True
        world.pass_time(600)
        world.truth.mine()
        world.wait_synced(within=120)
        assert hidden <= world.running.books.confirmed()


def test_a_leader_with_our_filter_headers_withdraws_its_dispute(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.nodes[0].is_up = False
        world.boot()
        world.wait_synced(within=60)
        world.engine.coverage.add_filter_dispute(world.nodes[0].addresses[0], -1, world.truth.height)
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.synced[-1].disputed
        world.nodes[1].is_up = False
        world.kill()
        world.truth.mine()
        world.nodes[0].is_up = True
        world.pass_time(60)
        world.wait_synced(within=600)
        assert world.synced[-1].disputed == ()


def test_disputing_addresses_take_at_most_a_quarter_of_connections() -> None:
    disputing = [f"203.{net}.113.77:8333" for net in range(MAX_FILTER_DISPUTES)]
    run = discovering(disputing)
    dialled = [effect.address for _ in range(8) for effect in run.do(Tick(), 5.0) if isinstance(effect, Connect)]
    assert dialled[:2] == disputing[:2]
    assert len(dialled) == 7
    assert not set(dialled[2:]) & set(disputing)
    run.client.store.close()


def dial(run: Run, seconds: int, is_there: Callable[[str], bool]) -> list[str]:
    """Let time pass and return the dialled addresses, some of which accept."""
    dialled: list[str] = []
    for _ in range(2 * seconds):
        effects = deque(run.do(Tick(), 0.5))
        while effects:
            effect = effects.popleft()
            if not isinstance(effect, Connect):
                continue
            dialled.append(effect.address)
            if is_there(effect.address):
                effects += run.do(
                    PeerConnected(effect.peer, host_of(effect.address), 0x4D, 0, True, True, "/x/", int(run.now.wall))
                )
            else:
                effects += run.do(Lost(effect.peer, ConnectionRefusedError("refused")))
    return dialled


def test_a_dead_disputing_address_blocks_no_other_address() -> None:
    disputing = ["203.1.113.77:8333", "203.2.113.77:8333"]
    run = discovering(disputing)
    dialled = dial(run, 100, lambda address: address not in disputing)
    assert [address for address in dialled if address in disputing] == disputing
    assert sum(peer.profile is not None for peer in run.engine.pool) == run.engine.options.max_peers
    run.client.store.close()


@pytest.mark.slow
def test_an_outage_does_not_stop_attempts_at_other_addresses() -> None:
    run = discovering(["203.1.113.77:8333"])
    dialled = dial(run, 600, lambda address: False)
    assert dialled.count("203.1.113.77:8333") <= 2
    assert len(set(dialled)) > 40
    run.client.store.close()


def discovering(disputing: list[str]) -> Run:
    """Return an engine with 300 addresses in its book and the given disputing addresses."""
    run = Run()
    for address in disputing:
        run.engine.coverage.add_filter_dispute(address, 9, 80)
    discovery = run.engine.pool.discovery
    assert discovery is not None
    for number in range(300):
        discovery.book.add(f"{101 + number // 256}.{number % 256}.0.1:8333", 0x49, START, "1.1", START)
    return run


def test_a_supporter_that_reconnects_at_once_is_still_followed(tmp_path: Path) -> None:
    """Otherwise a disputing peer causes a new download whenever another peer loses its connection."""
    with stage(tmp_path, Mode.COMPACT, Prompt, HidesFrom) as world:
        world.boot_without(1)
        engine = world.engine
        assert engine.coverage.filter_disputes
        taken_back: list[int] = []
        filter_headers_of(engine).on_taken_back(taken_back.append)
        for _ in range(3):
            world.nodes[0].hang_up()
            world.pass_time(60)
        assert not taken_back
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.has_found_all()
