"""Damaged copies of blocks and duplicates: no match is lost or counted twice, and damage is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from spvfilter import BlockFiles, Match, Matcher, OutPoint, WatchList
from spvfilter.errors import FormatError, IncompleteScanError
from spvfilter.scan import ScanReport
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.vectors import vector_file, vector_path

MINE = b"\x00\x14" + b"\x77" * 20
OTHER = b"\x00\x14" + b"\x11" * 20


async def scanned(watch: WatchList, blocks: Any, **options: Any) -> tuple[list[Match], ScanReport]:
    matcher = Matcher(watch, **options)
    found: list[Match] = []
    try:
        async for match in matcher.scan(blocks):
            found.append(match)  # noqa: PERF401  those before an IncompleteScanError are wanted
    except IncompleteScanError:
        assert matcher.report.problems
    return found, matcher.report


def real_wallet() -> tuple[WatchList, bytes]:
    case = next(case for case in vector_file("11_wallet_scan/blocks.json")["vectors"] if "300025" in case["block_file"])
    watch = WatchList()
    for entry in case["watch"]:
        watch.add_script(bytes.fromhex(entry["script"]))
    return watch, vector_path(case["block_file"]).read_bytes()


@pytest.mark.vectors
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("at", "bit"), [(40, 1), (76, 0), (79, 7), (75, 3), (70, 2)])
async def test_a_damaged_header_does_not_hide_the_genuine_block(at: int, bit: int, check: bool, tmp_path: Path) -> None:
    watch, raw = real_wallet()
    alone, _ = await scanned(watch.copy(), [raw])
    assert alone
    damaged = bytearray(raw)
    damaged[at] ^= 1 << bit
    for cut in (len(raw), 5_000):
        for names in (("a.raw", "b.raw"), ("b.raw", "a.raw")):
            (tmp_path / names[0]).write_bytes(raw)
            (tmp_path / names[1]).write_bytes(damaged[:cut])
            found, report = await scanned(watch.copy(), BlockFiles(tmp_path), check=check)
            assert found == alone
            assert report.stale == report.unproven != []
            assert bool(report.problems) == (check or cut < len(raw))


@pytest.mark.vectors
async def test_check_refuses_a_header_that_does_not_meet_its_bits() -> None:
    watch, raw = real_wallet()
    damaged = raw[:76] + bytes([raw[76] ^ 1]) + raw[77:]
    with pytest.raises(FormatError) as caught:
        await scanned(watch, [damaged], check=True)
    assert (caught.value.field, caught.value.offset) == ("bits", 72)


def pay(seed: int, to: bytes, value: int = 1_000) -> bytes:
    return build.tx([TxIn(bytes([seed]) * 32, 0)], [TxOut(value, to)])


def test_a_block_with_a_duplicate_payment_is_refused() -> None:
    """CVE-2012-2459: repeating the last transaction does not change the merkle root."""
    genuine = build.block(b"\x05" * 32, [build.coinbase(700), pay(1, OTHER), pay(2, MINE)], mined=True)
    count = genuine[80]
    last = pay(2, MINE)
    mutated = genuine[:80] + bytes([count + 1]) + genuine[81:] + last
    watch = WatchList()
    watch.add_script(MINE)
    assert len(watch.copy().match_block(genuine)) == 1
    with pytest.raises(FormatError, match="duplicated transactions"):
        watch.match_block(mutated)


async def test_the_genuine_block_is_scanned_after_its_mutated_copy(tmp_path: Path) -> None:
    genuine = build.block(b"\x05" * 32, [build.coinbase(700), pay(1, OTHER), pay(2, MINE)], mined=True)
    (tmp_path / "a.raw").write_bytes(genuine[:80] + bytes([genuine[80] + 1]) + genuine[81:] + pay(2, MINE))
    (tmp_path / "b.raw").write_bytes(genuine)
    watch = WatchList("regtest")
    watch.add_script(MINE)
    found, report = await scanned(watch, BlockFiles(tmp_path))
    assert [match.value for match in found] == [1_000]
    assert [Path(problem.where.split(" at byte")[0]).name for problem in report.problems] == ["a.raw"]


async def one_by_one(blocks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for raw in blocks:
        yield raw


async def test_outputs_of_a_stale_block_are_found_as_spent() -> None:
    """A and A1 have the same parent, and C follows A, so A1 is stale.

    D is linked to no other block and spends an output that only A1 has.
    """
    paid = pay(1, MINE)
    a = build.block(b"\x05" * 32, [build.coinbase(700)], mined=True)
    a1 = build.block(b"\x05" * 32, [build.coinbase(701), paid], mined=True)
    c = build.block(build.block_hash(a), [build.coinbase(702)], mined=True)
    spend = build.tx([TxIn(build.txid(paid), 0)], [TxOut(900, OTHER)])
    d = build.block(b"\x09" * 32, [build.coinbase(900), spend], mined=True)
    watch = WatchList("regtest")
    watch.add_script(MINE)
    expected = {("input", build.txid(spend), 0, OutPoint(build.txid(paid), 0), 1_000)}
    for order in permutations((a, a1, c, d)):
        for blocks in (list(order), iter(order), one_by_one(order)):
            found, report = await scanned(watch.copy(), blocks)
            assert report.stale == [build.block_hash(a1)]
            counted = [match for match in found if match.block_hash not in report.stale]
            kept = {(match.kind, match.txid, match.index, match.outpoint, match.value) for match in counted}
            assert kept == expected
