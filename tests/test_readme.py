"""Every Python example of the README runs as it stands and prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(
    r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
)
MARKS = {"add_descriptor": pytest.mark.descriptors, "pyarrow": pytest.mark.columns, "polars": pytest.mark.columns}


def run(code: str, folder: Path) -> str:
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = set()
    for _ in range(2 if "store=" in code else 1):  # the file that a run leaves must not stop the next one
        done = subprocess.run(
            [sys.executable, "-W", "error", script], capture_output=True, text=True, cwd=folder, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed.add(done.stdout)
    (only,) = printed
    return only


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[mark for word, mark in MARKS.items() if word in code])
        for number, (code, _) in enumerate(EXAMPLES)
    ],
)
def test_example_prints_what_the_readme_shows(number: int, tmp_path: Path) -> None:
    code, shown = EXAMPLES[number]
    assert run(code, tmp_path) == shown


def test_the_readme_has_its_examples() -> None:
    assert len(EXAMPLES) == 3


def test_the_first_program_is_a_wallet_of_less_than_30_lines() -> None:
    code, shown = EXAMPLES[0]
    assert "add_descriptor" in code
    assert all(word in shown for word in ("balance:", "coin:", "history:", "next address:"))
    assert len([line for line in code.splitlines() if line]) < 30


def test_ten_lines_are_ten_lines() -> None:
    statements = [line for line in EXAMPLES[1][0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(statements) <= 10


def test_its_links_to_files_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    files = [link for link in links if "://" not in link]
    assert len(files) > 15
    assert [link for link in files if not (README.parent / link).exists()] == []


def test_its_figures_of_speed_are_rows_of_the_page_of_benchmarks() -> None:
    speed = README.read_text(encoding="utf-8").split("## Speed\n")[1].split("\n## ")[0]
    page = (README.parent / "docs/reference/benchmarks.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in speed.splitlines() if re.match(r"\| .*\d", line)]
    assert len(rows) >= 8
    assert [row for row in rows if row not in page] == []
    prose = " ".join(line for line in speed.splitlines() if not line.startswith("|"))
    assert re.findall(r"(?<![\w-])\d[\d.,]*", prose) == []  # neither BIP-37 nor sha256


def test_a_stranger_reads_it_in_five_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 250
