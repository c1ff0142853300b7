"""Blocks that the matcher accepts, reports and refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bitcoin.core import CBlock, CTransaction

from spvfilter import errors
from spvfilter.scan import order
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles, RawBlock
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block, block_hash, block_of, coinbase, segwit_coinbase, tx, txid
from support.blocks.chains import exact, found_by, random_chain, record, slowly, write_records
from support.matching import JOBS, KINDS, MINE, mine, paying, source

pytestmark = pytest.mark.usefixtures("many_threads", "nothing_is_left")


# Accepted forms of blocks


async def test_blocks_may_be_bytes_with_heights_or_of_bitcoinlib() -> None:
    blocks = paying(4)
    shapes: list[Callable[[bytes], object]] = [bytes, bytearray, memoryview, CBlock.deserialize, RawBlock]
    reference = await found_by(Matcher(mine()), blocks)
    assert [match.height for match in reference] == [100, 101, 102, 103]
    for shape in shapes:
        assert await found_by(Matcher(mine()), [shape(raw) for raw in blocks]) == reference
        assert await found_by(Matcher(mine()), (shape(raw) for raw in blocks)) == reference
        assert await found_by(Matcher(mine()), slowly(shape(raw) for raw in blocks)) == reference
    assert await found_by(Matcher(mine()), tuple(blocks)) == reference


async def test_given_heights_override_those_of_coinbases() -> None:
    blocks = paying(2)
    given = [RawBlock(raw, 500 + number) for number, raw in enumerate(blocks)]
    for shape in (list(given), iter(given), slowly(given)):
        assert [match.height for match in await found_by(Matcher(mine()), shape)] == [500, 501]


async def test_a_source_that_is_no_iterable_of_blocks_is_refused() -> None:
    raw = paying(1)[0]
    for wrong in (raw, bytearray(raw), memoryview(raw), raw.hex(), CBlock.deserialize(raw), 5, None):
        with pytest.raises(TypeError, match="expected an iterable of raw blocks"):
            await found_by(Matcher(mine()), wrong)
    for item in (5, raw.hex(), None):
        for shape in ([item], iter([item]), slowly([item])):
            with pytest.raises(TypeError, match="bytes or an object with serialize"):
                await found_by(Matcher(mine()), shape)


async def test_a_matcher_needs_a_watch_list_and_a_thread() -> None:
    with pytest.raises(errors.ParameterError, match="the watch list is empty"):
        Matcher(WatchList())
    for jobs in (0, -1):
        with pytest.raises(errors.ParameterError, match=f"jobs must be at least 1, not {jobs}"):
            Matcher(mine(), jobs=jobs)


@pytest.mark.parametrize("nothing", [[], (), iter([]), slowly([])], ids=["list", "tuple", "iterator", "generator"])
async def test_an_empty_source_gives_no_matches(nothing: object) -> None:
    matcher = Matcher(mine())
    assert await found_by(matcher, nothing) == []
    assert (matcher.report.blocks, matcher.report.segments, matcher.report.done) == (0, 0, True)


async def test_a_loose_transaction_is_matched_and_teaches_its_outpoint() -> None:
    matcher = Matcher(mine())
    paid = tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b""), TxOut(1_000, MINE)])
    spent = tx([TxIn(txid(paid), 1)], [TxOut(900, b"\x51")])
    assert await matcher.match_tx(spent) == []
    for raw in (paid, CTransaction.deserialize(paid), bytearray(paid)):
        (match,) = await matcher.match_tx(raw)  # type: ignore[arg-type]  # any bytes-like value is taken
        assert (match.kind, match.txid, match.index, match.value) == (MatchKind.OUTPUT, txid(paid), 1, 1_000)
        assert (match.block_hash, match.height) == (None, None)
    (match,) = await matcher.match_tx(spent)
    assert (match.kind, match.value, match.script_pubkey) == (MatchKind.INPUT, 1_000, MINE)
    for wrong in (paid[:-1], paid + b"\x00", b""):
        with pytest.raises(errors.FormatError):
            await matcher.match_tx(wrong)


@KINDS
async def test_the_report_follows_the_scan(kind: str, tmp_path: Path) -> None:
    blocks = paying(5)
    matcher = Matcher(mine())
    what, options = source(kind, blocks, tmp_path)
    for expected in range(1, 6):
        assert not matcher.report.done
        if expected == 1:
            matches = matcher.scan(what, **options)  # type: ignore[arg-type]
        assert (await anext(matches)).value == 999 + expected
        assert matcher.report.matches == expected
        assert matcher.report.blocks >= expected
    assert [match async for match in matches] == []
    report = matcher.report
    assert (report.done, report.blocks, report.bytes_scanned) == (True, 5, sum(map(len, blocks)))
    assert report.bytes_total == (report.bytes_scanned if kind in ("list", "files") else None)
    assert report.segments == (0 if kind == "in order" else 1)


# Malformed blocks


def damaged(kind: str, raw: bytes) -> bytes:
    return {
        "truncated": raw[:-1],
        "trailing": raw + b"\x00",
        "header": raw[:79],
        "no transactions": raw[:80] + b"\x00",
        "empty": b"",
        "non-canonical": raw[:80] + b"\xfd\x02\x00" + raw[81:],
    }[kind]


@pytest.mark.few(28)
@JOBS
@pytest.mark.parametrize("damage", ["truncated", "trailing", "header", "no transactions", "empty", "non-canonical"])
@pytest.mark.parametrize("kind", ["list", "iterator", "generator", "in order"])
async def test_a_malformed_block_of_the_caller_ends_the_scan(
    kind: str, damage: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 3)
    blocks = paying(12)
    blocks[7] = damaged(damage, blocks[7])
    given: list[int | None] = []
    what, options = source(kind, blocks, tmp_path)
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(errors.FormatError) as error:
        async for match in matcher.scan(what, **options):  # type: ignore[arg-type]
            given.append(match.value)  # noqa: PERF401  keep the matches before the error
    assert error.value.field
    assert given == ([] if kind == "list" and len(blocks[7]) < 80 else [1_000 + number for number in range(7)])
    assert not matcher.report.done


@JOBS
@pytest.mark.parametrize("damage", ["truncated", "trailing", "no transactions", "non-canonical"])
async def test_a_malformed_block_in_a_file_is_reported_last(
    damage: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 3)
    blocks = paying(12)
    blocks[7] = damaged(damage, blocks[7])
    path = write_records(tmp_path / "blk00000.dat", blocks)
    given: list[int | None] = []
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(errors.IncompleteScanError) as error:
        async for match in matcher.scan(BlockFiles(path)):
            given.append(match.value)  # noqa: PERF401  keep the matches before the error
    assert given == [1_000 + number for number in range(12) if number != 7]
    assert len(error.value.problems) == 1
    offset = sum(8 + len(raw) for raw in blocks[:7]) + 8
    assert error.value.problems[0].startswith(f"{path} at byte {offset}: ")
    assert matcher.report.done
    assert [str(problem) for problem in matcher.report.problems] == list(error.value.problems)


def liars() -> dict[str, bytes]:
    """Blocks that parse but do not match the commitments of their header."""
    paid = tx([TxIn(b"\x01" * 32, 0, witness=(b"w",))], [TxOut(1_000, MINE)])
    plain = tx([TxIn(b"\x02" * 32, 0)], [TxOut(1, b"\x51")])
    honest = block(bytes(32), [segwit_coinbase(1, [plain, paid]), plain, paid])
    wrong_witness = honest.replace(b"\x01w", b"\x01W")
    three = block(bytes(32), [coinbase(1), tx([TxIn(b"\x04" * 32, 0)], [TxOut(5, MINE)]), plain])
    doubled = three[:80] + b"\x04" + three[81:] + plain  # the same merkle root: CVE-2012-2459
    uncommitted = block(bytes(32), [coinbase(1), paid])
    richer = honest.replace((1_000).to_bytes(8, "little"), (9_000).to_bytes(8, "little"))
    assert len({honest, wrong_witness, richer}) == 3
    return {
        "merkle root": richer,
        "duplicated transactions": doubled,
        "witness commitment": wrong_witness,
        "no commitment": uncommitted,
    }


@pytest.mark.parametrize("which", ["merkle root", "duplicated transactions", "witness commitment", "no commitment"])
async def test_checking_finds_blocks_that_contradict_their_header(which: str, tmp_path: Path) -> None:
    liar = liars()[which]
    field = "witness commitment" if "commitment" in which else "merkle root"
    assert isinstance(await found_by(Matcher(mine()), [liar]), list)  # the block parses
    for what in ([liar], iter([liar]), slowly([liar])):
        with pytest.raises(errors.FormatError) as error:
            await found_by(Matcher(mine(), check=True), what)
        assert error.value.field == field
    honest = block_of(block_hash(liar), 2, [tx([TxIn(b"\x03" * 32, 0)], [TxOut(7, MINE)])])
    matcher = Matcher(mine(), check=True)
    with pytest.raises(errors.IncompleteScanError, match=field):
        await found_by(matcher, BlockFiles(write_records(tmp_path / "blk00000.dat", [liar, honest])))
    assert (matcher.report.matches, matcher.report.blocks) == (1, 1)


async def test_checking_accepts_every_honest_block() -> None:
    interest, blocks = random_chain(9)
    matches = await found_by(Matcher(interest.watch(), check=True, jobs=2), list(blocks))
    assert [exact(match) for match in matches] == interest.expected(blocks)


# Several scans, one after another


async def test_a_matcher_can_scan_several_times() -> None:
    blocks = paying(6)
    matcher = Matcher(mine(), jobs=2)
    first = await found_by(matcher, blocks)
    report = matcher.report
    assert await found_by(matcher, blocks[::-1]) == first
    assert matcher.report is not report
    assert matcher.report == report


async def test_equal_blocks_give_equal_matches(tmp_path: Path) -> None:
    blocks = paying(6)
    (tmp_path / "blk00000.dat").write_bytes(b"".join(map(record, blocks)))
    assert await found_by(Matcher(mine()), BlockFiles(tmp_path)) == await found_by(Matcher(mine()), blocks)
