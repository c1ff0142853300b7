"""The page of `scripts/bench --report`: every row with its reference and its goal, real peers before SHA-256, with machine and date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from measure import Row

_HASH = "sha256"  # how references begin that are units, not peers
_HEAD = "| | ratio | goal | ours | reference | reference is |\n|---|--:|---|--:|--:|---|"


def page(tables: Mapping[str, Sequence[Row]], machine: str, date: str, version: str, picture: str | None = None) -> str:
    """The page as Markdown, by the titles of suites. `picture` is the path of the plot of growth from the page."""
    peers = {title: [row for row in rows if not row.what.startswith(_HASH)] for title, rows in tables.items()}
    units = {title: [row for row in rows if row.what.startswith(_HASH)] for title, rows in tables.items()}
    rows = [row for several in tables.values() for row in several]
    goals = [row for row in rows if row.goal is not None]
    missed = [row for row in goals if not row.verdict.startswith("met")]
    parts = [
        "# Benchmarks",
        f"spvfilter {version} on {machine}, {date}. Made by `scripts/bench --report`: {len(rows)} rows, {len(goals)} goals, "
        f"{len(missed)} missed. Ours and the reference take turns in one process, and the best of several rounds counts. A ratio is our "
        "time divided by the reference's, in milliseconds unless a row says otherwise: below 1 ours is faster.",
        "## Against peers",
        *_sections(peers),
        "## Against SHA-256",
        "u is the time of `hashlib.sha256` over the same bytes. A processor without SHA-NI hashes slowly, which flatters these ratios: "
        "compare them between processors that have it, or have it not.",
        *_sections(units),
    ]
    if picture is not None:
        parts += [
            "## Growth",
            f"![How costs grow with the watch list, the filter and the number of blocks, on {machine}, {date}]({picture})",
        ]
    return "\n\n".join(parts) + "\n"


def _sections(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for title, rows in tables.items():
        if rows:
            yield f"### {_cell(title)}"
            yield "\n".join([_HEAD, *map(_line, rows)])


def _line(row: Row) -> str:
    cells = (row.name, f"{row.ratio:.3g}", row.verdict, f"{row.ours:.4g}", f"{row.reference:.4g}", row.what)
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "\\<")
