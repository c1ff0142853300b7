"""The set of matches depends neither on the order of blocks and files nor on the number of threads."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bitcoin.core import CBlock

from spvfilter import errors
from spvfilter.kernel import Place, WatchTable
from spvfilter.network import TESTNET3
from spvfilter.scan import order
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles, BlockList, BlockRef, RawBlock, Spool
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import block_hash, chain_of, push, txid
from support.blocks.chains import Interest, exact, found_by, identity, random_chain, record, slowly, write_records
from support.blocks.realdata import runs
from support.matching import ANCESTOR, JOBS, MINE, SEEDS, mine, once, pay, shuffled, spend
from support.oracles.oracle import Wallet

pytestmark = pytest.mark.usefixtures("small_batches_and_many_threads")


# Random chains


@SEEDS
@JOBS
async def test_a_list_in_any_order_matches_in_chain_order(seed: int, jobs: int) -> None:
    interest, blocks = random_chain(seed)
    heights: dict[bytes | None, int] = {block_hash(raw): 100 + number for number, raw in enumerate(blocks)}
    found = []
    for source in (list(blocks), shuffled(blocks, seed)):
        watch = interest.watch()
        matches = await found_by(Matcher(watch, jobs=jobs), source)
        assert [exact(match) for match in matches] == interest.expected(blocks)
        assert all(match.height == heights[match.block_hash] for match in matches)
        assert {bytes(point) for point in watch.outpoints()} == set(interest.outpoints) | {
            bytes(match.outpoint) for match in matches if match.kind == MatchKind.OUTPUT
        }
        found.append(matches)
    assert found[0] == found[1]


@pytest.mark.few(3)
@SEEDS
@JOBS
async def test_streams_in_any_order_give_every_match_once(seed: int, jobs: int) -> None:
    interest, blocks = random_chain(seed)
    expected = {found[:5] for found in interest.expected(blocks)}
    order = shuffled(blocks, seed)
    for stream in (iter(order), slowly(order), iter(blocks[::-1]), (RawBlock(raw) for raw in order)):
        matcher = Matcher(interest.watch(), jobs=jobs)
        matches = await found_by(matcher, stream)
        assert {identity(match) for match in once(matches)} == expected
        assert (matcher.report.blocks, matcher.report.segments, matcher.report.stale) == (len(blocks), 1, [])


@SEEDS
async def test_a_stream_in_chain_order_equals_a_list(seed: int) -> None:
    interest, blocks = random_chain(seed)
    reference = await found_by(Matcher(interest.watch()), list(blocks))
    for jobs in (1, 3):
        assert await found_by(Matcher(interest.watch(), jobs=jobs), iter(blocks)) == reference
        assert await found_by(Matcher(interest.watch(), jobs=jobs), iter(blocks), in_order=True) == reference
        assert await found_by(Matcher(interest.watch(), jobs=jobs), slowly(blocks), in_order=True) == reference


@SEEDS
@JOBS
async def test_files_and_records_in_any_order_give_the_same(seed: int, jobs: int, tmp_path: Path) -> None:
    interest, blocks = random_chain(seed)
    reference = once(await found_by(Matcher(interest.watch()), list(blocks)))
    rng = random.Random(seed)
    order = shuffled(blocks, seed)
    cuts = [0, *sorted(rng.sample(range(1, len(order)), 4)), len(order)]
    paths = [write_records(tmp_path / f"blk{n:05}.dat", order[a:b]) for n, (a, b) in enumerate(pairwise(cuts))]
    (tmp_path / "one.raw").write_bytes(order[0])
    (tmp_path / "one.hex").write_text(order[1].hex())
    matcher = Matcher(interest.watch(), jobs=jobs)
    matches = await found_by(
        matcher, BlockFiles(rng.sample([*paths, tmp_path / "one.raw", tmp_path / "one.hex"], len(paths) + 2))
    )
    assert once(matches) == reference
    assert sorted(matcher.report.duplicates) == sorted(map(block_hash, order[:2]))
    assert (matcher.report.blocks, matcher.report.bytes_scanned) == (len(blocks), sum(map(len, blocks)))
    assert matcher.report.bytes_total == matcher.report.bytes_scanned


class LateFirst(BlockList):
    """Blocks whose reader waits at each even index until the next block is read."""

    def __init__(self, chain: Sequence[bytes]) -> None:
        super().__init__(chain)
        self.begun = [threading.Event() for _ in chain]

    def read(self, ref: BlockRef) -> bytes:
        self.begun[ref.file].set()
        if not ref.file % 2 and ref.file + 1 < len(self.begun):
            assert self.begun[ref.file + 1].wait(10)
        return super().read(ref)


@SEEDS
@pytest.mark.parametrize("jobs", [2, 3])
async def test_an_outpoint_learned_during_the_next_block_is_used(
    seed: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    interest, blocks = random_chain(seed)
    reference = await found_by(Matcher(interest.watch()), list(blocks))
    assert await found_by(Matcher(interest.watch(), jobs=jobs), LateFirst(blocks)) == reference


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("label", ["script 0", "by hand"])
async def test_a_spend_by_outpoint_has_the_value_of_its_output(
    label: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the outpoint is watched by hand, or the input pushes watched data."""
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    paid = pay()
    interest = Interest([MINE], data=[b"secret"], outpoints=[txid(paid) + bytes(4)] * (label == "by hand"))
    blocks = chain_of([[paid], [spend(paid, push(b"secret"))]])
    matches = await found_by(Matcher(interest.watch(), jobs=jobs), LateFirst(blocks) if jobs > 1 else blocks)
    assert [(match.kind, match.value, match.label) for match in matches] == [
        (MatchKind.OUTPUT, 1_000, "script 0"),
        (MatchKind.INPUT, 1_000, label),
    ]


