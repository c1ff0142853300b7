"""Twin lives that differ only in a peer that forges, strips, withholds or floods: every answer is the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from simulation.behaviours.base import Behaviour
from simulation.behaviours.forged import (
    FloodsForgeries,
    HasNoWitnesses,
    SpendsUnsigned,
    SpendsWronglySigned,
    StripsWitnesses,
    WithholdsAnnounced,
)
from simulation.behaviours.schemes import Malleates
from spvfilter.errors import LieError
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, MatchWithdrawn, TxReplaced
from support.client.stage import Prompt, Stage, stage

pytestmark = pytest.mark.descriptors

HOSTILE = [SpendsUnsigned, SpendsWronglySigned, FloodsForgeries, StripsWitnesses, Malleates]
ODD = [HasNoWitnesses, WithholdsAnnounced]


def answers(world: Stage) -> list[object]:
    """Everything about money: balance, coins, history."""
    assert world.process is not None
    found = world.process.disk.store.views
    balance = found.balance()
    return [
        (balance.confirmed, balance.pending_in, balance.pending_out, balance.spendable, balance.total),
        sorted((bytes(each.outpoint), each.spent_by or b"") for each in found.coins()),
        sorted(bytes(each.outpoint) for each in found.unspent()),
        sorted((each.txid, each.status, each.net) for each in found.history()),
    ]


def told(world: Stage) -> list[tuple[str, ...]]:
    """The events about transactions."""
    found: list[tuple[str, ...]] = []
    for event in world.told:
        if isinstance(event, TxReplaced):
            found.append(("TxReplaced", event.txid.hex(), event.by.hex()))
        elif isinstance(event, (MatchConfirmed, MatchFound, MatchUnconfirmed, MatchWithdrawn)):
            match = event.match
            found.append((type(event).__name__, str(match.kind), match.txid.hex(), str(match.index), str(match.height)))
    return sorted(found)


def life(folder: Path, mode: Mode, *kinds: type[Behaviour]) -> tuple[list[object], list[tuple[str, ...]], set[str]]:
    """The answers after each act, the events, and the lies that the client noticed."""
    folder.mkdir()
    found: list[object] = []
    with stage(folder, mode, Prompt, Prompt, *kinds) as world:
        truth = world.truth
        for lock in truth.locks:
            truth.receive(lock)
        truth.mine()
        world.boot()
        world.wait_synced(within=60)
        reorganize = partial(truth.regtest.reorg, 1)
        acts: list[Callable[[], object]]
        acts = [truth.receive, truth.spend, truth.spend, truth.mine, truth.spend, truth.spend, reorganize]
        for act in acts:
            act()
            world.pass_time(400)
            found.append(answers(world))
        noticed = {each.error.cause for each in world.warnings if isinstance(each.error, LieError)}
        return found, told(world), noticed


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
@pytest.mark.parametrize("kind", [*HOSTILE, *ODD])
@pytest.mark.parametrize("count", [1, 2])
def test_hostile_peers_beside_two_honest_ones_change_no_answer(
    kind: type[Behaviour], count: int, mode: Mode, tmp_path: Path
) -> None:
    """Two of them are in two network groups, and announce the same transactions."""
    kinds = [kind] * count
    hostile, honest = life(tmp_path / "with", mode, *kinds), life(tmp_path / "without", mode, *[Prompt] * count)
    assert hostile[:2] == honest[:2]
    assert not honest[2]
    if issubclass(kind, SpendsUnsigned):
        assert hostile[2] == {Lie.WRONG_SIGNATURE}
    if kind in ODD:
        assert not hostile[2]
