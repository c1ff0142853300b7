"""The picture of `privacy --plot`: the number of decoys in each case, compared with the wallet's addresses."""

from __future__ import annotations

import math

from spvfilter.cli.term.picture import check_picture, save_picture
from spvfilter.filters.privacy import PrivacyReport

# colours that colour-blind people can distinguish (Okabe and Ito, 2008)
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "0.4"
_LEAST = 1e-3
"""Smallest number of decoys that a bar can show."""


def draw(report: PrivacyReport, universe: int, name: str) -> None:
    """Draw the picture of a report into a PNG file. An existing file is replaced only if it is a PNG file.

    Raises ParameterError, SourceError or OSError.
    """
    path = check_picture(name)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.6), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    cases = report.cases[::-1]
    decoys = [case.exposure.decoys for case in cases]
    hides = [case.exposure.decoys >= 10 * case.exposure.own for case in cases]
    axes.barh(
        range(len(cases)),
        [max(each, _LEAST) for each in decoys],
        left=_LEAST / 10,
        color=[_BLUE if each else _ORANGE for each in hides],
        hatch=["" if each else "//" for each in hides],
        edgecolor="white",
        height=0.65,
    )
    for at, (case, each) in enumerate(zip(cases, decoys, strict=True)):
        said = f"{each:,.0f}" if each >= 10 else f"{each:.2g}"
        axes.text(
            max(each, _LEAST) * 1.2,
            at,
            f"{said} decoys; a match is the wallet's with probability {case.exposure.posterior:.2g}",
            va="center",
            fontsize=10,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    axes.axvline(report.own, color=_GREY, linewidth=1.5, linestyle=":")
    axes.text(report.own, len(cases) - 0.45, f" {report.own:,} own", color=_GREY, fontsize=10, va="bottom")
    axes.set_yticks(range(len(cases)), [case.said for case in cases], fontsize=10)
    axes.set_ylim(-0.6, len(cases) - 0.1)
    axes.set_xscale("log")
    axes.set_xlim(_LEAST / 2, universe * 1e5)  # leaves space for the text next to the longest bar
    axes.set_xticks([10.0**power for power in range(-2, math.ceil(math.log10(universe)) + 1, 2)])
    axes.set_xlabel(
        f"expected decoys among {universe:,} addresses (hatched: fewer than ten for each of the wallet's)", fontsize=11
    )
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"Decoys in a BIP-37 filter of {report.size:,} bytes, for a peer that has …",
        fontsize=14,
        fontweight="bold",
        loc="left",
        pad=22,
    )
    save_picture(figure, path)
