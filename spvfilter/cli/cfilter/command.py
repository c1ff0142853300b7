"""`spvfilter cfilter`: BIP-158 compact filters in files: build, match, describe, import and export."""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spvfilter.cli.arguments import (
    Parser,
    add_format,
    add_network,
    add_watch_file,
    format_of,
    network_of,
    read_hex_or_bytes,
    watch_list,
    whole,
)
from spvfilter.cli.cfilter.database import export_filters, import_filters
from spvfilter.cli.cfilter.jsonlines import FilterRecord, check_network, is_of_lines, read_records
from spvfilter.cli.cfilter.spent import SpentScripts, chain_heights, chain_order, read_prevouts
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.progress import megabytes
from spvfilter.errors import BlockFilterError, FormatError, ParameterError, SourceError, counted
from spvfilter.filters.batch import match_filters, read_ahead
from spvfilter.filters.bip158 import BasicFilter, filter_hash, filter_header
from spvfilter.kernel import GcsQuery
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.protocol import BASIC_M, BASIC_P, GENESIS_PREVIOUS_FILTER_HEADER, MAX_BLOCK_SIZE
from spvfilter.scan.sources import BlockFiles, BlockRef, Problem
from spvfilter.scan.undomode import UndoMode

_INCOMPLETE = 1
"""Exit code if filters are missing."""


def configure(parser: Parser) -> None:
    parser.description = (
        "Work with compact filters (BIP-158, basic) in files. FILTERS are files of JSON lines, as build prints them; -"
        " is standard input. The actions match and info also accept a single filter as hex digits, or a file of its"
        " bytes."
    )
    build = parser.add_action(
        "build",
        "make the filters of blocks",
        "Make the filters of blocks and print them. The outputs that a block spends are read from the rev*.dat next to"
        " its blk*.dat, from earlier blocks, or from --prevouts. With rev*.dat files, BLOCKS may be any range of the"
        " chain, and no outputs are kept in memory.",
    )
    build.add_argument("blocks", metavar="BLOCKS", nargs="+", help="raw, hex or blk*.dat files, or directories of them")
    build.add_argument(
        "--undo",
        choices=list(UndoMode),
        default=UndoMode.AUTO,
        help="auto (default) uses rev*.dat files if there are any, require fails without them, off ignores them",
    )
    build.add_argument(
        "--prevouts",
        metavar="FILE",
        help="for a single block: a file of the outputs that it spends, in order, each as value (8 bytes), length and"
        " script",
    )
    _add_previous(build)
    build.add_argument(
        "--dask",
        metavar="tcp://HOST:PORT",
        help=(
            "build them from rev*.dat on the workers of the Dask cluster with this scheduler; each worker must see"
            " BLOCKS under the same paths"
        ),
    )
    build.add_argument(
        "--out",
        metavar="DIR",
        help="with --dask: directory for files of JSON lines, one for each part; the same command resumes a build",
    )

    match = parser.add_action(
        "match",
        "print the blocks that may contain a wallet's payments",
        "Print the blocks whose filters match a watch list.",
    )
    _add_filters(match)
    add_watch_file(match)
    match.add_argument(
        "--address",
        metavar="A",
        nargs="+",
        action="extend",
        default=[],
        help="addresses or descriptors to look for",
    )
    _add_block(match)
    match.add_argument(
        "--jobs",
        metavar="J",
        type=whole(1, 256),
        default=1,
        help="number of threads; the pure kernel always uses one; default %(default)s",
    )

    info = parser.add_action(
        "info", "describe filters", "Print totals for the filters, and check that their headers form a chain."
    )
    _add_filters(info)
    _add_block(info)
    _add_previous(info)

    importing = parser.add_action(
        "import",
        "put filters into a wallet's database",
        "Put filters into a wallet's database, so that `watch` need not fetch them. It uses a filter only if the"
        " nodes' filter headers commit to it.",
    )
    _add_filters(importing)
    importing.add_argument(
        "--db", metavar="FILE", required=True, help="the database; it is created if it does not exist"
    )

    exporting = parser.add_action(
        "export",
        "print the filters in a wallet's database",
        "Print the filters that `watch --keep-filters` stored in a wallet's database.",
    )
    exporting.add_argument("--db", metavar="FILE", required=True, help="the database")

    for action, perform in (
        (build, _build),
        (match, _match),
        (info, _info),
        (importing, _import),
        (exporting, _export),
    ):
        if action is not info:
            add_network(action, has_database=action in (importing, exporting))
        if action not in (importing, exporting):
            add_format(action)
        action.set_defaults(perform=perform)


def _add_filters(parser: Parser) -> None:
    parser.add_argument("filters", metavar="FILTERS", nargs="+", help="files of JSON lines; - is standard input")


def _add_block(parser: Parser) -> None:
    parser.add_argument(
        "--block", metavar="HASH", type=_hash, help="hash of the block, if FILTERS is one filter in hex or as bytes"
    )


def _add_previous(parser: Parser) -> None:
    parser.add_argument("--previous", metavar="HEADER", type=_hash, help="the filter header before the first filter")


