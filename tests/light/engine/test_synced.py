"""The client reports Synced only with a right clock and a peer that has the tip."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from simulation.behaviours.bloom import OmitsAll
from simulation.behaviours.compact import OmitsScripts
from simulation.behaviours.faulty import Downloading, SkewedClock
from simulation.behaviours.schemes import Lags
from simulation.pipe import Quality
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.events import BroadcastStep, Mode
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchWithdrawn
from support.client.sending import named, steps
from support.client.stage import Kind, Prompt, Stage, at, stage

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
DAY_S = 86_400


@pytest.mark.few(1)
@MODES
def test_a_clock_that_is_days_slow_prevents_synced(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt, Prompt) as world:
        world.set_skew(-3.0 * DAY_S)
        world.boot()
        world.pass_time(300)
        assert not world.synced
        assert any(str(each.error).startswith("this machine's clock is") for each in world.warnings)
        assert not world.banned
        world.set_skew(0.0)
        world.wait_synced(within=3_600)
        assert world.has_found_all()


@pytest.mark.few(1)
@MODES
def test_a_corrected_clock_does_not_make_an_old_tip_synced(mode: Mode, tmp_path: Path) -> None:
    """Under the wrong clock, new blocks were from the future. A node that is behind does not prove the old tip."""
    with stage(tmp_path, mode, Lags, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.set_skew(-3.0 * DAY_S)
        world.kill()
        world.truth.mine(3)
        world.pass_time(600)
        before = len(world.synced)
        world.set_skew(0.0)
        world.wait_synced(within=20)
        assert {event.hash for event in world.synced[before:]} == {world.truth.tip}


@MODES
def test_a_node_in_its_initial_download_proves_no_tip(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Downloading, Downloading, Prompt) as world:
        world.nodes[2].is_up = False
        world.boot()
        world.pass_time(120)
        assert not world.synced
        assert any("initial block download" in str(each.error) for each in world.warnings)
        world.nodes[2].is_up = True
        world.wait_synced(within=600)
        assert not world.banned


@MODES
def test_a_tip_that_is_days_old_causes_a_warning(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        world.pass_time(3 * DAY_S)
        world.boot()
        world.wait_synced(within=60)
        assert any("3.0 days old" in str(each.error) for each in world.warnings)


@MODES
def test_a_clock_that_jumps_for_a_minute_expires_nothing(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        process = world.process
        assert process is not None
        raw = world.truth.spending()
        assert raw is not None
        process.broadcast(raw)
        world.truth.receive()
        world.pass_time(30)
        waiting = set(process.books.waiting())
        assert waiting
        world.set_skew(15.0 * DAY_S)
        world.pass_time(300)
        world.set_skew(0.0)
        world.pass_time(300)
        assert set(process.books.waiting()) == waiting
        assert not [event for event in world.told if isinstance(event, MatchWithdrawn)]


@pytest.mark.few(1)
@pytest.mark.parametrize(("mode", "liar"), [(Mode.BIP37, OmitsAll), (Mode.COMPACT, OmitsScripts)])
def test_a_repeated_search_ends_synced_and_reports_it_again(mode: Mode, liar: Kind, tmp_path: Path) -> None:
    """Synced first depends on a liar, which is the only peer. After its ban, the client is not synced until the search
    ends.
    """
    with stage(tmp_path, mode, liar, Prompt) as world:
        world.nodes[1].is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert not world.has_found_all()
        process, before, searching = world.process, len(world.synced), 0
        assert process is not None
        engine = world.engine
        world.nodes[1].is_up = True
        while len(world.synced) == before:
            world.pass_time(0.05)
            height = engine.books.cursor
            if height < world.truth.height:
                assert not process.status.is_synced
                searching += 1
            assert world.timeline.now < 300
        assert searching
        assert world.has_found_all()
        assert world.synced[-1].hash == world.synced[-2].hash == world.truth.tip
        assert world.synced[-1].peers == tuple(world.nodes[1].addresses)


class Fast(SkewedClock):
    clock_skew_s = 5 * 3_600.0


class Slow(SkewedClock):
    clock_skew_s = -5 * 3_600.0


@pytest.mark.parametrize("wrong", [Fast, Slow])
def test_one_wrong_peer_clock_delays_nothing_if_another_is_right(wrong: type[SkewedClock], tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, wrong) as world:
        world.boot()
        world.wait_synced(within=60)
        assert not any(str(each.error).startswith("this machine's clock is") for each in world.warnings)


@pytest.mark.few(2)
@pytest.mark.parametrize("wrong", [Fast, Slow])
@pytest.mark.parametrize("others", [0, 1])
def test_one_odd_clock_is_a_warning_with_the_peers_name(wrong: type[SkewedClock], others: int, tmp_path: Path) -> None:
    kinds = [at(wrong, 1, net=1), *(at(Prompt, 2 + number, net=1) for number in range(others))]
    with stage(tmp_path, Mode.COMPACT, *kinds) as world:
        world.boot()
        world.wait_synced(within=60)
        (warning,) = (each for each in world.warnings if "its clock is 300 minutes" in str(each.error))
        assert warning.address == world.nodes[0].addresses[0]
        assert world.has_found_all()


@pytest.mark.parametrize("wrong", [Fast, Slow])
def test_two_of_three_network_groups_decide_about_the_clock(wrong: type[SkewedClock], tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, wrong, wrong, Prompt) as world:
        world.boot()
        world.pass_time(30)
        said = " ".join(str(each.error) for each in world.warnings)
        assert "the median of 3 network groups' clocks" in said
        assert not world.synced


def test_a_peer_may_be_behind_for_a_moment(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Lags) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.nodes[0].go_down()
        world.pass_time(PeerTimeouts().stall_s / 2)
        behind = world.nodes[1].addresses[0]
        assert behind not in {each.address for each in world.warnings}
        world.pass_time(PeerTimeouts().stall_s)
        assert behind in {each.address for each in world.warnings}


@pytest.mark.parametrize("first", [Fast, Prompt])
def test_a_network_group_votes_with_the_clock_nearest_to_ours(first: Kind, tmp_path: Path) -> None:
    """Two of three groups would be wrong if the first peer of a group voted for it."""
    second = Prompt if first is Fast else Fast
    placed = [at(first, 1, net=1), at(second, 2, net=1), at(Fast, 3, net=2), at(Prompt, 4, net=3)]
    with stage(tmp_path, Mode.COMPACT, *placed) as world:
        world.boot()
        world.wait_synced(within=60)
        assert not any(str(each.error).startswith("this machine's clock is") for each in world.warnings)


@MODES
def test_an_own_transaction_of_a_disconnected_block_is_announced_again(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        process, regtest = world.process, world.truth.regtest
        raw = world.truth.spending()
        assert process is not None
        assert raw is not None
        process.broadcast(raw)
        world.pass_time(10)
        world.truth.mine()
        world.wait_synced(within=60)
        regtest.mempool.rebuild = lambda txs: None  # type: ignore[method-assign, assignment]  # it is not taken back
        regtest.reorg(1)
        assert raw not in [tx.raw for tx in regtest.mempool]
        world.wait_synced(within=60)
        world.pass_time(30)
        assert raw in [tx.raw for tx in regtest.mempool]


def test_an_echoing_peer_gets_a_transaction_again_after_a_reorganization(tmp_path: Path) -> None:
    """It may have forgotten it. Otherwise a peer that had the transaction from another node gets it a day later."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        regtest, raw = world.truth.regtest, world.truth.spending()
        assert raw is not None
        world.broadcast(raw)
        world.pass_time(60)
        txid = Transaction.parse(raw).txid
        (echo,) = (peer for peer, step in steps(world, txid) if step is BroadcastStep.ECHOED)
        regtest.mine(transactions=())
        world.wait_synced(within=60)
        (there,) = named(world, [echo])
        for node in world.nodes:
            if node is not there:
                node.is_up = False
                node.hang_up()
        regtest.mempool.evict(txid)
        regtest.reorg(1)
        world.wait_synced(within=60)
        world.pass_time(30)
        assert raw in [tx.raw for tx in regtest.mempool]


