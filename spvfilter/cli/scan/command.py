"""`spvfilter scan`: print the matches of a wallet in files or a stream of blocks."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_network, add_watch_file, day, standard_input, watch_list, whole
from spvfilter.cli.scan import node
from spvfilter.cli.term.matches import FORMATS, Totals, batch_printer, printer
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.picture import check_picture
from spvfilter.cli.term.progress import ProgressDisplay, megabytes, progress
from spvfilter.errors import FormatError, IncompleteScanError, ParameterError, SourceError
from spvfilter.primitives import hash_to_hex
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.remote import is_url
from spvfilter.scan.sources import BlockFiles, BlockSpan
from spvfilter.scan.streams import stream_blocks
from spvfilter.scan.undo import UndoMode
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_STDIN = "-"
_PARQUET = "parquet"  # of scan.outputs.OutputFormat
_INCOMPLETE = 1  # exit code
_POLL_S = 0.1
_MOST_HEIGHT = 0x7FFFFFFF
_HASHES_SHOWN = 20
_BLOCK_SUFFIXES = (".dat", ".raw", ".blk", ".hex")  # of files in a directory of blocks


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter scan PATH ... (--watch FILE | --address A ...) [OPTION ...]"
    parser.description = (
        "Find every output that pays a watched entry and every input that spends one. The order of files, and of blocks in them, "
        "does not matter. An address finds only its own script: payments to a bare public key, as in the first years, are found by "
        "a line pubkey:HEX in the watch list."
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="*",
        help="a file of one block (raw or hex), a blk*.dat file of Bitcoin Core, a directory of either, also by URL as s3://… "
        "(extra remote), or http://HOST:PORT of a node; "
        "- alone: blocks on standard input, one per line in hex, or a blk*.dat, also compressed by gzip or zstd",
    )  # fmt: skip
    add_watch_file(parser)
    parser.add_argument("--address", metavar="A", nargs="+", action="extend", default=[], help="addresses or descriptors; repeatable")
    add_network(parser)
    parser.add_argument(
        "--jobs", metavar="J", type=whole(1, 256), default=1, help="threads that scan, with the compiled kernel; default %(default)s"
    )
    parser.add_argument(
        "--undo", choices=list(UndoMode), default=UndoMode.AUTO,
        help="use the rev*.dat beside blk*.dat, which tell what each block spends: auto (default) where there are any, require or off. "
        "With them spends of coins from before the blocks are found, too",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="verify each block's merkle root and witness commitment before using it")
    parser.add_argument("--from-height", metavar="H", type=whole(0, _MOST_HEIGHT), help="of the best branch, scan blocks from height H on")
    parser.add_argument("--to-height", metavar="H", type=whole(0, _MOST_HEIGHT), help="and up to height H")
    parser.add_argument("--from-date", metavar="YYYY-MM-DD", type=day, help="scan from the first block of that day (UTC) on")
    parser.add_argument(
        "--format", choices=[*FORMATS, _PARQUET],
        help="table (default), jsonl (one JSON object per line, values in satoshi) or csv (the same columns); "
        "totals go with the table, else to a terminal on standard error. With --out csv (default), jsonl or parquet",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output; an existing FILE is overwritten")
    parser.add_argument(
        "--out", metavar="DIR",
        help="scan in parts into a directory, in constant memory: the matches in chain order, totals.csv, and a file for each part. "
        "Stopped anywhere, the same command goes on",
    )  # fmt: skip
    parser.add_argument("--processes", metavar="N", type=whole(1, 256), help="with --out: processes that scan, in place of threads")
    parser.add_argument(
        "--dask", metavar="tcp://HOST:PORT",
        help="with --out: scan on the workers of the Dask cluster whose scheduler is there; each has to see the files by the same paths",
    )  # fmt: skip
    parser.add_argument(
        "--on-workers", metavar="PATH", action="append", default=[],
        help="with --dask, in place of PATHs: each worker scans the files that it has itself at PATH; repeatable. Heights that no worker "
        "has are named, and what two have is scanned once",
    )  # fmt: skip
    parser.add_argument("--publish", metavar="URL", help="with --out: put matches and totals below s3://… or another URL, too")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the balance over time, of blocks in files (extra plot: matplotlib)")
    parser.add_argument("--quiet", action="store_true", help="no totals and no summary, only errors")
    node.configure(parser)


def run(args: argparse.Namespace) -> int:
    if args.on_workers:
        if args.paths or args.dask is None or args.out is None:
            raise ParameterError("--on-workers PATH takes the place of other PATHs, and needs --dask tcp://HOST:PORT and --out DIR")
    elif not args.paths:
        cause = ": --address takes everything up to the next option: put PATH before it" if args.address else ""
        raise ParameterError(f"no PATH of blocks given{cause} (see 'spvfilter scan --help')")
    if _STDIN in args.paths and len(args.paths) > 1:
        raise ParameterError("'-' is standard input and cannot be combined with another PATH")
    is_node = node.is_node(args.paths)
    if not is_node:
        node.check_without_node(args)
    for option, name in (("--out", args.out), ("--output", args.output), ("--plot", args.plot)):
        if is_url(name):
            raise ParameterError(f"{option} is of this machine, not {name}: --out DIR --publish URL puts what is found elsewhere")
    watch = watch_list(args.network, args.watch, args.address, args.paths)
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to watch for: give --watch FILE or --address ADDRESS")
    span = BlockSpan(args.from_height, args.to_height, args.from_date)
    if span.is_limited and args.paths == [_STDIN]:
        raise ParameterError("a range of blocks can be taken of files, not of standard input")
    if is_node and args.out is not None:
        raise ParameterError("--out is for blocks in files: --output FILE keeps what is found in a node's blocks")
    if args.plot is not None:
        if args.paths == [_STDIN]:
            raise ParameterError("--plot is for blocks in files, not on standard input")
        if is_node:
            raise ParameterError("--plot is for blocks in files, not for those of a node")
        check_picture(args.plot)
    if args.out is not None:
        return _run_in_parts(args, watch, span)
    if args.processes is not None or args.dask is not None or args.publish is not None or args.format == _PARQUET:
        raise ParameterError("--processes, --dask, --publish and --format parquet need --out DIR")
    matcher = Matcher(watch, jobs=args.jobs, check=args.check)
    if is_node:
        with _page(args.output) as page:
            return node.run(args, matcher, span, page)
    if args.output is not None:
        _refuse_to_overwrite_input(Path(args.output), args.paths, args.watch)
        if args.paths != [_STDIN] and not any(is_url(name) or Path(name).exists() for name in args.paths):
            raise SourceError(f"nothing to scan: {', '.join(args.paths)}: no such file or directory")
    with _page(args.output) as page:
        return asyncio.run(_Scan(matcher, args, span, page).run())


def _run_in_parts(args: argparse.Namespace, watch: WatchList, span: BlockSpan) -> int:
    if args.output is not None:
        raise ParameterError("--out DIR has the output in it: --output FILE is for a scan without it")
    if args.paths == [_STDIN]:
        raise ParameterError("--out is for blocks in files, not on standard input")
    from spvfilter.cli.scan import directory

    return directory.run(args, watch, span)


def _refuse_to_overwrite_input(output: Path, paths: list[str], watch: str | None) -> None:
    if not output.exists():
        return
    for source in [Path(name) for name in (*paths, watch) if name not in (None, _STDIN)]:
        inside = source.is_dir() and output.resolve().parent == source.resolve() and output.suffix in _BLOCK_SUFFIXES
        if inside or (source.exists() and output.samefile(source)):
            raise ParameterError(f"{output}: this would overwrite an input")


@contextmanager
def _page(output: str | None) -> Iterator[Page]:
    if output is None:
        yield Page(sys.stdout)
        return
    with Path(output).open("w", encoding="utf-8", newline="") as file:
        yield Page(file)


class _Scan:
    """One scan and its output."""

    def __init__(self, matcher: Matcher, args: argparse.Namespace, span: BlockSpan, page: Page) -> None:
        self._matcher = matcher
        self._paths: list[str] = args.paths
        self._format = args.format or "table"
        self._undo = args.undo
        self._span = span
        self._quiet = args.quiet
        self._page = page
        self._totals = Totals()
        self._plot: str | None = args.plot
        self._history = BalanceHistory()
        self._files: BlockFiles | None = None  # None for standard input
        self._bad: list[str] = []  # parts of standard input that are no blocks

    async def run(self) -> int:
        start = time.monotonic()
        complete = True
        with progress(self._page.console) as shown:
            ticker = asyncio.create_task(self._tick(shown))
            try:
                await self._print_matches(shown)
            except IncompleteScanError:
                complete = False
            finally:
                ticker.cancel()
            shown.update(self._matcher.report.bytes_scanned, self._matcher.report.bytes_total)
        report = self._matcher.report
        for problem in (*report.problems, *report.undo_problems, *(f"standard input: {bad}" for bad in self._bad)):
            complain(str(problem))
        if not report.blocks:
            raise SourceError(
                "nothing could be read"
                if report.problems or self._bad
                else f"no block in {'standard input' if self._paths == [_STDIN] else ', '.join(self._paths)}"
            )
        discarded = self._totals.discard(report.stale)
        if self._plot is not None:
            from spvfilter.cli.scan.plot import draw

            await asyncio.to_thread(draw, self._history, Path(self._plot))
        if not self._quiet:
            if self._format == "table" or sys.stderr.isatty():
                self._totals.show(self._page if self._format == "table" else Page(sys.stderr))
            self._summarise(time.monotonic() - start, discarded)
        return 0 if complete and not report.undo_problems and not self._bad else _INCOMPLETE

    async def _print_matches(self, shown: ProgressDisplay) -> None:
        show = self._shower()
        blocks: BlockFiles | Iterator[bytes]
        if self._paths == [_STDIN]:
            blocks = stream_blocks(standard_input(), self._matcher.watch.network, self._bad.append)
        else:
            blocks = self._files = BlockFiles(self._paths, undo=self._undo, span=self._span)
        try:
            async with aclosing(self._matcher.scan_batches(blocks)) as batches:
                async for batch in batches:
                    shown.clear()
                    show(batch)
                    if self._plot is not None:
                        self._history.add(batch.block)
        except FormatError as error:  # in a stream; malformed blocks in files are reported at the end
            where = f"line {error.offset}: {error.message}" if error.field == "hex line" else str(error)
            raise SourceError(f"standard input: {where}") from None

    def _shower(self) -> Callable[[MatchBatch], None]:
        """What prints the matches of a block, and counts them."""
        if self._format == "table":
            row = printer(self._page, self._format)

            def show(batch: MatchBatch) -> None:
                for match in batch.matches():
                    row(match)
                    self._totals.add(match)

            return show
        lines = batch_printer(self._page, self._format)
        if self._quiet or not (sys.stderr.isatty() or self._paths == [_STDIN]):  # blocks of a stream may turn out to be stale
            return lines

        def show_and_count(batch: MatchBatch) -> None:
            lines(batch)
            self._totals.add_batch(batch, self._matcher.watch)

        return show_and_count

    async def _tick(self, shown: ProgressDisplay) -> None:
        while True:
            shown.update(self._matcher.report.bytes_scanned, self._matcher.report.bytes_total)
            await asyncio.sleep(_POLL_S)

    def _summarise(self, seconds: float, discarded: int) -> None:
        report = self._matcher.report
        found = f"{report.matches} match{'es' if report.matches != 1 else ''}" if report.matches else "nothing found"
        size, rate = megabytes(report.bytes_scanned), megabytes(report.bytes_scanned / max(seconds, 0.001))
        say = Page(sys.stderr).line
        say(f"{report.blocks:,} block(s), {size} in {seconds:.1f} s ({rate}/s): {found}")
        if report.duplicates:
            say(f"{len(report.duplicates):,} duplicate block(s), not counted")
        if report.stale:
            given = f"; {discarded} of their matches were printed before that was known" if discarded else ""
            say(f"{len(report.stale):,} stale block(s), off the branch with the most work, not counted{given}")
            for block in report.stale[:_HASHES_SHOWN]:
                say(f"  {hash_to_hex(block)}")
        if report.unproven:
            say(f"{len(report.unproven):,} block(s) with a header that does not meet its own bits, damaged or made by hand:")
            for block in report.unproven[:_HASHES_SHOWN]:
                say(f"  {hash_to_hex(block)}")
        if self._files is not None and (assumed := self._files.assumed):
            say(f"{assumed:,} block(s) without a network's magic, taken for {self._matcher.watch.network}'s (--network names another)")
        if report.segments > 1:
            say(f"{report.segments:,} runs of blocks, with missing blocks between them")
        self._say_what_is_not_seen(say)

    def _say_what_is_not_seen(self, say: Callable[[str], None]) -> None:
        report = self._matcher.report
        if report.by_undo and report.without_undo:
            say(f"{len(report.without_undo):,} block(s) without a usable undo record, matched by outpoints:")
            for block in report.without_undo[:_HASHES_SHOWN]:
                say(f"  {hash_to_hex(block)}")
        if report.unseen:
            say(
                f"warning: {report.unseen:,} block(s) may spend coins from before these blocks, and such spends cannot be seen: the blocks "
                "do not all go back to the genesis block, and rev*.dat files with what they spend are not beside them"
            )
