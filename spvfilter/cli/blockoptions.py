"""The options that `scan` and `export` share: the blocks, the machines that work, and new blocks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import day, whole
from spvfilter.errors import ParameterError
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    from spvfilter.scan import sources
else:  # not needed to show --help
    sources = deferred("spvfilter.scan.sources")

EVERY_S = 10  # seconds between two looks for new blocks, unless --every says otherwise

_DAY_S = 86_400
_MOST_HEIGHT = 0x7FFFFFFF


def add_blocks(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the options that choose blocks and say which of their data is needed. `verb` is the command's verb."""
    parser.add_argument(
        "--undo",
        choices=list(UndoMode),
        default=UndoMode.AUTO,
        help=(
            "auto (default) reads the rev*.dat next to each blk*.dat if it exists, require fails without it, and off"
            " never reads it. It has the outputs that each block spends: spends of older coins, values and fees need it"
        ),
    )
    parser.add_argument(
        "--check", action="store_true", help="verify each block's proof of work, merkle root and witness commitment"
    )
    _add_range(parser, verb)
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="exit with 0 although blocks or undo records of the range are missing; they are still listed",
    )
    parser.add_argument(
        "--report", metavar="FILE.json", help="write the ranges of heights that exist and that are missing to FILE.json"
    )


def _add_range(parser: argparse.ArgumentParser, verb: str) -> None:
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
    if None not in (args.from_date, args.to_date) and args.to_date < args.from_date:
        raise ParameterError("the range has no block: --to-date is before --from-date")
    last_second = None if args.to_date is None else args.to_date + _DAY_S - 1
    return sources.BlockSpan(args.from_height, args.to_height, args.from_date, last_second)


def add_engine(parser: argparse.ArgumentParser, seen: str, needs: str = "") -> None:
    """Add the options that choose where the work is done.

    Args:
        parser: The parser of the command.
        seen: A noun for the files that all workers of a cluster must see.
        needs: A prefix for options that need another option, such as "with --out: ".
    """
    parser.add_argument(
        "--jobs",
        metavar="J",
        type=whole(1, 256),
        default=1,
        help="number of threads; more than one needs the compiled kernel; default %(default)s",
    )
    parser.add_argument(
        "--processes", metavar="N", type=whole(1, 256), help=f"{needs}use N processes instead of threads"
    )
    parser.add_argument(
        "--dask",
        metavar="tcp://HOST:PORT",
        help=(
            f"{needs}use the workers of the Dask cluster with this scheduler. Each worker must see {seen} under the"
            " same paths"
        ),
    )
    parser.add_argument(
        "--on-workers",
        metavar="PATH",
        action="append",
        default=[],
        help=(
            "with --dask, instead of PATHs: each worker reads its own files at PATH; repeatable. Blocks on several"
            " workers are read once. Missing heights are listed"
        ),
    )


def check_engine(args: argparse.Namespace, usage: str) -> None:
    """Raise ParameterError if the options of `add_engine` do not fit each other or the PATHs.

    `usage` is a sentence for a command without PATHs.
    """
    if args.dask is not None and args.processes is not None:
        raise ParameterError("--dask and --processes exclude each other: give one")
    if args.jobs > 1 and (args.dask is not None or args.processes is not None):
        raise ParameterError("--jobs is the number of threads: leave it out with --dask and --processes")
    if args.on_workers:
        if args.paths or args.dask is None or args.out is None:
            raise ParameterError(
                "--on-workers PATH replaces all other PATHs, and needs --dask tcp://HOST:PORT and --out DIR"
            )
    elif not args.paths:
        raise ParameterError(usage)


def add_follow(parser: argparse.ArgumentParser, description: str, effect: str) -> None:
    """Add the options for new blocks. `effect` is a sentence about the results of `--follow`."""
    following = parser.add_argument_group("new blocks", description)
    following.add_argument("--follow", action="store_true", help=f"continue with new blocks until Ctrl-C. {effect}")
    following.add_argument(
        "--every",
        metavar="S",
        type=whole(1, _DAY_S),
        help=f"with --follow: seconds between two looks for new blocks; default {EVERY_S}",
    )
    following.add_argument(
        "--zmq",
        metavar="ADDRESS",
        action="append",
        default=[],
        help=(
            "with --follow: look at once when the node announces a block at this address, rawblock or sequence, as in"
            " -zmqpubsequence=tcp://127.0.0.1:28332; repeatable"
        ),
    )


def check_follow(args: argparse.Namespace) -> None:
    """Raise ParameterError if the options of `add_follow` do not fit each other or the range of blocks."""
    if args.follow and (args.to_height is not None or args.to_date is not None):
        raise ParameterError("--follow runs until it is interrupted: leave --to-height and --to-date out")
    if args.zmq and not args.follow:
        raise ParameterError("--zmq announces new blocks: it needs --follow")
    if args.every is not None and not args.follow:
        raise ParameterError("--every is the time between two looks for new blocks: it needs --follow")
