"""An export has the rows of python-bitcoinlib, and the same bytes whatever the engine and however often it stopped."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import DirectoryInUseError, ParameterError, SourceError
from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.network import REGTEST, Network
from spvfilter.scan import (
    BlockFiles,
    ExportColumns,
    PartScan,
    PartTask,
    Plan,
    Processes,
    TableExport,
    Threads,
    exportrun,
    exporttables,
    partcolumns,
)
from spvfilter.scan.exportcolumns import DEFAULT_COLUMNS, column_names
from spvfilter.scan.partfile import PartSummary
from spvfilter.watch.watchlist import WatchList
from support.blocks.blocktables import rows_of_block
from support.blocks.chains import record as block_record, xored
from support.blocks.growingchain import GrowingChain
from support.blocks.partscans import Recorder
from support.blocks.realdata import single_blocks
from support.blocks.undo import Spent, coins_of_block, framed, ledger_chain, record_of, spent_of, undo_of, write_chain
from support.oracles.parquetfiles import can_filter, facts, groups_read
from support.vectors import effort

pytestmark = pytest.mark.columns
SMALL = 2_000  # bytes of a part
EVERYTHING = ExportColumns.of({table: ["all"] for table in BLOCK_TABLES})


def chain_in(folder: Path, *, undo: bool = True, seed: int = 3) -> tuple[list[bytes], list[list[list[Spent]]]]:
    """The blocks of a chain that begins at height 100, in a file, and the coins that they spend."""
    ledger, blocks, records = ledger_chain(seed)
    write_chain(folder, blocks, records if undo else None)
    return blocks, spent_of(blocks, ledger.before, 100)


def plan_of(folder: Path, *, undo: str = "auto", network: Network = REGTEST) -> Plan:
    return Plan.of(BlockFiles(folder, undo=undo), network, part_size=SMALL)


def rows_in(directory: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table in the order of the heights."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for path in sorted(directory.glob(f"{table}/*/*.parquet")):
        rows += pq.read_table(path, partitioning=None).to_pylist()
    return rows


def as_exported(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from datetime import UTC, datetime

    return [
        {
            name: datetime.fromtimestamp(value // 1000, UTC) if name.endswith("timestamp") else value
            for name, value in row.items()
        }
        for row in rows
    ]


def assert_exported(directory: Path, blocks: list[tuple[bytes, int | None, list[list[Spent]] | None]]) -> None:
    """Compare every column that python-bitcoinlib knows."""
    expected: dict[str, list[dict[str, Any]]] = {table: [] for table in BLOCK_TABLES}
    for raw, height, spent in blocks:
        for table, rows in rows_of_block(raw, height, spent).items():
            expected[table] += as_exported(rows)
    for table, rows in expected.items():
        found = rows_in(directory, table)
        assert [{name: row[name] for name in rows[0]} for row in found] == rows
        for row in found:
            for name in row:
                if name.endswith("_hex"):
                    raw = row[name.removesuffix("_hex")]
                    assert row[name] == (None if raw is None else raw.hex())


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.glob("*/*/*.parquet")}


@pytest.mark.slow
@pytest.mark.vectors
async def test_every_real_block_has_the_rows_of_bitcoinlib(tmp_path: Path) -> None:
    for number, block in enumerate(each for each in single_blocks() if len(each.raw) < effort(300_000, 300_000, 10**7)):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "blk00000.dat").write_bytes(block_record(block.raw, block.network.magic))
        spent = coins_of_block(block) if block.facts.get("prevouts_file") else None
        if spent is not None:
            undo = framed(record_of(block.raw, undo_of(spent)), block.network.magic)
            (folder / "rev00000.dat").write_bytes(undo)
        plan = Plan.of(BlockFiles(folder), block.network)
        await TableExport(folder / "tables", plan, EVERYTHING).run()
        (height,) = plan.parts[0].heights()
        assert_exported(folder / "tables", [(block.raw, height, spent)])


@pytest.mark.long
@pytest.mark.parametrize("undo", [True, False])
async def test_any_engine_gives_the_rows_of_bitcoinlib(tmp_path: Path, undo: bool) -> None:
    blocks, spent = chain_in(tmp_path / "data", undo=undo)
    plan = plan_of(tmp_path / "data")
    assert len(plan.parts) > 5
    for name, engine in (("one", Threads()), ("four", Threads(4)), ("processes", Processes(2))):
        export = TableExport(tmp_path / name, plan, EVERYTHING)
        files = await export.run(engine)
        await engine.aclose()
        assert [path.exists() for path in files["inputs"]] == [True] * len(plan.parts)
        assert contents(tmp_path / name) == contents(tmp_path / "one")
        assert export.report.summary.blocks == len(blocks)
        assert export.report.parts_done == len(plan.parts)
        assert export.report.summary.by_outpoint == (0 if undo else sum(map(bool, spent)))
    heights = range(100, 100 + len(blocks))
    assert_exported(tmp_path / "one", list(zip(blocks, heights, spent if undo else [None] * len(blocks), strict=True)))


@pytest.mark.slow
async def test_duckdb_and_polars_read_a_table_as_one_data_set(tmp_path: Path) -> None:
    import duckdb
    import polars as pl

    chain_in(tmp_path / "data")
    await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    rows = rows_in(tmp_path / "tables", "outputs")
    total = sum(row["value"] for row in rows)
    glob = f"{tmp_path}/tables/outputs/*/*.parquet"
    found = duckdb.execute(f"select count(*), sum(value), count(distinct heights) from '{glob}'").fetchall()
    assert found == [(len(rows), total, len(plan_of(tmp_path / "data").parts))]
    for source in (f"{tmp_path}/tables/outputs", glob):
        frame = pl.scan_parquet(source).select("value", "type", "transaction_hash").collect()
        assert (frame.height, frame["value"].sum()) == (len(rows), total)
        assert frame["type"].to_list() == [row["type"] for row in rows]


@pytest.mark.few(1)
@pytest.mark.parametrize("is_hex", [True, False])
async def test_duckdb_reads_fewer_row_groups_for_a_hash(
    tmp_path: Path, is_hex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporttables, "ROWS", 20)
    monkeypatch.setattr(partcolumns, "BATCH_BLOCKS", 2)
    chain_in(tmp_path / "data")
    plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST)
    files = await TableExport(
        tmp_path / "tables", plan, ExportColumns.of({table: ["all"] for table in BLOCK_TABLES}, is_hex=is_hex)
    ).run()
    expected = {
        "blocks": {"hash", "previous_hash", "merkle_root"},
        "transactions": {"hash", "witness_hash", "block_hash"},
        "inputs": {
            *("transaction_hash", "block_hash", "spent_transaction_hash", "address", "spent_script"),
            *("spent_script_hex", "content_hash"),
        },
        "outputs": {"transaction_hash", "block_hash", "address", "script", "script_hex"},
    }
    for table, columns in expected.items():
        (path,) = files[table]
        order = "number" if table == "blocks" else "block_number"
        assert facts(path) == (columns if can_filter() else set(), {order})
        rows = rows_in(tmp_path / "tables", table)
        assert [row[order] for row in rows] == sorted(row[order] for row in rows)
    last = rows_in(tmp_path / "tables", "outputs")[-1]
    digest = last["transaction_hash"] if is_hex else last["transaction_hash"].hex()
    value = f"'{digest}'" if is_hex else f"from_hex('{digest}')"
    read, groups = groups_read(files["outputs"], f"transaction_hash = {value} AND index = {last['index']}")
    assert groups > 3
    assert (read < groups / 2) == can_filter()


async def test_unknown_heights_are_not_called_sorted(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "data", 3, states_heights=False)
    chain.mine(5)
    files = await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    for path in (path for paths in files.values() for path in paths):
        assert path.parent.name == "heights=unknown"
        assert facts(path)[1] == set()


@pytest.mark.slow
async def test_hashes_are_text_in_hex_by_option(tmp_path: Path) -> None:
    chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    await TableExport(tmp_path / "binary", plan).run()
    await TableExport(tmp_path / "hex", plan, ExportColumns.of(is_hex=True)).run()
    for table in BLOCK_TABLES:
        binary, text = rows_in(tmp_path / "binary", table), rows_in(tmp_path / "hex", table)
        hashes = [name for name in DEFAULT_COLUMNS[table] if name == "merkle_root" or name.endswith("hash")]
        for one, other in zip(binary, text, strict=True):
            assert other == one | {name: one[name].hex() for name in hashes}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 5, 50)))
async def test_a_growing_chain_gives_the_export_from_scratch(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    chain = GrowingChain(tmp_path / "data", seed)
    chain.mine(10)
    for number in range(6):
        match rng.randrange(4):
            case 0:
                chain.mine(rng.randrange(1, 8))
            case 1:
                chain.begin_file()
                chain.mine(rng.randrange(1, 8))
            case 2:
                chain.reorganize(rng.randrange(1, 5))
            case _:
                chain.mine(20)
                before = contents(tmp_path / "tables")
                engine = Recorder(stops_after=rng.randrange(3))
                with pytest.raises(SourceError, match="the power is off"):
                    await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run(engine)
                await engine.aclose()
                assert contents(tmp_path / "tables") == before
        await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
        await TableExport(tmp_path / f"scratch{number}", plan_of(tmp_path / "data")).run()
        assert contents(tmp_path / "tables") == contents(tmp_path / f"scratch{number}")


@pytest.mark.few(1)
@pytest.mark.parametrize("moves", [0, 1, 5])
async def test_an_export_killed_while_files_move_is_completed_later(
    tmp_path: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = GrowingChain(tmp_path / "data", 1)
    chain.mine(20)
    await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    chain.reorganize(8, 9)
    left, place = moves, exportrun.place

    def killed(staged: Path, path: Path) -> Path:
        nonlocal left
        left -= staged.exists()
        if left < 0:
            raise KeyError("killed")
        return place(staged, path)

    with monkeypatch.context() as patched:
        patched.setattr(exportrun, "place", killed)
        with pytest.raises(KeyError, match="killed"):
            await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    again = TableExport(tmp_path / "tables", plan_of(tmp_path / "data"))
    await again.run()
    assert again.report.parts_done == 0
    await TableExport(tmp_path / "scratch", plan_of(tmp_path / "data")).run()
    assert contents(tmp_path / "tables") == contents(tmp_path / "scratch")
    assert not list((tmp_path / "tables" / "parts").glob("*.parquet"))


async def test_a_later_export_writes_only_what_is_new(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "data", 1)
    chain.mine(20)
    plan = plan_of(tmp_path / "data")
    await TableExport(tmp_path / "tables", plan).run()
    chain.mine(1)
    export = TableExport(tmp_path / "tables", plan_of(tmp_path / "data"))
    await export.run()
    assert export.report.parts_kept >= len(plan.parts) - 1
    assert export.report.parts_done <= 2
    assert export.report.change == (1, 0)


async def test_files_that_are_gone_do_not_remove_rows(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "data", 1)
    chain.mine(10)
    chain.begin_file()
    chain.mine(10)
    await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    before = contents(tmp_path / "tables")
    chain.hide(0)
    with pytest.raises(SourceError, match="was scanned before, but no file contains it any more"):
        await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    assert contents(tmp_path / "tables") == before


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", ["missing", "cut", "empty"])
async def test_a_table_that_was_harmed_is_written_again(tmp_path: Path, harm: str) -> None:
    chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    files = await TableExport(tmp_path / "tables", plan).run()
    before = contents(tmp_path / "tables")
    path = files["inputs"][2]
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if harm == "cut" else b"")
    export = TableExport(tmp_path / "tables", plan)
    await export.run()
    assert export.report.parts_done == 1
    assert contents(tmp_path / "tables") == before


async def test_files_of_the_user_stay(tmp_path: Path) -> None:
    chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    files = await TableExport(tmp_path / "tables", plan).run()
    own = [files["inputs"][0].with_name("own.parquet"), tmp_path / "tables" / "notes.txt"]
    for path in own:
        path.write_text("mine")
    left = files["inputs"][0].with_name(f"{'0' * 32}.parquet")
    left.write_text("of an earlier run")
    await TableExport(tmp_path / "tables", plan).run()
    assert [path.exists() for path in (*own, left)] == [True, True, False]


async def test_another_export_is_refused(tmp_path: Path) -> None:
    chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    await TableExport(tmp_path / "tables", plan, ExportColumns.of({"outputs": ["value"]})).run()
    for other, message in (
        (
            TableExport(tmp_path / "tables", plan, ExportColumns.of({"outputs": ["index"]})),
            "table outputs is value, not",
        ),
        (
            TableExport(tmp_path / "tables", plan, ExportColumns.of({"outputs": ["value"]}, is_hex=True)),
            "form of hashes",
        ),
        (
            TableExport(tmp_path / "tables", plan, ExportColumns.of({"outputs": ["value"]}), check=True),
            "check of blocks",
        ),
        (TableExport(tmp_path / "data", plan), "not empty"),
    ):
        with pytest.raises(ParameterError, match=message):
            await other.run()
    watch = WatchList(REGTEST)
    watch.add_script(b"\x51")
    await PartScan(tmp_path / "scan", plan, watch).run()
    with pytest.raises(ParameterError, match="holds a scan, not an export"):
        await TableExport(tmp_path / "scan", plan).run()


async def test_two_exports_into_one_directory_exclude_each_other(tmp_path: Path) -> None:
    chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    first = asyncio.create_task(TableExport(tmp_path / "tables", plan).run())
    while not (tmp_path / "tables" / ".lock").exists():  # noqa: ASYNC110  a file has no event
        await asyncio.sleep(0)
    with pytest.raises(DirectoryInUseError):
        await TableExport(tmp_path / "tables", plan).run()
    await first


@pytest.mark.slow
async def test_a_damaged_block_is_a_problem_of_its_own(tmp_path: Path) -> None:
    blocks, spent = chain_in(tmp_path / "data")
    plan = plan_of(tmp_path / "data")
    path = tmp_path / "data" / "blk00000.dat"
    raw = path.read_bytes()
    at = raw.index(blocks[4]) + len(blocks[4]) - 5
    path.write_bytes(raw[: at - 60] + b"\xff" * 60 + raw[at:])
    export = TableExport(tmp_path / "tables", plan, EVERYTHING)
    await export.run()
    assert len(export.report.summary.problems) == 1
    assert export.report.summary.blocks == len(blocks) - 1
    whole = [(raw, 100 + n, of) for n, (raw, of) in enumerate(zip(blocks, spent, strict=True)) if n != 4]
    assert_exported(tmp_path / "tables", whole)  # type: ignore[arg-type]
    path.write_bytes(raw)
    await TableExport(tmp_path / "tables", plan, EVERYTHING).run()
    assert_exported(tmp_path / "tables", list(zip(blocks, range(100, 130), spent, strict=True)))


@pytest.mark.slow
async def test_a_damaged_undo_record_gives_nulls_and_a_problem(tmp_path: Path) -> None:
    blocks, spent = chain_in(tmp_path / "data")
    number = max(range(len(blocks)), key=lambda each: len(undo_of(spent[each])))
    path = tmp_path / "data" / "rev00000.dat"
    raw = path.read_bytes()
    at = raw.index(undo_of(spent[number]))
    path.write_bytes(raw[: at + 4] + bytes([raw[at + 4] ^ 1]) + raw[at + 5 :])
    export = TableExport(tmp_path / "tables", plan_of(tmp_path / "data"), EVERYTHING)
    await export.run()
    assert export.report.summary.undo_problems
    assert export.report.summary.by_outpoint == 1
    known: list[list[list[Spent]] | None] = [*spent]
    known[number] = None
    assert_exported(tmp_path / "tables", list(zip(blocks, range(100, 130), known, strict=True)))
    required = TableExport(tmp_path / "required", plan_of(tmp_path / "data", undo="require"), EVERYTHING)
    with pytest.raises(SourceError, match="undo record cannot be used"):
        await required.run()


async def test_checks_find_a_block_whose_merkle_root_is_wrong(tmp_path: Path) -> None:
    blocks, _ = chain_in(tmp_path / "data")
    export = TableExport(tmp_path / "tables", plan_of(tmp_path / "data"), check=True)
    await export.run()
    assert export.report.summary.problems == []
    path = tmp_path / "data" / "blk00000.dat"
    raw = path.read_bytes()
    at = raw.index(blocks[9]) + len(blocks[9]) - 1
    path.write_bytes(raw[:at] + b"\x77" + raw[at + 1 :])  # the lock time of the last transaction
    export = TableExport(tmp_path / "checked", plan_of(tmp_path / "data", undo="off"), check=True)
    await export.run()
    assert "merkle root" in export.report.summary.problems[0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"coin": ["value"]}, "no table 'coin': the tables are blocks, transactions, inputs, outputs"),
        ({"coins": ["value"]}, "'coins' always has all its columns: choose columns of blocks, transactions, inputs"),
        ({"outputs": ["amount"]}, "no column 'amount' in the table outputs: its columns are transaction_hash,"),
        ({"outputs": ["value_hex"]}, "no column 'value_hex'"),
        ({"outputs": ["value", "index", "value"]}, "column value of table outputs is named twice"),
        ({"outputs": []}, "no column of table outputs is selected"),
    ],
)
def test_a_wrong_choice_of_columns_is_refused(columns: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ExportColumns.of(columns)


def test_default_columns_are_columns_of_their_tables() -> None:
    for table, names in DEFAULT_COLUMNS.items():
        assert set(names) <= set(column_names(table))


async def test_a_worker_that_writes_elsewhere_is_an_error(tmp_path: Path) -> None:
    chain_in(tmp_path / "data")

    class Elsewhere(Threads):
        async def run(self, task: PartTask) -> PartSummary:
            summary = await super().run(task)
            for path in (tmp_path / "tables" / "parts").glob("*.inputs.parquet"):
                path.unlink()
            return summary

    with pytest.raises(SourceError, match="all workers must see that directory"):
        await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run(Elsewhere())


async def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain_in(tmp_path / "data")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParameterError, match=r"an export needs pyarrow; run .*extra `parquet`"):
        await TableExport(tmp_path / "tables", plan_of(tmp_path / "data")).run()
    assert not (tmp_path / "tables").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["xored", "hex", "long records"])
async def test_any_files_give_the_rows_of_bitcoinlib(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, spent = chain_in(tmp_path / "data")
    known: list[list[list[Spent]] | None] = [*spent]
    folder = tmp_path / "data"
    if form == "xored":
        for path in folder.glob("*.dat"):
            path.write_bytes(xored(path.read_bytes(), bytes(range(1, 9))))
        (folder / "xor.dat").write_bytes(bytes(range(1, 9)))
    elif form == "hex":
        for path in folder.glob("*.dat"):
            path.unlink()
        for number, raw in enumerate(blocks):
            (folder / f"{number:02}.hex").write_text(raw.hex())
        known = [None] * len(blocks)
    else:  # the kernel reads shorter records only
        monkeypatch.setattr(partcolumns, "MAX_BLOCK_SIZE", 1)
    await TableExport(tmp_path / "tables", plan_of(folder), EVERYTHING).run()
    assert_exported(tmp_path / "tables", list(zip(blocks, range(100, 130), known, strict=True)))


@pytest.mark.slow
async def test_a_node_that_prunes_keeps_the_tables_and_adds_blocks(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", "pruned export")
    chain.mine(20)
    columns = ExportColumns.of()
    first = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=SMALL)
    await TableExport(tmp_path / "out", first, columns).run()
    chain.begin_file()
    chain.mine(10)
    whole = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=SMALL)
    await TableExport(tmp_path / "whole", whole, columns).run()
    for path in chain.folder.glob("???00000.dat"):
        path.unlink()
    for _ in range(2):
        plan = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=SMALL, directory=tmp_path / "out")
        export = TableExport(tmp_path / "out", plan, columns)
        await export.run()
        for table in BLOCK_TABLES:
            assert rows_in(tmp_path / "out", table) == rows_in(tmp_path / "whole", table)
    assert export.report.parts_done == 0
    for path in (tmp_path / "out" / "outputs").glob("*/*.parquet"):
        path.unlink()
    with pytest.raises(SourceError, match="missing or damaged, and its blocks have been pruned"):
        await TableExport(tmp_path / "out", plan, columns).run()
