"""Cuts the changelog for a release: changelog.py VERSION DATE [--write].

The entries under Unreleased move to a new section for the version, and an empty Unreleased stays above it. A version
that has a section already keeps it. The program prints the notes of the release; `--write` also changes CHANGELOG.md.
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
    """A changelog with a section for the release."""

    text: str
    """The whole changelog."""
    notes: str
    """The text of the section."""


def cut(text: str, version: str, date: str) -> Cut:
    """Cut the text of a changelog.

    Raises ValueError if the version or the date is malformed, or if the release has no entries.
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
        raise ValueError(f"the changelog has no entries for {version}")
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
