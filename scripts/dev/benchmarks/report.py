"""The page of `scripts/bench --report`, and README's table of speed, which has a few rows of that page.

The page lists every row with its reference and its goal: first comparisons with other programs, then with SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from measure import Row

# beginnings of the references that are other programs, or the least that another program could need
PEERS = (
    "python-bitcoinlib",
    "rbloom",
    "fastbloom-rs",
    "pybloomfiltermmap3",
    "pybloom-live",
    "Kyoto",
    "Core's",
    "a client that only reads",
)
PURE = "with the pure kernel"  # title of the rows that suites measured again with the Python kernel
_PEERS_TITLE, _UNITS_TITLE, _OTHERS_TITLE = "Against peers", "Against SHA-256", "Against goals and theory"
_HEAD = "| | ratio | goal | ours | reference | reference is |\n|---|--:|---|--:|--:|---|"


class Headline(NamedTuple):
    """A row of README's table: the work and the peer in plain words, and the row of the page that has its ratio."""

    work: str
    peer: str
    name: str
    what: str


HEADLINES = (
    Headline(
        "find 1,000 scripts in a block of 2024",
        "python-bitcoinlib, which only parses the block",
        "block 866342, exact, 1,000 scripts",
        "python-bitcoinlib, deserialise only",
    ),
    Headline(
        "test that block with a BIP-37 filter",
        "python-bitcoinlib's filter in a loop",
        "block 866342, n=1000 p=0.0001",
        "python-bitcoinlib's filter and our loop",
    ),
    Headline(
        "verify a merkleblock with 20 of 2,000 transactions",
        "Bitcoin Core's ExtractMatches, in C",
        "20 of 2,000 transactions: parse and verify, µs",
        "Core's ExtractMatches in C",
    ),
    Headline(
        "verify a merkleblock with 1 of 2,000 transactions",
        "Bitcoin Core's ExtractMatches, in C",
        "1 of 2,000 transactions: parse and verify, µs",
        "Core's ExtractMatches in C",
    ),
    Headline(
        "find a descriptor in 1,000 of 5,000 blocks, by compact filters",
        "Kyoto, BDK's client in Rust",
        "1,000 matching blocks from Bitcoin Core, compact, descriptor, ms",
        "Kyoto, compact filters",
    ),
    Headline(
        "the same with Kyoto's lookahead of 25",
        "Kyoto",
        "1,000 matching blocks from Bitcoin Core, compact, lookahead, ms",
        "Kyoto, compact filters",
    ),
    Headline(
        "the same by BIP-37, with our lookahead of 1,000",
        "Kyoto by compact filters",
        "1,000 matching blocks from Bitcoin Core, bip37, descriptor, ms",
        "Kyoto, compact filters",
    ),
    Headline(
        "recover 3,000 addresses used in random order",
        "Kyoto, told how many addresses to expect",
        "3,000 addresses in random order in 10,000 blocks, compact, ms",
        "Kyoto, given the window",
    ),
    Headline("add a key to a Bloom filter", "rbloom, in Rust", "native, 20 bytes, add, ns/key", "rbloom"),
    Headline("create a Bloom filter for 100 keys", "rbloom, in Rust", "native, made for 100 keys, µs", "rbloom"),
)


class Run(NamedTuple):
    """Measured rows by the titles of their suites, with the machine, the day and the version."""

    machine: str
    date: str
    version: str
    tables: dict[str, list[Row]]

    def to_json(self) -> dict[str, Any]:
        tables = {title: [row._asdict() for row in rows] for title, rows in self.tables.items()}
        return {"machine": self.machine, "date": self.date, "version": self.version, "tables": tables}


def joined(runs: Sequence[Mapping[str, Any]]) -> Run:
    """Join runs that `to_json` wrote into one. Rows with the pure kernel become one table.

    Raises ValueError if the runs differ in their machine or version, or if two runs have the same suite.
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
        tables[PURE] = tables.pop(PURE)  # the last table, as in one run
    dates = sorted({run["date"] for run in runs})
    return Run(runs[0]["machine"], " to ".join(dict.fromkeys((dates[0], dates[-1]))), runs[0]["version"], tables)


def page(run: Run, note: str = "", picture: str | None = None) -> str:
    """The page as Markdown.

    `note` is a sentence on the circumstances. `picture` is the path from the page to the picture of `picture.draw`.
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
        "This page is for contributors. It lists every measurement, with the goals of this project and the rows that"
        " miss them. README has a short table with other programs.",
        f"spvfilter {run.version} on {run.machine}, {run.date}. `scripts/bench --report` makes this page: {len(rows)}"
        f" rows, {len(goals)} goals, {len(missed)} missed." + (f" {note}" if note else ""),
        "\n".join(
            (
                "- A ratio is spvfilter's time divided by the time of the reference. Below 1 spvfilter is faster.",
                "- Times are in milliseconds unless the row names another unit.",
                "- Both programs take turns, and the best of several rounds counts.",
                "- Times of one thread are processor time. Times of several threads or processes, of talking to a node"
                " and of the event loop are wall-clock time.",
            )
        ),
        f"## {_PEERS_TITLE}",
        *([] if picture is None else [f"![How many times as fast as other programs spvfilter is]({picture})"]),
        *_sections(peers),
        f"## {_UNITS_TITLE}",
        "The unit u is the time of `hashlib.sha256` over the same bytes. A processor without SHA-NI hashes slowly,"
        " which makes these ratios look better. Compare ratios only between processors that both have it or both"
        " lack it.",
        *_sections(units),
        f"## {_OTHERS_TITLE}",
        *_sections(others),
    ]
    return "\n\n".join(parts) + "\n"


def ratios(page: str) -> list[tuple[Headline, float]]:
    """The headlines with their ratios, from the text of the page. Raises KeyError if the page lacks a row."""
    peers = page.split(f"## {_PEERS_TITLE}\n")[1].split(f"## {_UNITS_TITLE}\n")[0]
    rows = [line.strip("| ").split(" | ") for line in peers.splitlines() if line.startswith("| ")]
    found: dict[tuple[str, str], str] = {}
    for cells in rows:
        found.setdefault((cells[0], cells[-1]), cells[1])  # rows with the pure kernel come last
    return [(each, float(found[each.name, each.what])) for each in HEADLINES]


def headlines(page: str) -> str:
    """README's table of speed as Markdown, from the text of the page. Raises KeyError if the page lacks a row."""
    lines = [f"| {each.work} | {speed(ratio)} | {each.peer} |" for each, ratio in ratios(page)]
    return "\n".join(["| to … | spvfilter is | compared with |", "|---|---|---|", *lines])


def speed(ratio: float) -> str:
    """Say a ratio of times in words, with two digits."""
    factor = float(f"{1 / ratio if ratio < 1 else ratio:.2g}")
    if factor == 1:
        return "as fast"
    return f"{factor:,g} times as {'fast' if ratio < 1 else 'slow'}"


def _group(row: Row) -> int:
    """0 for another program, 1 for a unit of hashing, 2 for all others."""
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
