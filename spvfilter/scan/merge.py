"""Merge the files of a scan's parts, in chain order, into one file of CSV or JSON lines.

Threads count and render pieces of the hits, and one thread writes them in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import TypeVar

from spvfilter.files import SHARED, replacing
from spvfilter.kernel import hit_lines
from spvfilter.network import Network
from spvfilter.scan.linelabels import CSV_ACCOUNT, JSON_ACCOUNT, LineLabels, csv_cell, json_text
from spvfilter.scan.partfile import BlockHits, PartFile
from spvfilter.scan.totals import EntryTotals
from spvfilter.watch.watchlist import WatchList

CSV, JSON_LINES = 0, 1  # formats of lines, as the kernel numbers them
COLUMNS = (
    "kind",
    "block_hash",
    "height",
    "time",
    "txid",
    "index",
    "outpoint_txid",
    "outpoint_index",
    "value",
    "script_pubkey",
    "address",
    "label",
    "coinbase",
    "fee",
)
ACCOUNT, _LABEL = "account", "label"  # names of columns
UTC = {"time": "time_utc", "first_seen": "first_seen_utc"}
"""Columns of Unix times, and the CSV columns that contain the same times as text, which a spreadsheet reads as
dates.
"""
PIECE = 1 << 20  # Bytes of packed hits that a thread renders at a time (our choice). The last block may exceed it.

Parts = Iterable[PartFile]
T = TypeVar("T")
R = TypeVar("R")


def columns_of(*, has_accounts: bool) -> tuple[str, ...]:
    """Return the names of the columns of matches. With `has_accounts`, the account follows the label."""
    after = COLUMNS.index(_LABEL) + 1
    return (*COLUMNS[:after], ACCOUNT, *COLUMNS[after:]) if has_accounts else COLUMNS


def csv_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of these columns in CSV.

    Each column of Unix times is followed by one of the same times as text.
    """
    return tuple(name for each in columns for name in ((each, UTC[each]) if each in UTC else (each,)))


def csv_header(*, has_accounts: bool) -> bytes:
    """Return the header line for the columns of matches."""
    return ",".join(csv_columns(columns_of(has_accounts=has_accounts))).encode() + b"\n"


def in_threads(call: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    """Call a function with each item, and yield the results in order. With several jobs, threads make the calls.

    At most `jobs` results wait to be yielded, and threads take at most one item in advance. Errors in the calls and in
    the iteration are raised.
    """
    if jobs == 1:
        yield from map(call, items)
        return
    left = iter(items)
    with futures.ThreadPoolExecutor(jobs, "spvfilter-merge") as threads:
        running: deque[futures.Future[R]] = deque()
        try:
            reading = threads.submit(next, left, None)
            while (item := reading.result()) is not None:
                reading = threads.submit(next, left, None)
                running.append(threads.submit(call, item))
                if len(running) > jobs:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()


def blocks_in(parts: Parts) -> Iterator[BlockHits]:
    """Yield the blocks of all parts. Raises SourceError if a part is damaged, and OSError if it cannot be read."""
    for part in parts:
        yield from part.blocks()


def lines_of(block: BlockHits, network: Network, form: int, labels: tuple[bytes, bytes]) -> bytes:
    """Return the matches of a block as lines, with the labels that LineLabels packed."""
    of_network = network.p2pkh_version, network.p2sh_version, network.hrp
    places, texts = labels
    return hit_lines(block.packed, form, places, texts, block.hash, block.height, block.time, *of_network)


def _pieces(blocks: Iterable[BlockHits]) -> Iterator[list[BlockHits]]:
    """Yield the blocks in pieces of about 1 MB of hits."""
    piece: list[BlockHits] = []
    size = 0
    for block in blocks:
        piece.append(block)
        size += len(block.packed)
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    yield piece


def write_lines(path: Path, parts: Parts, watch: WatchList, form: int, jobs: int = 1) -> EntryTotals:
    """Write the hits of all parts as CSV or JSON lines, using `jobs` threads, and return the totals for each entry.

    Raises OSError if a file cannot be read or written, and SourceError if a part is damaged.
    """
    totals = EntryTotals(len(watch))
    labels = LineLabels(watch, *((csv_cell, CSV_ACCOUNT) if form == CSV else (json_text, JSON_ACCOUNT)))

    def render(blocks: list[BlockHits]) -> list[bytes]:
        totals.add_all(blocks)
        packed = labels.of_hits(blocks)
        return [lines_of(block, watch.network, form, packed) for block in blocks]

    with replacing(path, SHARED) as file:
        if form == CSV:
            file.write(csv_header(has_accounts=bool(watch.accounts)))
        for several in in_threads(render, _pieces(blocks_in(parts)), jobs):
            file.writelines(several)
    return totals
