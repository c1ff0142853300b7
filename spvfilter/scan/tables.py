"""The matches of a scan as tables: Parquet, Arrow and pandas. They need pyarrow (`parquet` extra)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError, remedy
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import count_hits, hit_columns
from spvfilter.network import Network
from spvfilter.scan.linelabels import LineLabels
from spvfilter.scan.merge import ACCOUNT, blocks_in, columns_of, csv_header, in_threads
from spvfilter.scan.parquetrows import ROWS, ParquetForm, binary_schema, has_bloom_filters, parquet_writer
from spvfilter.scan.partfile import BlockHits, PartFile
from spvfilter.scan.totals import EntryTotals
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_PIECE = 1 << 23  # Bytes of CSV to parse at a time (our choice). The last line may exceed it.
MOST = 1 << 26  # Most bytes of packed hits in a row group, unless it has only one block (our choice).
_LONGEST = 1 << 25  # Longest line in bytes: no line is longer, even with a script of 4 MB in hex.
OUTPUTS = ("matches.parquet", "matches.csv", "matches.jsonl")  # Names of a file of matches, best format first.


def _types(pa: Any) -> dict[str, Any]:  # Any: pyarrow has no types
    """Return the type of each column."""
    text = pa.string()
    return {
        "kind": text,
        "block_hash": text,
        "height": pa.int32(),
        "time": pa.int64(),
        "txid": text,
        "index": pa.int64(),
        "outpoint_txid": text,
        "outpoint_index": pa.int64(),
        "value": pa.int64(),
        "script_pubkey": text,
        "address": text,
        "label": text,
        "coinbase": pa.bool_(),
        "fee": pa.int64(),
    }


def _pyarrow() -> Any:
    """Return the pyarrow module. Raises ParameterError if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise ParameterError(f"tables need pyarrow; {remedy('parquet')}, or choose csv or jsonl") from None
    return pa


def check_parquet() -> None:
    """Raise ParameterError unless pyarrow, which writes Parquet, is installed."""
    _pyarrow()


def missing_bloom_filters() -> str:
    """Say why the Parquet files get no Bloom filters. Return an empty string if they do get them.

    Raises ParameterError if pyarrow is not installed.
    """
    pa = _pyarrow()
    if has_bloom_filters(pa):
        return ""
    return (
        f"no Bloom filters in Parquet: pyarrow {pa.__version__} cannot write them. To get them, upgrade pyarrow, delete"
        " the Parquet files, and run the same command again"
    )


def _parsed(pa: Any, csv: bytes, columns: tuple[str, ...]) -> Any:
    """Parse CSV with a header, and return these columns as a table."""
    options = pa.csv.ConvertOptions(
        column_types=_types(pa) | {ACCOUNT: pa.string()},
        include_columns=columns,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = pa.csv.ReadOptions(block_size=len(csv) + 1, use_threads=False)
    return _timed(pa, pa.csv.read_csv(pa.BufferReader(csv), read_options=read, convert_options=options))


def _schema(pa: Any, *, has_accounts: bool = False) -> Any:
    """Return the Parquet columns and their types. Times are in milliseconds, since Parquet has no seconds."""
    return _typed(pa, has_accounts, pa.timestamp("ms", tz="UTC"))


def _typed(pa: Any, has_accounts: bool, time: Any = None) -> Any:
    """Return the columns and their types. Times have the type `time`, or are numbers if it is None."""
    types = _types(pa) | {ACCOUNT: pa.string()} | ({} if time is None else {"time": time})
    return pa.schema([(name, types[name]) for name in columns_of(has_accounts=has_accounts)])


def _timed(pa: Any, table: Any) -> Any:
    """Return the table with timestamps instead of times in seconds."""
    has_accounts = ACCOUNT in table.column_names
    seconds = _typed(pa, has_accounts, pa.timestamp("s", tz="UTC"))
    return table.cast(seconds).cast(_schema(pa, has_accounts=has_accounts))


class RowGroup(NamedTuple):
    """The hits whose rows make up one row group."""

    blocks: list[BlockHits]
    """The blocks that contain the hits."""
    start: int
    """Number of hits in the first block that belong to earlier row groups."""
    rows: int
    """Number of rows. Any other hits in the last block belong to later row groups."""


def row_groups(blocks: Iterable[BlockHits]) -> Iterator[RowGroup]:
    """Divide the hits of blocks into row groups, which depend only on the blocks.

    A row group has `ROWS` rows. It ends earlier if the next block would make it too large for memory.
    """
    waiting: list[BlockHits] = []
    start = rows = size = 0
    for block in blocks:
        if waiting and size + len(block.packed) > MOST:
            yield RowGroup(waiting, start, rows)
            waiting, start, rows, size = [], 0, 0, 0
        found = count_hits(block.packed)
        waiting.append(block)
        rows += found
        size += len(block.packed)
        while rows >= ROWS:
            yield RowGroup(waiting, start, ROWS)
            rows -= ROWS
            waiting, start, size = [block], found - rows, len(block.packed)
            if not rows:
                waiting, start, size = [], 0, 0
    if rows:
        yield RowGroup(waiting, start, rows)


def write_parquet(
    path: Path, parts: Iterable[PartFile], watch: WatchList, form: ParquetForm, rows: int, jobs: int = 1
) -> EntryTotals:
    """Write matches as Parquet, and return the totals for each entry.

    `rows` determines the size of the Bloom filters. Several threads make the columns, and one thread writes them.
    Raises ParameterError if pyarrow is missing, OSError if a file cannot be read or written, and SourceError if a
    part is damaged.
    """
    pa = _pyarrow()
    owners = Owners(watch)
    schema = _schema(pa, has_accounts=owners.accounts is not None)
    schema = binary_schema(pa, schema) if form.is_binary else schema
    totals = EntryTotals(len(watch))

    def table(group: RowGroup) -> Any:
        totals.add_all(group.blocks[1:] if group.start else group.blocks)
        return _table(pa, group, watch.network, owners, schema, is_binary=form.is_binary)

    with replacing(path, SHARED) as file, parquet_writer(pa, file, schema, form, rows) as write:
        for made in in_threads(table, row_groups(blocks_in(parts)), jobs):
            write(made)
    return totals


class Owners:
    """The labels and the accounts of a watch list, rendered for columns. The accounts are None if the list has none."""

    def __init__(self, watch: WatchList) -> None:
        self.labels: LineLabels = LineLabels(watch, str.encode)
        self.accounts: LineLabels | None = LineLabels.of_accounts(watch, str.encode) if watch.accounts else None


def _table(pa: Any, group: RowGroup, network: Network, owners: Owners, schema: Any, *, is_binary: bool) -> Any:
    """Return the table of a row group. The table shares the memory of the kernel's columns."""
    of_network = network.p2pkh_version, network.p2sh_version, network.hrp

    def columns_with(owners_of: LineLabels) -> list[Any]:
        places, texts = owners_of.of_hits(group.blocks)
        return hit_columns(group.blocks, group.start, group.rows, is_binary, places, texts, *of_network)

    columns = columns_with(owners.labels)
    if owners.accounts is not None:
        at = columns_of(has_accounts=True).index(ACCOUNT)
        columns = [*columns[:at], columns_with(owners.accounts)[at - 1], *columns[at:]]
    return pa.Table.from_arrays(
        [_array(pa, kind, *each) for kind, each in zip(schema.types, columns, strict=True)], schema=schema
    )


def _array(pa: Any, kind: Any, rows: int, validity: bytes | None, offsets: bytes | None, data: bytes) -> Any:
    """Return a kernel column as an Arrow array."""
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(data)]
    if offsets is not None:
        buffers.insert(1, pa.py_buffer(offsets))
    return pa.Array.from_buffers(kind, rows, buffers)


