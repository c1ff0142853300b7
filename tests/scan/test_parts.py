"""A scan in parts has the result of a scan in one piece. Its bytes do not depend on the parts or on interruptions."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import IncompleteScanError, ParameterError, SourceError
from spvfilter.kernel import Hit, WatchTable, pack_hits
from spvfilter.network import MAINNET, REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_BLOCK_SIZE, MAX_SCRIPT_SIZE
from spvfilter.scan import BlockFiles, BlockSpan, Engine, Matcher, PartScan, Plan, Processes, Threads, parts, scan_parts
from spvfilter.scan.coinfile import table_with_coins, write_coins
from spvfilter.scan.partfile import MAX_HITS, PartFile, PartSummary
from spvfilter.scan.parts import PartTask
from spvfilter.scan.sources import BlockRef, FileBlocks
from spvfilter.watch import compiled
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut, block_hash, block_of, p2wpkh
from support.blocks.chains import found_by, random_tree, record as block_record, write_records, xored
from support.blocks.undo import framed, ledger_chain
from support.vectors import effort

KEY = bytes(range(1, 9))
SMALL = 1_000
ADDRESS = "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"


def files(
    folder: Path, blocks: list[bytes], records: list[bytes] | None = None, *, several: int = 1, key: bytes = b""
) -> Path:
    """Write files of blocks, and files of their undo records if there are any."""
    folder.mkdir(exist_ok=True)
    for number in range(several):
        start, end = len(blocks) * number // several, len(blocks) * (number + 1) // several
        beside = [] if records is None else [framed(each) for each in records[start:end]]
        for name, pieces in (("blk", [block_record(raw) for raw in blocks[start:end]]), ("rev", beside)):
            if pieces:
                (folder / f"{name}{number:05}.dat").write_bytes(
                    xored(b"".join(pieces), key) if key else b"".join(pieces)
                )
    if key:
        (folder / "xor.dat").write_bytes(key)
    return folder


def as_row(match: Match) -> dict[str, object]:
    assert match.block_hash is not None
    return {
        "kind": match.kind.value,
        "block_hash": hash_to_hex(match.block_hash),
        "height": match.height,
        "time": match.time,
        "txid": hash_to_hex(match.txid),
        "index": match.index,
        "outpoint_txid": hash_to_hex(match.outpoint.txid),
        "outpoint_index": match.outpoint.index,
        "value": match.value,
        "script_pubkey": None if match.script_pubkey is None else match.script_pubkey.hex(),
        "address": match.address,
        "label": match.label,
        "coinbase": match.is_coinbase,
        "fee": match.fee,
    }


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_any_order(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps(row) for row in rows)


async def whole(
    source: Path, watch: WatchList, undo: str = "auto", span: BlockSpan | None = None
) -> tuple[list[str], Matcher]:
    matcher = Matcher(watch)
    matches = await found_by(matcher, BlockFiles(source, undo=undo, span=span))
    return in_any_order([as_row(match) for match in matches]), matcher


async def in_parts(
    source: Path,
    out: Path,
    watch: WatchList,
    *,
    part_size: int = SMALL,
    undo: str = "auto",
    form: str = "jsonl",
    engine: Engine | None = None,
    span: BlockSpan | None = None,
    check: bool = False,
    most_coins: int = 1_000_000,
) -> tuple[Path, PartScan]:
    plan = Plan.of(BlockFiles(source, undo=undo, span=span), watch.network, part_size=part_size)
    scan = PartScan(out, plan, watch, check=check, most_coins=most_coins)
    return await scan_parts(scan, form, engine), scan


def everything(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which has the times of the outputs."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["undo", "off", "mixed"])
@pytest.mark.parametrize("seed", range(effort(2, 3, 100)))
async def test_parts_find_what_a_scan_in_one_piece_finds(tmp_path: Path, seed: int, way: str) -> None:
    rng = random.Random(f"{seed} {way}")
    ledger, blocks, records = ledger_chain(seed)
    order = rng.sample(range(len(blocks)), len(blocks))
    shuffled = [blocks[number] for number in order]
    source = files(tmp_path / "blocks", shuffled, [records[n] for n in order], several=3, key=rng.choice([b"", KEY]))
    if way == "mixed":
        (source / "rev00001.dat").unlink()
    undo = "off" if way == "off" else "auto"
    expected, matcher = await whole(source, ledger.interest.watch(), undo)
    bytes_found = set()
    for number, size in enumerate((SMALL, rng.randrange(2_000, 20_000), 10**9)):
        engine = Threads(1 + number)
        path, scan = await in_parts(
            source, tmp_path / f"out{number}", ledger.interest.watch(), part_size=size, undo=undo, engine=engine
        )
        await engine.aclose()
        assert in_any_order(rows_of(path)) == expected
        bytes_found.add(path.read_bytes() + (path.parent / "totals.csv").read_bytes())
        report, summary = matcher.report, scan.report.summary
        assert (summary.blocks, summary.matches, summary.by_undo) == (report.blocks, report.matches, report.by_undo)
        assert (summary.unseen, summary.problems) == (report.unseen, [])
        assert scan.report.parts_done == scan.report.parts_total > 0
    assert len(bytes_found) == 1
    heights = [row["height"] for row in rows_of(path)]
    assert heights == sorted(heights, key=lambda height: (height is None, height))


@pytest.mark.parametrize("seed", range(effort(2, 4, 100)))
async def test_stale_branches_give_no_matches_and_teach_their_outputs(tmp_path: Path, seed: int) -> None:
    interest, blocks = random_tree(seed)
    source = files(tmp_path / "blocks", random.Random(seed).sample(blocks, len(blocks)), several=2)
    expected, matcher = await whole(source, interest.watch())
    path, scan = await in_parts(source, tmp_path / "out", interest.watch(), check=False)
    assert in_any_order(rows_of(path)) == expected
    assert scan.plan.report.stale == matcher.report.stale
    assert sum(map(len, scan.plan.stale)) == len(matcher.report.stale)


@pytest.mark.slow
async def test_processes_give_the_same_bytes(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(5)
    source = files(tmp_path / "blocks", blocks, records, several=2)
    (source / "rev00001.dat").unlink()
    one, _ = await in_parts(source, tmp_path / "one", ledger.interest.watch(), form="csv")
    engine = Processes(2)
    try:
        two, _ = await in_parts(source, tmp_path / "two", ledger.interest.watch(), form="csv", engine=engine)
    finally:
        await engine.aclose()
    assert everything(one.parent) == everything(two.parent)


@pytest.fixture
def small_lists_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "READ_BELOW", 0)


@pytest.mark.few(1)
@pytest.mark.usefixtures("small_lists_are_mapped")
@pytest.mark.parametrize("change", ["replaced", "removed"])
async def test_processes_keep_a_compiled_list_that_was_replaced(tmp_path: Path, change: str) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch = files(tmp_path / "blocks", blocks, records), ledger.interest.watch()
    for _ in range(2):
        watch.compile(tmp_path / "list.spvwl")
    mapped = WatchList.load(tmp_path / "list.spvwl", watch.network)
    engine = Processes(2)
    try:
        one, _ = await in_parts(source, tmp_path / "one", watch, form="csv")
        two, _ = await in_parts(source, tmp_path / "two", mapped, form="csv", engine=engine)
        assert everything(one.parent) == everything(two.parent)
        if change == "replaced":
            WatchList(watch.network).compile(tmp_path / "list.spvwl")
        else:
            (tmp_path / "list.spvwl").unlink()
        three, _ = await in_parts(source, tmp_path / "three", mapped, form="csv", engine=engine)
        assert everything(one.parent) == everything(three.parent)
    finally:
        await engine.aclose()


@pytest.mark.usefixtures("small_lists_are_mapped")
async def test_list_changed_in_place_ends_the_scan(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch, path = files(tmp_path / "blocks", blocks, records), ledger.interest.watch(), tmp_path / "list.spvwl"
    watch.compile(path)
    mapped = WatchList.load(path, watch.network)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\0")
    os.utime(path, ns=(0, 0))
    with pytest.raises(SourceError, match=r"list\.spvwl was changed in place during the scan"):
        await in_parts(source, tmp_path / "out", mapped)
    assert not list((tmp_path / "out").rglob("*.part"))


@pytest.mark.usefixtures("small_lists_are_mapped")
async def test_list_changed_in_place_ends_a_direct_scan(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch, path = files(tmp_path / "blocks", blocks, records), ledger.interest.watch(), tmp_path / "list.spvwl"
    watch.compile(path)
    matcher = Matcher(WatchList.load(path, watch.network))
    found = [match async for match in matcher.scan(BlockFiles(source))]
    assert found
    assert matcher.watch.table.image() is None  # it has learned the outpoints of its outputs
    before = len(found)
    os.utime(path, ns=(0, 0))
    with pytest.raises(SourceError, match=r"list\.spvwl was changed in place during the scan"):
        found += [match async for match in matcher.scan(BlockFiles(source))]
    assert len(found) == before


@pytest.mark.usefixtures("small_lists_are_mapped")
async def test_a_list_is_compared_before_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch, path = files(tmp_path / "blocks", blocks, records), ledger.interest.watch(), tmp_path / "list.spvwl"
    watch.compile(path)
    mapped = WatchList.load(path, watch.network)
    monkeypatch.setattr(parts, "BATCH_BLOCKS", 2)
    real, batches = FileBlocks.opened, []

    def opened(self: FileBlocks, refs: Sequence[BlockRef]) -> Any:
        batches.append(refs)
        if len(batches) == 2:
            os.truncate(path, path.stat().st_size)
            os.utime(path, ns=(0, 0))
        return real(self, refs)

    monkeypatch.setattr(FileBlocks, "opened", opened)
    with pytest.raises(SourceError, match=r"list\.spvwl was changed in place during the scan"):
        await PartScan(tmp_path / "out", Plan.of(BlockFiles(source), watch.network), mapped).run()
    assert len(batches) == 2


async def test_a_small_list_may_be_truncated_under_a_scan(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch, path = files(tmp_path / "blocks", blocks, records), ledger.interest.watch(), tmp_path / "list.spvwl"
    expected, _ = await in_parts(source, tmp_path / "plain", watch)
    watch.compile(path)
    loaded = WatchList.load(path, watch.network)
    os.truncate(path, 0)
    found, _ = await in_parts(source, tmp_path / "out", loaded)
    assert everything(found.parent) == everything(expected.parent)


@pytest.mark.usefixtures("small_lists_are_mapped")
async def test_processes_name_a_compiled_list_that_was_truncated(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(6)
    source, watch, path = files(tmp_path / "blocks", blocks, records), ledger.interest.watch(), tmp_path / "list.spvwl"
    watch.compile(path)
    mapped = WatchList.load(path, watch.network)
    scan = PartScan(tmp_path / "out", Plan.of(BlockFiles(source), watch.network, part_size=SMALL), mapped)
    os.truncate(path, 0)
    engine = Processes(2)
    try:
        with pytest.raises(SourceError, match=r"list\.spvwl was changed in place during the scan"):
            await scan.run(engine)
    finally:
        await engine.aclose()


class Broken(Engine):
    """Runs some tasks, then fails, or waits for ever if wanted."""

    def __init__(self, tasks: int, width: int = 2) -> None:
        self.width = width
        self.tasks = tasks
        self._true = Threads(width)

    async def begin(self, table: WatchTable) -> None:
        await self._true.begin(table)

    async def run(self, task: PartTask) -> PartSummary:
        self.tasks -= 1
        if self.tasks < 0:
            raise SourceError("the power is off")
        return await self._true.run(task)

    async def aclose(self) -> None:
        await self._true.aclose()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 3, 50)))
async def test_an_interrupted_scan_resumes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ledger, blocks, records = ledger_chain(seed)
    source = files(tmp_path / "blocks", blocks, records, several=2)
    (source / "rev00000.dat").unlink()
    uninterrupted, scan = await in_parts(source, tmp_path / "whole", ledger.interest.watch())
    assert scan.report.passes == 2
    plan = Plan.of(BlockFiles(source), REGTEST, part_size=SMALL)
    assert scan.report.parts_done == scan.report.parts_total == len(plan.parts) + len(plan.stale)  # each part once
    stops = 0
    while True:
        engine = Broken(rng.randrange(1, 12 * (stops + 1)))  # finished tasks count, too
        try:
            path, _ = await in_parts(source, tmp_path / "out", ledger.interest.watch(), engine=engine)
            break
        except SourceError as error:
            assert str(error) == "the power is off"
            stops += 1
        finally:
            await engine.aclose()
        left = list((tmp_path / "out" / "parts").glob("*.part"))
        for damaged in rng.sample(left, min(1, len(left))):
            raw = bytearray(damaged.read_bytes())
            assert raw
            match rng.randrange(3):
                case 0:
                    del raw[rng.randrange(len(raw)) :]
                case 1:
                    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
                case 2:
                    raw += b"."
            damaged.write_bytes(raw)
    assert stops
    assert everything(path.parent) == everything(uninterrupted.parent)


async def test_only_a_damaged_part_is_scanned_again(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(7)
    source = files(tmp_path / "blocks", blocks, records)
    path, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch())
    before = everything(tmp_path / "out")
    engine = Broken(0)
    again, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch(), engine=engine)
    assert (again, scan.report.parts_total) == (path, 0)
    assert scan.report.summary.blocks == len(blocks)
    other, _ = await in_parts(source, tmp_path / "out", ledger.interest.watch(), engine=engine, form="csv")
    assert len(other.read_text().splitlines()) == len(path.read_text().splitlines()) + 1
    await engine.aclose()
    part = next((tmp_path / "out" / "parts").glob("*.part"))
    part.write_bytes(part.read_bytes()[:-50])
    other.unlink()
    path.write_bytes(b"")
    path.unlink()
    again, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch())
    assert scan.report.parts_total > 0
    assert {name: raw for name, raw in everything(tmp_path / "out").items() if name in before} == before


async def test_temporary_files_of_a_killed_scan_are_removed(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(7)
    source = files(tmp_path / "blocks", blocks, records)
    await in_parts(source, tmp_path / "out", ledger.interest.watch())
    before = everything(tmp_path / "out")
    for name in ("0123456789abcdef0123456789abcdef.part", "0123456789abcdef0123456789abcdef.hits", ".spvfilter-abc"):
        (tmp_path / "out" / "parts" / name).write_bytes(b"left")
    await in_parts(source, tmp_path / "out", ledger.interest.watch())
    assert everything(tmp_path / "out") == before


CHANGED_BY_HAND: dict[str, list[object]] = {
    "inputs": [[], {}, {"network": 5}, {"network": "regtest"}, None],
    "finished": [7, "name", [7], ["../../blocks/blk00000.dat"], [""], [".."], {"a": 1}],
    "rendered": [[], {"matches.csv": 5}, "csv"],
    "blocks": ["3", -1, True, None],
    "tip": [7, "00", "0" * 63 + "x"],
    "firsts": [7, [7], ["0" * 63], "0" * 64],
    "parts_removed": [0, "no", None],
    "another": [5],
}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHANGED_BY_HAND.items() for value in values]
)
async def test_a_changed_manifest_is_an_error_or_another_scan(tmp_path: Path, name: str, value: object) -> None:
    ledger, blocks, records = ledger_chain(7)
    source = files(tmp_path / "blocks", blocks[:3], records[:3])
    await in_parts(source, tmp_path / "out", ledger.interest.watch())
    path = tmp_path / "out" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises((SourceError, ParameterError), match=r"this manifest is damaged|holds a different scan"):
        await in_parts(source, tmp_path / "out", ledger.interest.watch())


async def test_labels_come_from_the_current_list(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(p2wpkh(bytes(20)), 'a "quoted", one')
    raw = block_of(bytes(32), 1, paid=[TxOut(5_000, p2wpkh(bytes(20)))])
    source = files(tmp_path / "blocks", [raw])
    path, _ = await in_parts(source, tmp_path / "out", watch, form="csv")
    (row,) = csv.DictReader(path.read_text().splitlines())
    assert row["label"] == 'a "quoted", one'
    watch.relabel(0, "another")
    path, _ = await in_parts(source, tmp_path / "out", watch, form="csv", engine=Broken(0))
    (row,) = csv.DictReader(path.read_text().splitlines())
    assert row["label"] == "another"
    (total,) = csv.DictReader((path.parent / "totals.csv").read_text().splitlines())
    assert (total["label"], total["received"], total["matches"]) == ("another", row["value"], "1")


async def test_other_inputs_are_refused_by_name(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(10)
    source, watch = files(tmp_path / "blocks", blocks, records), ledger.interest.watch()
    await in_parts(source, tmp_path / "out", watch)
    before = everything(tmp_path / "out")
    with pytest.raises(ParameterError, match="its undo mode is auto, not require"):
        await in_parts(source, tmp_path / "out", watch, undo="require")
    with pytest.raises(ParameterError, match="its check of blocks is off, not on"):
        await in_parts(source, tmp_path / "out", watch, check=True)
    with pytest.raises(ParameterError, match="its range is all blocks, not from height 101"):
        await in_parts(source, tmp_path / "out", watch, span=BlockSpan(from_height=101))
    more = watch.copy()
    more.add_script(b"\x00\x14" + bytes(range(20)))
    with pytest.raises(ParameterError, match="its watch list contains different entries"):
        await in_parts(source, tmp_path / "out", more)
    assert everything(tmp_path / "out") == before
    with pytest.raises(ParameterError, match="mainnet"):
        PartScan(tmp_path / "out", Plan.of(BlockFiles(source), REGTEST), WatchList.from_addresses([ADDRESS], MAINNET))
    with pytest.raises(ParameterError, match="empty"):
        PartScan(tmp_path / "out", Plan.of(BlockFiles(source), REGTEST), WatchList(REGTEST))


async def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(11)
    source, watch = files(tmp_path / "blocks", blocks, records), ledger.interest.watch()
    out = tmp_path / "out"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    with pytest.raises(ParameterError, match=r"letter\.txt"):
        await in_parts(source, out, watch)
    (out / "letter.txt").unlink()
    for damaged in (b"", b"{", b"[]", b'{"format": 1}', b'{"format": 2}', b'{"format": 2, "inputs": [[1]]}', b"\xff"):
        (out / "manifest.json").write_bytes(damaged)
        with pytest.raises(SourceError, match="manifest"):
            await in_parts(source, out, watch)


@pytest.mark.parametrize("undo", ["auto", "off"])
async def test_half_a_chain_reports_its_missing_blocks(tmp_path: Path, undo: str) -> None:
    ledger, blocks, records = ledger_chain(12, closed=True)
    source = files(tmp_path / "blocks", blocks[15:], records[15:])
    full, _ = await whole(files(tmp_path / "all", blocks, records), ledger.interest.watch())
    path, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch(), undo=undo)
    upper = {hash_to_hex(block_hash(raw)) for raw in blocks[15:]}
    missing = {each for each in full if json.loads(each)["block_hash"] in upper} - set(in_any_order(rows_of(path)))
    spent = {each for each in missing if json.loads(each)["kind"] == MatchKind.INPUT}
    if undo == "auto":
        assert (missing, scan.report.summary.unseen) == (set(), 0)
    else:
        assert spent
        assert scan.report.summary.unseen > 0


@pytest.mark.few(3)
@pytest.mark.parametrize("undo", ["auto", "off"])
@pytest.mark.parametrize(
    "span", [BlockSpan(110, 120), BlockSpan(to_height=103), BlockSpan(from_height=128), BlockSpan(from_time=1)]
)
async def test_a_span_of_blocks_is_scanned_the_same_in_parts(tmp_path: Path, span: BlockSpan, undo: str) -> None:
    ledger, blocks, records = ledger_chain(13)
    source = files(tmp_path / "blocks", blocks, records)
    expected, matcher = await whole(source, ledger.interest.watch(), undo, span)
    path, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch(), undo=undo, span=span)
    assert in_any_order(rows_of(path)) == expected
    assert scan.report.summary.unseen == matcher.report.unseen
    heights = {json.loads(each)["height"] for each in expected}
    assert all(span.has_height(height) for height in heights)


def places(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """The matches without the values that only an undo record has.

    After one false undo record, a scan in one piece discards all uncertain records.
    """
    return sorted((str(row["kind"]), str(row["block_hash"]), str(row["txid"]), str(row["index"])) for row in rows)


async def test_damaged_undo_records_lead_to_a_second_pass(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(14, closed=True)
    spending = next(number for number, each in enumerate(records) if len(each) > 40 and number > 10)
    damaged = [bytes((*each[:-1], each[-1] ^ 1)) if number == spending else each for number, each in enumerate(records)]
    source = files(tmp_path / "blocks", blocks, damaged)
    expected, matcher = await whole(source, ledger.interest.watch())
    found = []
    for number, size in enumerate((SMALL, 10**9)):
        path, scan = await in_parts(source, tmp_path / f"out{number}", ledger.interest.watch(), part_size=size)
        assert places(rows_of(path)) == places([json.loads(each) for each in expected])
        assert scan.report.passes == 2
        assert scan.report.summary.by_outpoint == 1
        assert [problem.partition(": ")[2] for problem in scan.report.summary.undo_problems] == [
            str(matcher.report.undo_problems[0]).partition(": ")[2]
        ]
        found.append(path.read_bytes())
    assert found[0] == found[1]
    with pytest.raises(SourceError, match="undo record cannot be used"):
        await in_parts(source, tmp_path / "strict", ledger.interest.watch(), undo="require")


def test_a_file_has_room_for_the_largest_block_hits() -> None:
    smallest = build.tx([TxIn(bytes(32), 0)], [])
    hit = Hit(True, 1, bytes(32), 0, bytes(36), 0, bytes(MAX_SCRIPT_SIZE), 0, 0)
    inputs = MAX_BLOCK_SIZE // (len(smallest) - len(build.tx([], [])))
    assert inputs * len(pack_hits([hit])) == MAX_HITS < 1 << 32


async def test_a_damaged_copy_is_replaced_by_a_sound_one(tmp_path: Path) -> None:
    ledger, blocks, _ = ledger_chain(15, closed=True)
    cut = bytearray(blocks[3])
    cut[90] ^= 0xFF
    source = files(tmp_path / "blocks", [*blocks[:3], bytes(cut), *blocks[4:]])
    write_records(source / "blk00001.dat", [blocks[3]])
    matcher = Matcher(ledger.interest.watch(), check=True)
    matches = [as_row(match) for match in await found_by_all(matcher, source)]
    path, scan = await in_parts(source, tmp_path / "out", ledger.interest.watch(), check=True)
    assert in_any_order(rows_of(path)) == in_any_order(matches)
    assert len(scan.report.summary.problems) == len(matcher.report.problems) == 1
    assert scan.report.summary.blocks == len(blocks)


async def found_by_all(matcher: Matcher, source: Path) -> list[Match]:
    found: list[Match] = []
    with pytest.raises(IncompleteScanError):
        async for match in matcher.scan(BlockFiles(source)):
            found += [match]
    return found


async def test_too_many_outpoints_for_memory_are_refused(tmp_path: Path) -> None:
    ledger, blocks, _ = ledger_chain(16)
    source = files(tmp_path / "blocks", blocks)
    with pytest.raises(SourceError, match="more than 5 outputs"):
        await in_parts(source, tmp_path / "out", ledger.interest.watch(), most_coins=5)


async def test_a_damaged_file_of_outpoints_is_an_error(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(18)
    source = files(tmp_path / "blocks", blocks, records)
    path, _ = await in_parts(source, tmp_path / "out", ledger.interest.watch())
    parts = [PartFile(each) for each in sorted((path.parent / "parts").glob("*.part"))]
    coins = tmp_path / "coins"
    write_coins(coins, parts, WatchTable())
    table = ledger.interest.watch().table
    whole = set(table_with_coins(table, coins).coins())
    assert len(whole) > sum(1 for _ in table.coins())
    raw, rng = coins.read_bytes(), random.Random(18)
    for _ in range(200):
        damaged = bytearray(raw)
        match rng.randrange(3):
            case 0:
                damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[rng.randrange(len(raw)) :]
            case 2:
                damaged += bytes(rng.randrange(1, 50))
        coins.write_bytes(damaged)
        with pytest.raises(SourceError, match="damaged"):
            table_with_coins(table, coins)
    coins.write_bytes(raw)
    assert set(table_with_coins(table, coins).coins()) == whole


async def test_windows_of_keychains_grow_until_nothing_changes(tmp_path: Path) -> None:
    scripts = [p2wpkh(index.to_bytes(20, "little")) for index in range(200)]
    used = [199, 160, 130, 5, 95, 60, 30]
    blocks = chain_paying([scripts[index] for index in used])

    def watch() -> WatchList:
        made = WatchList(REGTEST)
        made.add_keychain("one", lambda index: p2wpkh(index.to_bytes(20, "little")), "mine", lookahead=20)
        return made

    source = files(tmp_path / "blocks", blocks, several=2)
    expected, _ = await whole(source, watch())
    given = watch()
    path, scan = await in_parts(source, tmp_path / "out", given)
    assert in_any_order(rows_of(path)) == expected
    assert len(expected) == len(used)
    assert scan.report.passes > 2
    assert given == watch()
    path.unlink()
    again, scan = await in_parts(source, tmp_path / "out", watch(), engine=Broken(0))
    assert in_any_order(rows_of(again)) == expected
    assert {row["label"] for row in rows_of(again)} == {"mine"}


def chain_paying(scripts: list[bytes]) -> list[bytes]:
    blocks: list[bytes] = []
    previous = bytes(32)
    for height, script in enumerate(scripts, 1):
        blocks.append(block_of(previous, height, paid=[TxOut(1_000 + height, script)]))
        previous = block_hash(blocks[-1])
    return blocks


async def test_a_cancelled_scan_leaves_no_thread_and_no_partial_file(tmp_path: Path) -> None:
    ledger, blocks, records = ledger_chain(17)
    source = files(tmp_path / "blocks", blocks, records)
    for wait in (0.0, 0.001, 0.01):
        engine = Threads(2)
        running = asyncio.ensure_future(in_parts(source, tmp_path / "out", ledger.interest.watch(), engine=engine))
        await asyncio.sleep(wait)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await engine.aclose()
        parts = tmp_path / "out" / "parts"
        assert not [path for path in parts.glob("*") if path.suffix != ".part"] if parts.exists() else True
    path, _ = await in_parts(source, tmp_path / "out", ledger.interest.watch())
    shutil.rmtree(tmp_path / "out" / "parts")
    assert in_any_order(rows_of(path)) == (await whole(source, ledger.interest.watch()))[0]


_WITH_PROCESSES = """
import asyncio, multiprocessing, sys
from pathlib import Path
from spvfilter.errors import SourceError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, PartScan, Plan, Processes
from spvfilter.watch.watchlist import WatchList

