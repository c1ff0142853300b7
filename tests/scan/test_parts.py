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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spvfilter.errors import IncompleteScanError, ParameterError, SourceError
from spvfilter.kernel import Hit, WatchTable, pack_hits
from spvfilter.network import MAINNET, REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_BLOCK_SIZE, MAX_SCRIPT_SIZE
from spvfilter.scan import BlockFiles, BlockSpan, Engine, Matcher, PartScan, Plan, Processes, Threads, parts, scan_parts
from spvfilter.scan.coinfile import table_with_coins, write_coins
from spvfilter.scan.partfile import MAX_HITS, PartFile
from spvfilter.scan.sources import BlockRef, FileBlocks
from spvfilter.watch import compiled
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut, block_hash, block_of, p2wpkh
from support.blocks.chains import random_tree
from support.blocks.partscans import Recorder, everything
from support.blocks.undo import ledger_chain, write_chain
from support.vectors import effort

KEY = bytes(range(1, 9))
SMALL = 1_000
ADDRESS = "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"
SCRIPT = p2wpkh(bytes(20))


def files(
    folder: Path, blocks: list[bytes], records: list[bytes] | None = None, *, several: int = 1, key: bytes = b""
) -> Path:
    """Write files of blocks, and files of their undo records if there are any."""
    for number in range(several):
        some = slice(len(blocks) * number // several, len(blocks) * (number + 1) // several)
        write_chain(folder, blocks[some], None if records is None else records[some], number, key=key)
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
    source: Path, watch: WatchList, undo: str = "auto", span: BlockSpan | None = None, *, check: bool = False
) -> tuple[list[str], Matcher]:
    matcher, rows = Matcher(watch, check=check), []
    try:
        async for match in matcher.scan(BlockFiles(source, undo=undo, span=span)):
            rows.append(as_row(match))  # noqa: PERF401  keep the matches before the error
    except IncompleteScanError:
        assert matcher.report.problems
    return in_any_order(rows), matcher


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


class Case(NamedTuple):
    """A scan of blocks, in the order of their files. Fields after `check` say what is known of the result."""

    watch: WatchList
    blocks: list[bytes]
    records: list[bytes] | None = None
    undo: str = "auto"
    span: BlockSpan | None = None
    check: bool = False
    matches: int | None = None
    """Number of matches."""
    passes: int | None = None
    """Number of passes of the scan in parts."""
    problem: str = ""
    """Words of the only problem."""


def paid_and_spent(rng: random.Random, *, recorded: float = 1, **options: Any) -> Case:
    """A chain with undo records for this part of its blocks."""
    ledger, blocks, records = ledger_chain(rng.randrange(1_000))
    order = rng.sample(range(len(blocks)), len(blocks))
    some = [records[number] for number in order if rng.random() < recorded]
    return Case(ledger.interest.watch(), [blocks[number] for number in order], some, **options)


def in_a_span(rng: random.Random, undo: str) -> Case:
    spans = [BlockSpan(110, 120), BlockSpan(to_height=103), BlockSpan(from_height=128), BlockSpan(from_time=1)]
    return paid_and_spent(rng, undo=undo, span=rng.choice(spans))


def with_stale_branches(rng: random.Random) -> Case:
    interest, blocks = random_tree(rng.randrange(1_000))
    return Case(interest.watch(), rng.sample(blocks, len(blocks)))


def with_a_damaged_copy(rng: random.Random) -> Case:
    ledger, blocks, _ = ledger_chain(rng.randrange(1_000), closed=True)
    at = rng.randrange(len(blocks))
    damaged = bytearray(blocks[at])
    damaged[90] ^= 0xFF
    order = rng.sample(blocks, len(blocks))
    return Case(ledger.interest.watch(), [bytes(damaged), *order], check=True, problem="merkle root")


def chain_of(*txs: list[bytes], paid: Sequence[TxOut] = ()) -> list[bytes]:
    """A chain with these transactions, whose coinbases make these outputs."""
    blocks: list[bytes] = []
    for height, of_block in enumerate(txs, 1):
        previous = block_hash(blocks[-1]) if blocks else REGTEST.genesis_hash
        blocks.append(block_of(previous, height, of_block, paid[height - 1 : height] or None))
    return blocks


