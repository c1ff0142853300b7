"""Blocks that no node would accept: a scan and a scan in parts have the same rows and problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import IncompleteScanError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, Matcher, PartScan, Plan, scan_parts
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.chains import record

SCRIPT = build.p2wpkh(bytes(20))
PAID = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(7, SCRIPT)])
PAID_ID = build.txid(PAID)
SPENDS = build.tx([TxIn(PAID_ID, 0)], [TxOut(7, b"\x51")])
TWICE = build.tx([TxIn(PAID_ID, 0), TxIn(PAID_ID, 0)], [TxOut(14, b"\x51")])
RICH = build.tx([TxIn(bytes([2]) * 32, 0)], [TxOut(9_223_372_036_854_277_039, SCRIPT)] * 2)


def _row(match: Match) -> str:
    return f"{match.kind},{match.height},{match.txid_hex},{match.index},{match.value}"


async def rows_and_problems(tmp_path: Path, *blocks: list[bytes]) -> list[tuple[list[str], list[str]]]:
    """The rows and the problems of a scan, and of a scan in parts."""
    raws, previous = [], REGTEST.genesis_hash
    for height, txs in enumerate(blocks, 1):
        raws.append(build.block(previous, [build.coinbase(height), *txs]))
        previous = build.block_hash(raws[-1])
    (tmp_path / "blk00000.dat").write_bytes(b"".join(map(record, raws)))
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    matcher = Matcher(watch.copy())
    rows: list[str] = []
    try:
        async for match in matcher.scan(BlockFiles(tmp_path)):
            rows.append(_row(match))  # noqa: PERF401  the scan may end with an error
    except IncompleteScanError:
        assert matcher.report.problems
    scan = PartScan(tmp_path / "out", Plan.of(BlockFiles(tmp_path), REGTEST), watch)
    path = await scan_parts(scan)
    lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
    in_parts = [",".join((each[0], each[2], each[5], each[6], each[9])) for each in lines]
    return [(rows, list(map(str, matcher.report.problems))), (in_parts, scan.report.summary.problems)]


@pytest.mark.parametrize(
    ("blocks", "count"),
    [
        (([SPENDS, PAID],), 2),
        (([TWICE, PAID],), 3),
        (([PAID, TWICE],), 3),
        (([PAID], [SPENDS], [TWICE]), 4),
    ],
)
async def test_both_engines_have_the_same_rows(tmp_path: Path, blocks: tuple[list[bytes], ...], count: int) -> None:
    one, other = await rows_and_problems(tmp_path, *blocks)
    assert sorted(one[0]) == sorted(other[0])
    assert (len(one[0]), one[1], other[1]) == (count, [], [])


async def test_both_engines_refuse_more_than_all_coins(tmp_path: Path) -> None:
    one, other = await rows_and_problems(tmp_path, [PAID], [RICH])
    assert other == one
    assert one[1]
    assert "must be from 0 to 2100000000000000 satoshi" in one[1][0]