def _hash(text: str) -> bytes:
    try:
        return hash_from_hex(text)
    except ParameterError:
        raise argparse.ArgumentTypeError(
            f"expected a hash of 64 hex digits, got {counted(len(text), 'character')}"
        ) from None


def run(args: argparse.Namespace) -> int:
    return int(args.perform(args, Page(sys.stdout)))


def _is_json(args: argparse.Namespace, page: Page) -> bool:
    return format_of(args.format, page) == "jsonl"


def _import(args: argparse.Namespace, page: Page) -> int:
    return import_filters(_records_of(args.filters), args.db, network_of(args))


def _export(args: argparse.Namespace, page: Page) -> int:
    return export_filters(args.db, network_of(args), page)


# build


def _build(args: argparse.Namespace, page: Page) -> int:
    if args.dask is not None:
        from spvfilter.cli.cfilter import cluster

        return cluster.build(args)
    if args.out is not None:
        raise ParameterError("--out DIR needs --dask: without it, filters go to standard output")
    source = BlockFiles(args.blocks, undo=args.undo)
    refs: list[BlockRef] = []
    problems: list[str] = []
    for found in source.index(args.network):
        if isinstance(found, Problem):
            problems.append(str(found))
        else:
            refs.append(found)
    problems += map(str, source.undo_problems())
    order, runs = chain_order(refs)
    if args.prevouts is not None and len(order) != 1:
        raise ParameterError(f"--prevouts needs exactly one block, not {len(order)}")
    if args.previous is not None and runs != 1:
        raise ParameterError(f"--previous needs one run of linked blocks, not {runs}")
    given = None if args.prevouts is None else read_prevouts(args.prevouts)
    spent = SpentScripts(source, order, given)
    heights = chain_heights(order, args.network)
    headers = {bytes(32): GENESIS_PREVIOUS_FILTER_HEADER}
    if args.previous is not None:
        headers[order[0].previous] = args.previous
    show = _Shown(page, _is_json(args, page))
    for ref, height in zip(order, heights, strict=True):
        try:
            raw = source.read(ref)
            built = BasicFilter.build(raw, spent.of(ref, raw, problems))
        except (FormatError, ParameterError, SourceError, OSError) as error:
            problems.append(str(Problem.of(f"{source.name(ref)}, block {hash_to_hex(ref.hash)}", error)))
            continue
        if (before := headers.get(ref.previous)) is not None:
            headers[ref.hash] = built.header(before)
        show.one(FilterRecord(ref.hash, ref.previous, height, bytes(built), headers.get(ref.hash)), built.n)
    show.end()
    for problem in problems:
        complain(problem)
    if not show.count:
        raise SourceError("no filter was made")
    return _INCOMPLETE if problems else 0


class _Shown:
    """Prints filters as they are built: for each, one JSON line or two lines of a table."""

    def __init__(self, page: Page, as_json: bool) -> None:
        self._page = page
        self._json = as_json
        self.count = 0
        self._size = 0

    def one(self, record: FilterRecord, n: int) -> None:
        if self._json:
            self._page.record(record.line(n))
        else:
            if not self.count:
                self._page.line(f"  {'height':>7}  {'items':>6}  {'bytes':>7}  block, filter header", "cyan")
            height = "?" if record.height is None else record.height
            self._page.line(f"  {height:>7}  {n:>6}  {len(record.data):>7}  {hash_to_hex(record.block)}")
            unknown = "(unknown: it needs the previous filter header)"
            self._page.line(f"  {'':26}{unknown if record.header is None else hash_to_hex(record.header)}")
        self.count += 1
        self._size += len(record.data)

    def end(self) -> None:
        if self.count and not self._json:
            complain(f"{counted(self.count, 'filter')}, {megabytes(self._size)}")


# match


def _match(args: argparse.Namespace, page: Page) -> int:
    watch = watch_list(
        args.network, args.watch, args.address, args.filters, strict=args.strict, max_derivations=args.max_derivations
    )
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to look for: give --watch FILE or --address ADDRESS")
    scripts = watch.gcs_elements()
    as_json = _is_json(args, page)
    # name, block and height of the filters that were read most recently
    given: deque[tuple[str, bytes, int | None]] = deque(maxlen=read_ahead(args.jobs))
    filters = found = 0

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        nonlocal filters
        for name, record in _records(args):
            check_network(name, record, args.network)
            filters += 1
            given.append((name, record.block, record.height))
            yield record.block, record.data

    try:
        for block in match_filters(pairs(), GcsQuery(scripts), jobs=args.jobs):
            found += 1
            height = next(height for _, each, height in given if each == block)
            if as_json:
                page.record({"block": hash_to_hex(block), "height": height})
            else:
                page.line(f"  {'?' if height is None else height:>7}  {hash_to_hex(block)}")
    except BlockFilterError as error:
        raise SourceError(f"{next(name for name, each, _ in given if each == error.block_hash)}: {error}") from None
    if not filters:
        raise SourceError(f"no filter in {', '.join(args.filters)}")
    expected = filters * len(scripts) / BASIC_M
    complain(
        f"{counted(filters, 'filter')}, {counted(found, 'block')} to search; {expected:.2g} false positives expected"
    )
    return 0