def with_moving_windows(rng: random.Random) -> Case:
    watch, used = WatchList(REGTEST), [199, 160, 130, 5, 95, 60, 30]
    watch.add_keychain("one", lambda index: p2wpkh(index.to_bytes(20, "little")), "mine", lookahead=20)
    paid = [TxOut(1_000 + index, p2wpkh(index.to_bytes(20, "little"))) for index in used]
    return Case(watch, chain_of(*[[]] * len(used), paid=paid), matches=len(used))


PAID = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(7, SCRIPT)])
SPENDS = build.tx([TxIn(build.txid(PAID), 0)], [TxOut(7, b"\x51")])
TWICE = build.tx([TxIn(build.txid(PAID), 0)] * 2, [TxOut(14, b"\x51")])
RICH = build.tx([TxIn(bytes([2]) * 32, 0)], [TxOut(9_223_372_036_854_277_039, SCRIPT)] * 2)


def that_no_node_accepts(*txs: list[bytes], matches: int, problem: str = "") -> Callable[[random.Random], Case]:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return lambda rng: Case(watch, chain_of(*txs), matches=matches, problem=problem)


def paid_in_a_stale_block(rng: random.Random) -> Case:
    """The payment is only in the stale block. The block that spends it is linked to no other."""
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    best = chain_of([], [])
    others = [block_of(REGTEST.genesis_hash, 1, [PAID]), block_of(bytes(range(32)), 900, [SPENDS])]
    return Case(watch, rng.sample([*best, *others], 4), matches=1, passes=2)


CASES: dict[str, Callable[[random.Random], Case]] = {
    "with undo": partial(paid_and_spent, passes=1),
    "undo off": partial(paid_and_spent, undo="off", passes=2),
    "half with undo": partial(paid_and_spent, recorded=0.5, passes=2),
    "span": partial(in_a_span, undo="auto"),
    "span, undo off": partial(in_a_span, undo="off"),
    "stale branches": with_stale_branches,
    "paid in a stale block": paid_in_a_stale_block,
    "damaged copy": with_a_damaged_copy,
    "moving windows": with_moving_windows,
    "spent before paid": that_no_node_accepts([SPENDS, PAID], matches=2),
    "spent twice before paid": that_no_node_accepts([TWICE, PAID], matches=3),
    "spent twice": that_no_node_accepts([PAID, TWICE], matches=3),
    "spent three times": that_no_node_accepts([PAID], [SPENDS], [TWICE], matches=4),
    "more than all coins": that_no_node_accepts(
        [PAID], [RICH], matches=1, problem="must be from 0 to 2100000000000000 satoshi"
    ),
}


@pytest.mark.parametrize("seed", range(effort(1, 3, 100)))
@pytest.mark.parametrize("name", CASES)
async def test_parts_find_what_a_scan_in_one_piece_finds(tmp_path: Path, name: str, seed: int) -> None:
    rng = random.Random(f"{seed} {name}")
    case = CASES[name](rng)
    options: dict[str, Any] = {"undo": case.undo, "span": case.span, "check": case.check}
    several, key = rng.randint(1, min(3, len(case.blocks))), rng.choice((b"", KEY))
    source = files(tmp_path / "blocks", case.blocks, case.records, several=several, key=key)
    expected, matcher = await whole(source, case.watch.copy(), **options)
    report, written = matcher.report, set()
    assert case.matches in (None, len(expected))
    assert [case.problem in str(problem) for problem in report.problems] == [True] * bool(case.problem)
    for jobs, size in enumerate((SMALL, rng.randrange(2_000, 20_000), 10**9), 1):
        out, given, engine = tmp_path / str(jobs), case.watch.copy(), Threads(jobs)
        path, scan = await in_parts(source, out, given, part_size=size, engine=engine, **options)
        await engine.aclose()
        assert in_any_order(rows_of(path)) == expected
        assert given == case.watch
        summary = scan.report.summary
        assert (summary.blocks, summary.matches, summary.by_undo) == (report.blocks, report.matches, report.by_undo)
        assert (summary.unseen, summary.problems) == (report.unseen, list(map(str, report.problems)))
        assert scan.plan.report.stale == report.stale
        assert sum(map(len, scan.plan.stale)) == len(report.stale)
        assert scan.report.parts_done == scan.report.parts_total > 0
        assert case.passes in (None, scan.report.passes)
        written.add(path.read_bytes() + (out / "totals.csv").read_bytes())
    assert len(written) == 1
    heights: list[Any] = [row["height"] for row in rows_of(path)]
    assert heights == sorted(heights, key=lambda height: (height is None, height))
    assert case.span is None or all(map(case.span.has_height, heights))
    if not case.problem:
        before = everything(out)
        path.unlink()
        await in_parts(source, out, case.watch, part_size=size, engine=Recorder(stops_after=0), **options)
        assert everything(out) == before


