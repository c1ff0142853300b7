"""README: its programs run and print the output shown, its links lead to files, and its speeds are measured ones."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from spvfilter.node import Regtest
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.testing import RegtestNode

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
MARKS = {"add_descriptor": pytest.mark.descriptors}


def run(code: str, folder: Path) -> str:
    """The standard output of a program, which must end without a message."""
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, cwd=folder, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[mark for word, mark in MARKS.items() if word in code])
        for number, (code, _) in enumerate(EXAMPLES)
    ],
)
def test_program_prints_the_output_shown(number: int, tmp_path: Path) -> None:
    code, shown = EXAMPLES[number]
    assert run(code, tmp_path) == shown


def test_programs_are_a_wallet_a_filter_and_a_scan() -> None:
    wallet, filters, scan = (code for code, _ in EXAMPLES)
    assert "LightClient" in wallet
    assert "Bip37Filter" in filters
    assert "decoy_key=" in filters  # without it the filter hides nothing
    assert "match_tx" in filters
    assert ".scan(" in scan
    assert len(re.findall("```python", TEXT)) == len(EXAMPLES)


def test_lines_of_output_name_their_values() -> None:
    for _, shown in EXAMPLES:
        assert all(re.match(r"[a-z ]+: ", line) for line in shown.splitlines())


def test_filter_program_has_a_dozen_lines() -> None:
    statements = [line for line in EXAMPLES[1][0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(statements) <= 12


def test_output_of_watch_and_scan_is_real(tmp_path: Path) -> None:
    """The rows are those of the demo's chain. README shortens hashes, and shows fewer spaces."""
    addresses = wallet_addresses()
    (tmp_path / "wallet.txt").write_text(f"{addresses['P2PKH']},rent\n{addresses['P2SH']},shop\n", encoding="utf-8")
    blocks = DemoChain(COINBASE_MATURITY).blocks
    framed = b"".join(NETWORK.magic + len(block).to_bytes(4, "little") + block for block in blocks)
    (tmp_path / "blk00000.dat").write_bytes(framed)

    def printed(*words: str) -> list[str]:
        command = [sys.executable, "-m", "spvfilter", *words, "--watch", "wallet.txt"]
        command += ["--network", "regtest", "--format", "table"]
        output = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
        shortened = re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}:", r"\1…:", output)
        return [" ".join(line.split()) for line in shortened.strip().splitlines()]

    shown = [
        [" ".join(line.split()) for line in block.splitlines()]
        for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    ]
    with closing(RegtestNode(0)) as node:
        for block in blocks:
            node.call(partial(Regtest.submit_block, raw=block))
        watched = printed("watch", "--once", "--connect", node.address)
    scanned = printed("scan", "blk00000.dat")
    rows = scanned.index("")
    assert shown == [watched, scanned[rows + 1 :]]
    assert scanned[:rows] == watched[:rows]


def test_every_page_is_at_most_two_steps_away() -> None:
    def linked(page: Path) -> set[Path]:
        found = re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        return {(page.parent / link).resolve() for link in found}

    first = linked(README)
    second = {page for each in first for page in linked(each)}
    assert set((README.parent / "docs").resolve().rglob("*.md")) - first - second == set()


def test_speeds_have_the_date_of_the_benchmarks() -> None:
    page = (README.parent / "docs/reference/benchmarks.md").read_text(encoding="utf-8")
    dates = re.findall(r"^spvfilter .*, (\d{4}-\d\d-\d\d)\. `scripts/bench", page, re.MULTILINE)
    assert [date for date in dates if f"measured on {date}" in TEXT] == dates != []


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    files = [link for link in links if "://" not in link]
    assert len(files) > 15
    assert [link for link in files if not (README.parent / link).exists()] == []


def test_speeds_are_rows_of_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(README.parent / "scripts/dev/benchmarks"))
    report = import_module("report")
    for name in ("report", "measure"):
        sys.modules.pop(name, None)
    page = (README.parent / "docs/reference/benchmarks.md").read_text(encoding="utf-8")
    speed = TEXT.split("## Speed\n")[1].split("\n## ")[0]
    assert report.headlines(page) in speed
    assert "MISSED" not in TEXT


def test_is_short() -> None:
    assert len(TEXT.splitlines()) <= 215
    blocks = re.findall(r"^```\w+\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 88] == []
