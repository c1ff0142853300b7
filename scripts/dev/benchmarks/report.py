"""The page of `scripts/bench --report`: all rows with reference and goal, and the machine and the date.

Comparisons with other programs come first, then those with SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from measure import Row

PEERS = (  # first words of references that are other programs, or a bound for any other program
    "python-bitcoinlib",
    "rbloom",
    "fastbloom-rs",
    "pybloomfiltermmap3",
    "pybloom-live",
    "Kyoto",
    "Core's",
    "a client that only reads",
)
PURE = "with the pure kernel"  # title of the rows that suites measured again with this kernel
_HEAD = "| | ratio | goal | ours | reference | reference is |\n|---|--:|---|--:|--:|---|"


class Run(NamedTuple):
    """The results of one run."""

    machine: str
    """Processor and version of Python."""
    date: str
    """Date, YYYY-MM-DD, or the first and the last date."""
    version: str
    """Version of spvfilter."""
    tables: dict[str, list[Row]]
    """Rows by title of their suite."""

    def to_json(self) -> dict[str, Any]:
        tables = {title: [row._asdict() for row in rows] for title, rows in self.tables.items()}
        return {"machine": self.machine, "date": self.date, "version": self.version, "tables": tables}


def joined(runs: Sequence[Mapping[str, Any]]) -> Run:
    """Join several runs that `to_json` wrote to one run. Their rows of the pure kernel become one table.

    Raises ValueError if the runs are of different machines or versions, or have a suite in common.
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
        tables[PURE] = tables.pop(PURE)  # it comes last, as in one run
    dates = sorted({run["date"] for run in runs})
    return Run(runs[0]["machine"], " to ".join(dict.fromkeys((dates[0], dates[-1]))), runs[0]["version"], tables)


def page(run: Run, note: str = "", picture: str | None = None) -> str:
    """Make the page in Markdown.

    `note` is a sentence about the conditions. `picture` is the path from the page to the plot of growth.
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
        f" {len(goals)} goals, {len(missed)} missed. spvfilter (“ours”) and the reference take turns, and the best of"
        " several rounds counts. Times are in milliseconds unless a row says otherwise. A ratio is the time of"
        " spvfilter divided by that of the reference: below 1, spvfilter is faster. Times of one thread are processor"
        " time. Times"
        " of several threads or processes, of a node and of the event loop are on the clock."
        + (f" {note}" if note else ""),
        "## Against peers",
        *_sections(peers),
        "## Against SHA-256",
        (
            "u is the time of `hashlib.sha256` for the same bytes. A processor without SHA-NI hashes slowly, so these"
            " ratios are smaller on it. Compare only processors that have SHA-NI, or only processors without it."
        ),
        *_sections(units),
        "## Against goals, theory, and other ways of spvfilter",
        *_sections(others),
    ]
    if picture is not None:
        parts += [
            "## Growth",
            (
                "![How costs grow with the watch list, the filter, and the numbers of blocks, matches and"
                f" parts]({picture})"
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _group(row: Row) -> int:
    """Return 0 for another program as the reference, 1 for SHA-256, and 2 for anything else."""
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
