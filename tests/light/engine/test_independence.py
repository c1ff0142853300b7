"""Peers count as independent by their networks, not by their names; and what rests on too few of them is a debt."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar, OmitsAll, OmitsTxs
from simulation.behaviours.compact import OmitsScripts
from simulation.node import Node
from spvfilter.light.events import Mode
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.watch.match import Completeness
from support.stage import Prompt, Stage, at, stage


def proven(world: Stage) -> list[object]:
    """What was told as proven."""
    matches = [event for event in world.told if isinstance(event, (MatchFound, MatchConfirmed))]
    return [
        *(event for event in world.synced if event.proven_height >= 0),
        *(event for event in matches if event.completeness == Completeness.PROVEN),
    ]


def meet_honest(world: Stage, *, late: list[Node]) -> None:
    """Synced first without these nodes, then with them."""
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


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_what_one_peer_alone_answered_for_is_asked_of_others_after_a_restart(mode: Mode, tmp_path: Path) -> None:
    """In compact mode too, where the wallet comes from BIP-37."""
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
