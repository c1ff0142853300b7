"""`--with-transactions` has every input and output of each matched transaction, as python-bitcoinlib reads them."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import ParameterError, SourceError
from spvfilter.kernel import encode_address
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.scan import (
    BlockFiles,
    PartFile,
    PartScan,
    Plan,
    Processes,
    Threads,
    TransactionRow,
    matchedtxs,
    scan_parts,
)
from spvfilter.scan.matchedtxs import TransactionsTask
from spvfilter.scan.partfile import PartSummary, write_part
from spvfilter.scan.parts import PartTask
from spvfilter.watch.watchlist import WatchList
from support.blocks.blocktables import of_network, rows_of_block
from support.blocks.growingchain import GrowingChain
from support.blocks.undo import Spent, ledger_chain, spent_of, write_chain
from support.commands.csvrows import csv_row

START = 100


def chain_in(folder: Path, *, undo: bool) -> tuple[WatchList, list[bytes], list[list[list[Spent]]]]:
    ledger, blocks, records = ledger_chain(5)
    write_chain(folder, blocks, records if undo else None)
    return ledger.interest.watch(), blocks, spent_of(blocks, ledger.before, START)


def address_of(script: bytes | None) -> str | None:
    return None if script is None else encode_address(script, *of_network(REGTEST))


def expected_rows(
    blocks: list[bytes], spent: list[list[list[Spent]]], matches: list[dict[str, Any]], *, undo: bool
) -> list[dict[str, Any]]:
    """The rows by python-bitcoinlib, without types."""
    matched = {(match["txid"], match["kind"], match["index"]) for match in matches}
    txids = {txid for txid, _, _ in matched}
    rows: list[dict[str, Any]] = []
    for height, (raw, of_block) in enumerate(zip(blocks, spent, strict=True), START):
        tables = rows_of_block(raw, height, of_block if undo else None)
        for tx in tables["transactions"]:
            if tx["hash"].hex() not in txids:
                continue
            of_tx = {
                "block_hash": tx["block_hash"].hex(),
                "height": height,
                "time": tx["block_timestamp"] // 1000,
                "txid": tx["hash"].hex(),
                "coinbase": tx["is_coinbase"],
            } | {name: tx[name] for name in ("fee", "size", "virtual_size", "weight")}
            for kind in ("input", "output"):
                for row in tables[f"{kind}s"]:
                    if row["transaction_index"] != tx["index"]:
                        continue
                    is_input = kind == "input"
                    script = row["spent_script" if is_input else "script"]
                    rows.append(
                        of_tx
                        | {
                            "kind": kind,
                            "index": row["index"],
                            "outpoint_txid": (row["spent_transaction_hash"] if is_input else tx["hash"]).hex(),
                            "outpoint_index": row["spent_output_index"] if is_input else row["index"],
                            "value": row["value"],
                            "script_pubkey": None if script is None else script.hex(),
                            "address": address_of(script),
                            "is_match": (tx["hash"].hex(), kind, row["index"]) in matched,
                        }
                    )
    return rows


def as_dict(row: TransactionRow) -> dict[str, Any]:
    found = asdict(row)
    for name in ("block_hash", "txid", "outpoint_txid"):
        found[name] = hash_to_hex(found[name])
        assert getattr(row, f"{name}_hex") == found[name]
    return found | {"script_pubkey": None if row.script_pubkey is None else row.script_pubkey.hex()}


class Elsewhere(Threads):
    """An engine on a machine that does not see the directory of the scan, except for the files that it writes."""

    async def run(self, task: PartTask) -> PartSummary:
        return await super().run(
            replace(task, hits=task.hits.with_name("elsewhere")) if isinstance(task, TransactionsTask) else task
        )


def with_accounts() -> WatchList:
    """The scripts of the list of `chain_in`. Two accounts have two thirds of them, and some have no label."""
    watch = WatchList(REGTEST)
    for number, script in enumerate(ledger_chain(5)[0].interest.scripts):
        label = None if number % 2 else f"script {number}"
        if not number % 3:
            watch.add_script(script, label)
            continue
        with watch.within_account('one, "first"' if number % 3 == 1 else "два"):
            watch.add_script(script, label)
    return watch


@pytest.mark.few(2)
@pytest.mark.parametrize("has_accounts", [True, False])
@pytest.mark.parametrize("undo", [True, False])
async def test_rows_are_those_of_bitcoinlib(tmp_path: Path, undo: bool, has_accounts: bool) -> None:
    """A match has the label and the account of its entry."""
    watch, blocks, spent = chain_in(tmp_path / "data", undo=undo)
    watch = with_accounts() if has_accounts else watch
    own = ["label", "account"] if has_accounts else ["label"]
    plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST, part_size=3_000)
    for name, engine in (("one", Threads()), ("two", Processes(2)), ("three", Elsewhere())):
        scan = PartScan(tmp_path / name, plan, watch, transactions=True)
        path = await scan_parts(scan, "jsonl", engine)
        await engine.aclose()
        matches = [json.loads(line) for line in path.read_text().splitlines()]
        expected = expected_rows(blocks, spent, matches, undo=undo)
        assert sum(row["is_match"] for row in expected) == len(matches)
        found = [json.loads(line) for line in path.with_stem("transactions").read_text().splitlines()]
        assert list(found[0])[10 : 11 + len(own)] == list(matches[0])[10 : 11 + len(own)] == ["address", *own]
        named = {(match["txid"], match["kind"], match["index"]): {key: match[key] for key in own} for match in matches}
        assert {match.get("account") for match in matches} == {None, *watch.accounts}
        nothing = dict.fromkeys(own)
        assert [{key: row[key] for key in row if key != "type"} for row in found] == [
            row | named.get((row["txid"], row["kind"], row["index"]), nothing) for row in expected
        ]
        assert list(map(as_dict, scan.transactions())) == [{"account": None} | row for row in found]
        assert {row["type"] is None for row in found if row["kind"] == "input"} == {not undo}


@pytest.mark.few(1)
@pytest.mark.columns
@pytest.mark.parametrize("has_accounts", [True, False])
async def test_every_format_has_the_same_rows(tmp_path: Path, has_accounts: bool) -> None:
    import pyarrow.parquet as pq

    watch, _, _ = chain_in(tmp_path / "data", undo=True)
    watch = with_accounts() if has_accounts else watch
    plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST, part_size=3_000)
    for form in ("csv", "jsonl", "parquet"):
        await scan_parts(PartScan(tmp_path / "out", plan, watch, transactions=True), form)
    folder = tmp_path / "out"
    rows = [json.loads(line) for line in (folder / "transactions.jsonl").read_text().splitlines()]
    with (folder / "transactions.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert cells == list(map(csv_row, rows))
    table = pq.read_table(folder / "transactions.parquet").to_pylist()
    assert [row | {"time": int(row["time"].timestamp())} for row in table] == rows


@pytest.mark.columns
async def test_the_bytes_depend_neither_on_parts_nor_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(matchedtxs, "ROWS", 50)
    watch, _, _ = chain_in(tmp_path / "data", undo=True)
    found: dict[str, set[bytes]] = {"csv": set(), "jsonl": set(), "parquet": set()}
    for number, (size, jobs) in enumerate([(3_000, 1), (10_000, 3), (10**9, 2)]):
        plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST, part_size=size)
        engine = Threads(jobs)
        for form, files in found.items():
            scan = PartScan(tmp_path / str(number), plan, watch, transactions=True)
            path = await scan_parts(scan, form, engine)
            files.add(path.with_stem("transactions").read_bytes())
        await engine.aclose()
    assert [len(files) for files in found.values()] == [1, 1, 1]
    metadata = pq.read_metadata(tmp_path / "0" / "transactions.parquet")
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert len(rows) > 2
    assert set(rows[:-1]) == {50}


async def test_damaged_rows_are_an_error(tmp_path: Path) -> None:
    watch, _, _ = chain_in(tmp_path / "data", undo=True)
    plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST)
    scan = PartScan(tmp_path / "out", plan, watch, transactions=True)
    await scan_parts(scan)
    for path in (tmp_path / "out" / "parts").glob("*.part"):
        file = PartFile(path)
        blocks = [block._replace(packed=block.packed[:-1]) for block in file.blocks()]
        write_part(path, file.key, blocks, file.summary())
    with pytest.raises(SourceError, match="damaged: delete it and scan again"):
        list(scan.transactions())


async def test_the_file_of_transactions_grows_and_goes_with_the_option(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "data", 4)
    chain.mine(20)

    async def rows_after(folder: str, *, transactions: bool) -> str | None:
        plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST, part_size=3_000)
        scan = PartScan(tmp_path / folder, plan, chain.watch(), transactions=transactions)
        path = (await scan_parts(scan)).with_stem("transactions")
        return path.read_text() if path.exists() else None

    assert await rows_after("out", transactions=False) is None
    first = await rows_after("out", transactions=True)
    chain.reorganize(3)
    second = await rows_after("out", transactions=True)
    assert second == await rows_after("scratch", transactions=True) != first
    for path in (tmp_path / "out" / "parts").glob("*.part"):
        path.unlink()
    assert await rows_after("out", transactions=True) == second
    assert await rows_after("out", transactions=False) is None


async def test_transactions_of_a_scan_without_them_are_an_error(tmp_path: Path) -> None:
    watch, _, _ = chain_in(tmp_path / "data", undo=True)
    plan = Plan.of(BlockFiles(tmp_path / "data"), REGTEST)
    without = PartScan(tmp_path / "out", plan, watch)
    await without.run()
    for scan in (without, PartScan(tmp_path / "other", plan, watch, transactions=True)):
        with pytest.raises(ParameterError, match="create the scan with transactions=True and run it first"):
            scan.transactions()
