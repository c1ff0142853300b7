"""The options that limit a command to a range of blocks, by heights and by dates."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import day, whole

if TYPE_CHECKING:
    from spvfilter.scan import sources
else:  # not needed to show --help
    sources = deferred("spvfilter.scan.sources")

_DAY_S = 86_400
_MOST_HEIGHT = 0x7FFFFFFF


def add_range(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add --from-height, --to-height, --from-date and --to-date. `verb` is what the command does with blocks."""
    height = whole(0, _MOST_HEIGHT)
    parser.add_argument("--from-height", metavar="H", type=height, help=f"first height to {verb}, on the best branch")
    parser.add_argument("--to-height", metavar="H", type=height, help=f"last height to {verb}, on the best branch")
    parser.add_argument(
        "--from-date", metavar="YYYY-MM-DD", type=day, help=f"{verb} from the first block of that day (UTC) on"
    )
    parser.add_argument(
        "--to-date",
        metavar="YYYY-MM-DD",
        type=day,
        help=f"{verb} up to the end of that day (UTC). Dates and heights may be combined: all limits hold",
    )


def span_of(args: argparse.Namespace) -> sources.BlockSpan:
    """Return the range of the options. Raises ParameterError for a range without a block."""
    last_second = None if args.to_date is None else args.to_date + _DAY_S - 1
    return sources.BlockSpan(args.from_height, args.to_height, args.from_date, last_second)