async def test_an_outpoint_of_a_loose_transaction_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payment's block is scanned after its spend.

    A loose transaction teaches the outpoint in between, so it was unknown when the spend was scanned.
    """
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    paid = pay()
    blocks = chain_of([[paid], [spend(paid)]])
    payment_may_be_read, spend_scanned = threading.Event(), threading.Event()
    scan_blocks: Any = WatchTable.scan_blocks

    class Held(BlockList):
        def read(self, ref: BlockRef) -> bytes:
            assert ref.file == 1 or payment_may_be_read.wait(10)
            return super().read(ref)

    def told(table: WatchTable, raws: list[bytes], *rest: Any, packed: bool = False) -> object:
        hits: object = scan_blocks(table, raws, *rest, packed=packed)
        if raws == [blocks[1]]:
            spend_scanned.set()
        return hits

    monkeypatch.setattr(WatchTable, "scan_blocks", told)
    matcher = Matcher(mine(), jobs=2)
    task = asyncio.create_task(found_by(matcher, Held(blocks)))
    assert await asyncio.to_thread(spend_scanned.wait, 10)
    assert len(await matcher.match_tx(paid)) == 1
    payment_may_be_read.set()
    assert [match.kind for match in await task] == [MatchKind.OUTPUT, MatchKind.INPUT]


class SpendFirst(BlockFiles):
    """A file with a payment and a file with its spend.

    The spend is scanned first. `meanwhile` is called between the two.
    """

    def __init__(
        self, blocks: Sequence[bytes], folder: Path, meanwhile: Callable[[Path], object] = lambda path: None
    ) -> None:
        self.paths = [folder / "0.raw", folder / "1.raw"]
        for path, raw in zip(self.paths, blocks, strict=True):
            path.write_bytes(raw)
        super().__init__(self.paths)
        self._spend_scanned = threading.Event()
        self._meanwhile = meanwhile

    @contextmanager
    def opened(self, refs: Sequence[BlockRef]) -> Iterator[list[Place] | None]:
        (number,) = (ref.file for ref in refs)
        if number == 0:
            assert self._spend_scanned.wait(10)
            self._meanwhile(self.paths[1])
        with super().opened(refs) as places:
            yield places
        if number == 1:
            self._spend_scanned.set()


async def test_a_late_outpoint_is_found_by_a_second_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    paid = pay()
    files = SpendFirst(chain_of([[paid], [spend(paid)]]), tmp_path)
    assert [match.kind for match in await found_by(Matcher(mine(), jobs=2), files)] == [
        MatchKind.OUTPUT,
        MatchKind.INPUT,
    ]


async def test_a_file_missing_at_the_second_read_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    paid = pay()
    matcher = Matcher(mine(), jobs=2)
    files = SpendFirst(chain_of([[paid], [spend(paid)]]), tmp_path, Path.unlink)
    matches: list[Match] = []
    with pytest.raises(errors.IncompleteScanError, match=r"1\.raw at byte 0: No such file"):
        async for match in matcher.scan(files):
            matches.append(match)  # noqa: PERF401  keep the matches before the error
    assert [match.kind for match in matches] == [MatchKind.OUTPUT]
    assert matcher.report.blocks == 2


@SEEDS
@JOBS
async def test_a_list_with_all_outpoints_finds_the_same_again(seed: int, jobs: int) -> None:
    interest, chain = random_chain(seed)
    blocks = [raw for number, raw in enumerate(chain) if number % 5]
    watch = interest.watch()
    first = once(await found_by(Matcher(watch, jobs=jobs), list(blocks)))
    for what in (shuffled(blocks, seed), iter(shuffled(blocks, seed)), iter(blocks)):
        assert set(map(identity, once(await found_by(Matcher(watch, jobs=jobs), what)))) == set(map(identity, first))


# In declared order


async def test_an_unlinked_block_is_refused_after_earlier_matches() -> None:
    interest, blocks = random_chain(3)
    expected = interest.expected(blocks[:10])
    for broken in (blocks[:10] + blocks[11:], (*blocks[:10], blocks[9]), (*blocks[:10], blocks[3])):
        given: list[Match] = []
        with pytest.raises(errors.OrderError, match=block_hash(broken[10])[::-1].hex()):
            async for match in Matcher(interest.watch()).scan(list(broken), in_order=True):
                given.append(match)  # noqa: PERF401  keep the matches before the error
        assert [exact(match) for match in given] == expected


@JOBS
async def test_declared_order_spools_no_block(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    interest, blocks = random_chain(4)
    monkeypatch.setattr(Spool, "put", lambda *_: pytest.fail("spooled"))
    monkeypatch.setattr(Spool, "read", lambda *_: pytest.fail("read again"))
    matches = await found_by(Matcher(interest.watch(), jobs=jobs), slowly(blocks), in_order=True)
    assert [exact(match) for match in matches] == interest.expected(blocks)


async def test_declared_order_counts_heights_from_a_given_one() -> None:
    paid = [pay(salt=n) for n in range(4)]
    blocks = [
        raw.replace(b"\x04\x00\x00\x00", b"\x01\x00\x00\x00", 1)
        for raw in chain_of([[raw] for raw in paid], ANCESTOR, 700)
    ]
    linked: list[RawBlock] = []
    for raw in blocks:  # a block of version 1 states no height; link the blocks again
        before = block_hash(linked[-1].raw) if linked else ANCESTOR
        linked.append(RawBlock(raw[:4] + before + raw[36:], 9_000 if len(linked) == 1 else None))
    for source, options in ((iter(linked), {"in_order": True}), (linked, {"in_order": True}), (iter(linked), {})):
        matches = await found_by(Matcher(mine()), source, **options)
        assert [match.height for match in matches] == [None, 9_000, 9_001, 9_002]
    assert [match.height for match in await found_by(Matcher(mine()), linked)] == [8_999, 9_000, 9_001, 9_002]


# Real blocks


def first_testnet_blocks() -> list[bytes]:
    return next(
        [block.raw for block in run]
        for entry, run in runs()
        if (entry["network"], entry["first_height"]) == ("testnet3", 0)
    )


def busiest(blocks: Sequence[bytes], count: int) -> Iterator[bytes]:
    """The scripts with the most outputs in the blocks."""
    paid = Counter(bytes(out.scriptPubKey) for raw in blocks for txn in CBlock.deserialize(raw).vtx for out in txn.vout)
    return (script for script, _ in paid.most_common(count))


@pytest.mark.few(1)
@pytest.mark.vectors
@JOBS
@pytest.mark.parametrize("kind", ["list", "iterator", "generator", "files"])
async def test_real_blocks_in_any_order_equal_the_oracle(kind: str, jobs: int, tmp_path: Path) -> None:
    blocks = first_testnet_blocks()
    scripts = list(busiest(blocks, 40))
    wallet = Wallet()
    wallet.scripts |= set(scripts)
    expected = {
        (height, kind_, txid_, index, point, value)
        for height, raw in enumerate(blocks)
        for kind_, txid_, index, point, value in wallet.block(CBlock.deserialize(raw))
    }
    assert sum(found[1] == "input" for found in expected) > 100
    watch = WatchList(TESTNET3)
    for script in scripts:
        watch.add_script(script)
    order = shuffled(blocks, jobs)
    match kind:
        case "list":
            source: object = order
        case "iterator":
            source = iter(order)
        case "generator":
            source = slowly(order)
        case _:
            source = BlockFiles([write_records(tmp_path / f"{n}.blk", order[n::3], TESTNET3.magic) for n in range(3)])
    matches = once(await found_by(Matcher(watch, jobs=jobs), source))
    hashes = {block_hash(raw): height for height, raw in enumerate(blocks)}
    assert {
        (hashes[match.block_hash or b""], str(match.kind), match.txid, match.index, bytes(match.outpoint), match.value)
        for match in matches
    } == expected
    if kind in ("list", "files"):
        assert all(match.height == hashes[match.block_hash or b""] for match in matches)


def test_records_of_the_tests_equal_those_of_files() -> None:
    """The tests write the same records as real block files have."""
    assert record(b"abc", b"\xfa\xbf\xb5\xda") == bytes.fromhex("fabfb5da03000000616263")
