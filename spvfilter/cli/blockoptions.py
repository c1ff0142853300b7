"""Options that `scan` and `export` share: which blocks to read, where to do the work, and following new blocks."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import day, whole
from spvfilter.cli.credentials import check_credentials
from spvfilter.cli.scan.nodeoptions import is_node_url
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    from spvfilter.scan import sources
else:  # not needed to show --help
    sources = deferred("spvfilter.scan.sources")

EVERY_S = 10  # seconds between checks for new blocks, unless --every says otherwise

_DAY_S = 86_400
_MOST_HEIGHT = 0x7FFFFFFF


@dataclass(frozen=True, kw_only=True)
class BlockOptions(ABC):
    """The options of a command that reads blocks. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other.
    """

    paths: list[str]
    out: str | None
    network: Network
    undo: UndoMode
    check: bool
    from_height: int | None
    to_height: int | None
    from_date: int | None
    to_date: int | None
    allow_gaps: bool
    report: str | None
    jobs: int
    processes: int | None
    dask: str | None
    on_workers: list[str]
    follow: bool
    every: int | None
    zmq: list[str]
    quiet: bool
    cookie: str | None
    user: str | None

    def __post_init__(self) -> None:
        if self.dask is not None and self.processes is not None:
            raise ParameterError("--dask and --processes cannot be combined: use only one")
        if self.jobs > 1 and (self.dask is not None or self.processes is not None):
            raise ParameterError("--jobs sets the number of threads: omit it with --dask and --processes")
        if self.on_workers:
            if self.paths or self.dask is None or self.out is None:
                raise ParameterError(
                    "--on-workers PATH replaces all other PATHs, and needs --dask tcp://HOST:PORT and --out DIR"
                )
        elif not self.paths:
            raise ParameterError(self.without_paths)
        if self.follow and (self.to_height is not None or self.to_date is not None):
            raise ParameterError("--follow runs until it is interrupted: omit --to-height and --to-date")
        if self.zmq and not self.follow:
            raise ParameterError("--zmq announces new blocks: it needs --follow")
        if self.every is not None and not self.follow:
            raise ParameterError("--every sets the time between checks for new blocks: it needs --follow")
        if self.from_date is not None and self.to_date is not None and self.to_date < self.from_date:
            raise ParameterError("the range contains no blocks: --to-date is before --from-date")
        assert self.span  # its constructor checks the range
        if not self.is_node and (name := next((name for name in ("cookie", "user") if getattr(self, name)), None)):
            raise ParameterError(
                f"--{name} is for the blocks of a node: give its URL as the only PATH, such as http://127.0.0.1:8332"
            )
        check_credentials(self.cookie, self.user)

    @property
    @abstractmethod
    def without_paths(self) -> str:
        """What to tell the user if no PATH is given."""

    @cached_property
    def is_node(self) -> bool:
        """True if the only PATH is the URL of a node."""
        return is_node_url(self.paths)

    @cached_property
    def span(self) -> sources.BlockSpan:
        """The range of blocks."""
        last_second = None if self.to_date is None else self.to_date + _DAY_S - 1
        return sources.BlockSpan(self.from_height, self.to_height, self.from_date, last_second)

    @property
    def poll_s(self) -> int:
        """Seconds between checks for new blocks."""
        return self.every or EVERY_S


def add_blocks(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the options that choose the blocks and say which of their data is needed. `verb` is the command's verb."""
    parser.add_argument(
        "--undo",
        choices=list(UndoMode),
        default=UndoMode.AUTO,
        help=(
            "auto (default) reads the rev*.dat next to each blk*.dat if it exists, require fails without it, and off"
            " never reads it. It lists the outputs that each block spends, which are needed to find spends of older"
            " coins, and to report values and fees"
        ),
    )
    parser.add_argument(
        "--check", action="store_true", help="verify each block's proof of work, merkle root and witness commitment"
    )
    _add_range(parser, verb)
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="exit with 0 even if blocks or undo records in the range are missing; they are listed anyway",
    )
    parser.add_argument(
        "--report",
        metavar="FILE.json",
        help="write which ranges of heights were found, and which are missing, to FILE.json",
    )


def _add_range(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add --from-height, --to-height, --from-date and --to-date. `verb` says what the command does with the blocks."""
    height = whole(0, _MOST_HEIGHT)
    parser.add_argument("--from-height", metavar="H", type=height, help=f"first height to {verb}, on the best branch")
    parser.add_argument("--to-height", metavar="H", type=height, help=f"last height to {verb}, on the best branch")
    parser.add_argument(
        "--from-date", metavar="YYYY-MM-DD", type=day, help=f"{verb} starting with the first block of that day (UTC)"
    )
    parser.add_argument(
        "--to-date",
        metavar="YYYY-MM-DD",
        type=day,
        help=f"{verb} up to the end of that day (UTC). You can combine dates and heights; all limits apply",
    )


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
            "with --dask, instead of PATHs: each worker reads its own files at PATH; repeatable. Blocks that several"
            " workers have are read once. Missing heights are listed"
        ),
    )


def add_follow(parser: argparse.ArgumentParser, description: str, effect: str) -> None:
    """Add the options for new blocks. `effect` is a sentence about the results of `--follow`."""
    following = parser.add_argument_group("new blocks", description)
    following.add_argument("--follow", action="store_true", help=f"continue with new blocks until Ctrl-C. {effect}")
    following.add_argument(
        "--every",
        metavar="S",
        type=whole(1, _DAY_S),
        help=f"with --follow: seconds between checks for new blocks; default {EVERY_S}",
    )
    following.add_argument(
        "--zmq",
        metavar="ADDRESS",
        action="append",
        default=[],
        help=(
            "with --follow: check immediately when the node announces a block at this address, rawblock or sequence, as"
            " in -zmqpubsequence=tcp://127.0.0.1:28332; repeatable"
        ),
    )