def _records(args: argparse.Namespace) -> Iterator[tuple[str, FilterRecord]]:
    """Read the given filters, each with a name for error messages. Raises ParameterError, SourceError or OSError."""
    if args.block is None:
        return _records_of(args.filters)
    if len(args.filters) > 1:
        raise ParameterError(f"--block needs exactly one filter, not {len(args.filters)}")
    return iter([_alone(args)])


def _records_of(names: Sequence[str]) -> Iterator[tuple[str, FilterRecord]]:
    for name in names:
        for number, record in read_records(name):
            yield f"{name}: line {number}", record


def _alone(args: argparse.Namespace) -> tuple[str, FilterRecord]:
    """Read the only filter, which is given in hex or as bytes."""
    data = read_hex_or_bytes(args.filters[0], MAX_BLOCK_SIZE, "a filter")  # a filter is smaller than its block
    return "the filter", FilterRecord(args.block or bytes(32), None, None, data, None)


def _parsed(name: str, record: FilterRecord) -> BasicFilter:
    try:
        return BasicFilter.parse(record.data, record.block)
    except FormatError as error:
        raise SourceError(f"{name}: {error}") from None


# info


def _info(args: argparse.Namespace, page: Page) -> int:
    if args.block is not None or not is_of_lines(args.filters[0]):
        if len(args.filters) > 1:
            raise ParameterError("a filter in hex or as bytes must be the only argument")
        _show_one(page, _is_json(args, page), _parsed(*_alone(args)), args.block, args.previous)
        return 0
    total = _FilterTotals(args.previous)
    for name, record in _records_of(args.filters):
        total.add(name, record)
    if not total.filters:
        raise SourceError(f"no filter in {', '.join(args.filters)}")
    if _is_json(args, page):
        page.line(json.dumps(total.record()))
    else:
        page.facts(
            [
                (name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
                for name, value in total.record().items()
            ]
        )
    return 0


class _Unlinked(NamedTuple):
    """A filter whose preceding filter header has not been read yet. Hashes are in wire order."""

    name: str
    """Name for error messages."""
    block: bytes
    """Hash of the block."""
    hash: bytes
    """Hash of the filter."""
    header: bytes | None
    """The filter header in the line. None if the line does not give one."""


class _FilterTotals:
    """Totals of many filters.

    Each filter header in the lines is checked against the filter header of the previous block. The lines may be in any
    order.
    """

    def __init__(self, previous: bytes | None) -> None:
        self._headers: dict[bytes, bytes] = {bytes(32): GENESIS_PREVIOUS_FILTER_HEADER}  # by block
        self._first = previous
        self._waiting: dict[bytes, list[_Unlinked]] = {}  # by the previous block
        self.filters = self._items = self._size = self._checked = 0

    def add(self, name: str, record: FilterRecord) -> None:
        self.filters += 1
        self._items += _parsed(name, record).n
        self._size += len(record.data)
        if record.header is not None:
            self._headers[record.block] = record.header
        filter = _Unlinked(name, record.block, filter_hash(record.data), record.header)
        if self.filters == 1 and self._first is not None:
            self._link(filter, self._first)
        elif record.previous in self._headers:
            self._link(filter, self._headers[record.previous])
        elif record.previous is not None:
            self._waiting.setdefault(record.previous, []).append(filter)
        known = [record.block] if record.block in self._headers else []
        while known:
            for filter in self._waiting.pop(block := known.pop(), ()):
                self._link(filter, self._headers[block])
                known.append(filter.block)

    def _link(self, filter: _Unlinked, before: bytes) -> None:
        header = filter_header(filter.hash, before)
        if filter.header is None:
            self._headers[filter.block] = header
            return
        if header != filter.header:
            raise SourceError(
                f"{filter.name}: filter header {hash_to_hex(filter.header)} does not follow from the previous one"
            )
        self._checked += 1

    def record(self) -> dict[str, int | float]:
        per_item = 8 * self._size / self._items if self._items else 0.0
        return {
            "filters": self.filters,
            "items": self._items,
            "bytes": self._size,
            "bits_per_item": round(per_item, 2),
            "headers_checked": self._checked,
        }


def _show_one(page: Page, as_json: bool, shown: BasicFilter, block: bytes | None, previous: bytes | None) -> None:
    record: dict[str, str | int | float | None] = {
        "block": None if block is None else hash_to_hex(block),
        "n": shown.n,
        "size": len(bytes(shown)),
        "bits_per_item": round(8 * len(bytes(shown)) / shown.n, 2) if shown.n else None,
        "p": BASIC_P,
        "m": BASIC_M,
        "filter_hash": hash_to_hex(shown.filter_hash),
        "filter_header": None if previous is None else hash_to_hex(shown.header(previous)),
    }
    if as_json:
        page.line(json.dumps(record))
    else:
        page.facts([(name.replace("_", " "), str(value)) for name, value in record.items() if value is not None])
