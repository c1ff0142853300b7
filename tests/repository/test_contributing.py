"""CONTRIBUTING.md names every command of scripts/, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = {f"scripts/dev/{folder}" for folder in ("benchmarks", "matrix", "native", "packaging")}  # commands use these


def test_the_tables_have_all_commands() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(?:python )?(scripts/[\w/.]+)[^|]*\|", page, re.MULTILINE))
    there = {
        str(path.relative_to(ROOT))
        for folder in ("scripts", "scripts/dev")
        for path in (ROOT / folder).iterdir()
        if path.name not in {"dev", "__pycache__"}
    }
    assert named == there - PARTS | {"scripts/dev/packaging/changelog.py"}
