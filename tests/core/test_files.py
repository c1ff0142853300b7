"""Scans of files that Bitcoin Core has written, compared with Core's own record of its chain."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import hash_to_hex
from spvfilter.scan import BlockFiles, PartScan, Plan, scan_parts
from spvfilter.watch.watchlist import WatchList
from support.blocks.openlocks import DATA, live, open_lock
from support.oracles.coreengine import CoreEngine, Movement
from support.vectors import effort

pytestmark = pytest.mark.core
PART_SIZE = 5_000  # bytes


def rows(movements: list[Movement], scripts: set[bytes]) -> list[tuple[str, ...]]:
    """Rows of a scan for these scripts."""
    return [
        (
            "input" if each.is_spend else "output",
            str(each.height),
            hash_to_hex(each.txid),
            str(each.position),
            hash_to_hex(each.outpoint[:32]),
            str(int.from_bytes(each.outpoint[32:], "little")),
            str(each.value),
            each.script.hex(),
        )
        for each in movements
        if each.script in scripts
    ]


async def scan_to(out: Path, blocks: Path, watch: WatchList) -> bytes:
    plan = Plan.of(BlockFiles(blocks, undo="auto"), REGTEST, part_size=PART_SIZE)
    assert not plan.report.problems
    return (await scan_parts(PartScan(out, plan, watch), "csv")).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(1, 3, 60)))
async def test_scan_equals_cores_answer_while_core_writes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    made = Regtest()
    made.mine(105)
    locks = {lock.script_pubkey: lock for lock in (open_lock(rng) for _ in range(40))}
    watched = {*rng.sample(list(locks), len(locks) // 2), DATA}
    watch = WatchList(REGTEST)
    for script in watched:
        watch.add_script(script)
    given = 1  # the files have the genesis block
    for number in range(5):
        for _ in range(rng.randrange(12)):
            live(made, rng, locks)
        with CoreEngine(tmp_path / "core") as core:
            blocks = list(made.chain.blocks.values())
            assert all(core.accepts(block.raw) for block in blocks[given:])
            assert core.tip == made.chain.tip.hash
            given = len(blocks)
            movements = list(core.movements())
            running = await scan_to(tmp_path / "out", tmp_path / "core/blocks", watch)  # Core has the files open
        grown = await scan_to(tmp_path / "out", tmp_path / "core/blocks", watch)
        assert grown == await scan_to(tmp_path / f"scratch{number}", tmp_path / "core/blocks", watch)
        assert running == grown
        found = list(csv.DictReader(grown.decode().splitlines()))
        names = ("kind", "height", "txid", "index", "outpoint_txid", "outpoint_index", "value", "script_pubkey")
        assert sorted(tuple(row[name] for name in names) for row in found) == sorted(rows(movements, watched))
    assert any(row["kind"] == "input" for row in found)
    assert (tmp_path / "core/blocks/xor.dat").stat().st_size == 8