@pytest.mark.few(1)
@MODES
def test_an_own_transaction_returns_from_below_hundreds_of_blocks(mode: Mode, tmp_path: Path) -> None:
    """On a test network blocks cost next to nothing."""
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        regtest, raw = world.truth.regtest, world.truth.spending()
        assert raw is not None
        world.broadcast(raw)
        world.pass_time(10)
        world.truth.mine(320)
        world.wait_synced(within=120)
        world.kill()
        world.boot()
        world.wait_synced(within=120)
        regtest.mempool.rebuild = lambda txs: None  # type: ignore[method-assign, assignment]  # it is not taken back
        regtest.reorg(320)
        world.wait_synced(within=120)
        world.pass_time(30)
        assert raw in [tx.raw for tx in regtest.mempool]
        entry = world.running.disk.store.views.transaction(Transaction.parse(raw).txid)
        assert entry is not None
        assert (entry.status, entry.is_own) == (TxStatus.PENDING, True)


def coverage_of(world: Stage) -> Coverage:
    engine = world.engine
    return engine.coverage


def told_since(world: Stage, before: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the disputed ranges of each Synced since then. All of them are of the same tip."""
    assert {event.hash for event in world.synced[before:]} <= {world.truth.tip}
    return [event.disputed for event in world.synced[before:]]


@MODES
def test_a_dispute_after_synced_is_reported_by_another_synced(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        before = len(world.synced)
        world.pass_time(60)
        assert told_since(world, before) == []
        coverage = coverage_of(world)
        coverage.add_undecided(5, 7)
        world.pass_time(60)
        assert told_since(world, before) == [((5, 7),)]
        coverage.undecided.clear()
        world.pass_time(60)
        coverage.add_undecided(6, 7)  # already reported
        world.pass_time(60)
        assert told_since(world, before) == [((5, 7),)]
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.synced[-1].disputed == ((6, 7),)


def test_a_growing_dispute_is_reported_less_and_less_often(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        before = len(world.synced)
        coverage = coverage_of(world)
        for height in range(1, 31):
            coverage.undecided = [(1, height)]
            world.pass_time(10)
        assert 3 <= len(told_since(world, before)) <= 8
        world.pass_time(300)
        assert told_since(world, before)[-1] == ((1, 30),)


SILENCE_S = 300.0
HEARD_WITHIN_S = 120.0  # a quiet peer is pinged after 90 s; ticks and the answer take less than 30 s
SETTLED_S = 15.0  # for the handshake, an announcement and the search


def is_synced(world: Stage) -> bool:
    return world.running.status.is_synced


def check_status(world: Stage, tip_since: float) -> None:
    """Compare `is_synced` with the state of nodes, lines and chains."""
    process, now, tip = world.process, world.timeline.now, world.truth.tip
    assert process is not None
    engine = world.engine
    heard = [each for each in process.connections.values() if each.is_ready and now - each.heard_at < SILENCE_S]
    alive = [
        each
        for each in process.connections.values()
        if each.is_ready and not each.is_dead and now - each.since > SETTLED_S and each.node.behaviour.is_prompt
    ]
    is_settled = bool(alive) and now - tip_since > SETTLED_S
    if is_synced(world):
        assert engine.books.cursor == engine.chain.height
        assert any(each.node.behaviour.has_block(each.node.view, engine.chain.tip_hash) for each in heard)
        assert not is_settled or engine.chain.tip_hash == tip
    else:
        assert not is_settled


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["down", "up", "hang up", "cut"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["mine", "reorganize"]), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 100, 400, 2_000])),
    ),
    min_size=4,
    max_size=20,
)


@pytest.mark.long
@MODES
@settings(max_examples=25)
@given(steps=STEPS)
def test_synced_needs_a_recent_message_and_the_best_chain(
    mode: Mode, steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    timeouts = PeerTimeouts(silence_s=SILENCE_S)
    with stage(tmp_path_factory.mktemp("world"), mode, Prompt, Prompt, Lags, timeouts=timeouts) as world:
        world.boot()
        process, tip_since = world.process, 0.0
        assert process is not None
        for what, number in [*steps, ("wait", 100)]:
            match what:
                case "down":
                    world.nodes[number].go_down()
                case "up":
                    world.nodes[number].is_up = True
                case "hang up":
                    world.nodes[number].hang_up()
                case "cut":
                    for each in process.connections.values():
                        if each.node is world.nodes[number]:
                            each.cut()
                case "mine":
                    world.truth.mine(number)
                    tip_since = world.timeline.now
                case "reorganize":
                    world.truth.regtest.reorg(number)
                    tip_since = world.timeline.now
            check_status(world, tip_since)
            for _ in range(number if what == "wait" else 2):
                world.pass_time(1.0)
                check_status(world, tip_since)


@MODES
def test_client_without_a_peer_is_not_synced(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        assert is_synced(world)
        world.nodes[0].go_down()
        world.pass_time(1)
        assert not is_synced(world)
        world.truth.mine(6)
        world.pass_time(1_000)
        assert not is_synced(world)
        before = len(world.synced)
        world.nodes[0].is_up = True
        world.wait_synced(within=600)
        assert is_synced(world)
        assert {event.hash for event in world.synced[before:]} == {world.truth.tip}


@MODES
def test_synced_comes_again_when_a_peer_returns(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.nodes[0].go_down()
        world.pass_time(60)
        world.nodes[0].is_up = True
        world.pass_time(600)
        assert [event.hash for event in world.synced] == [world.truth.tip] * 2
        assert is_synced(world)


@pytest.mark.few(1)
@MODES
def test_old_tip_stays_synced_while_peers_answer_pings(mode: Mode, tmp_path: Path) -> None:
    """The age of the last block plays no part."""
    with stage(tmp_path, mode, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        process = world.process
        assert process is not None
        for _ in range(3 * 60):
            world.pass_time(60)
            heard = process.status.last_heard
            assert heard is not None
            assert world.wall() - heard < HEARD_WITHIN_S
            assert is_synced(world)
        assert len(world.synced) == 1


@MODES
def test_silent_peer_confirms_the_tip_for_a_limited_time(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, timeouts=PeerTimeouts(silence_s=SILENCE_S)) as world:
        world.boot()
        world.wait_synced(within=60)
        world.cut_lines()
        world.truth.mine()
        world.pass_time(SILENCE_S - HEARD_WITHIN_S)
        assert is_synced(world)
        world.pass_time(HEARD_WITHIN_S)
        assert not is_synced(world)
        world.wait_synced(within=3_000)  # the session notices the dead line after 20 minutes
        assert is_synced(world)


def test_client_is_not_synced_just_after_the_machine_slept(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.set_skew(3_600.0)  # the monotonic clock stood still
        assert not is_synced(world)
        world.truth.others(3)  # the announcements prove the tip; a ping would do it later
        world.pass_time(5)
        assert is_synced(world)
        assert len(world.synced) == 2


class Distant(Prompt):
    def quality(self) -> Quality:
        return Quality(0.4, 0.0, 1e7, 0)


@MODES
def test_peers_that_return_together_are_all_heard_before_synced(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Lags, Distant) as world:
        world.boot()
        world.wait_synced(within=60)
        for node in world.nodes:
            node.go_down()
        world.truth.mine(6)
        for node in world.nodes:
            node.is_up = True
        before = len(world.synced)
        world.wait_synced(within=60)
        assert {event.hash for event in world.synced[before:]} == {world.truth.tip}


def test_last_heard_is_none_before_the_first_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        world.nodes[0].is_up = False
        world.boot()
        world.pass_time(60)
        process = world.process
        assert process is not None
        assert process.status.last_heard is None
        world.nodes[0].is_up = True
        world.wait_synced(within=600)
        assert process.status.last_heard is not None
