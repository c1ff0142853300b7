"""Named peers that stay behind the best chain hold no place that an address nobody has tried could have."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.schemes import Lags
from spvfilter.light.engine.engine import Engine
from spvfilter.light.engine.laggards import CATCH_UP_S
from spvfilter.light.engine.options import Patience
from spvfilter.light.events import Mode
from support.stage import Prompt, Stage, stage

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT, Mode.AUTO])


def _ready(world: Stage) -> set[int]:
    """Numbers of the nodes that are connected."""
    assert world.process is not None
    engine = world.process.engine
    assert isinstance(engine, Engine)
    return {int(peer.address.split(".")[1]) for peer in engine.pool.ready()}


@MODES
def test_where_nobody_has_the_tip_laggards_make_room_for_others(mode: Mode, tmp_path: Path) -> None:
    """Who has told of the tip is gone, and nodes that get no new blocks have all places: an honest address would never be tried."""
    with stage(tmp_path, mode, Prompt, Prompt, Lags, Lags, Lags, max_peers=3) as world:
        world.boot()
        world.wait_synced(within=60)
        assert _ready(world) == {2, 3, 4}
        world.truth.mine(2)
        world.pass_time(10)
        world.nodes[1].go_down()
        world.truth.mine(1)
        world.pass_time(Patience().answer_s)
        assert _ready(world) == {3, 4, 5}
        world.wait_synced(within=120)
        assert 1 in _ready(world)
        assert world.has_found_all()
        assert not world.banned


@MODES
def test_who_is_behind_for_long_makes_room_even_if_another_has_the_tip(mode: Mode, tmp_path: Path) -> None:
    """Otherwise those that lag leave one honest peer alone, whose word nobody can confirm."""
    with stage(tmp_path, mode, Lags, Lags, Prompt, Prompt, max_peers=3) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.pass_time(CATCH_UP_S - 100)
        assert _ready(world) == {1, 2, 3}
        world.pass_time(300)
        assert {3, 4} <= _ready(world)
        assert not world.banned


@MODES
def test_laggards_stay_where_nobody_else_could_come(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Lags, Lags, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.nodes[2].go_down()
        world.pass_time(2 * CATCH_UP_S)
        assert _ready(world) == {1, 2}
        assert not [each for each in world.warnings if each.address.startswith(("10.1", "10.2")) and "does not know" not in str(each.error)]
