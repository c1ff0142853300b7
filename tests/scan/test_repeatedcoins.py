"""Coins that two blocks created (BIP-30): both rows stay, and sums count the coin once."""

from __future__ import annotations

import csv
from contextlib import aclosing
from itertools import permutations
from pathlib import Path

import pytest

from spvfilter.kernel import unpack_hits
from spvfilter.scan import BlockFiles, Matcher, PartScan, Plan, repeatedcoins, scan_parts
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.repeatedcoins import REPEATING, RepeatedCoins
from spvfilter.scan.totals import EntryTotals
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import COINBASE_VALUE, TxIn, TxOut, block, block_hash, coinbase, p2wpkh, tx
from support.blocks.chains import found_by, write_records

SCRIPT = p2wpkh(bytes(20))
SAME = coinbase(7, [TxOut(COINBASE_VALUE, SCRIPT)])


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Four blocks: the second and the fourth have one coinbase, as 91,722 and 91,880 do."""
    other = tx([TxIn(bytes(range(32)), 0)], [TxOut(5, SCRIPT)])
    blocks: list[bytes] = []
    for height, txs in enumerate(([coinbase(1)], [SAME, other], [coinbase(3, [TxOut(1, SCRIPT)])], [SAME])):
        blocks.append(
            block(block_hash(blocks[-1]) if blocks else bytes(32), txs, time=1_600_000_000 + 600 * height, mined=True)
        )
    pair = frozenset((block_hash(blocks[1]), block_hash(blocks[3])))
    monkeypatch.setattr(repeatedcoins, "REPEATING", pair)
    return blocks


def watching() -> WatchList:
    watch = WatchList("regtest")
    watch.add_script(SCRIPT)
    return watch


async def found_in(blocks: list[bytes]) -> list[BlockHits]:
    async with aclosing(Matcher(watching()).scan_batches(blocks)) as batches:
        return [batch.block async for batch in batches]


async def test_both_rows_stay_and_sums_count_the_coin_once(chain: list[bytes], tmp_path: Path) -> None:
    watch = watching()
    matches = await found_by(Matcher(watch), chain)
    assert [match.value for match in matches] == [COINBASE_VALUE, 5, 1, COINBASE_VALUE]
    by_entry = EntryTotals(len(watch))
    found = await found_in(chain)
    for each in found:
        by_entry.add(each)
    ((entry, total),) = by_entry
    assert (entry, total.received, total.matches) == (0, COINBASE_VALUE + 6, 3)
    points = list(BalanceHistory.of(found).points())
    assert points == [(1_600_000_600, COINBASE_VALUE + 5), (1_600_001_200, COINBASE_VALUE + 6)]
    write_records(tmp_path / "blk00000.dat", chain)
    plan = Plan.of(BlockFiles(tmp_path / "blk00000.dat"), watch.network)
    path = await scan_parts(PartScan(tmp_path / "out", plan, watching()))
    assert len(path.read_text().splitlines()) == 5
    with path.with_name("totals.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["received"], row["matches"]) == (str(COINBASE_VALUE + 6), "3")


async def test_the_order_of_the_blocks_does_not_matter(chain: list[bytes]) -> None:
    for order in permutations(await found_in(chain)):
        coins = RepeatedCoins()
        kept = [hit for each in order for hit in unpack_hits(coins.counted(each))]
        assert sorted(hit.value for hit in kept) == [1, 5, COINBASE_VALUE]


async def test_a_range_with_one_of_the_blocks_counts_its_coin(chain: list[bytes]) -> None:
    *_, last = await found_in(chain)
    assert RepeatedCoins().counted(last) == last.packed


def test_other_blocks_are_not_unpacked() -> None:
    found = BlockHits(bytes(32), None, 0, b"not hits")
    assert RepeatedCoins().counted(found) == b"not hits"


def test_the_blocks_of_mainnet_are_four() -> None:
    assert len(REPEATING) == 4
    assert all(digest.endswith(bytes(5)) for digest in REPEATING)
