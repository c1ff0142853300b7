"""Import of filters into a wallet's database: true filters are stored, and false ones refused. Filters of unknown
blocks wait and do no harm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spvfilter.errors import BlockFilterError, FalseFilterError, SourceError, StoreFullError
from spvfilter.filters.bip158 import basic_data, filter_hash, filter_header
from spvfilter.network import REGTEST, SIGNET
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.regtest import Regtest
from spvfilter.store import importer
from spvfilter.store.batch import Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.importer import FilterImport
from spvfilter.store.store import Store


@dataclass(frozen=True)
class Line:
    """A filter with the facts that a file may state."""

    block: bytes
    data: bytes
    previous: bytes | None
    height: int | None
    header: bytes | None


REGTEST_CHAIN = Regtest(clock=lambda: 1_700_000_000)
REGTEST_CHAIN.mine(40)
STALE = [REGTEST_CHAIN.chain.active[height] for height in (38, 39, 40)]
REGTEST_CHAIN.reorg(3)
INDEX = FilterIndex(REGTEST_CHAIN.chain)
BLOCKS = REGTEST_CHAIN.chain.active


def lines(blocks: Sequence[TreeBlock] = BLOCKS) -> list[Line]:
    return [Line(each.hash, INDEX.data(each), each.header.previous, each.height, INDEX.header(each)) for each in blocks]


LINES = lines()
HASHES = [filter_hash(line.data) for line in LINES]
DATA = {line.height: line.data for line in LINES}


def known(path: Path, tip: int, headers: int) -> Store:
    """A database that holds headers up to `tip` and filter headers up to `headers`."""
    store = Store.open(path, REGTEST)
    raw = b"".join(block.raw[:80] for block in BLOCKS[: tip + 1])
    store.commit(Batch(headers=raw, compact_filters=CompactFilterBatch(hashes=HASHES[: headers + 1])))
    return store


def take(importing: FilterImport, given: Sequence[Line]) -> None:
    for line in given:
        importing.add(line.block, line.data, previous=line.previous, height=line.height, header=line.header)
    importing.flush()


def bare(line: Line) -> Line:
    return Line(line.block, line.data, None, None, None)


def false(line: Line) -> Line:
    """Another filter, sound, with hashes to it."""
    data = basic_data(line.block, [b"another script"])
    return replace(line, data=data, header=None)


@pytest.mark.parametrize("is_bare", [False, True])
def test_filters_are_imported_once_in_any_order(tmp_path: Path, is_bare: bool) -> None:
    given = [bare(line) for line in LINES] if is_bare else list(LINES)
    random.Random(1).shuffle(given)
    with known(tmp_path / "w.db", 41, 41) as store:
        importing = FilterImport(store)
        take(importing, [*given, *given[:5]])
        assert store.compact_filters.kept(0, 50) == DATA
        assert (importing.counts.kept, importing.counts.present, importing.counts.waiting, importing.counts.stale) == (
            len(LINES),
            5,
            0,
            0,
        )
        again = FilterImport(store)
        take(again, given)
        assert (again.counts.kept, again.counts.present) == (0, len(LINES))
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.compact_filters.kept(0, 50) == DATA


@pytest.mark.parametrize("height", [7, 30])
def test_a_false_filter_is_refused_by_height_and_block(height: int, tmp_path: Path) -> None:
    with known(tmp_path / "w.db", 41, 30) as store:
        importing = FilterImport(store)
        take(importing, LINES[:height])
        with pytest.raises(
            FalseFilterError,
            match=f"the filter of block {height} {LINES[height].block[::-1].hex()} does not match its filter header",
        ) as caught:
            take(importing, [false(bare(LINES[height]))])
        assert (caught.value.height, caught.value.block_hash) == (height, LINES[height].block)
        importing.flush()
        assert store.compact_filters.kept(0, 50).keys() == set(range(height))


def test_filters_of_unknown_blocks_wait_for_their_headers(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:  # knows nothing
        importing = FilterImport(store)
        take(importing, LINES)
        assert (importing.counts.kept, importing.counts.waiting) == (len(LINES), len(LINES))
        assert store.compact_filters.kept(0, 50) == {}
        store.commit(Batch(headers=b"".join(block.raw[:80] for block in BLOCKS[1:])))
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES[:20])))
        assert store.compact_filters.kept(0, 50).keys() == set(range(20))
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES[20:])))
        assert store.compact_filters.kept(0, 50) == DATA


def test_a_false_filter_of_an_unknown_block_does_no_harm(tmp_path: Path) -> None:
    with known(tmp_path / "w.db", 10, 5) as store:
        importing = FilterImport(store)
        take(importing, [bare(false(LINES[8])), bare(false(LINES[20])), *map(bare, LINES)])
        store.commit(Batch(headers=b"".join(block.raw[:80] for block in BLOCKS[11:])))
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES[6:])))
        assert store.compact_filters.kept(0, 50) == DATA


@pytest.mark.parametrize("tip", [40, 41])  # the height of the last stale block, and above it
def test_stale_blocks_are_named_counted_and_left_out(tip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "NAMED", 2)
    stale = lines(STALE)
    with known(tmp_path / "w.db", tip, tip) as store:
        importing = FilterImport(store)
        take(importing, [*stale, replace(stale[0], previous=None), replace(stale[0], height=None), *LINES])
        assert (importing.counts.stale, importing.counts.stale_blocks) == (5, [stale[0].block, stale[1].block])
        assert importing.counts.kept == len(LINES)
        assert not any(store.compact_filters.is_kept(filter_hash(line.data), line.data) for line in stale)


def test_filters_of_another_network_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", SIGNET) as store:
        importing = FilterImport(store)
        for given in (LINES[0], replace(LINES[0], height=None), replace(LINES[0], previous=None), LINES[1]):
            with pytest.raises(
                SourceError, match=rf"block [01] is {given.block[::-1].hex()}: these filters are not for signet"
            ):
                take(importing, [given])
        importing.flush()
        assert importing.counts.kept == 0


@pytest.mark.parametrize("tip", [0, 41])
def test_a_filter_header_that_does_not_follow_is_refused(tmp_path: Path, tip: int) -> None:
    with known(tmp_path / "w.db", tip, tip - 1) as store:
        for wrong in (replace(LINES[9], data=false(LINES[9]).data), replace(LINES[9], header=bytes(32))):
            with pytest.raises(SourceError, match=LINES[9].block[::-1].hex()):
                take(FilterImport(store), [*LINES[:9], wrong])
        with pytest.raises(SourceError, match="does not follow"):  # a missing filter header is computed
            take(
                FilterImport(store),
                [*LINES[:8], replace(LINES[8], header=None), replace(LINES[9], header=LINES[8].header)],
            )
        with pytest.raises(SourceError, match=LINES[0].block[::-1].hex()):
            take(FilterImport(store), [replace(LINES[0], header=filter_header(HASHES[0], HASHES[0]))])


def test_a_malformed_filter_of_an_unknown_block_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        for data in (b"", b"\xff" * 9, LINES[5].data + b"\0", LINES[5].data[:-1]):
            with pytest.raises(BlockFilterError, match=LINES[5].block[::-1].hex()):
                take(FilterImport(store), [bare(replace(LINES[5], data=data))])


def test_an_import_is_committed_in_parts_of_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "BATCH_SIZE", len(LINES[0].data) + 1)
    with known(tmp_path / "w.db", 41, 41) as store:
        importing, kept = FilterImport(store), list[int]()
        for line in LINES[:3]:
            importing.add(line.block, line.data)
            kept.append(importing.counts.kept)
        assert kept == [0, 2, 2]


def test_an_interrupted_import_keeps_whole_batches_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "BATCH", 8)
    path = tmp_path / "w.db"
    with known(path, 41, 41) as store:
        importing = FilterImport(store)
        for line in LINES[:21]:
            importing.add(line.block, line.data)
        assert importing.counts.kept == 16  # here the process dies
    with Store.open(path, REGTEST) as store:
        assert store.compact_filters.kept(0, 50).keys() == set(range(16))
        again = FilterImport(store)
        take(again, LINES)
        assert (again.counts.present, again.counts.kept) == (16, len(LINES) - 16)
        assert store.compact_filters.kept(0, 50) == DATA


def test_a_failed_batch_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with known(tmp_path / "w.db", 41, 41) as store:
        importing = FilterImport(store)
        with monkeypatch.context() as patched:

            def full(batch: Batch) -> None:
                raise StoreFullError("the disk is full")

            patched.setattr(store, "commit", full)
            with pytest.raises(StoreFullError):
                take(importing, LINES)
        assert (importing.counts.kept, store.compact_filters.kept(0, 50)) == (0, {})
        importing.flush()  # there is room again
        assert (importing.counts.kept, store.compact_filters.kept(0, 50)) == (len(LINES), DATA)


def test_a_new_import_repairs_a_damaged_filter(tmp_path: Path) -> None:
    with known(tmp_path / "w.db", 41, 41) as store:
        store.commit(Batch(compact_filters=CompactFilterBatch(kept=[(HASHES[3], b"\0")])))
        assert store.compact_filters.kept(0, 50) == {}
        take(FilterImport(store), LINES)
        assert store.compact_filters.kept(0, 50) == DATA
