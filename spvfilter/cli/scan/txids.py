"""`spvfilter scan --txid FILE`: print the blocks that contain these transactions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from spvfilter._public import deferred
from spvfilter.cli.arguments import format_of, standard_input
from spvfilter.cli.credentials import credentials_of
from spvfilter.cli.scan.gaps import report_heights
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.term.page import Page, complain, shorten
from spvfilter.cli.term.problems import Problems
from spvfilter.cli.term.progress import megabytes, progress
from spvfilter.cli.term.rows import csv_cells
from spvfilter.compression import unpacked
from spvfilter.errors import ParameterError, SourceError, counted
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.scan.fetching import NodeBlocks
from spvfilter.scan.merge import csv_columns
from spvfilter.scan.order import ScanReport
from spvfilter.scan.sources import BlockFiles, BlockSource
from spvfilter.scan.txids import PlacedTx, find_txs
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import asyncio

    from spvfilter.cli.scan import node
else:
    asyncio = deferred("asyncio")
    node = deferred("spvfilter.cli.scan.node")  # needs the `rpc` extra

_INCOMPLETE = 1  # exit code
_POLL_S = 0.1  # time between two updates of the progress display
_COLUMNS = ("txid", "block_hash", "height", "time", "position")
_LONGEST = 1_000  # longest line in bytes (our choice)
_MOST_SHOWN = 20  # most transactions listed as not found
_SHORTEST = 17  # length of a shortened hash: eight characters at each end
_OTHER_COLUMNS = 24  # width of the table without its two hashes


def read_txids(path: str) -> frozenset[bytes]:
    """Return the txids in a file, one on each line, as bytes in wire order. `-` is standard input.

    Blank lines and lines that start with # are skipped. The file may be compressed. Raises ParameterError if a line is
    invalid or there are no txids, SourceError if the compressed data is damaged, and OSError if the file cannot be
    read.
    """
    name = "standard input" if path == "-" else path
    with standard_input() if path == "-" else Path(path).open("rb") as file:
        try:
            found = frozenset(_ids(unpacked(file), name))
        except SourceError as error:
            raise SourceError(f"{name}: {error}") from None
    if not found:
        raise ParameterError(f"{name}: this file contains no txids")
    return found


def _ids(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the txids in the lines of a file. Raises ParameterError if a line is invalid."""
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            try:
                yield hash_from_hex(text.decode("ascii"))
            except ValueError:
                raise ParameterError(f"{name}: line {number}: expected a txid, 64 hex digits") from None


def run(options: ScanOptions, page: Page) -> int:
    """Search the blocks, print the results, and return the exit code. Raises ParameterError, SourceError or OSError."""
    return asyncio.run(_search(options, page))


@asynccontextmanager
async def _blocks(options: ScanOptions) -> AsyncIterator[BlockSource | NodeBlocks]:
    if options.is_node:
        async with node.opened(options, credentials_of(options.cookie, options.user)) as opened:
            yield NodeBlocks(opened, undo=UndoMode.OFF, span=options.span, allow_gaps=True)
    else:
        yield await asyncio.to_thread(partial(BlockFiles, options.paths, undo=UndoMode.OFF, span=options.span))


async def _search(options: ScanOptions, page: Page) -> int:
    wanted = read_txids(str(options.txid))
    report, begun = ScanReport(), time.monotonic()
    updated = begun
    show, missing = _printer(page, format_of(options.format, page)), set(wanted)
    with progress(page.console) as shown:
        async with _blocks(options) as blocks:
            searching = find_txs(blocks, wanted, options.network, report, jobs=options.jobs, check=options.check)
            async with aclosing(searching) as several:
                async for of_block in several:
                    if of_block:
                        shown.clear()
                    for found in of_block:
                        show(found)
                        missing.discard(found.txid)
                    if time.monotonic() > updated + _POLL_S:
                        updated = time.monotonic()
                        shown.update(report.bytes_scanned, report.bytes_total)
    problems = Problems()
    for problem in report.problems:
        problems.add(str(problem))
    problems.complain()
    if not report.blocks:
        raise SourceError("nothing could be read" if problems else f"found no blocks in {', '.join(options.paths)}")
    if not options.quiet:
        seconds = time.monotonic() - begun
        size, rate = megabytes(report.bytes_scanned), megabytes(report.bytes_scanned / max(seconds, 0.001))
        count = len(wanted) - len(missing)
        complain(
            f"{counted(report.blocks, 'block')}, {size} in {seconds:.1f} s ({rate}/s): {count:,} of {len(wanted):,}"
            " transactions found"
        )
        for txid in sorted(map(hash_to_hex, missing))[:_MOST_SHOWN]:
            complain(f"not found: {txid}")
        if (more := len(missing) - _MOST_SHOWN) > 0:
            complain(f"and {more:,} more were not found")
    return _INCOMPLETE if report_heights(options, report.heights) or problems else 0


def _printer(page: Page, chosen: str) -> Callable[[PlacedTx], None]:
    """Return a function that prints one transaction in a format: table, jsonl or csv."""
    if chosen == "jsonl":
        return lambda found: page.record(_row(found))
    if chosen == "csv":
        page.cells(csv_columns(_COLUMNS))
        return lambda found: page.cells(csv_cells(_row(found)).values())
    room = 64 if page.width is None else max(_SHORTEST, min(64, (page.width - _OTHER_COLUMNS) // 2))
    page.line(f"  {'height':>7}  {'txid'.ljust(room)}  {'block'.ljust(room)}  position", "cyan")

    def show(found: PlacedTx) -> None:
        height = "?" if found.height is None else found.height
        txid, block = (shorten(hash_to_hex(each), room) for each in (found.txid, found.block))
        page.line(f"  {height:>7}  {txid}  {block}  {found.position}")

    return show


def _row(found: PlacedTx) -> dict[str, str | int | None]:
    cells = (hash_to_hex(found.txid), hash_to_hex(found.block), found.height, found.time, found.position)
    return dict(zip(_COLUMNS, cells, strict=True))
