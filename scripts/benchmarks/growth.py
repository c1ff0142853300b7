"""How costs grow with the watch list, the filter and the number of blocks, as rows and as a plot."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path

import parts
from blocks import chained, fresh_scan, read, strangers, watching
from compact import scripts
from measure import Row, best_of

from spvfilter import Bip37Filter, Matcher
from spvfilter.kernel import BACKEND, GcsQuery, gcs_build
from spvfilter.protocol import BASIC_M, BASIC_P

_U = "sha256 (1 u)"
_SERIES = ("scripts watched", "filter elements", "scripts asked of a compact filter", "blocks", *parts.SERIES)


def growth(folder: Path, rounds: int) -> list[Row]:
    """Costs in u: of block 413567, of 1 MB for compact filters, of all of them for blocks."""
    most = 7 if BACKEND == "native" else 4
    raw = dict(read(folder))["413567"]
    unit = partial(hashlib.sha256, raw)
    rows = []
    for count in (10**power for power in range(1, most + 1)):
        ours, one = best_of(rounds, partial(watching(count).table.scan_block, raw), unit)
        rows.append(Row(f"{count:,} {_SERIES[0]}", ours, one, _U))
    for count in (10, 100, 1_000, 10_000, 20_000):
        filter = Bip37Filter(count, 1e-4, 1)
        for element in strangers(count):
            filter.insert(element)
        ours, one = best_of(rounds, partial(fresh_scan, filter, raw), unit)
        rows.append(Row(f"{count:,} {_SERIES[1]}", ours, one, _U))
    key, megabyte = bytes(16), bytes(1_000_000)
    data = gcs_build(scripts(10_000, 1), key, BASIC_P, BASIC_M)
    for count in (10**power for power in range(1, most)):
        ours, one = best_of(
            rounds, partial(GcsQuery(scripts(count, 2)).match_any, data, key, BASIC_P, BASIC_M), partial(hashlib.sha256, megabyte)
        )
        rows.append(Row(f"{count:,} {_SERIES[2]}", ours, one, _U))
    watch = watching(1_000)
    for size in (4, 16, 64, 256):
        blocks = list(chained(folder, size << 20))
        ours, one = best_of(rounds, partial(_scan, Matcher(watch.copy(), jobs=2), blocks), partial(_hash, blocks))
        rows.append(Row(f"{len(blocks):,} {_SERIES[3]}", ours, one, "sha256 of each (1 u)"))
    return rows + ([*parts.growth(rounds), *parts.workers(folder, rounds)] if BACKEND == "native" else [])


def _scan(matcher: Matcher, blocks: list[bytes]) -> None:
    async def scan() -> None:
        async for _ in matcher.scan(blocks):
            pass

    asyncio.run(scan())


def _hash(blocks: list[bytes]) -> None:
    for block in blocks:
        hashlib.sha256(block)


def plot(rows: list[Row], path: Path, machine: str) -> None:
    """Plot the rows of `growth`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    for series in _SERIES:
        points = [(int(row.name.split(" ")[0].replace(",", "")), row.ratio) for row in rows if row.name.endswith(f" {series}")]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=series)
    axes.set(xscale="log", yscale="log", xlabel="how many", ylabel="cost in u = hashlib.sha256 of the same bytes")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
    axes.set_title(f"Cost against growing work, {BACKEND} kernel\n{machine}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
