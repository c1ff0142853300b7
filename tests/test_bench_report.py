"""The page of `scripts/bench --report`: every row is in it once, peers before SHA-256, with what was missed counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "scripts/benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The modules report and measure."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module("report"), import_module("measure")
    for name in ("report", "measure"):
        sys.modules.pop(name, None)


def test_every_row_is_there_once_and_peers_come_first(modules: tuple[Any, Any]) -> None:
    report, measure = modules
    tables = {
        "scan": [
            measure.Row("a block | one", 1.0, 10.0, "sha256 (1 u)", 0.15),
            measure.Row("the same", 1.0, 400.0, "python-bitcoinlib", 0.01),
            measure.Row("slow", 3.0, 2.0, "bcoin", 1.0),
        ],
        "growth": [measure.Row("10 scripts", 1.0, 8.0, "sha256 (1 u)")],
    }
    made = report.page(tables, "a processor", "2030-01-02", "9.9.9", "growth.png")
    assert "spvfilter 9.9.9 on a processor, 2030-01-02" in made
    assert "4 rows, 3 goals, 1 missed" in made
    assert "| slow | 1.5 | MISSED (≤ 1) | 3 | 2 | bcoin |" in made
    assert "| a block \\| one | 0.1 | met (≤ 0.15) | 1 | 10 | sha256 (1 u) |" in made
    peers, units = made.split("## Against SHA-256")
    assert [peers.count(name) for name in ("| the same |", "| slow |", "| 10 scripts |")] == [1, 1, 0]
    assert [units.count(name) for name in ("| the same |", "| slow |", "| 10 scripts |")] == [0, 0, 1]
    assert "growth.png" in made
    assert "growth.png" not in report.page(tables, "a processor", "2030-01-02", "9.9.9")
