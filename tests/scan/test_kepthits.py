"""Hits are kept only as long as a later search of a block may need them."""

from __future__ import annotations

import gc
from contextlib import aclosing
from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, BlockSource, Matcher
from spvfilter.scan.order import PendingBlock, RawBlocks, Taught
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block_hash, block_of, p2wpkh, tx
from support.blocks.undo import Spent, record_of, undo_of, write_chain

SCRIPT = p2wpkh(b"\x11" * 20)
COUNT = 200  # blocks


def paying_chain() -> tuple[list[bytes], list[bytes]]:
    """Blocks that each pay and spend the script, and their undo records."""
    blocks, records, previous = list[bytes](), list[bytes](), b"\x77" * 32
    for number in range(COUNT):
        paying = tx([TxIn(number.to_bytes(32, "big"), 0, b"")], [TxOut(900, SCRIPT)])
        blocks.append(block_of(previous, 200 + number, [paying]))
        previous = block_hash(blocks[-1])
        records.append(record_of(blocks[-1], undo_of([[Spent(1_000, SCRIPT, 100)]])))
    return blocks, records


def watched() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return watch


def kept() -> tuple[int, int]:
    """The hits in memory: links in the chain of hits, and blocks that have hits."""
    objects = gc.get_objects()
    taught = sum(type(each) is Taught for each in objects)
    return taught, sum(type(each) is PendingBlock and each.found != b"" for each in objects)


async def kept_late(blocks: BlockSource | RawBlocks, jobs: int, *, in_order: bool = False) -> list[tuple[int, int]]:
    """The hits in memory, counted several times in the second half of a scan."""
    gc.collect()
    counts, matches = list[tuple[int, int]](), 0
    async with aclosing(Matcher(watched(), jobs=jobs).scan(blocks, in_order=in_order)) as scan:
        async for _ in scan:
            matches += 1
            if matches % 20 == 0:
                counts.append(kept())
    assert matches >= COUNT
    return counts[len(counts) // 2 :]


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 3])
async def test_an_endless_stream_keeps_no_hits(jobs: int) -> None:
    """A thread that the system has stopped for a moment holds its batch: the least count does not depend on that."""
    blocks, _ = paying_chain()
    taught, found = map(min, zip(*await kept_late(iter(blocks), jobs, in_order=True), strict=True))
    assert taught < 50
    assert found == 0


@pytest.mark.long
async def test_a_scan_with_undo_records_keeps_no_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.scan.order.BATCH_BLOCKS", 5)
    blocks, records = paying_chain()
    files = BlockFiles(write_chain(tmp_path, blocks, records))
    taught, found = map(min, zip(*await kept_late(files, 2), strict=True))
    assert taught < 50
    assert found == 0


@pytest.mark.long
async def test_a_scan_without_undo_records_keeps_its_hits() -> None:
    blocks, _ = paying_chain()
    taught, found = (await kept_late(blocks, 2))[-1]
    assert taught >= COUNT
    assert found >= COUNT
