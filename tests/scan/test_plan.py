"""A plan orders rows as `chain.link` orders objects, and needs less than 100 bytes for each block while it is made."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from spvfilter.errors import SourceError
from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, BlockSpan, Plan
from spvfilter.scan.order import PendingBlock, ScanReport, in_chain_order
from spvfilter.scan.plan import Part
from spvfilter.scan.rowancestry import RowLinker, order_rows
from spvfilter.scan.rows import NOWHERE, ROW, Rows, RowsByHash
from support.blocks import build
from support.blocks.chains import random_chain, random_tree, record, write_records
from support.blocks.undo import framed, ledger_chain
from support.vectors import effort

_HEADER = struct.Struct("<I32s32sIII")


def placed(parts: tuple[Part, ...]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for part in parts:
        for row, block in enumerate(part.blocks()):
            places = [(part.files[ref.file].path, ref.offset, ref.size) for ref in part.copies(row, block.ref)]
            found.append(
                (
                    block.ref.hash,
                    block.ref.previous,
                    block.ref.height,
                    block.ref.bits,
                    block.ref.time,
                    block.is_rooted,
                    *places,
                )
            )
    return found


def by_objects(files: BlockFiles, blocks: list[PendingBlock]) -> list[tuple[object, ...]]:
    return [
        (
            *(block.ref.hash, block.ref.previous, block.height, block.ref.bits, block.ref.time, block.rooted),
            *((str(files.file(ref.file).path), ref.offset, ref.size) for ref in (block.ref, *block.spares)),
        )
        for block in blocks
    ]


@pytest.mark.parametrize("seed", range(effort(6, 12, 300)))
def test_the_order_of_rows_equals_that_of_objects(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    blocks = [
        raw
        for number in range(rng.randint(1, 3))
        for raw in (random_tree if rng.random() < 0.7 else random_chain)(10 * seed + number)[1]
    ]
    blocks += rng.sample(blocks, min(len(blocks), rng.randrange(5)))  # duplicates
    gone = set(rng.sample(range(len(blocks)), rng.randrange(3)))
    order = [raw for number, raw in enumerate(blocks) if number not in gone]
    if rng.random() < 0.8:
        rng.shuffle(order)
    several = rng.randint(1, 6)
    for number in range(several):
        write_records(tmp_path / f"blk{number:05}.dat", order[number::several])
    span = rng.choice(
        [
            None,
            BlockSpan(from_height=rng.randrange(100, 110)),
            BlockSpan(to_height=rng.randrange(100, 125)),
            BlockSpan(from_time=rng.randrange(1_700_000_000, 1_700_080_000)),
            BlockSpan(to_time=rng.randrange(1_700_000_000, 1_700_080_000)),
            BlockSpan(rng.randrange(100, 110), 110, to_time=rng.randrange(1_700_000_000, 1_700_080_000)),
        ]
    )
    report, files = ScanReport(), BlockFiles(tmp_path, span=span)
    try:
        stale, best = in_chain_order(files, REGTEST, report)
    except SourceError as error:
        with pytest.raises(SourceError) as raised:
            Plan.of(BlockFiles(tmp_path, span=span), REGTEST)
        assert str(raised.value) == str(error)
        return
    plan = Plan.of(BlockFiles(tmp_path, span=span), REGTEST, part_size=rng.choice([1_000, 10_000, 10**9]))
    assert placed(plan.parts) == by_objects(files, best)
    assert [row[:2] + row[6:] for row in placed(plan.stale)] == [row[:2] + row[6:] for row in by_objects(files, stale)]
    assert (plan.report.stale, plan.report.segments) == (report.stale, report.segments)
    assert (plan.report.duplicates, plan.report.bytes_total) == (report.duplicates, report.bytes_total)
    assert plan.size == report.bytes_total
    assert plan.blocks == len(best)
    assert plan.tip == (best[-1].ref.hash if best else b"")


def test_a_copy_with_an_undo_record_is_taken_first(tmp_path: Path) -> None:
    _, blocks, records = ledger_chain(4)
    write_records(tmp_path / "blk00000.dat", blocks)
    write_records(tmp_path / "blk00001.dat", blocks)
    (tmp_path / "rev00001.dat").write_bytes(b"".join(map(framed, records)))
    plan = Plan.of(BlockFiles(tmp_path, undo="require"), REGTEST)
    names = {(Path(plan.parts[0].files[block.ref.file].path).name, block.is_lone) for block in plan.parts[0].blocks()}
    assert ("blk00000.dat", False) not in names
    assert ("blk00001.dat", False) in names


def test_blocks_with_equal_short_hashes_are_told_apart() -> None:
    rows = Rows()
    index = RowsByHash(rows)
    rng = random.Random(1)
    hashes = [bytes(8) + rng.randbytes(24) for _ in range(50)] + [rng.randbytes(32) for _ in range(3_000)]
    for number, block in enumerate(hashes):
        assert index.find(block) == NOWHERE
        index.add(rows.append(ROW.pack(0, 0, 0, 0, 0, 0, block, 0, 0, 0)), block)
        assert index.find(block) == number
    assert [index.find(block) for block in hashes] == list(range(len(hashes)))
    assert index.find(bytes(32)) == NOWHERE


def test_a_block_with_the_largest_height_number_has_no_height(tmp_path: Path) -> None:
    first = build.block(bytes(range(32)), [build.coinbase(2**31 - 1)], version=4)
    second = build.block(build.block_hash(first), [build.coinbase(7)], version=1)
    plan = Plan.of(BlockFiles(write_records(tmp_path / "blk00000.dat", [first, second])), REGTEST)
    assert [each.ref.height for part in plan.parts for each in part.blocks()] == [None, None]


def test_rows_in_any_order_make_one_chain() -> None:
    rng = random.Random(7)
    hashes = [rng.randbytes(32) for _ in range(5_000)]
    linker = RowLinker()
    for number in rng.sample(range(1, 5_000), 4_999):
        linker.add(
            ROW.pack(0, number, 0, 0x207FFFFF, 0, -1, hashes[number], 0, 0, 0), hashes[number], hashes[number - 1]
        )
    (run,) = order_rows(linker.links, REGTEST).runs
    assert [linker.links.rows.place(row)[1] for row in run.rows] == list(range(1, 5_000))


def small_chain(folder: Path, count: int, per_file: int) -> None:
    """Blocks of about 215 bytes in files, with undo records."""
    pay = bytes.fromhex("01" + "00f2052a01000000" + "0151" + "00000000")
    coinbase = bytes.fromhex("01000000" + "01" + "00" * 32 + "ffffffff" + "04" + "03aabbcc" + "ffffffff") + pay
    spend = bytes.fromhex("01000000" + "01" + "11" * 32 + "00000000" + "00" + "ffffffff") + pay
    undo = bytes.fromhex("01" + "01" + "04" + "00" + "09" + "07" + "51")
    previous = bytes(32)
    for first in range(0, count, per_file):
        blocks, records = [], []
        for number in range(first, first + per_file):
            header = _HEADER.pack(1, previous, bytes(32), 1_600_000_000 + number, 0x207FFFFF, number)
            blocks.append(record(header + b"\x02" + coinbase + spend))
            records.append(framed(undo + sha256d(previous + undo)))
            previous = sha256d(header)
        (folder / f"blk{first // per_file:05}.dat").write_bytes(b"".join(blocks))
        (folder / f"rev{first // per_file:05}.dat").write_bytes(b"".join(records))


@pytest.mark.long
def test_a_plan_needs_under_100_bytes_for_each_block(tmp_path: Path) -> None:
    count = effort(8_000, 8_000, 300_000)
    small_chain(tmp_path, count, 100)
    Plan.of(BlockFiles(tmp_path / "blk00000.dat"), REGTEST)  # allocations that happen only once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        plan = Plan.of(BlockFiles(tmp_path), REGTEST, part_size=1_000_000)
        held, peak = (each - before for each in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert sum(map(len, plan.parts)) == count
    assert all(block.undo is not None for block in plan.parts[-1].blocks())
    files = 300 * count // 100  # memory for the names of files
    assert (held - files) / count < 80
    assert (peak - files - 600_000) / count < 100  # and the memory of the few files that are being read
