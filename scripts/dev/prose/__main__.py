"""The prose lint: sentences that a reader has to guess at.

python scripts/dev/prose [PATH…]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from patterns import hits, name_hits
from texts import Kind, texts

ROOT = Path(__file__).parents[3]
ALLOWED = Path(__file__).parent / "allowed"
UNREAD = (  # not ours, generated, or full of hits on purpose
    "tests/bcoin/",
    "LICENSE",
    "docs/reference/benchmarks.md",
    "scripts/dev/prose/patterns.py",
    "tests/test_prose.py",
)
SUFFIXES = {".py", ".md", ".c", ".h", ".js", ".sh", ".toml", ""}


class Hit(NamedTuple):
    """One hit: where it is, what is wrong and the sentence."""

    path: str
    line: int
    kind: str
    sentence: str


def tracked() -> list[str]:
    """Paths of the files that the lint reads, from git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        path
        for path in listed.stdout.splitlines()
        if Path(path).suffix in SUFFIXES and not path.startswith(UNREAD) and (ROOT / path).is_file()
    ]


def hits_of(path: str) -> Iterator[Hit]:
    """All hits of one file."""
    try:
        found = list(texts(ROOT / path))
    except UnicodeDecodeError:
        return
    for text in found:
        if text.kind is Kind.NAME:
            kinds = name_hits(text.words)
        elif text.kind is Kind.LINE:
            kinds = iter([("line of prose wider than 100 columns", text.words)])
        elif text.kind is Kind.LONG:
            kinds = iter([("public docstring of more than 12 lines", text.words)])
        else:
            kinds = hits(text.words, is_docstring=text.kind is Kind.DOCSTRING)
        yield from (Hit(path, text.line, kind, sentence) for kind, sentence in kinds)


def allowed() -> list[tuple[str, str]]:
    """False alarms: paths and the words in them that are right. Each line of the file also has the reason."""
    lines = [line for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(path, words) for path, words, _ in (line.split(" | ") for line in lines)]


def main() -> int:
    """Print the hits. The exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(description="The prose lint.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file or a folder; default: all files")
    chosen = tuple(parser.parse_args().paths)
    right = allowed()
    found = [
        hit
        for path in tracked()
        if not chosen or path.startswith(chosen)
        for hit in hits_of(path)
        if not any(path == where and words in hit.sentence for where, words in right)
    ]
    for hit in found:
        print(f"{hit.path}:{hit.line}: {hit.kind}: {hit.sentence}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
