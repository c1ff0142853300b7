"""The picture of the page of benchmarks: how many times as fast as other programs spvfilter is, on one axis.

    picture.py FILE.md    Draws the picture of a page again, FILE.png.

It has the rows of README's table of speed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import report

_FASTER, _SLOWER = "#1b7f79", "#c65102"


def draw(page: str, path: Path) -> None:
    """Draw the picture of a page. Raises KeyError if the page lacks a row."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = report.ratios(page)
    factors = [1 / ratio for _, ratio in rows]
    at = range(len(rows), 0, -1)  # the first row is at the top
    figure, axes = pyplot.subplots(figsize=(11, 0.62 * len(rows) + 1.4))
    colors = [_FASTER if factor >= 1 else _SLOWER for factor in factors]
    axes.barh(at, [factor - 1 for factor in factors], left=1, height=0.5, color=colors)
    for place, factor, (_, ratio) in zip(at, factors, rows, strict=True):
        axes.annotate(
            report.speed(ratio),
            (factor, place),
            xytext=(6 if factor >= 1 else -6, 0),
            textcoords="offset points",
            va="center",
            ha="left" if factor >= 1 else "right",
        )
    axes.set_yticks(at, [f"{each.work}\n(compared with {each.peer})" for each, _ in rows], fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(min(factors) / 30, max(factors) * 40)
    axes.axvline(1, color="black", linewidth=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}×")
    axes.set_xlabel("times as fast as the other program; left of 1×, spvfilter is slower")
    axes.set_title("spvfilter compared with other programs", fontweight="bold")
    axes.set_ylim(0.3, len(rows) + 0.7)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    draw(source.read_text(encoding="utf-8"), source.with_suffix(".png"))