def _output(directory: str | os.PathLike[str]) -> Path:
    """Return the path of the file of matches in a directory. Raises SourceError if there is none."""
    found = next((path for name in OUTPUTS if (path := Path(directory) / name).exists()), None)
    if found is None:
        raise SourceError(f"{directory} contains no matches.parquet, matches.csv or matches.jsonl of a finished scan")
    return found


@public
def to_arrow(directory: str | os.PathLike[str]) -> pa.Table:
    """Return the matches that a scan wrote into a directory, as an Arrow table: one row for each match, in chain order.

    | column | value |
    |---|---|
    | kind | "output" or "input" |
    | block_hash, txid, outpoint_txid | hex, display order; 32 bytes from Parquet with `binary_hashes` |
    | height, index, outpoint_index | number |
    | time | time of the block, UTC |
    | value, fee | satoshi |
    | script_pubkey | hex |
    | address, label | text |
    | account | text; the column exists only if the watch list has accounts |
    | coinbase | True if the transaction is a coinbase |

    Raises ParameterError if pyarrow is not installed, and SourceError if the directory contains no finished scan.
    """
    pa = _pyarrow()
    path = _output(directory)
    readers: dict[str, Callable[[Path], Any]] = {
        ".parquet": pa.parquet.read_table,
        ".csv": _read_csv,
        ".jsonl": _read_lines,
    }
    return readers[path.suffix](path)


def _read_csv(path: Path) -> Any:
    """Read a CSV file as a table. Raises SourceError."""
    pa = _pyarrow()
    with path.open("rb") as file:
        header = file.readline()
        has_accounts = header == csv_header(has_accounts=True)
        if not has_accounts and header != csv_header(has_accounts=False):
            raise SourceError(f"{path}: these are not the matches of a scan by this version of spvfilter")
        pieces = iter(lambda: b"".join(file.readlines(_PIECE)), b"")
        empty = _schema(pa, has_accounts=has_accounts).empty_table()
        columns = columns_of(has_accounts=has_accounts)
        return pa.concat_tables([empty, *(_parsed(pa, header + piece, columns) for piece in pieces)])


def table_of(blocks: list[BlockHits], watch: WatchList) -> Any:
    """Return the matches of blocks as an Arrow table. Raises ParameterError if pyarrow is missing."""
    pa, owners = _pyarrow(), Owners(watch)
    schema = _schema(pa, has_accounts=owners.accounts is not None)
    return _table(pa, RowGroup(blocks, 0, sys.maxsize), watch.network, owners, schema, is_binary=False)


def _read_lines(path: Path) -> Any:
    """Read a file of JSON lines as a table."""
    pa = _pyarrow()
    import pyarrow.json

    with path.open("rb") as file:
        has_accounts = ACCOUNT in json.loads(file.readline() or b"{}")
    schema = _typed(pa, has_accounts)
    if not path.stat().st_size:
        return _timed(pa, schema.empty_table())
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return _timed(pa, pyarrow.json.read_json(path, pyarrow.json.ReadOptions(block_size=_LONGEST), parse))


@public
def to_pandas(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the matches that a scan wrote into a directory, as a pandas DataFrame with the columns of `to_arrow`.

    Raises ParameterError if pyarrow or pandas is not installed, and SourceError if the directory contains no finished
    scan.
    """
    table = to_arrow(directory)
    try:
        return table.to_pandas()
    except ImportError:
        raise ParameterError("a DataFrame needs pandas; run `python -m pip install pandas`") from None
