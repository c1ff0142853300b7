"""Filters kept in the database: the engine reads a filter only if the database may have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.events import Mode
from spvfilter.store.store import Store
from support.client.stage import Prompt, stage


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record all later reads of the database."""
    reads: list[object] = []
    ask = Outbox.read

    def read(self: Outbox, function: Callable[[Store], object], then: Callable[[object], None]) -> None:
        reads.append(function)
        ask(self, function, then)

    monkeypatch.setattr(Outbox, "read", read)
    return reads


@pytest.mark.few(1)
@pytest.mark.parametrize("keep", [False, True])
def test_only_filters_that_the_database_may_have_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """A first search reads none. Later searches read the kept filters, in the same run and in the next one."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, keep_filters=keep) as world:
        reads = count_reads(monkeypatch)
        world.boot()
        world.wait_synced(within=120)
        assert reads == []
        for is_restarted in (False, True):
            if is_restarted:
                world.kill()
                world.boot()
            world.rescan(0)
            world.pass_time(60)
            assert world.has_found_all()
            assert bool(reads) is keep
            reads.clear()
