"""The matches of a scan as tables: Parquet, Arrow and pandas. They need pyarrow (extra `parquet`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.scan.merge import CSV_HEADER
from spvfilter.scan.parquetrows import ROWS, ParquetForm, has_bloom_filters, parquet_writer

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_PIECE = 1 << 23  # Bytes of CSV that are parsed at once, plus the lines of one block (our choice).
_LONGEST = 1 << 25  # Bytes of a line: no line is longer, even with a script of 4 MB in hex.
OUTPUTS = ("matches.parquet", "matches.csv", "matches.jsonl")  # Names of files of matches, best format first.


def _types(pa: Any) -> dict[str, Any]:  # Any: pyarrow has no types
    """The type of each column."""
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
    """The module pyarrow. Raises ParameterError if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise ParameterError("tables need pyarrow: pip install 'spvfilter[parquet]', or choose csv or jsonl") from None
    return pa


def check_parquet() -> None:
    """Raise ParameterError unless pyarrow, which writes Parquet, is installed."""
    _pyarrow()


def missing_bloom_filters() -> str:
    """Return why Parquet files get no Bloom filters, in words; empty if they get them.

    Raises ParameterError if pyarrow is not installed.
    """
    pa = _pyarrow()
    if has_bloom_filters(pa):
        return ""
    return (
        f"no Bloom filters in Parquet: pyarrow {pa.__version__} cannot write them. To get them, upgrade pyarrow, delete"
        " the Parquet files, and run the same command again"
    )


def _parsed(pa: Any, csv: bytes) -> Any:
    """CSV with a header as a table."""
    options = pa.csv.ConvertOptions(column_types=_types(pa), strings_can_be_null=True, quoted_strings_can_be_null=False)
    read = pa.csv.ReadOptions(block_size=len(csv) + 1, use_threads=False)
    return _timed(pa, pa.csv.read_csv(pa.BufferReader(csv), read_options=read, convert_options=options))


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in pieces of about 8 MB, each with a header."""
    waiting, size = [CSV_HEADER], 0
    for several in lines:
        waiting.append(several)
        size += len(several)
        if size >= _PIECE:
            yield b"".join(waiting)
            waiting, size = [CSV_HEADER], 0
    if size:
        yield b"".join(waiting)


def _schema(pa: Any) -> Any:
    """Columns and types of Parquet: times in milliseconds, as Parquet has no seconds."""
    types = _types(pa) | {"time": pa.timestamp("ms", tz="UTC")}
    return pa.schema(list(types.items()))


def _timed(pa: Any, table: Any) -> Any:
    """The table with its times as timestamps instead of numbers of seconds."""
    seconds = pa.schema(list((_types(pa) | {"time": pa.timestamp("s", tz="UTC")}).items()))
    return table.cast(seconds).cast(_schema(pa))


def write_parquet(path: Path, lines: Iterable[bytes], form: ParquetForm, rows: int) -> None:
    """Write matches, given as lines of CSV, as Parquet. The number of rows sets the size of Bloom filters.

    The lines are parsed piece by piece: pyarrow's reader of streams would read far ahead and keep everything in memory.
    Raises ParameterError without pyarrow, and the errors of `lines`.
    """
    pa = _pyarrow()
    with replacing(path, SHARED) as file, parquet_writer(pa, file, _schema(pa), form, rows) as write:
        waiting: list[Any] = []
        count = 0
        for piece in _pieces(lines):
            waiting.append(_parsed(pa, piece))
            count += waiting[-1].num_rows
            if count >= ROWS:
                table = pa.concat_tables(waiting).combine_chunks()
                whole = count - count % ROWS
                write(table.slice(0, whole))
                waiting, count = [table.slice(whole).combine_chunks()], count - whole
        if count:
            write(pa.concat_tables(waiting).combine_chunks())


def _output(directory: str | os.PathLike[str]) -> Path:
    """The file of matches in a directory. Raises SourceError if there is none."""
    found = next((path for name in OUTPUTS if (path := Path(directory) / name).exists()), None)
    if found is None:
        raise SourceError(f"{directory}: no matches.parquet, matches.csv or matches.jsonl of a finished scan")
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
    | coinbase | True if the transaction is a coinbase |

    Raises ParameterError if pyarrow is not installed, and SourceError if the directory has no finished scan.
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
    """The table of a file of CSV. Raises SourceError."""
    with path.open("rb") as file:
        if file.readline() != CSV_HEADER:
            raise SourceError(f"{path}: not the matches of a scan by this version of spvfilter")
        return table_of(iter(lambda: b"".join(file.readlines(_PIECE)), b""))


def table_of(lines: Iterable[bytes]) -> Any:
    """Return matches, given as lines of CSV, as an Arrow table. Raises ParameterError without pyarrow."""
    pa = _pyarrow()
    tables = [_parsed(pa, piece) for piece in _pieces(lines)]
    return pa.concat_tables(tables) if tables else _schema(pa).empty_table()


def _read_lines(path: Path) -> Any:
    """The table of a file of JSON lines."""
    pa = _pyarrow()
    import pyarrow.json

    schema = pa.schema(list(_types(pa).items()))
    if not path.stat().st_size:
        return _timed(pa, schema.empty_table())
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return _timed(pa, pyarrow.json.read_json(path, pyarrow.json.ReadOptions(block_size=_LONGEST), parse))


@public
def to_pandas(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the matches that a scan wrote into a directory, as a pandas DataFrame with the columns of `to_arrow`.

    Raises ParameterError if pyarrow or pandas is not installed, and SourceError if the directory has no finished scan.
    """
    table = to_arrow(directory)
    try:
        return table.to_pandas()
    except ImportError:
        raise ParameterError("a DataFrame needs pandas: pip install 'spvfilter[parquet]' pandas") from None
