"""Fetched blocks: none is requested twice, even if the watch list changes, and a program gets its block quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.light.engine.inputs import Asked
from spvfilter.light.engine.requests import FetchBlock
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


def test_an_idle_client_fetches_a_block_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was requested only at the client's next tick, up to 30 seconds later."""
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(120)
        came = list[object]()
        monkeypatch.setattr(world.wishes, "answered", lambda token, value: came.append(value))
        world.running.report(Asked(1, FetchBlock(world.engine.chain.hash_at(5))))
        world.pass_time(0.5)
        assert came == [world.truth.regtest.chain.active[5].raw]
