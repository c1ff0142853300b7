"""The recipes of the documentation with DuckDB and pandas run unchanged, and agree with the matches."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli import main
from support.chains import record as block_record
from support.undo import framed, ledger_chain

pytestmark = pytest.mark.columns
_PAGE = Path(__file__).parent.parent.parent / "docs/howto/cli-scan.md"


def day(time: int, form: str) -> str:
    return datetime.fromtimestamp(time, UTC).strftime(form)


def test_the_recipes_say_what_the_matches_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, blocks, records = ledger_chain(3)
    (tmp_path / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks)))
    (tmp_path / "rev00000.dat").write_bytes(b"".join(map(framed, records)))
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
