"""Random lives of a wallet: after each action, every edge that shows money agrees with every other.

`randomlife.ACTIONS` lists what may happen, and `edges.LIBRARY` and `edges.EDGES` list what is compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("aiorpcx")

from interop.edges import disagreements, scan_and_export
from interop.randomlife import Life
from support.vectors import effort, first_of

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors, pytest.mark.columns]

FIRST = 5
"""The first lives notice every fault that was found in the bridge to BDK and in trusted change."""


@pytest.mark.parametrize("mode", ["compact", "bip37"])
@pytest.mark.parametrize("seed", first_of(2, *range(FIRST, FIRST + effort(2, 5, 100))))
async def test_all_edges_show_the_same_money(seed: int, mode: str, tmp_path: Path) -> None:
    life = Life(seed, mode, tmp_path)
    async with life:
        for _ in range(effort(20, 30, 60)):
            await life.act()
            found = await disagreements(life)
            assert not found, life.told_by(found)
    found = scan_and_export(life)
    assert not found, life.told_by(found)
