"""The page of `scripts/bench --report`: every row once, other programs first, missed goals counted; README's table."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "scripts/dev/benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The modules report and measure."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module("report"), import_module("measure")
    for name in ("report", "measure"):
        sys.modules.pop(name, None)


def test_every_row_appears_once_and_peers_come_first(modules: tuple[Any, Any]) -> None:
    report, measure = modules
    tables = {
        "scan": [
            measure.Row("a block | one", 1.0, 10.0, "sha256 (1 u)", 0.15),
            measure.Row("the same", 1.0, 400.0, "python-bitcoinlib, deserialise only", 0.01),
            measure.Row("slow", 3.0, 2.0, "a client that only reads the replies", 1.0),
            measure.Row("a million, s", 1.0, 2.0, "goal", 1.0),
        ],
        "growth": [measure.Row("10 scripts", 1.0, 8.0, "read it and sha256 it once")],
    }
    run = report.Run("a processor", "2030-01-02", "9.9.9", tables)
    made = report.page(run, "Others worked meanwhile.", "growth.png")
    assert "spvfilter 9.9.9 on a processor, 2030-01-02" in made
    assert "5 rows, 4 goals, 1 missed" in made
    assert "Others worked meanwhile." in made
    assert "| slow | 1.5 | MISSED (≤ 1) | 3 | 2 | a client that only reads the replies |" in made
    assert "| a block \\| one | 0.1 | met (≤ 0.15) | 1 | 10 | sha256 (1 u) |" in made
    peers, rest = made.split("## Against SHA-256")
    units, others = rest.split("## Against goals and theory")
    names = [f"| {name} |" for name in ("the same", "slow", "a block \\| one", "10 scripts", "a million, s")]
    assert [[part.count(name) for name in names] for part in (peers, units, others)] == [
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert "growth.png" in made
    assert "growth.png" not in report.page(run)


def test_page_of_several_runs(modules: tuple[Any, Any]) -> None:
    report, measure = modules
    scan, sync = ([measure.Row(name, 1.0, 2.0, "goal", 1.0)] for name in ("one", "two"))
    first, second = (
        json.loads(json.dumps(report.Run("a processor", date, "9.9.9", tables).to_json()))
        for date, tables in (("2030-01-02", {"scan": scan}), ("2030-01-01", {"sync": sync}))
    )
    assert report.joined([first, second]) == report.Run(
        "a processor", "2030-01-01 to 2030-01-02", "9.9.9", {"scan": scan, "sync": sync}
    )
    assert report.joined([first]).date == "2030-01-02"
    once, again = (
        {**run, "tables": {**run["tables"], report.PURE: rows}}
        for run, rows in ((first, [scan[0]._asdict()]), (second, []))
    )
    assert list(report.joined([once, again]).tables.items()) == [
        ("scan", scan),
        ("sync", sync),
        (report.PURE, scan[:1]),
    ]
    for other, message in (
        (first, "two files have scan"),
        (second | {"machine": "another"}, "different machines or versions"),
        (second | {"version": "9.9.8"}, "different machines or versions"),
    ):
        with pytest.raises(ValueError, match=message):
            report.joined([first, other])


def test_readme_table_takes_native_rows_of_the_page(modules: tuple[Any, Any]) -> None:
    report, measure = modules
    tables = {
        "suite": [measure.Row(each.name, 1.0, 4.0, each.what, 0.1) for each in report.HEADLINES],
        report.PURE: [measure.Row(each.name, 9.0, 1.0, each.what) for each in report.HEADLINES],
    }
    page = report.page(report.Run("a processor", "2030-01-02", "9.9.9", tables))
    table = report.headlines(page)
    assert table.count("| 4 times as fast |") == len(report.HEADLINES)
    assert "MISSED" in page
    assert "MISSED" not in table
    with pytest.raises(KeyError):
        report.headlines(page.replace(report.HEADLINES[0].name, "another row"))


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_benchmark_uses_names_that_the_package_has(path: Path) -> None:
    """No other check reads the benchmarks, and they need packages that the tests do not have."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "spvfilter":
            module = import_module(node.module or "")
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


@pytest.mark.parametrize(
    ("ours", "said"),
    [(0.0731, "1,400 times as fast"), (95.0, "1.1 times as fast"), (101.0, "as fast"), (750.0, "7.5 times as slow")],
)
def test_readme_table_says_ratios_in_words(modules: tuple[Any, Any], ours: float, said: str) -> None:
    report, measure = modules
    tables = {"suite": [measure.Row(each.name, ours, 100.0, each.what) for each in report.HEADLINES]}
    page = report.page(report.Run("a processor", "2030-01-02", "9.9.9", tables))
    assert report.headlines(page).count(f"| {said} |") == len(report.HEADLINES)
