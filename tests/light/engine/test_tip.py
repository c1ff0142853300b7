"""The engine at the tip: conflicts, reorganizations, and entries and starts that require a search of older blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.truth import START, late_lock
from spvfilter.light.events import Event, Mode
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
)
from support.blocks.locks import LOCKS, STRANGER, build_tx, key
from support.client.stage import Prompt, Stage, stage


def synced(world: Stage) -> None:
    world.boot()
    world.wait_synced(within=60)


def waiting(world: Stage) -> set[bytes]:
    return world.running.books.waiting()


def withdrawn(world: Stage) -> set[tuple[bytes, Reason]]:
    return {(event.match.txid, event.reason) for event in world.told if isinstance(event, MatchWithdrawn)}


def test_a_new_client_finds_transactions_that_wait_in_the_mempool(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt) as world:
        world.truth.receive()
        payment = world.truth.coins[-1].outpoint.txid
        child = world.truth.regtest.submit_tx(build_tx([world.truth.coins[-1].spend()], [STRANGER.pays(1_000)]))
        synced(world)
        world.pass_time(5)
        assert waiting(world) == {payment, child}


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_confirmed_conflict_withdraws_a_payment_and_its_child(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        regtest = world.truth.regtest
        world.truth.receive(LOCKS[1])
        world.truth.mine()
        synced(world)
        coin = world.truth.coins.pop()
        payment = regtest.submit_tx(build_tx([coin.spend()], [LOCKS[1].pays(coin.value - 500)]))
        child = regtest.submit_tx(
            build_tx([LOCKS[1].spends(OutPoint(payment, 0), coin.value - 500)], [LOCKS[2].pays(coin.value - 1_000)])
        )
        world.pass_time(10)
        assert waiting(world) == {payment, child}
        regtest.mine(transactions=[build_tx([coin.spend()], [STRANGER.pays(coin.value - 700)])])
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert not waiting(world)
        assert withdrawn(world) == {(payment, Reason.CONFLICT), (child, Reason.CONFLICT)}


def check_order(told: list[Event]) -> None:
    """Blocks connect in order, some of them implied by the next one. They disconnect from the top, after their matches
    are withdrawn.
    """
    top: list[tuple[int, bytes | None]] = []
    for event in told:
        match event:
            case BlockConnected(height, digest):
                assert not top or top[-1][0] < height
                top += ((each, None) for each in range(top[-1][0] + 1 if top else 0, height))
                top.append((height, digest))
            case BlockDisconnected(height, digest):
                assert top.pop() in ((height, digest), (height, None))
            case MatchFound(match) | MatchConfirmed(match):
                assert match.height is None or top[-1] == (match.height, match.block_hash)
            case MatchWithdrawn(match, reason) if reason is Reason.REORG and match.height is not None:
                assert top[-1] == (match.height, match.block_hash)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("depth", [1, 6, 100, pytest.param(2_016, marks=pytest.mark.slow)])
def test_a_reorganization_withdraws_old_matches_and_finds_new_ones(depth: int, is_killed: bool, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt, is_high=depth > 100) as world:
        synced(world)
        top = world.truth.height
        if is_killed:
            world.pass_time(5)
            world.kill()
        world.truth.regtest.reorg(depth)
        if is_killed:
            world.boot()
        world.wait_synced(within=60)
        assert world.has_found_all()
        gone = [event.height for event in world.told if isinstance(event, BlockDisconnected)]
        assert gone == [*range(top, top - depth, -1)]
        check_order(world.told)


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_disconnected_payment_waits_again(mode: Mode, is_forgotten: bool, tmp_path: Path) -> None:
    """The client has a copy of it, even if the nodes forget it."""
    with stage(tmp_path, mode, Prompt) as world:
        world.truth.receive()
        payment = world.truth.coins[-1].outpoint.txid
        world.truth.mine()
        synced(world)
        assert payment not in waiting(world)
        mempool = world.truth.regtest.mempool
        if is_forgotten:
            mempool.rebuild = lambda txs: None  # type: ignore[method-assign, assignment]
        world.truth.regtest.reorg(1)
        world.wait_synced(within=60)
        world.pass_time(10)
        assert payment in waiting(world)
        assert (payment in mempool) != is_forgotten
        world.truth.mine()
        world.wait_synced(within=60)
        assert (payment in waiting(world)) == is_forgotten
        assert is_forgotten or world.has_found_all()


def test_a_disconnected_coinbase_withdraws_its_descendants(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt) as world:
        regtest = world.truth.regtest
        regtest.mine(to=LOCKS[0].script_pubkey)
        coinbase = regtest.chain.txs(regtest.chain.tip)[0]
        regtest.mine(100)
        coin = LOCKS[0].spends(OutPoint(coinbase.txid, 0), coinbase.outputs[0].value)
        spend = regtest.submit_tx(build_tx([coin], [LOCKS[1].pays(1_000)]))
        synced(world)
        world.pass_time(10)
        assert spend in waiting(world)
        regtest.reorg(101, blocks=102)
        world.wait_synced(within=60)
        assert not waiting(world)
        assert world.has_found_all()


def test_fifty_payments_in_one_block_cause_no_wide_filter(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt) as world:
        synced(world)
        for _ in range(4):
            for _ in range(50):
                world.truth.receive()
            assert len(list(world.truth.regtest.mempool)) >= 50
            world.truth.mine()
            world.wait_synced(within=60)
        for _ in range(50):
            world.truth.spend()
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.has_found_all()
        (end,) = world.nodes[0].ends
        assert end.responder.filter is not None
        assert end.responder.filter.current_fp_rate < 0.001
        assert not world.warnings


def test_an_entry_of_a_later_run_is_searched_below(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt) as world:
        late = late_lock(0)
        world.truth.regtest.pay(late.pays(7_000))
        world.truth.mine()
        synced(world)
        world.kill()
        world.truth.learn(late)
        world.scripts.append(late.script_pubkey)
        world.wishes.watch([late.script_pubkey], None)
        told = len(world.synced)
        world.boot()
        world.pass_time(30)
        assert len(world.synced) > told
        assert world.has_found_all()


def test_a_later_entry_may_start_below_the_first_search(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt, from_height=150) as world:
        synced(world)
        heights = [event.height for event in world.told if isinstance(event, BlockConnected)]
        assert min(heights) >= 150
        assert not world.has_found_all()
        world.watch_lock(p2wpkh(key(500)), 0)
        world.pass_time(30)
        assert world.has_found_all()


def test_a_search_starts_two_hours_before_the_birthday(tmp_path: Path) -> None:
    birthday = START - 50 * 600
    with stage(tmp_path, Mode.BIP37, Prompt, birthday=birthday) as world:
        synced(world)
        first = min(event.height for event in world.told if isinstance(event, BlockConnected))
        times = [block.header.time for block in world.truth.regtest.chain.active]
        assert max(times[:first]) < birthday - 2 * 3_600
        assert first > 100
