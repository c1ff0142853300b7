"""`spvfilter export`: tables and columns by option, messages, exit codes, and `scan --with-transactions`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.cli.parts.exports import chosen_columns
from spvfilter.hashes import hash160
from spvfilter.network import REGTEST
from spvfilter.scan.exportcolumns import DEFAULT_COLUMNS
from support.blocks.build import TxOut, block, block_hash, coinbase, p2pk, p2pkh
from support.blocks.chains import record as block_record, write_records
from support.blocks.growingchain import GrowingChain
from support.blocks.undo import framed, ledger_chain
from support.commands.processes import line_with, started
from support.oracles.parquetfiles import facts, without_bloom_filters

Run = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    ledger, blocks, records = ledger_chain(3)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks)))
    (folder / "rev00000.dat").write_bytes(b"".join(map(framed, records)))
    ledger.interest.watch().save(tmp_path / "list")
    return folder


def columns_in(directory: Path, table: str) -> list[str]:
    import pyarrow.parquet as pq

    names: list[str] = pq.read_schema(next(directory.glob(f"{table}/*/*.parquet"))).names
    return names


@pytest.mark.slow
@pytest.mark.columns
def test_an_export_writes_four_tables_and_says_so(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (0, "")
    assert "30 blocks, 21.5 kB, 1 part written in" in ran.err
    for table, names in DEFAULT_COLUMNS.items():
        assert columns_in(tmp_path / "out", table) == list(names)
    again = run("export", data, "--network", "regtest", "--out", tmp_path / "out", "--jobs", "2")
    assert "30 blocks, 21.5 kB, no parts written in" in again.err
    assert "since the last run: no new blocks; 1 part kept\n" in again.err


def rows_in(directory: Path) -> dict[str, list[str]]:
    """The rows of each table, sorted."""
    import pyarrow.parquet as pq

    found: dict[str, list[str]] = {}
    for path in directory.glob("*/*/*.parquet"):
        found.setdefault(path.parent.parent.name, []).extend(
            map(str, pq.read_table(path, partitioning=None).to_pylist())
        )
    return {table: sorted(rows) for table, rows in found.items()}


@pytest.mark.long
@pytest.mark.columns
def test_follow_exports_new_blocks_until_interrupt(run: Run, tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 3, has_undo=False)
    chain.mine(20)
    words = ("export", tmp_path / "blocks", "--network", "regtest")
    with started(*words, "--out", tmp_path / "out", "--follow", "--every", 1) as (child, lines):
        assert "20 blocks" in line_with(" written in", lines)
        for number in range(2):
            if number:
                chain.reorganize(2, 4)
            else:
                chain.mine(3)
            line_with("since the last run", lines)
            # a look may have come between the writes of a chain's files
            while rows_in(tmp_path / "out") != scratch(run, words, tmp_path / f"scratch{number}"):
                line_with("since the last run", lines)
        child.send_signal(signal.SIGINT)
        assert "spvfilter: interrupted\n" in lines.read()
        assert child.wait(timeout=60) == 130
    assert rows_in(tmp_path / "out") == scratch(run, words, tmp_path / "scratch")


@pytest.mark.long
@pytest.mark.columns
def test_follow_of_coins_waits_for_a_block_that_comes_late(tmp_path: Path) -> None:
    blocks = [block(REGTEST.genesis_hash, [coinbase(1)])]
    for height in range(2, 6):
        blocks.append(block(block_hash(blocks[-1]), [coinbase(height)]))
    folder = tmp_path / "blocks"
    folder.mkdir()
    write_records(folder / "blk00000.dat", blocks[:3])
    words = ("export", folder, "--network", "regtest", "--out", tmp_path / "out")
    with started(*words, "--coins", "--follow", "--every", 1) as (child, lines):
        assert "3 blocks" in line_with(" written in", lines)
        write_records(folder / "blk00001.dat", blocks[4:])
        assert "expected height 4, found height 5" in line_with("trying again every 1 s", lines)
        write_records(folder / "blk00002.dat", blocks[3:4])
        assert "2 new blocks" in line_with("since the last run", lines)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
    assert (tmp_path / "out" / "coins" / "height=000000005" / "coins.parquet").exists()


def scratch(run: Run, words: tuple[object, ...], folder: Path) -> dict[str, list[str]]:
    assert run(*words, "--out", folder, "--quiet").code == 0
    return rows_in(folder)


@pytest.mark.slow
@pytest.mark.columns
def test_columns_choose_tables_and_names(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    chosen = ("--columns", "blocks", "inputs:index,value", "outputs:+address,value", "--hex", "--processes", "2")
    ran = run("export", data, "--network", "regtest", "--out", out, *chosen, "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert columns_in(out, "inputs") == ["index", "value"]
    assert columns_in(out, "outputs") == [*DEFAULT_COLUMNS["outputs"], "address"]
    assert not (out / "transactions").exists()


@pytest.mark.slow
@pytest.mark.columns
def test_without_undo_data_the_message_names_the_nulls(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out", "--undo", "off")
    assert ran.code == 0
    nulls = "transactions.fee, transactions.fee_rate, inputs.type, inputs.value, inputs.spent_block_number are null"
    assert f"without a usable undo record: their values of transactions.input_value, {nulls}\n" in ran.err
    chosen = ("--columns", "outputs:value")
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "few", "--undo", "off", *chosen)
    assert (ran.code, "undo record" in ran.err) == (0, False)
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "few", "--columns", "outputs:index")
    assert (ran.code, "few holds a different export: its table outputs is value, not index. Use" in ran.err) == (
        2,
        True,
    )


@pytest.mark.few(1)
@pytest.mark.columns
@pytest.mark.parametrize("is_quiet", [True, False])
def test_older_pyarrow_writes_no_bloom_filters_and_says_so(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    without_bloom_filters(monkeypatch)
    quiet = ("--quiet",) if is_quiet else ()
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out", *quiet)
    assert (ran.code, ran.err.count("no Bloom filters in Parquet: pyarrow ")) == (0, not is_quiet)
    assert facts(next((tmp_path / "out").glob("outputs/*/*"))) == (set(), {"block_number"})


@pytest.mark.columns
def test_problems_give_exit_code_1(run: Run, data: Path, tmp_path: Path) -> None:
    with (data / "blk00000.dat").open("ab") as file:
        file.write(b"garbage" * 20)
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out")
    assert ran.code == 1
    assert "140 bytes from byte" in ran.err


@pytest.mark.columns
def test_a_gap_gives_exit_code_1_unless_allowed(run: Run, data: Path, tmp_path: Path) -> None:
    _, blocks, _ = ledger_chain(3)
    (data / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks[:9] + blocks[12:])))
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out", "--undo", "off")
    assert ran.code == 1
    assert "missing: heights 109 to 111" in ran.err
    report = tmp_path / "report.json"
    options = ("--undo", "off", "--allow-gaps", "--report", report)
    assert run("export", data, "--network", "regtest", "--out", tmp_path / "out", *options).code == 0
    assert json.loads(report.read_text())["missing"] == [[109, 111]]


@pytest.mark.columns
def test_balances_count_a_public_key_for_its_address(run: Run, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    chain, previous = list[bytes](), REGTEST.genesis_hash
    key = b"\2" + bytes(32)
    for height, script in enumerate([p2pk(key), p2pkh(hash160(key)), p2pk(key), b"\x51"], 1):
        chain.append(block(previous, [coinbase(height, [TxOut(50, script)])]))
        previous = block_hash(chain[-1])
    write_records(tmp_path / "blk00000.dat", chain)
    words = ("export", tmp_path / "blk00000.dat", "--network", "regtest", "--columns", "blocks", "--balances")
    found = {}
    for option in ((), ("--credit-p2pk",)):
        out = tmp_path / f"out{len(option)}"
        assert run(*words, *option, "--out", out).code == 0
        rows = pq.read_table(out / "balances" / "height=000000004" / "balances.parquet", partitioning=None).to_pylist()
        found[option] = {(row["address"], row["value"], row["coins"]) for row in rows}
    address = script_to_address(p2pkh(hash160(key)), REGTEST)
    assert found[()] == {(None, 50, 1), (None, 100, 2), (address, 50, 1)}
    assert found["--credit-p2pk",] == {(None, 50, 1), (address, 150, 3)}


@pytest.mark.columns
def test_coins_of_a_part_of_the_chain_are_refused(run: Run, data: Path, tmp_path: Path) -> None:
    ran = run("export", data, "--network", "regtest", "--out", tmp_path / "out", "--coins")
    assert ran.code == 2
    assert ran.err.startswith(
        "spvfilter: coins and balances need every block since the genesis block: expected height 1, found height 100"
    )


def test_wrong_options_are_errors(refused: Any, data: Path, tmp_path: Path) -> None:
    export = f"export {data} --network regtest --out out"
    refused(f"""
        {export} --credit-p2pk
        {export} --columns coins
        {export} --columns inputs:amount
        {export} --columns inputs:value,value
        {export} --columns inputs:
        {export} --columns inputs inputs:value
        {export} --dask tcp://127.0.0.1:1 --processes 2
        {export} --processes 2 --jobs 2
        {export} --dask tcp://127.0.0.1:1 --jobs 2
        {export} -
        {export} blk00000.dat.gz
        export {data} --network regtest --out s3://bucket/x
        {export} --on-workers blocks
        {export} --every 5
        {export} --zmq tcp://127.0.0.1:1
        {export} --follow --to-height 150
        {export} --from-height 9 --to-height 8
    """)
    assert not (tmp_path / "out").exists()


def test_nothing_to_export_is_an_error(run: Run, tmp_path: Path) -> None:
    ran = run("export", "--out", tmp_path / "out")
    assert (ran.code, "no PATH of blocks given (see 'spvfilter export --help')" in ran.err) == (2, True)
    ran = run("export", tmp_path / "none", "--out", tmp_path / "out")
    assert ran.code == 2
    assert "found no blocks in" in ran.err


def test_a_plus_adds_columns_to_the_default_ones() -> None:
    assert chosen_columns([]) is None
    assert chosen_columns(["inputs", "outputs:+address,script_hex"]) == {
        "inputs": list(DEFAULT_COLUMNS["inputs"]),
        "outputs": [*DEFAULT_COLUMNS["outputs"], "address", "script_hex"],
    }


def test_a_scan_writes_whole_transactions(run: Run, data: Path, tmp_path: Path) -> None:
    options = ("--watch", tmp_path / "list", "--network", "regtest", "--with-transactions")
    ran = run("scan", data, *options, "--out", tmp_path / "out", "--format", "jsonl", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "out" / "transactions.jsonl").read_text().splitlines()]
    matches = [json.loads(line) for line in (tmp_path / "out" / "matches.jsonl").read_text().splitlines()]
    assert sum(row["is_match"] for row in rows) == len(matches)
    assert {row["txid"] for row in rows} == {match["txid"] for match in matches}
    ran = run("scan", data, *options)
    assert (ran.code, "need --out DIR" in ran.err) == (2, True)
