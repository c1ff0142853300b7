"""A peer that floods the client with foreign payments, or sends large ones, delays neither blocks nor the next
start.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.floods import Invents, InventsChains, InventsConflicts, InventsLarge, InventsMany
from spvfilter.light.events import Mode, PendingWarning
from spvfilter.wallet.pendinglimits import PendingLimits
from support.client.stage import Prompt, stage

KINDS = [InventsMany, InventsLarge, InventsConflicts, InventsChains]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_flood_of_foreign_payments_delays_no_block_and_start(mode: Mode, kind: type[Invents], tmp_path: Path) -> None:
    with stage(tmp_path, mode, kind, Prompt, Prompt, mempool_groups=1) as world:
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(2_400)
        if kind is InventsConflicts:
            assert world.banned  # its spends of the wallet's coins are not signed
        else:
            assert world.running.books.waiting()  # the flood has arrived
        for _ in range(3):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=10)
        assert world.has_found_all()
        world.kill()
        world.nodes[0].is_up = False
        world.truth.receive()
        world.truth.mine()
        world.boot()
        world.wait_synced(within=30)
        assert world.has_found_all()
        assert not world.banned & {address for node in world.nodes[1:] for address in node.addresses}


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_flood_of_foreign_payments_keeps_no_others_out(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, InventsMany, Prompt, Prompt, mempool_groups=1) as world:
        world.boot()
        world.engine.books.intake.pool.limits = PendingLimits(number=100)
        world.wait_synced(within=60)
        world.pass_time(2_400)
        books = world.engine.books
        assert len(books.intake.pool) == 100
        for _ in range(5):
            world.truth.receive()
            payment = world.truth.coins[-1].outpoint.txid
            world.pass_time(60)
            assert books.facts.is_without_block(payment)
        world.pass_time(2_400)
        assert books.facts.is_without_block(payment)
        assert len(books.intake.pool) == 100
        assert world.running.status.turned_away == books.intake.turned_away > 5
        (warning,) = (event for event in world.told if isinstance(event, PendingWarning))
        assert warning.transactions == 100
        world.truth.mine()
        world.wait_synced(within=10)
        assert world.has_found_all()
