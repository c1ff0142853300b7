"""The search by compact filters: requests to each peer, the evidence of filters, and the privacy of requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from simulation.pipe import Quality
from simulation.truth import late_lock
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.events import Mode, PeerChanged, Phase, Progress, Synced
from spvfilter.node.scripts import SIGNATURE, p2pkh, p2sh, p2wpkh, p2wsh, push
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchWithdrawn, Reason
from spvfilter.watch.match import Completeness
from spvfilter.wire.events import Service
from support.blocks.locks import FOREIGN, LOCKS, STRANGER, build_tx, key
from support.client.stage import Prompt, Stage, stage

SMALL = PeerTimeouts(filters=15)
"""The search asks for filters in several parts."""


def completeness(world: Stage) -> Counter[Completeness]:
    """Count the matches of the database by their completeness."""
    return Counter(each for _, _, _, each, _ in world.running.disk.store.matches())


def sent(world: Stage, *commands: str) -> list[int]:
    """The number of such messages that the client sent to each connected peer."""
    return [sum(each.sent[name] for name in commands) for each in world.running.connections.values()]


def parts(blocks: int) -> int:
    """The number of requests for the filters of a number of blocks."""
    return -(-blocks // SMALL.filters)


def waiting(world: Stage) -> set[bytes]:
    return world.running.books.waiting()


def test_matches_of_one_peer_become_proven_with_another(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.nodes[1].is_up = False
        world.boot()
        world.wait_synced(within=30)
        assert completeness(world).keys() == {Completeness.ONE_PEER}
        world.kill()
        world.nodes[1].is_up = True
        world.boot()
        world.pass_time(30)
        assert completeness(world).keys() == {Completeness.PROVEN}
        world.kill()
        world.nodes[0].is_up = False
        world.truth.receive()
        world.truth.mine()
        world.boot()
        world.pass_time(30)
        assert completeness(world)[Completeness.ONE_PEER] == 1


class IsFar(Prompt):
    """Its headers come long after those of the other peer."""

    def quality(self) -> Quality:
        return Quality(0.4, 0.0, 1e7, 0)


def test_a_second_peer_with_slow_headers_is_awaited(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, IsFar) as world:
        world.boot()
        world.wait_synced(within=30)
        found = {event.completeness for event in world.told if isinstance(event, MatchFound)}
        assert found == {Completeness.PROVEN}


def test_filters_come_from_all_peers(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, timeouts=SMALL) as world:
        world.boot()
        world.wait_synced(within=30)
        asked = sent(world, "getcfilters")
        assert min(asked) > 1
        assert sum(asked) == parts(world.truth.height + 1)


def test_only_filters_above_the_start_are_requested(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, timeouts=SMALL, from_height=150) as world:
        world.boot()
        world.wait_synced(within=30)
        assert world.running.books.confirmed() == world.truth.scan(150)
        assert sent(world, "getcfilters") == [parts(world.truth.height - 149)]


@pytest.mark.parametrize("keeps", [False, True])
def test_no_filter_is_requested_twice_after_a_restart(keeps: bool, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, keep_filters=keeps, timeouts=SMALL) as world:
        world.boot()
        while not any(isinstance(event, MatchFound) for event in world.told):
            world.pass_time(0.01)
        for number, (depth, blocks) in enumerate(((0, 0), (0, 10), (7, 8), (40, 41), (0, 0))):
            world.kill()
            if depth:
                world.truth.regtest.reorg(depth)
            else:
                world.truth.mine(blocks)
            world.boot()
            world.pass_time(30)
            assert world.synced[-1].hash == world.truth.tip
            assert world.has_found_all()
            assert not number or sent(world, "getcfilters") == [parts(blocks)]


def test_kept_filters_find_a_new_script_without_the_network(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, keep_filters=True) as world:
        late = late_lock(0)
        world.truth.regtest.pay(late.pays(7_000))
        world.truth.mine()
        world.boot()
        world.wait_synced(within=30)
        asked = sent(world, "getcfilters")
        world.watch_lock(late)
        assert not world.has_found_all()
        world.pass_time(10)
        assert world.has_found_all()
        assert sent(world, "getcfilters") == asked
        world.kill()
        world.boot()
        world.pass_time(10)
        assert sent(world, "getcfilters") == [0]


@pytest.mark.parametrize(
    ("mode", "phases"),
    [
        (Mode.COMPACT, [Phase.HEADERS, Phase.FILTER_HEADERS, Phase.FILTERS]),
        (Mode.BIP37, [Phase.HEADERS, Phase.BLOCKS]),
    ],
)
def test_progress_reaches_its_total_and_never_goes_back(mode: Mode, phases: list[Phase], tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, timeouts=SMALL) as world:
        world.boot()
        world.wait_synced(within=30)
        for phase in phases:
            steps = [event for event in world.told if isinstance(event, Progress) and event.phase is phase]
            done = [step.done for step in steps]
            assert done == sorted(done)
            assert all(0 <= step.done <= step.total for step in steps)
            assert steps[-1].done == steps[-1].total > 0
        assert any(isinstance(event, PeerChanged) and event.address for event in world.told)
        kinds = [type(event) for event in world.told]
        assert kinds.index(MatchFound) < kinds.index(Synced)


def test_new_blocks_during_a_search_cost_no_peer_and_match(tmp_path: Path) -> None:
    is_searching: list[bool] = []
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, timeouts=PeerTimeouts(filters=5)) as world:
        world.boot()
        for number in range(1, 9):
            world.pass_time(0.1)
            world.truth.receive()
            world.truth.mine()
            if number % 3 == 0:
                world.truth.regtest.reorg(2)
                is_searching.append(not world.synced)
        assert is_searching[0]
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert not world.warnings


class HasNoBloom(Prompt):
    services = Prompt.services & ~Service.BLOOM


@pytest.mark.parametrize("kind", [Prompt, HasNoBloom])
def test_pending_payments_are_found_without_a_bip37_filter(kind: type[Prompt], tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, kind, kind) as world:
        world.truth.receive()
        first = world.truth.coins[-1].outpoint.txid
        world.boot()
        world.wait_synced(within=30)
        world.pass_time(10)
        assert (first in waiting(world)) == (kind is Prompt)  # the request for the mempool needs BIP-37 (BIP-35)
        world.truth.others(5)
        world.truth.receive()
        payment = world.truth.coins[-1].outpoint.txid
        spend = world.truth.regtest.submit_tx(world.truth.spending() or b"")
        world.pass_time(10)
        assert {payment, spend} <= waiting(world)
        for _ in range(2):
            world.truth.mine()
            world.wait_synced(within=30)
            assert not waiting(world)
            assert world.has_found_all()
            world.truth.regtest.reorg(1)
        world.pass_time(30)
        assert sent(world, "filterload", "filteradd") == [0, 0]
        assert not world.warnings


@pytest.mark.parametrize("mode", Mode)
def test_without_the_mempool_payments_are_found_only_in_blocks(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, mempool=False) as world:
        world.boot()
        world.wait_synced(within=30)
        world.truth.receive()
        world.pass_time(30)
        assert not waiting(world)
        world.truth.mine()
        world.wait_synced(within=30)
        assert world.has_found_all()
        assert not any(isinstance(event, MatchConfirmed) for event in world.told)


def test_double_spends_of_any_script_type_withdraw_the_payments(tmp_path: Path) -> None:
    locks = [p2pkh(key(98)), STRANGER, p2sh(p2wpkh(key(97))), p2wsh(push(key(96)) + b"\xac", [SIGNATURE])]
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        regtest = world.truth.regtest
        coins = [(lock, OutPoint(regtest.pay(lock.pays(50_000)), 0)) for lock in locks]
        world.truth.mine()
        world.boot()
        world.wait_synced(within=30)
        paid = {
            regtest.submit_tx(build_tx([lock.spends(coin, 50_000)], [LOCKS[1].pays(49_000)])) for lock, coin in coins
        }
        world.pass_time(10)
        assert paid <= waiting(world)
        regtest.mine(
            transactions=[build_tx([lock.spends(coin, 50_000)], [FOREIGN.pays(48_000)]) for lock, coin in coins]
        )
        world.wait_synced(within=30)
        withdrawn = {(event.match.txid, event.reason) for event in world.told if isinstance(event, MatchWithdrawn)}
        assert withdrawn == {(txid, Reason.CONFLICT) for txid in paid}
        assert world.has_found_all()


def test_auto_uses_compact_filters_if_a_peer_serves_them(tmp_path: Path) -> None:
    class OnlyBloom(Prompt):
        services = Prompt.services & ~Service.COMPACT_FILTERS

    for nodes, expected in (([OnlyBloom, HasNoBloom], Completeness.ONE_PEER), ([OnlyBloom], Completeness.UNPROVEN)):
        (folder := tmp_path / str(len(nodes))).mkdir()
        with stage(folder, Mode.AUTO, *nodes) as world:
            world.boot()
            world.wait_synced(within=30)
            assert completeness(world).keys() == {expected}
            assert world.has_found_all()
