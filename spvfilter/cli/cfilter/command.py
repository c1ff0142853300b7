"""`spvfilter cfilter`: BIP-158 compact filters of blocks in files, and which of them concern a wallet. It talks to no node."""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spvfilter.cli.arguments import add_network, add_watch_file, standard_input, watch_list, whole
from spvfilter.cli.cfilter.database import export_filters, import_filters
from spvfilter.cli.cfilter.jsonlines import FilterRecord, SeenOutputs, chain_order, check_network, is_of_lines, read_prevouts, read_records
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.progress import megabytes
from spvfilter.errors import BlockFilterError, FormatError, ParameterError, SourceError
from spvfilter.filters.batch import match_filters, read_ahead
from spvfilter.filters.bip158 import BasicFilter, filter_hash, filter_header
from spvfilter.kernel import GcsQuery
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.protocol import BASIC_M, BASIC_P, GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.scan.sources import BlockFiles, BlockRef, Problem

FORMATS = ("table", "jsonl")
_INCOMPLETE = 1  # exit code
_MAX_SIZE = 4_000_000  # bytes; a filter is smaller than its block
_HEX_TEXT = frozenset(b"0123456789abcdefABCDEF \t\r\n")
_OPTIONS = {
    "build": ("prevouts", "previous"),
    "match": ("watch", "address", "block", "jobs"),
    "info": ("block", "previous"),
    "import": ("db",),
    "export": ("db",),
}
_USAGE = """spvfilter cfilter build BLOCKS ... [--prevouts FILE] [--previous HEADER]
       spvfilter cfilter match FILTERS ... (--watch FILE | --address A ...)
       spvfilter cfilter info FILTERS ... [--previous HEADER]
       spvfilter cfilter import FILTERS ... --db FILE
       spvfilter cfilter export --db FILE"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = _USAGE
    parser.description = (
        "Compact filters (BIP-158, basic) on disk. build makes those of blocks: raw, hex or blk*.dat files, or directories of them; the "
        "outputs that a block spends are found in the blocks before it, or in --prevouts. match prints the blocks that may concern a "
        "wallet. info says what filters hold and whether their headers follow from each other. import keeps filters in the database of "
        "watch, which then need not fetch them, now or for new addresses; it uses those alone that the nodes' filter headers commit to. "
        "export prints those kept there. FILTERS are JSON lines as build prints them; - is standard input. match and info also take one "
        "filter alone, in hex or as a file of its bytes."
    )
    parser.add_argument("action", metavar="ACTION", choices=tuple(_OPTIONS), help=", ".join(_OPTIONS))
    parser.add_argument("names", metavar="BLOCKS | FILTERS", nargs="*", help="files, or one filter in hex")
    parser.add_argument(
        "--prevouts", metavar="FILE", help="build: the outputs that the one block spends, in order, each value (8 bytes), length and script"
    )
    parser.add_argument("--previous", metavar="HEADER", type=_hash, help="build, info: the filter header before the first one")
    add_watch_file(parser)
    parser.add_argument("--address", metavar="A", nargs="+", action="extend", help="match: addresses to look for; repeatable")
    parser.add_argument("--block", metavar="HASH", type=_hash, help="match, info: the block of a filter given alone")
    parser.add_argument("--jobs", metavar="J", type=whole(1, 256), help="match: threads, where the kernel is compiled; default 1")
    parser.add_argument("--db", metavar="FILE", help="import, export: the database of watch; import makes it where there is none")
    add_network(parser)
    parser.add_argument("--format", choices=FORMATS, help="default: table on a terminal, else jsonl")


def _hash(text: str) -> bytes:
    try:
        return hash_from_hex(text)
    except ParameterError:
        raise argparse.ArgumentTypeError(f"a hash of 64 hex digits expected, these {len(text)} characters are none") from None


def run(args: argparse.Namespace) -> int:
    for name in dict.fromkeys(option for options in _OPTIONS.values() for option in options):
        if getattr(args, name) is not None and name not in _OPTIONS[args.action]:
            raise ParameterError(f"cfilter {args.action} does not take --{name}")
    if args.action in ("import", "export") and args.db is None:
        raise ParameterError(f"cfilter {args.action} needs --db FILE")
    if args.action == "export":
        if args.names:
            raise ParameterError("cfilter export takes no FILTERS: it prints those in --db")
        return export_filters(args.db, args.network, Page(sys.stdout))
    if not args.names:
        what = "BLOCKS" if args.action == "build" else "FILTERS"
        raise ParameterError(f"cfilter {args.action} needs the name of {what} (see 'spvfilter cfilter --help')")
    if args.action == "import":
        return import_filters(_given(args), args.db, args.network)
    page = Page(sys.stdout)
    as_json = args.format == "jsonl" or (args.format is None and not page.is_terminal)
    return {"build": _build, "match": _match, "info": _info}[args.action](args, page, as_json)


# build


def _build(args: argparse.Namespace, page: Page, as_json: bool) -> int:
    source = BlockFiles(args.names)
    refs: list[BlockRef] = []
    problems: list[str] = []
    for found in source.index(args.network):
        if isinstance(found, Problem):
            problems.append(str(found))
        else:
            refs.append(found)
    order, runs = chain_order(refs)
    if args.prevouts is not None and len(order) != 1:
        raise ParameterError(f"--prevouts goes with one block, these are {len(order)}")
    if args.previous is not None and runs != 1:
        raise ParameterError(f"--previous goes with blocks that follow one upon the other, these are {runs} runs")
    given = None if args.prevouts is None else read_prevouts(args.prevouts)
    outputs = SeenOutputs(forget=len({ref.previous for ref in order}) == len(order))
    headers = {bytes(32): GENESIS_PREVIOUS_FILTER_HEADER}
    if args.previous is not None:
        headers[order[0].previous] = args.previous
    show = _Shown(page, as_json)
    for ref in order:
        try:
            made = _filter_of(source.read(ref), outputs, given)
        except (FormatError, ParameterError, SourceError, OSError) as error:
            problems.append(str(Problem.of(f"{source.name(ref)}, block {hash_to_hex(ref.hash)}", error)))
            continue
        if (before := headers.get(ref.previous)) is not None:
            headers[ref.hash] = made.header(before)
        show.one(FilterRecord(ref.hash, ref.previous, ref.height, bytes(made), headers.get(ref.hash)), made.n)
    show.end()
    for problem in problems:
        complain(problem)
    if not show.count:
        raise SourceError("no filter was made")
    return _INCOMPLETE if problems else 0


def _filter_of(raw: bytes, outputs: SeenOutputs, given: Sequence[bytes] | None) -> BasicFilter:
    spent = outputs.add(raw)
    if given is not None:
        return BasicFilter.build(raw, given)
    scripts = [script for script in spent if script is not None]
    if len(scripts) < len(spent):
        missing = len(spent) - len(scripts)
        raise SourceError(f"{missing} of the {len(spent)} outputs it spends are in no block given before it; see --prevouts")
    return BasicFilter.build(raw, scripts)


class _Shown:
    """Filters as they are made: JSON lines, or a row of facts for each."""

    def __init__(self, page: Page, as_json: bool) -> None:
        self._page = page
        self._json = as_json
        self.count = 0
        self._size = 0

    def one(self, record: FilterRecord, n: int) -> None:
        if self._json:
            self._page.line(json.dumps(record.line(n), separators=(",", ":")))
        else:
            if not self.count:
                self._page.line(f"  {'height':>7}  {'items':>6}  {'bytes':>7}  block, filter header", "cyan")
            height = "?" if record.height is None else record.height
            self._page.line(f"  {height:>7}  {n:>6}  {len(record.data):>7}  {hash_to_hex(record.block)}")
            self._page.line(f"  {'':26}{'(those before it are not known)' if record.header is None else hash_to_hex(record.header)}")
        self.count += 1
        self._size += len(record.data)

    def end(self) -> None:
        if self.count and not self._json:
            Page(sys.stderr).line(f"{self.count:,} filter(s), {megabytes(self._size)}")


# match


def _match(args: argparse.Namespace, page: Page, as_json: bool) -> int:
    watch = watch_list(args.network, args.watch, args.address or (), args.names)
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to look for: give --watch FILE or --address ADDRESS")
    scripts = watch.gcs_elements()
    jobs = args.jobs or 1
    given: deque[tuple[str, bytes, int | None]] = deque(maxlen=read_ahead(jobs))  # name, block and height of those read last
    filters = found = 0

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        nonlocal filters
        for name, record in _given(args):
            check_network(name, record, args.network)
            filters += 1
            given.append((name, record.block, record.height))
            yield record.block, record.data

    try:
        for block in match_filters(pairs(), GcsQuery(scripts), jobs=jobs):
            found += 1
            height = next(height for _, each, height in given if each == block)
            if as_json:
                page.line(json.dumps({"block": hash_to_hex(block), "height": height}, separators=(",", ":")))
            else:
                page.line(f"  {'?' if height is None else height:>7}  {hash_to_hex(block)}")
    except BlockFilterError as error:
        raise SourceError(f"{next(name for name, each, _ in given if each == error.block_hash)}: {error}") from None
    if not filters:
        raise SourceError(f"no filter in {', '.join(args.names)}")
    wrong = filters * len(scripts) / BASIC_M
    Page(sys.stderr).line(f"{filters:,} filter(s), {found:,} block(s) to look at; {wrong:.2g} of them by mistake are to be expected")
    return 0


def _given(args: argparse.Namespace) -> Iterator[tuple[str, FilterRecord]]:
    """Filters with a name for errors each. Raises SourceError, OSError."""
    if args.block is not None:
        if len(args.names) > 1:
            raise ParameterError(f"--block goes with one filter, these are {len(args.names)}")
        yield "the filter", FilterRecord(args.block, None, None, _read_alone(args.names[0]), None)
        return
    for name in args.names:
        for number, record in read_records(name):
            yield f"{name}: line {number}", record


def _parsed(name: str, record: FilterRecord) -> BasicFilter:
    try:
        return BasicFilter.parse(record.data, record.block)
    except FormatError as error:
        raise SourceError(f"{name}: {error}") from None


# info


def _info(args: argparse.Namespace, page: Page, as_json: bool) -> int:
    alone = args.block is not None or not is_of_lines(args.names[0])
    if alone:
        if len(args.names) > 1:
            raise ParameterError("one filter in hex or as bytes goes alone")
        given = [("the filter", FilterRecord(args.block or bytes(32), None, None, _read_alone(args.names[0]), None))]
        _show_one(page, as_json, _parsed(*given[0]), args.block, args.previous)
        return 0
    total = _Total(args.previous)
    for name, record in _given(args):
        total.add(name, record)
    if not total.filters:
        raise SourceError(f"no filter in {', '.join(args.names)}")
    if as_json:
        page.line(json.dumps(total.record()))
    else:
        page.facts([(name.replace("_", " "), f"{value:,}" if type(value) is int else str(value)) for name, value in total.record().items()])
    return 0


class _Unlinked(NamedTuple):
    """A filter by its hash, as long as the filter header before it has not come; `header` is the one stated, None for none."""

    name: str
    block: bytes
    digest: bytes
    header: bytes | None


class _Total:
    """What many filters hold together; each header is checked against that of the block before, wherever in the files this stands."""

    def __init__(self, previous: bytes | None) -> None:
        self._headers: dict[bytes, bytes] = {bytes(32): GENESIS_PREVIOUS_FILTER_HEADER}  # by block
        self._first = previous
        self._waiting: dict[bytes, list[_Unlinked]] = {}  # by the block before
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
        header = filter_header(filter.digest, before)
        if filter.header is None:
            self._headers[filter.block] = header
            return
        if header != filter.header:
            raise SourceError(f"{filter.name}: filter header {hash_to_hex(filter.header)} does not follow from the one before")
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


def _show_one(page: Page, as_json: bool, made: BasicFilter, block: bytes | None, previous: bytes | None) -> None:
    record: dict[str, str | int | float | None] = {
        "block": None if block is None else hash_to_hex(block),
        "n": made.n,
        "size": len(bytes(made)),
        "bits_per_item": round(8 * len(bytes(made)) / made.n, 2) if made.n else None,
        "p": BASIC_P,
        "m": BASIC_M,
        "filter_hash": hash_to_hex(made.filter_hash),
        "filter_header": None if previous is None else hash_to_hex(made.header(previous)),
    }
    if as_json:
        page.line(json.dumps(record))
    else:
        page.facts([(name.replace("_", " "), str(value)) for name, value in record.items() if value is not None])


def _read_alone(name: str) -> bytes:
    """The bytes of one filter: hex digits, or a file of either."""
    try:
        is_file = name != "-" and Path(name).is_file()
    except (OSError, ValueError):  # too long for a name
        is_file = False
    if is_file:
        with Path(name).open("rb") as file:
            data = file.read(2 * _MAX_SIZE + 1)
    else:
        data = standard_input().read(2 * _MAX_SIZE + 1) if name == "-" else name.encode("utf-8", "surrogateescape")
    if data.strip() and _HEX_TEXT.issuperset(data):
        digits = b"".join(data.split()).decode("ascii")
        if len(digits) % 2:
            raise ParameterError(f"{len(digits)} hex digits: an odd number, so one is missing or too many")
        data = bytes.fromhex(digits)
    elif not is_file and name != "-":
        raise ParameterError(f"neither an existing file nor hex digits: {len(name)} characters")
    if len(data) > _MAX_SIZE:
        raise ParameterError(f"more than {_MAX_SIZE} bytes: no filter is that large")
    return data
