"""scripts/dev/mutate matrix: tells which test notices which change of the code."""

from __future__ import annotations

import ast
import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts/dev/matrix"))
from changes import drawn, places

MATRIX = Path(__file__).parents[1] / "scripts/dev/matrix"
PRICE = """
LIMIT = 3

def total(count: int, each: int = 5) -> int:
    if count > LIMIT:
        raise ValueError("too many")
    return count * each

def wait(done: bool) -> str:
    while not done:
        pass
    return "done"

def negative(count: int) -> int:
    return -count

def unused() -> int:
    return 1
"""
TESTS = """
import pytest
from shop.price import negative, total, wait

def test_total() -> None:
    assert total(3, 5) == 15

def test_total_again() -> None:
    assert total(3, 5) > 10

@pytest.mark.parametrize("count", [4, 5])
def test_refusal(count) -> None:
    with pytest.raises(ValueError):
        total(count)

def test_wait() -> None:
    assert wait(True) == "done"
    negative(1)

def test_slow() -> None:
    import time
    start = time.process_time()
    while time.process_time() < start + 1.05:
        pass
    assert total(2) == 10

def test_broken() -> None:
    assert total(1) == 0
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in {"shop/price.py": PRICE, "shop/__init__.py": "", "tests/test_price.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def matrix(shop: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MATRIX), "shop", "--tests", "tests", *arguments]
    environment = os.environ | {"PYTHONPATH": str(shop)}
    return subprocess.run(command, cwd=shop, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.posix
def test_table_names_the_tests_that_notice_each_change(shop: Path) -> None:
    stopped = matrix(shop, "--seed", "1", "--minutes", "0")
    assert stopped.returncode == 3, stopped.stderr
    full = matrix(shop, "--seed", "1")
    assert full.returncode == 0, full.stderr
    (table,) = shop.glob("build/matrix/shop/*/1.tsv")
    first = table.read_text()
    rows = {
        (was, now): (verdict, tests.split())
        for _, _, was, now, _, _, verdict, tests in csv.reader(first.splitlines(), "excel-tab")
    }
    name = "tests/test_price.py::test_"
    expected = {
        ("3", "4"): ("fast", [f"{name}refusal"]),
        ("3", "2"): ("fast", [f"{name}total", f"{name}total_again"]),
        ("count > LIMIT", "count >= LIMIT"): ("fast", [f"{name}total", f"{name}total_again"]),
        ("count > LIMIT", "count < LIMIT"): ("fast", [f"{name}refusal"]),
        ("raise ValueError('too many')", "pass"): ("fast", [f"{name}refusal"]),
        ("count * each", "count + each"): ("fast", [f"{name}total", f"{name}total_again"]),
        ("not done", "done"): ("fast", [f"{name}wait"]),  # it never ends
        ("-count", "count"): ("survived", []),
        ("return 1", "return None"): ("not run", []),
        ("5", "6"): ("slow", [f"{name}slow"]),
        ("5", "4"): ("slow", [f"{name}slow"]),
    }
    known = rows.keys() & expected.keys()
    assert {change: rows[change] for change in known} == {change: expected[change] for change in known}
    assert {verdict for verdict, _ in rows.values()} == {"fast", "slow", "survived", "not run"}
    assert "test_broken" not in first
    assert "tests that fail without a change: tests/test_price.py::test_broken" in full.stdout
    assert matrix(shop, "--seed", "1").stdout == full.stdout
    assert table.read_text() == first
    lost = matrix(shop, "--seed", "1", "--without", f"{name}refusal", f"{name}total_again")
    assert lost.returncode == 1
    assert "was raise ValueError('too many')" in lost.stdout
    assert matrix(shop, "--seed", "1", "--without", f"{name}total_again").stdout.endswith(" kills lost\n")


@pytest.mark.long
@pytest.mark.posix
def test_others_run_only_for_changes_that_first_tests_miss(shop: Path) -> None:
    first = "tests/test_price.py::test_total"  # also test_total_again
    ended = matrix(shop, "--seed", "1", "--first", first)
    assert ended.returncode == 0, ended.stderr
    (table,) = shop.glob("build/matrix/shop/*/*.tsv")
    assert table.name == "1-tests.test_price.py::test_total.tsv"
    rows = [*csv.reader(table.read_text().splitlines(), "excel-tab")]
    assert {verdict for *_, verdict, _ in rows} == {"first", "fast", "slow", "survived", "not run"}
    for *_, verdict, tests in rows:
        assert (verdict == "first") == tests.startswith(first)
        assert verdict != "first" or " " not in tests
    assert not [line for line in ended.stdout.splitlines() if first in line and not line.startswith("     0 ")]


def test_each_drawn_change_compiles_and_changes_its_module() -> None:
    for name in ("codec", "session", "v2"):
        changes = drawn(str(MATRIX.parents[2] / f"spvfilter/wire/{name}.py"), 1, 10)
        assert len({change.place for change in changes}) == len(changes)
        for change in changes:
            assert change.was != change.now
            before, after = change.codes()
            assert before != after


def test_types_decorators_and_assertions_stay() -> None:
    source = "@f(1)\ndef g(x: 'A[1]') -> 'B[1]':\n    assert x == 1\n    '2'\n    raise AssertionError(3)"
    assert not [place for place in places(ast.parse(source)) if not isinstance(place[0], ast.Raise | ast.Call)]
