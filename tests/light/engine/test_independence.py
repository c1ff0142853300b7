"""Peers count as independent by their network groups, not by their names. Blocks with few witnesses stay
unwitnessed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar, OmitsAll, OmitsTxs
from simulation.behaviours.compact import OmitsScripts
from simulation.node import Node
from simulation.truth import copy_chain
from spvfilter.light.engine.effects import Commit
from spvfilter.light.engine.inputs import HeardTogether, Instant
from spvfilter.light.events import Mode
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.watch.match import Completeness
from spvfilter.wire.events import Received
from spvfilter.wire.messages.table import Headers
from support.blocks.locks import key
from support.client.regtests import cut
from support.client.stage import Prompt, Stage, at, stage


def proven(world: Stage) -> list[object]:
    """Return the events that report something as proven."""
    matches = [event for event in world.told if isinstance(event, (MatchFound, MatchConfirmed))]
    return [
        *(event for event in world.synced if event.proven_height >= 0),
        *(event for event in matches if event.completeness == Completeness.PROVEN),
    ]


def meet_honest(world: Stage, *, late: list[Node]) -> None:
    """Sync first without these nodes, then with them."""
    for node in late:
        node.is_up = False
    world.boot()
    world.wait_synced(within=60)
    assert not world.has_found_all()
    assert not proven(world)
    for node in late:
        node.is_up = True
    world.pass_time(900)
    world.truth.mine()
    world.wait_synced(within=120)
    assert world.has_found_all()
    assert not world.banned & {address for node in late for address in node.addresses}


def test_filters_of_one_node_with_three_addresses_are_not_proven(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, at(OmitsScripts, 1, 18444, 18445, 18446), Prompt) as world:
        meet_honest(world, late=world.nodes[1:])


def test_filters_of_two_nodes_of_one_network_are_not_proven(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, at(OmitsScripts, 1, net=9), at(OmitsScripts, 2, net=9), Prompt) as world:
        meet_honest(world, late=world.nodes[2:])


def test_one_node_with_three_addresses_is_no_witness_of_itself(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, at(OmitsAll, 1, 18444, 18445, 18446), Prompt) as world:
        meet_honest(world, late=world.nodes[1:])


@pytest.mark.few(1)
@pytest.mark.parametrize("liar", [OmitsAll, OmitsTxs])
def test_two_liars_among_eight_hide_nothing(liar: type[Liar], tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, liar, liar, *[Prompt] * 6) as world:
        world.boot()
        world.wait_synced(within=120)
        for _ in range(3):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=60)
        world.pass_time(60)
        assert world.has_found_all()
        assert world.banned <= {"10.1.0.1:18444", "10.2.0.2:18444"}


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_blocks_with_one_witness_are_searched_again_after_a_restart(mode: Mode, tmp_path: Path) -> None:
    """Also if the second run is in compact mode."""
    with stage(tmp_path, Mode.BIP37, OmitsAll, Prompt, Prompt) as world:
        for node in world.nodes[1:]:
            node.is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert not world.has_found_all()
        world.kill()
        world.options = type(world.options)(mode=mode)
        for node in world.nodes[1:]:
            node.is_up = True
        world.truth.mine()
        world.pass_time(300)
        world.wait_synced(within=60)
        assert world.has_found_all()


def test_blocks_with_one_witness_are_searched_again_after_an_addition(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, OmitsAll, Prompt) as world:
        world.nodes[1].is_up = False
        world.boot()
        world.wait_synced(within=60)
        told = len(world.synced)
        world.watch_lock(p2wpkh(key(500)), world.truth.height)
        world.pass_time(30)
        assert len(world.synced) > told
        assert not world.has_found_all()
        world.nodes[1].is_up = True
        world.pass_time(400)
        assert world.has_found_all()


def branch(world: Stage, depth: int, blocks: int) -> Regtest:
    """Return a node with a branch of its own, whose blocks pay the wallet."""
    made = copy_chain(world.truth.regtest, world.true_wall)
    cut(made, depth)
    made.mine(blocks, to=world.truth.locks[blocks].script_pubkey)
    world.truth.others_blocks.update((block.hash, block) for block in made.chain.active[-blocks:])
    return made


def test_proof_of_disconnected_blocks_does_not_survive_a_crash(tmp_path: Path) -> None:
    """Two reorganizations arrive together, and the process is killed when the first one is stored."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(60)
        fork = world.truth.height - 5
        chains = [branch(world, 5, blocks) for blocks in (6, 7)]
        engine, disk = world.engine, world.running.disk
        assert engine.coverage.proven == world.truth.height
        assert not disk.waiting
        told = (
            Received(Headers(tuple(block.raw[:80] for block in chain.chain.active[fork + 1 :]))) for chain in chains
        )
        effects = engine.step(
            HeardTogether(next(iter(engine.pool)).number, tuple(told)), Instant(world.timeline.now, world.wall())
        )
        first, second = (effect for effect in effects if isinstance(effect, Commit))
        assert first.batch.fork == second.batch.fork == fork
        disk.store.commit(first.batch)
        world.kill()
        world.nodes[0].view = chains[0]
        world.nodes[1].go_down()
        told_before = len(world.synced)
        world.boot()
        world.pass_time(60)
        (synced,) = world.synced[told_before:]
        assert synced.height == fork + 6
        assert synced.peers == tuple(world.nodes[0].addresses)
        assert synced.proven_height == fork
