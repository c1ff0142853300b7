"""The page of `scripts/bench --report`: every row with its reference and its goal, real peers before SHA-256, with
machine and date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from measure import Row

PEERS = (  # how references begin that are programs of others, or what another program could do at best
    "python-bitcoinlib",
    "rbloom",
    "fastbloom-rs",
    "pybloomfiltermmap3",
    "pybloom-live",
    "Kyoto",
    "Core's",
    "a client that only reads",
)
PURE = "with the pure kernel"  # the title of what any suites measured again
_HEAD = "| | ratio | goal | ours | reference | reference is |\n|---|--:|---|--:|--:|---|"


class Run(NamedTuple):
    """What was measured: rows by the titles of their suites, on which machine and day, with which version."""

    machine: str
    date: str
    version: str
    tables: dict[str, list[Row]]

    def to_json(self) -> dict[str, Any]:
        tables = {title: [row._asdict() for row in rows] for title, rows in self.tables.items()}
        return {"machine": self.machine, "date": self.date, "version": self.version, "tables": tables}


def joined(runs: Sequence[Mapping[str, Any]]) -> Run:
    """One run of several that `to_json` wrote; what they measured with the pure kernel is one table.

    Raises ValueError if they differ in their machine or version, or have the same suite.
    """
    if len({(run["machine"], run["version"]) for run in runs}) != 1:
        raise ValueError("the files are of different machines or versions")
    tables: dict[str, list[Row]] = {}
    for run in runs:
        if twice := tables.keys() & run["tables"].keys() - {PURE}:
            raise ValueError(f"two files have {', '.join(sorted(twice))}")
        for title, rows in run["tables"].items():
            tables.setdefault(title, []).extend(Row(**row) for row in rows)
    if PURE in tables:
        tables[PURE] = tables.pop(PURE)  # as in one run, the last
    dates = sorted({run["date"] for run in runs})
    return Run(runs[0]["machine"], " to ".join(dict.fromkeys((dates[0], dates[-1]))), runs[0]["version"], tables)


def page(run: Run, note: str = "", picture: str | None = None) -> str:
    """The page as Markdown. `note` is a sentence on the circumstances, `picture` the path of the plot of growth from
    the page.
    """
    peers, units, others = (
        {title: [row for row in rows if _group(row) == group] for title, rows in run.tables.items()}
        for group in (0, 1, 2)
    )
    rows = [row for several in run.tables.values() for row in several]
    goals = [row for row in rows if row.goal is not None]
    missed = [row for row in goals if not row.verdict.startswith("met")]
    parts = [
        "# Benchmarks",
        f"spvfilter {run.version} on {run.machine}, {run.date}. Made by `scripts/bench --report`: {len(rows)} rows,"
        f" {len(goals)} goals, {len(missed)} missed. Ours and the reference take turns, and the best of several rounds"
        " counts. A ratio is our time divided by the reference's, in milliseconds unless a row says otherwise: below 1"
        " ours is faster. Times of one thread are processor time, those of several threads or processes, of talking to"
        " a node and of the event loop are by the clock." + (f" {note}" if note else ""),
        "## Against peers",
        *_sections(peers),
        "## Against SHA-256",
        (
            "u is the time of `hashlib.sha256` over the same bytes. A processor without SHA-NI hashes slowly, which"
            " flatters these ratios: compare them between processors that have it, or have it not."
        ),
        *_sections(units),
        "## Against goals, theory, and other ways of ours",
        *_sections(others),
    ]
    if picture is not None:
        parts += [
            "## Growth",
            (
                "![How costs grow with the watch list, the filter, the number of blocks, of matches and of"
                f" parts]({picture})"
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _group(row: Row) -> int:
    """0 for a peer, 1 for a unit of hashing, 2 for what is neither."""
    return 0 if row.what.startswith(PEERS) else 1 if "sha256" in row.what else 2


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
