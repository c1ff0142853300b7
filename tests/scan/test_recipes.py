"""The recipes of the documentation with DuckDB, pandas and polars run unchanged, and agree with the rows."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli import main
from support.blocks.build import block_hash
from support.blocks.undo import Ledger, ledger_chain, records_of, write_chain

pytestmark = pytest.mark.columns
_HOWTO = Path(__file__).parent.parent.parent / "docs/howto"
_PAGE = _HOWTO / "cli-scan.md"


def day(time: int, form: str) -> str:
    return datetime.fromtimestamp(time, UTC).strftime(form)


def test_the_recipes_agree_with_the_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, blocks, records = ledger_chain(3)
    write_chain(tmp_path, blocks, records)
    ledger.interest.watch().save(tmp_path / "list")
    monkeypatch.chdir(tmp_path)
    for form in ("jsonl", "parquet"):
        assert (
            main(
                ["scan", ".", "--watch", "list", "--network", "regtest", "--out", "found", "--format", form, "--quiet"]
            )
            == 0
        )
    matches = [json.loads(line) for line in (tmp_path / "found" / "matches.jsonl").read_text().splitlines()]
    (code,) = re.findall(
        r"```python\n((?:(?!```).)*import duckdb\n\nfrom spvfilter.scan(?:(?!```).)*)```", _PAGE.read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(code, names)

    received: dict[str, list[int]] = defaultdict(list)
    seen: dict[str | None, list[int]] = defaultdict(list)
    changes: dict[int, int] = defaultdict(int)
    for match in matches:
        seen[match["address"]].append(match["time"])
        changes[match["time"]] += match["value"] if match["kind"] == "output" else -match["value"]
        if match["kind"] == "output":
            received[day(match["time"], "%Y-%m")].append(match["value"])
    assert [(month, round(btc * 1e8), count) for month, btc, count in names["received"].fetchall()] == [
        (month, sum(values), len(values)) for month, values in sorted(received.items())
    ]
    assert {address: (first, last) for address, first, last in names["seen"].fetchall()} == {
        address: (day(min(times), "%Y-%m-%d"), day(max(times), "%Y-%m-%d")) for address, times in seen.items()
    }
    total, expected = 0, []
    for time in sorted(changes):
        total += changes[time]
        expected.append((time, total))
    assert [(int(time.timestamp()), round(btc * 1e8)) for time, btc in names["balance"].items()] == expected


def year_of_blocks(folder: Path) -> None:
    """Write a chain whose blocks are ten days apart, and the undo records of its blocks."""
    ledger = Ledger(random.Random(7))
    blocks: list[bytes] = []
    previous = ledger.rng.randbytes(32)
    for number in range(40):
        blocks.append(ledger.block(previous, 100 + number, time=1_300_000_000 + 864_000 * number))
        previous = block_hash(blocks[-1])
    write_chain(folder, blocks, records_of(blocks, ledger.before, 100))


def exported(folder: Path, table: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(folder / "tables" / table, partitioning=None).to_pylist()
    return rows


def quantile(values: list[float], part: float) -> float:
    """The quantile between the two nearest values."""
    at = part * (len(values) - 1)
    low = sorted(values)[int(at)]
    return low + (sorted(values)[min(int(at) + 1, len(values) - 1)] - low) * (at - int(at))


def counted(keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*key, count) for key, count in sorted(Counter(keys).items())]


def clusters(inputs: list[dict[str, Any]]) -> list[set[str]]:
    """Addresses that were spent together, directly or through others."""
    found: list[set[str]] = []
    by_tx: dict[bytes, set[str]] = defaultdict(set)
    for row in inputs:
        if row["address"] is not None:
            by_tx[row["transaction_hash"]].add(row["address"])
    for addresses in by_tx.values():
        if len(addresses) > 1:
            touched = [each for each in found if each & addresses]
            found = [each for each in found if each not in touched] + [addresses.union(*touched)]
    return sorted(found, key=lambda each: sorted(each))


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_the_recipes_of_an_export_agree_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    year_of_blocks(tmp_path)
    monkeypatch.chdir(tmp_path)
    page = (_HOWTO / "export.md").read_text()
    (command,) = re.findall(r"```sh\n(spvfilter export [^`]*?--out tables --columns transactions[^`]*?)```", page)
    words = shlex.split(command.replace("\\\n", " "))[1:]
    assert main([*words[:1], ".", *words[2:], "--network", "regtest", "--quiet"]) == 0
    transactions, inputs, outputs = (exported(tmp_path, table) for table in ("transactions", "inputs", "outputs"))
    addresses = sorted({row["address"] for row in outputs if row["address"] is not None})
    (tmp_path / "addresses.csv").write_text("\n".join(["address", *addresses[::2]]))

    programs = re.findall(r"```python\n((?:(?!```).)*)```", page, re.DOTALL)
    (code,) = [each for each in programs if f"import {engine}" in each and "tables/{table}" in each]
    (union,) = [each for each in programs if "def clusters_of" in each]
    names: dict[str, Any] = {}
    exec(code + union, names)

    assert sorted(names["clusters_of"](names["pairs"]), key=sorted) == clusters(inputs)
    until = datetime(2011, 10, 1, tzinfo=UTC)
    balances: dict[str, int] = defaultdict(int)
    for sign, rows in ((1, outputs), (-1, inputs)):
        for row in rows:
            if row["block_timestamp"] < until and row["address"] in addresses[::2]:
                balances[row["address"]] += sign * row["value"]
    assert names["balances"] == sorted(balances.items())
    texts = [row for row in outputs if row["op_return"] is not None]
    assert names["protocols"] == counted(
        (f"{row['block_timestamp']:%Y-%m}", row["op_return"][:4].hex()) for row in texts
    )
    values: dict[tuple[int, str], int] = defaultdict(int)
    for row in outputs:
        values[row["block_timestamp"].year, row["type"]] += row["value"]
    kinds = counted((row["block_timestamp"].year, row["type"]) for row in outputs)
    assert names["types"] == [(year, kind, count, values[year, kind]) for year, kind, count in kinds]
    rates: dict[str, list[float]] = defaultdict(list)
    for row in transactions:
        if row["fee_rate"] is not None:
            rates[f"{row['block_timestamp']:%Y-%m-%d}"].append(row["fee_rate"])
    assert len(rates) > 20
    expected = [(day, *(quantile(of_day, part) for part in (0.1, 0.5, 0.9))) for day, of_day in sorted(rates.items())]
    for found, wanted in zip(names["rates"], expected, strict=True):
        assert found[0] == wanted[0]
        assert found[1:] == pytest.approx(wanted[1:])


def test_the_recipes_of_whole_transactions_agree_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    ledger, blocks, records = ledger_chain(3)
    write_chain(tmp_path, blocks, records)
    ledger.interest.watch().save(tmp_path / "list")
    monkeypatch.chdir(tmp_path)
    options = ["--network", "regtest", "--out", "found", "--format", "parquet", "--with-transactions", "--quiet"]
    assert main(["scan", ".", "--watch", "list", *options]) == 0
    (queries,) = re.findall(r"```text\n(--[^`]*)```", (_HOWTO / "export.md").read_text())
    together, paid = queries.split("\n\n")
    found = duckdb.execute("FROM 'found/transactions.parquet'")
    names = [name for name, *_ in found.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    own = {row["txid"] for row in rows if row["kind"] == "input" and row["is_match"]}
    spent = {row["address"] for row in rows if row["kind"] == "input" and row["txid"] in own}
    assert len(spent) > 3
    assert {address for (address,) in duckdb.execute(together).fetchall()} == spent
    sums: dict[str, int | None] = dict.fromkeys(own)
    assert 0 < len(own) < len({row["txid"] for row in rows})
    for row in rows:
        if row["txid"] in own and row["kind"] == "output" and not row["is_match"]:
            sums[row["txid"]] = (sums[row["txid"]] or 0) + row["value"]
    rates = {row["txid"]: None if row["fee"] is None else row["fee"] / row["virtual_size"] for row in rows}
    assert {txid: (value, rate) for txid, value, rate in duckdb.execute(paid).fetchall()} == {
        txid: (value, rates[txid]) for txid, value in sums.items()
    }
