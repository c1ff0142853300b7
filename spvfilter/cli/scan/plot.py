"""The chart of `scan --plot`: the balance of the watched entries over time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from spvfilter.cli.term.picture import save_picture
from spvfilter.errors import counted
from spvfilter.scan.balance import BalanceHistory

_SATOSHI = 100_000_000  # satoshi in a bitcoin
_STEPS = 2_000  # number of intervals of time; at most four balances in each are drawn, see `thinned`
_BLUE, _GREY = "#0072B2", "0.4"


def draw(history: BalanceHistory, path: Path) -> None:
    """Draw the balance over time into a PNG file. Raises OSError if the file cannot be written."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(12, 5.6), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    points = thinned(list(history.points()))
    if points:
        # matplotlib has no types here
        times: list[float] = [date2num(datetime.fromtimestamp(time, UTC)) for time, _ in points]  # type: ignore[no-untyped-call]
        balances = [balance / _SATOSHI for _, balance in points]
        axes.step(times, balances, where="post", color=_BLUE, linewidth=1.8)
        axes.fill_between(times, balances, step="post", color=_BLUE, alpha=0.12, linewidth=0)
        axes.plot(times[-1], balances[-1], marker="o", markersize=6, color=_BLUE)
        last = f"{balances[-1]:,.8f}".rstrip("0").rstrip(".")
        axes.annotate(
            f"{last} BTC",
            (times[-1], balances[-1]),
            xytext=(-6, 10),
            textcoords="offset points",
            ha="right",
            color=_BLUE,
            fontsize=11,
        )
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib's
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # matplotlib's
        axes.margins(x=0.02, y=0.12)
    else:
        axes.text(0.5, 0.5, "nothing found", transform=axes.transAxes, ha="center", fontsize=16, color=_GREY)
        axes.set_xticks([])
        axes.set_yticks([])
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_ylabel("BTC", fontsize=12)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Balance of the watched entries by block time (UTC)", fontsize=14, fontweight="bold", loc="left")
    if history.unknown:
        axes.set_xlabel(
            f"without {counted(history.unknown, 'spend')} of unknown value: the balance is too high",
            color="#D55E00",
            fontsize=11,
        )
    save_picture(figure, path)


def thinned(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the visible points: the first, the lowest, the highest and the last point in each interval of time."""
    if len(points) <= 4 * _STEPS:
        return points
    begin, end = points[0][0], points[-1][0]
    kept: list[tuple[int, int]] = []
    for _, group in groupby(enumerate(points), key=lambda at: (at[1][0] - begin) * _STEPS // max(end - begin, 1)):
        within = list(group)
        chosen = {within[0], within[-1], min(within, key=lambda at: at[1][1]), max(within, key=lambda at: at[1][1])}
        kept += [point for _, point in sorted(chosen)]
    return kept