async def scan(how, source, watch, out):
    if how == "dying":
        multiprocessing.get_context("spawn").set_executable(str(Path(__file__).with_name("python")))
    engine = Processes(2)
    try:
        watch = WatchList.load(watch, REGTEST)
        await PartScan(out, Plan.of(BlockFiles(source), REGTEST), watch).run(engine)
        print("scanned", flush=True)
        await asyncio.sleep(600)
    except SourceError as error:
        print(error, flush=True)
    finally:
        await engine.aclose()

if __name__ == "__main__":
    asyncio.run(scan(*sys.argv[1:]))
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["dying", "killed"])
def test_dead_processes_leave_no_process_waiting(tmp_path: Path, how: str) -> None:
    """The watch list is larger than a pipe.

    A parent that writes the list into a pipe would wait for ever if the child died first.
    """
    ledger, blocks, records = ledger_chain(3)
    source = files(tmp_path / "blocks", blocks, records)
    watch = ledger.interest.watch()
    for number in range(5_000):
        watch.add_script(p2wpkh(number.to_bytes(20, "big")))
    watch.save(tmp_path / "list")
    (tmp_path / "scan.py").write_text(_WITH_PROCESSES)
    (tmp_path / "python").write_text(
        f'#!/bin/sh\ncase "$*" in *spawn_main*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )  # the resource tracker continues to run
    (tmp_path / "python").chmod(0o700)
    command = [sys.executable, *map(str, (tmp_path / "scan.py", how, source, tmp_path / "list", tmp_path / "out"))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as child:
        assert child.stdout is not None
        dog = threading.Timer(60, child.kill)
        dog.start()
        first = child.stdout.readline()
        if how == "killed":
            child.kill()
        assert child.stdout.read() == ""  # read until the last process that holds the pipe has ended
        dog.cancel()
    said = {"dying": "part 0: the process that scanned it died 3 times\n", "killed": "scanned\n"}
    assert first == said[how]
    assert not list(tmp_path.glob("spvfilter-table-*"))
