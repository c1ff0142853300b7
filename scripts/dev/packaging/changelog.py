"""Cuts the changelog for a release: changelog.py VERSION DATE [--write]. Prints the release's notes; with --write
CHANGELOG.md is changed.

What is under Unreleased becomes the section of the version, above which an empty Unreleased stays. A version that has
its section already is left as it is, and its notes are printed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path
from typing import NamedTuple

CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
_SECTION = re.compile(r"^## (\S+)( .*)?\n", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


class Cut(NamedTuple):
    """A changelog with a section for the release, and what that section says."""

    text: str
    notes: str


def cut(text: str, version: str, date: str) -> Cut:
    """Cut the text of a changelog. Raises ValueError for a bad version or date, and if nothing was changed since the
    last release.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"a version is like 1.2.3 or 1.2.3rc1, not {version!r}")
    if datetime.date.fromisoformat(date).isoformat() != date:
        raise ValueError(f"a date is like 2024-01-31, not {date!r}")
    if text.count(UNRELEASED) > 1:
        raise ValueError("there are two sections 'Unreleased'")
    found = [section for section in _SECTION.finditer(text) if section[1] == version]
    if not found:
        if UNRELEASED not in text:
            raise ValueError(f"there is neither a section {version} nor one 'Unreleased'")
        text = text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({date})\n", 1)
        found = [section for section in _SECTION.finditer(text) if section[1] == version]
    start = found[0].end()
    following = _SECTION.search(text, start)
    notes = text[start : following.start() if following else len(text)].strip()
    if not notes:
        raise ValueError(f"nothing is said of {version}")
    return Cut(text, notes + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut the changelog for a release.")
    parser.add_argument("version")
    parser.add_argument("date", help="YYYY-MM-DD")
    parser.add_argument("--write", action="store_true", help="change CHANGELOG.md")
    args = parser.parse_args()
    try:
        made = cut(CHANGELOG.read_text(encoding="utf-8"), args.version, args.date)
    except ValueError as error:
        sys.exit(f"changelog: {error}")
    if args.write:
        CHANGELOG.write_text(made.text, encoding="utf-8")
    print(made.notes, end="")


if __name__ == "__main__":
    main()
