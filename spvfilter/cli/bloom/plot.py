"""The chart of `bloom size --plot`: rate against load, and size against the number of hash functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spvfilter.bloom import sizing
from spvfilter.bloom.size import Size
from spvfilter.cli.term.picture import check_picture, save_picture
from spvfilter.errors import ParameterError, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colours that colour-blind people can distinguish (Okabe and Ito, 2008), each with its own line style
_STYLES = (
    ("#D55E00", (0, (5, 2))),
    ("#0072B2", (0, ())),
    ("#009E73", (0, (6, 1.5, 1, 1.5))),
    ("#CC79A7", (0, (1, 1.2))),
    ("#000000", (0, (3, 1, 1, 1, 1, 1))),
)
_MANY = 10**9
"""Number of keys for which sizes are computed: large enough to give the bits per key to nine digits."""
_FEW = 3
"""Number of hash functions that articles often use."""
_FLAT = 1.05
"""Sizes up to this multiple of the least size are marked as nearly minimal."""
_TALLEST = 3.2
"""Sizes up to this multiple of the least size are drawn."""
_HEIGHT = 4.5
"""Height of the plot, as a multiple of the least size. It leaves room for the legend above the curve."""
_MOST_LOAD = 2.5
"""Largest load that is drawn, as a multiple of the capacity."""
_STEPS = 200
"""Number of points on a curve."""


def draw(size: Size, rate: float, name: str) -> None:
    """Draw the picture for a filter into a PNG file. An existing file is replaced only if it is a PNG file.

    Raises ParameterError, SourceError or OSError.
    """
    path = check_picture(name)
    if not 0 < rate < 1:
        raise ParameterError(f"there is no curve to draw: with {counted(size.capacity, 'key')} the rate is {rate:g}")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.6), dpi=100)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.1, top=0.87, wspace=0.13)
    figure.suptitle(
        f"Bloom filter for {size.capacity:,} keys at a false-positive rate of {rate:.3g}",
        fontsize=14,
        fontweight="bold",
    )
    _rates(left, size, rate)
    _sizes(right, size, rate)
    save_picture(figure, path)


def _rates(axes: Axes, size: Size, rate: float) -> None:
    """Draw the false-positive rate of filters of this size against their load."""
    best = sizing.optimal_hash_funcs(size.bits, size.capacity)
    loads = [_MOST_LOAD * step / _STEPS for step in range(1, _STEPS + 1)]
    lowest = rate
    for functions, (colour, line) in zip(
        sorted({1, _FEW, best, min(2 * best, sizing.MAX_HASH_FUNCS), size.hash_funcs}), _STYLES, strict=False
    ):
        rates = [_rate(size, functions, load) for load in loads]
        full = _rate(size, functions, 1)
        lowest = min(lowest, full)
        said = f"k = {functions}: {full:.2g} when full" + (", the least" if functions == best else "")
        axes.plot(
            loads, rates, color=colour, linestyle=line, linewidth=3 if functions == size.hash_funcs else 2, label=said
        )
    axes.axvline(1, color="0.45", linewidth=1)
    axes.axhline(rate, color="0.45", linewidth=1.5, linestyle=":", label=f"p = {rate:.3g}")
    axes.set_yscale("log")
    axes.set_ylim(max(lowest / 1e3, 1e-300), 3)
    axes.set_xlim(0, _MOST_LOAD)
    axes.set_xlabel("load: number of keys / capacity (1: full)", fontsize=11)
    axes.set_ylabel("false-positive rate", fontsize=11)
    axes.set_title(
        f"The same memory, {size.bits_per_key:.3g} bits per key, with other numbers of functions", fontsize=11
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right", fontsize=10, title="k hash functions", title_fontsize=10)


def _rate(size: Size, functions: int, load: float) -> float:
    return sizing.fp_rate(size.bits, functions, max(1, round(load * size.capacity)))


def _sizes(axes: Axes, size: Size, rate: float) -> None:
    """Draw the bits per key that a filter needs for the rate, against the number of hash functions."""
    optimum, least = -math.log2(rate), sizing.optimal_bits_per_item(rate)
    needed = {
        functions: bits for functions in range(1, _last(optimum, size) + 1) if (bits := _bits_per_key(rate, functions))
    }
    drawn = {functions: bits for functions, bits in needed.items() if bits <= _TALLEST * least}
    axes.plot(list(drawn), list(drawn.values()), color=_STYLES[1][0], marker="o", markersize=5, linewidth=2)
    said = f"minimum, k = −log₂ p = {optimum:.2f}: {least:.2f} bits per key"
    axes.plot(optimum, least, label=said, marker="D", markersize=10, color=_STYLES[0][0], linestyle="none", zorder=5)
    flat = [functions for functions, bits in needed.items() if bits <= _FLAT * least]
    if flat:
        said = f"k = {flat[0]} takes" if len(flat) == 1 else f"k = {flat[0]} to {flat[-1]} take"
        axes.axvspan(
            flat[0] - 0.4,
            flat[-1] + 0.4,
            color=_STYLES[2][0],
            alpha=0.18,
            linewidth=0,
            label=f"{said} at most 5 % more",
        )
    for functions, marker in {size.hash_funcs: "^", _FEW: "s"}.items():
        if functions in needed and functions not in set(flat) - {_FEW}:
            bits = needed[functions]
            said = f"k = {functions}: {bits:,.2f} bits per key, {bits / least:,.2f} times the minimum"
            at = (functions, bits) if functions in drawn else (math.nan, math.nan)
            axes.plot(*at, label=said, marker=marker, markersize=10, color=_STYLES[4][0], linestyle="none", zorder=4)
    if beyond := [
        f"k = {functions}: {bits:,.4g}"
        for functions, bits in needed.items()
        if functions not in (*drawn, _FEW, size.hash_funcs)
    ]:
        axes.plot(
            math.nan,
            math.nan,
            linestyle="none",
            label="too large to draw: " + ", ".join(beyond[:2]) + (", …" if beyond[2:] else ""),
        )
    axes.set_ylim(0, _HEIGHT * least)
    axes.set_xlim(0, max(needed) + 1)
    axes.set_xlabel("k, number of hash functions", fontsize=11)
    axes.set_ylabel("bits per key", fontsize=11)
    axes.set_title(f"The same rate, {rate:.3g} when full, with other numbers of functions", fontsize=11)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper right", fontsize=10)


def _last(optimum: float, size: Size) -> int:
    return min(max(math.ceil(2 * optimum) + 2, _FEW + 2, size.hash_funcs + 1), sizing.MAX_HASH_FUNCS)


def _bits_per_key(rate: float, functions: int) -> float | None:
    """Return the number of bits per key that a filter needs for the rate, or None if no filter can achieve it."""
    try:
        return sizing.bits_for(_MANY, rate, functions) / _MANY
    except ParameterError:
        return None
