"""Parquet files of a scan: hashes as text or as 32 bytes, the order by height, and Bloom filters."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.cli import main
from spvfilter.errors import ParameterError
from spvfilter.kernel import Hit, pack_hits
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.scan import BlockFiles, PartScan, Plan, scan_parts, to_arrow
from spvfilter.scan.parquetrows import ROWS, ParquetForm
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary, write_part
from spvfilter.scan.tables import row_groups, write_parquet
from spvfilter.watch.watchlist import WatchList
from support.blocks.chains import record as block_record
from support.blocks.growingchain import GrowingChain
from support.oracles.parquetfiles import can_filter, facts, groups_read, without_bloom_filters

pytestmark = pytest.mark.columns
_PAGE = Path(__file__).parent.parent.parent / "docs/howto/scan.md"
HASHES = ("block_hash", "txid", "outpoint_txid")
FILTERED = {"txid", "script_pubkey", "address"}
GROUPS = 3


async def scanned(chain: GrowingChain, out: Path, *, binary: bool = True) -> Path:
    plan = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=1_500)
    scan = PartScan(out, plan, chain.watch(), transactions=True, binary_hashes=binary)
    return await scan_parts(scan, "parquet")


async def test_binary_hashes_are_the_bytes_of_the_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chain = GrowingChain(tmp_path / "blocks", 5)
    chain.mine(20)
    await scanned(chain, tmp_path / "text", binary=False)
    await scanned(chain, tmp_path / "binary")
    for name in ("matches", "transactions"):
        text, binary = (pq.read_table(tmp_path / form / f"{name}.parquet") for form in ("text", "binary"))
        assert text.num_rows > 20
        assert {text.schema.field(column).type for column in HASHES} == {pa.string()}
        assert {binary.schema.field(column).type for column in HASHES} == {pa.binary(32)}
        rows = binary.to_pylist()
        assert [row | {column: row[column].hex() for column in HASHES} for row in rows] == text.to_pylist()
    assert to_arrow(tmp_path / "binary").schema.field("txid").type == pa.binary(32)


@pytest.mark.few(1)
@pytest.mark.parametrize("binary", [True, False])
async def test_growing_scan_has_the_bytes_of_a_scan_from_scratch(tmp_path: Path, binary: bool) -> None:
    chain, is_sorted = GrowingChain(tmp_path / "blocks", 3, states_heights=False), []
    for round_ in range(4):
        chain.mine(6)
        if round_ == 1:
            chain.reorganize(2)
        if round_ == 2:  # the genesis block tells the heights
            (chain.folder / "blk00009.dat").write_bytes(block_record(Node().regtest.chain.active[0].raw))
        grown = await scanned(chain, tmp_path / "out", binary=binary)
        new = await scanned(chain, tmp_path / f"scratch{round_}", binary=binary)
        for name in ("matches", "transactions"):
            assert grown.with_stem(name).read_bytes() == new.with_stem(name).read_bytes()
        filtered, order = facts(grown)
        assert filtered == (FILTERED if can_filter() else set())
        is_sorted.append(order == {"height"})
        heights = to_arrow(tmp_path / "out")["height"].to_pylist()
        assert heights == sorted(heights) if is_sorted[-1] else None in heights
    assert is_sorted == [False, False, True, True]


def test_rows_out_of_order_are_not_called_sorted(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 3)
    chain.mine(9)
    plan = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=1_500)
    assert len(plan.parts) > 1
    assert ParquetForm.of(plan, is_binary=True) == (True, True)
    assert ParquetForm.of(replace(plan, parts=plan.parts[::-1]), is_binary=False) == (False, False)


async def test_the_page_has_the_arrow_schema(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 3)
    chain.mine(3)
    rows = re.findall(r"^\| (\w+) \| (\w+(?:\[ms, UTC\])?)[^|]*\| ([^|]*)\|$", _PAGE.read_text(), re.MULTILINE)
    for binary in (False, True):
        await scanned(chain, tmp_path / str(binary), binary=binary)
        schema = to_arrow(tmp_path / str(binary)).schema
        found = [(field.name, str(field.type).replace("tz=", "")) for field in schema]
        said = [(name, other.strip() if binary and other else kind) for name, kind, other in rows if name != "column"]
        assert found == said


async def test_another_form_of_hashes_is_another_scan(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 3), tmp_path / "out"
    chain.mine(3)
    path = await scanned(chain, out, binary=False)
    manifest = out / "manifest.json"
    before = json.loads(manifest.read_bytes())
    del before["inputs"]["form of hashes in Parquet"]  # as older versions wrote it
    manifest.write_text(json.dumps(before))
    assert await scanned(chain, out, binary=False) == path
    with pytest.raises(ParameterError, match="its form of hashes in Parquet is text in hex, not binary"):
        await scanned(chain, out)
    await scanned(chain, tmp_path / "binary")
    with pytest.raises(ParameterError, match="its form of hashes in Parquet is binary, not text in hex"):
        await scanned(chain, tmp_path / "binary", binary=False)


def script_of(row: int) -> bytes:
    return b"\x00\x14" + sha256(b"%d" % row).digest()[:20]


def address_of(row: int) -> str | None:
    return script_to_address(script_of(row), REGTEST)


def many_rows(path: Path) -> PartFile:
    """A part with the hits of several row groups. Each row has its own address, block and transaction."""

    def blocks() -> Iterator[BlockHits]:
        for row in range(GROUPS * ROWS):
            txid = sha256(b"tx%d" % row).digest()[::-1]
            hit = Hit(False, 1, txid, 0, txid + bytes(4), 1, script_of(row), 0)
            yield BlockHits(bytes(32), row, 0, pack_hits([hit]))

    write_part(path, bytes(32), blocks(), PartSummary())
    return PartFile(path)


@pytest.mark.few(1)
@pytest.mark.parametrize("most", [1 << 26, 1])
def test_row_groups_have_every_hit_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Each row group has ROWS rows, or a block fills the memory that it may take."""
    monkeypatch.setattr("spvfilter.scan.tables.MOST", most)
    rng = random.Random(most)
    counts = [rng.choice((1, 9_000, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS)) for _ in range(30)]
    one = pack_hits([Hit(False, 1, bytes(32), 0, bytes(36), 1, None, 0)])
    blocks = [BlockHits(bytes(32), number, 0, count * one) for number, count in enumerate(counts)]
    expected = [(number, hit) for number, count in enumerate(counts) for hit in range(count)]
    found = []
    groups = list(row_groups(iter(blocks)))
    for group in groups:
        hits = [(block.height, hit) for block in group.blocks for hit in range(len(block.packed) // len(one))]
        found += hits[group.start :][: group.rows]
    assert found == expected
    full = [group.rows == ROWS for group in groups[:-1]]
    assert all(full) == (most > 1)
    assert all(group.rows <= ROWS for group in groups)


@pytest.mark.long
@pytest.mark.parametrize("binary", [True, False])
def test_duckdb_reads_fewer_row_groups_for_an_address(tmp_path: Path, binary: bool) -> None:
    path, row = tmp_path / "matches.parquet", ROWS + 5
    watch = WatchList(REGTEST)
    watch.add_script(b"\x51")
    write_parquet(path, [many_rows(tmp_path / "part")], watch, ParquetForm(binary, is_sorted=True), GROUPS * ROWS)
    txid = sha256(b"tx%d" % row).hexdigest()
    for condition in (
        f"address = '{address_of(row)}'",
        f"script_pubkey = '{script_of(row).hex()}'",
        f"txid = from_hex('{txid}')" if binary else f"txid = '{txid}'",
    ):
        read, groups = groups_read([path], condition)
        assert groups == GROUPS
        assert (read < GROUPS) == can_filter()
    assert groups_read([path], f"height = {row}") == (1, GROUPS)


@pytest.mark.parametrize("is_quiet", [True, False])
def test_older_pyarrow_leaves_bloom_filters_out_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    without_bloom_filters(monkeypatch)
    chain = GrowingChain(tmp_path / "blocks", 3)
    chain.mine(9)
    chain.watch().save(tmp_path / "list")
    options = ["--network", "regtest", "--format", "parquet", "--binary", "--with-transactions"]
    paths = ["scan", str(chain.folder), "--watch", str(tmp_path / "list"), "--out", str(tmp_path / "out")]
    assert main([*paths, *options, *(["--quiet"] if is_quiet else [])]) == 0
    assert capsys.readouterr().err.count("no Bloom filters in Parquet: pyarrow ") == (not is_quiet)
    for name in ("matches", "transactions"):
        assert facts(tmp_path / "out" / f"{name}.parquet") == (set(), {"height"})
