"""Batches of matches, as lines, sums, columns and objects: they contain the same matches as a plain scan."""

from __future__ import annotations

import csv
import io
import json
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.term.matches import batch_printer, printer
from spvfilter.cli.term.page import Page
from spvfilter.errors import IncompleteScanError, ParameterError
from spvfilter.network import MAINNET
from spvfilter.scan import BlockFiles, MatchBatch, Matcher
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxOut, block_of, p2wpkh
from support.blocks.chains import found_by, random_chain, random_tree, slowly, write_records
from support.blocks.realdata import RealBlock, real_block_cases
from support.blocks.undo import ledger_chain, write_chain
from support.vectors import effort


async def batches_of(watch: WatchList, blocks: Any, jobs: int = 1, **options: bool) -> list[MatchBatch]:
    async with aclosing(Matcher(watch, jobs=jobs).scan_batches(blocks, **options)) as batches:
        return [batch async for batch in batches]


def printed(matches: list[Match], form: str) -> str:
    page = Page(io.StringIO())
    show = printer(page, form)
    for match in matches:
        show(match)
    assert isinstance(page.stream, io.StringIO)
    return page.stream.getvalue()


def printed_batches(batches: list[MatchBatch], form: str) -> str:
    page = Page(io.StringIO())
    show = batch_printer(page, form)
    for batch in batches:
        show(batch)
    assert isinstance(page.stream, io.StringIO)
    return page.stream.getvalue()


def same(batches: list[MatchBatch], matches: list[Match], watch: WatchList) -> None:
    assert [match for batch in batches for match in batch.matches()] == matches
    assert sum(map(len, batches)) == len(matches)
    for form in ("csv", "jsonl"):
        assert printed_batches(batches, form) == printed(matches, form)


@pytest.mark.parametrize("kind", ["chain", "tree", "ledger", "stream"])
@pytest.mark.parametrize("seed", range(effort(1, 3, 60)))
async def test_batches_are_the_matches_in_the_same_order(tmp_path: Path, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    if kind == "ledger":
        ledger, blocks, records = ledger_chain(seed)
        interest = ledger.interest
        write_chain(tmp_path, blocks, records)
    else:
        interest, given = random_tree(seed) if kind == "tree" else random_chain(seed)
        blocks = rng.sample(given, len(given))
        write_records(tmp_path / "blk00000.dat", blocks)

    def source() -> object:
        return slowly(blocks) if kind == "stream" else BlockFiles(tmp_path)

    for jobs in (1, 2):
        watch, again = interest.watch(), interest.watch()
        matches = await found_by(Matcher(watch, jobs=jobs), source())
        assert len(matches) > 10
        same(await batches_of(again, source(), jobs), matches, again)
        assert again == watch


@pytest.mark.few(4)
@real_block_cases()
async def test_a_real_block_is_printed_as_before(block: RealBlock) -> None:
    rng = random.Random(block.raw)
    watch = WatchList(MAINNET)
    for number, script in enumerate(scripts_of(block.raw)):
        if rng.random() < 0.3:
            watch.add_script(script, rng.choice([None, f"label {number}", 'a, "b"', "für ‮ alles", ";\tq"[:1]]))
    if len(watch):
        again = watch.copy()
        matches = await found_by(Matcher(watch), [block.raw])
        same(await batches_of(again, [block.raw]), matches, again)


def scripts_of(raw: bytes) -> list[bytes]:
    from spvfilter.kernel import walk_block

    return list(dict.fromkeys(raw[start:end] for tx in walk_block(raw) for _, start, end in tx.outputs if end > start))


async def test_lines_and_sums_of_a_batch(tmp_path: Path) -> None:
    watch = WatchList("regtest")
    watch.add_script(p2wpkh(bytes(20)), 'a "quoted", one')
    raw = block_of(bytes(32), 7, paid=[TxOut(5_000, p2wpkh(bytes(20))), TxOut(1, p2wpkh(bytes(20))), TxOut(3, b"\x51")])
    (batch,) = await batches_of(watch, [raw])
    assert (len(batch), batch.sums(), batch.block.time) == (
        2,
        [(0, 2, 5_001, 0, 0)],
        int.from_bytes(raw[68:72], "little"),
    )
    rows = list(csv.reader(batch.lines("csv").decode().splitlines()))
    assert [(row[0], row[9], row[12]) for row in rows] == [
        ("output", "5000", 'a "quoted", one'),
        ("output", "1", 'a "quoted", one'),
    ]
    assert [json.loads(line)["label"] for line in batch.lines("jsonl").splitlines()] == ['a "quoted", one'] * 2
    assert repr(batch).startswith("<MatchBatch 2 matches, block ")
    with pytest.raises(ParameterError, match="csv or jsonl, not 'table'"):
        batch.lines("table")


@pytest.mark.slow
@pytest.mark.columns
async def test_a_batch_is_columns() -> None:
    watch = WatchList("regtest")
    watch.add_script(p2wpkh(bytes(20)))
    raw = block_of(bytes(32), 7, paid=[TxOut(5_000, p2wpkh(bytes(20)))])
    (batch,) = await batches_of(watch, [raw])
    (row,) = batch.to_arrow().to_pylist()
    assert (row["kind"], row["value"], row["label"], row["coinbase"]) == ("output", 5_000, None, True)


async def test_batches_report_unreadable_blocks(tmp_path: Path) -> None:
    interest, blocks = random_chain(3)
    path = write_records(tmp_path / "blk00000.dat", blocks)
    path.write_bytes(path.read_bytes()[:-10])
    matcher = Matcher(interest.watch())
    found = 0
    with pytest.raises(IncompleteScanError):
        async with aclosing(matcher.scan_batches(BlockFiles(path))) as batches:
            async for batch in batches:
                found += len(batch)
    assert found == matcher.report.matches > 0
    assert matcher.report.done