def replaced(path: Path) -> None:
    WatchList(REGTEST).compile(path)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\0")
    os.utime(path, ns=(0, 0))


def truncated(path: Path) -> None:
    os.truncate(path, 0)


IN_PLACE = r"list\.spvwl was changed in place during the scan"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("made", "change", "is_mapped", "is_noticed"),
    [
        pytest.param(Processes, replaced, True, False, id="replaced"),
        pytest.param(Processes, Path.unlink, True, False, id="removed"),
        pytest.param(Processes, overwritten, True, True, id="overwritten"),
        pytest.param(Processes, truncated, True, True, id="truncated"),
        pytest.param(Processes, truncated, False, False, id="truncated after it was read"),
        pytest.param(Threads, overwritten, True, True, id="overwritten, in a thread"),
        pytest.param(Threads, truncated, False, False, id="truncated after it was read, in a thread"),
    ],
)
async def test_a_compiled_list_changes_under_a_scan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[int], Engine],
    change: Callable[[Path], None],
    is_mapped: bool,
    is_noticed: bool,
) -> None:
    """A file that is replaced or removed stays mapped as it was. A change in place ends the scan.

    Processes leave the bytes of a thread, with a compiled list and without one.
    """
    ledger, blocks, records = ledger_chain(6)
    source, watch = files(tmp_path / "blocks", blocks, records[:15]), ledger.interest.watch()
    path = tmp_path / "list.spvwl"
    for _ in range(2):
        watch.compile(path)
    monkeypatch.setattr(compiled, "READ_BELOW", 0 if is_mapped else compiled.READ_BELOW)
    loaded, engine = WatchList.load(path, watch.network), made(2)
    try:
        plain, _ = await in_parts(source, tmp_path / "plain", watch)
        before, _ = await in_parts(source, tmp_path / "before", loaded, engine=engine)
        scan = PartScan(tmp_path / "after", Plan.of(BlockFiles(source), watch.network, part_size=SMALL), loaded)
        change(path)
        if is_noticed:
            with pytest.raises(SourceError, match=IN_PLACE):
                await scan_parts(scan, "jsonl", engine)
            assert not list((tmp_path / "after").rglob("*.part"))
        else:
            await scan_parts(scan, "jsonl", engine)
            assert everything(tmp_path / "after") == everything(plain.parent)
        assert everything(before.parent) == everything(plain.parent)
    finally:
        await engine.aclose()


@pytest.fixture
def small_lists_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "READ_BELOW", 0)


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
    with pytest.raises(SourceError, match=IN_PLACE):
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
    with pytest.raises(SourceError, match=IN_PLACE):
        await PartScan(tmp_path / "out", Plan.of(BlockFiles(source), watch.network), mapped).run()
    assert len(batches) == 2


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
        engine = Recorder(2, stops_after=rng.randrange(1, 12 * (stops + 1)))  # finished tasks count, too
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
    engine = Recorder(stops_after=0)
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
    path, _ = await in_parts(source, tmp_path / "out", watch, form="csv", engine=Recorder(stops_after=0))
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
