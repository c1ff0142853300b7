"""The pages under docs/, and the Python programs in them with the output that they show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PROGRAM = re.compile(r"```python\n((?:(?!```).)*)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [
    (str(page.relative_to(DOCS)), number, code, shown)
    for page in PAGES
    for number, (code, shown) in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8")))
]
