"""In compact mode, no block is requested twice, even if the watch list changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.light.events import Mode
from support.client.stage import Prompt, stage


@pytest.mark.few(2)
@pytest.mark.parametrize("after_s", [0.2, 0.25, 0.3, 0.35, 0.4, 0.6])
def test_a_block_on_its_way_is_not_requested_again(after_s: float, tmp_path: Path) -> None:
    """The watch list loses an entry while blocks are on their way, so that the filters are searched again."""
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        for _ in range(30):
            world.truth.receive()
            world.truth.mine()
        world.boot()
        world.pass_time(after_s)
        world.forget_lock(world.truth.locks[0])
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert len(world.fetched.requests) > 5
        assert max(world.fetched.requests.values()) == 1
