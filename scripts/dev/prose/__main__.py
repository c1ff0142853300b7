"""The prose lint: sentences that a reader has to guess at, counted per file and held against `prose-baseline`.

python scripts/dev/prose [--list PATH…] [--write]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from patterns import hits, name_hits
from texts import Kind, texts

ROOT = Path(__file__).parents[3]
BASELINE = Path(__file__).parent / "prose-baseline"
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
    is_public: bool

    @property
    def key(self) -> str:
        """Name in the baseline: the path, and whether the text is a public docstring."""
        return f"{self.path} (public)" if self.is_public else self.path


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
        yield from (Hit(path, text.line, kind, sentence, text.is_public) for kind, sentence in kinds)


def allowed() -> list[tuple[str, str]]:
    """False alarms: paths and the words in them that are right. Each line of the file also has the reason."""
    lines = [line for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(path, words) for path, words, _ in (line.split(" | ") for line in lines)]


def room(key: str) -> str:
    """Room of a file: the folder below the package or the tests, or the file itself."""
    path, *public = key.split(" (")
    parts = path.split("/")
    if parts[0] in {"spvfilter", "tests"} and len(parts) > 2:
        name = "/".join(parts[:2])
    else:
        name = parts[0] if len(parts) > 1 and parts[0] != "spvfilter" else path
    return f"{name} (public)" if public else name


def main() -> int:
    """Print the table of rooms, or the hits of some paths. The exit code is 1 if a file got worse."""
    parser = argparse.ArgumentParser(description="The prose lint.")
    parser.add_argument("--list", nargs="+", metavar="PATH", help="print the hits of these files and folders")
    parser.add_argument("--write", action="store_true", help="lower the baseline to the counts of now")
    args = parser.parse_args()
    right = allowed()
    found = [
        hit
        for path in tracked()
        for hit in hits_of(path)
        if not any(path == where and words in hit.sentence for where, words in right)
    ]
    if args.list:
        chosen = [hit for hit in found if hit.path.startswith(tuple(args.list))]
        for hit in chosen:
            print(f"{hit.path}:{hit.line}: {hit.kind}: {hit.sentence}")
        return 1 if chosen else 0
    counts = Counter(hit.key for hit in found)
    lines = BASELINE.read_text(encoding="utf-8").splitlines() if BASELINE.exists() else []
    before = Counter({key: int(count) for count, key in (line.split(" ", 1) for line in lines)})
    if args.write:
        BASELINE.write_text("".join(f"{count} {key}\n" for key, count in sorted(counts.items())), encoding="utf-8")
    worse = sorted(key for key, count in counts.items() if count > before[key])
    rooms = {room(key) for key in (*counts, *before)}
    for name in sorted(rooms):
        now, then = (sum(count for key, count in table.items() if room(key) == name) for table in (counts, before))
        print(f"{name:<40} {now:>6} of {then}")
    if args.write or not worse:
        return 0
    for hit in found:
        if hit.key in worse:
            print(f"{hit.path}:{hit.line}: {hit.kind}: {hit.sentence}", file=sys.stderr)
    print(f"prose lint: {', '.join(worse)}: more hits than scripts/dev/prose/prose-baseline allows", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
