"""Whole transactions from a scan: every input and output of each matched transaction, with fee and sizes.

The part file of a TransactionsTask contains the rows of each batch of blocks as columns of the kernel, instead of hits.
The columns include the entry of each match. Its label and account are added later, from the watch list's state at that
time:

| bytes | field, little endian |
|---|---|
| 4 | number of rows, u32 |
| for each column: 4, 4, 4 | sizes of validity, offsets and data, u32; NONE if there is no such buffer |
| size, size, size | validity, offsets, data |
"""

from __future__ import annotations

import json
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeVar

from spvfilter._public import public
from spvfilter.errors import SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import WatchTable, column_lines
from spvfilter.kernel.blocktables import HEX, ColumnBuffers, Layout
from spvfilter.primitives import hash_from_hex, hash_to_hex, utc_of
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.exportcolumns import layout_of
from spvfilter.scan.exporttables import array_of, pyarrow
from spvfilter.scan.merge import ACCOUNT, CSV, JSON_LINES, csv_columns, in_threads
from spvfilter.scan.parquetrows import ROWS, ParquetForm, binary_schema, parquet_writer
from spvfilter.scan.partcolumns import Columns, LackingError, PartColumns
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary
from spvfilter.scan.parts import PartTask, scan_part
from spvfilter.watch.watchlist import WatchList

_Item = TypeVar("_Item")

_SOURCES = {
    "kind": "kind",
    "block_hash": "block_hash",
    "height": "block_number",
    "time": "block_time",
    "txid": "transaction_hash",
    "index": "index",
    "outpoint_txid": "source_transaction_hash",
    "outpoint_index": "source_output_index",
    "value": "value",
    "script_pubkey": "script",
    "address": "address",
    "type": "type",
    "is_match": "is_match",
    "coinbase": "is_coinbase",
    "fee": "fee",
    "size": "size",
    "virtual_size": "virtual_size",
    "weight": "weight",
}
"""The kernel's name of each column, without its table."""
_NAMES = [f"items.{name}" for name in (*_SOURCES.values(), "entry")]
_TIME_AT = list(_SOURCES).index("time")
_OWNERS_AT = list(_SOURCES).index("address") + 1  # place of the label; the account follows it
_TEXT = "items.address"  # a column of the kernel with the layout of labels and accounts
_NONE = 0xFFFFFFFF  # stands for the size of a missing buffer
_U32, _SIZES = struct.Struct("<I"), struct.Struct("<III")


@public
@dataclass(frozen=True, slots=True)
class TransactionRow:
    """An input or an output of a matched transaction. Facts that need undo data are None without it."""

    kind: str
    """"input" or "output"."""
    block_hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    time: int
    """Time of the block's header (Unix time)."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    index: int
    """Position of the input or output in the transaction, starting at 0."""
    outpoint_txid: bytes
    """Id of the transaction that contains the output, or the output that the input spends, 32 bytes in wire order."""
    outpoint_index: int
    """Position of that output in its transaction, starting at 0."""
    value: int | None
    """Value of that output in satoshi; None for an input without undo data."""
    script_pubkey: bytes | None
    """Script of that output; None for an input without undo data."""
    address: str | None
    """Address of that script; None if it has none, or for an input without undo data."""
    type: str | None
    """Type of that script as Bitcoin Core calls it, such as "pubkeyhash"; None for an input without undo data."""
    is_match: bool
    """True if this input or output is itself a match of the scan."""
    coinbase: bool
    """True if the transaction is a coinbase. A coinbase has no row for its input."""
    fee: int | None
    """Fee of the transaction in satoshi; None for a coinbase and without undo data."""
    size: int
    """Size of the transaction in bytes."""
    virtual_size: int
    """Size of the transaction in virtual bytes."""
    weight: int
    """Weight of the transaction in weight units."""
    label: str | None = None
    """Label of the entry that matches; None if it has none, and for other inputs and outputs."""
    account: str | None = None
    """Account of the entry that matches; None if it has none, and for other inputs and outputs."""

    @property
    def block_hash_hex(self) -> str:
        """The `block_hash` field in hex, as block explorers show it."""
        return hash_to_hex(self.block_hash)

    @property
    def txid_hex(self) -> str:
        """The `txid` field in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def outpoint_txid_hex(self) -> str:
        """The `outpoint_txid` field in hex, as block explorers show it."""
        return hash_to_hex(self.outpoint_txid)


@dataclass(frozen=True, slots=True)
class TransactionsTask(PartTask):
    """A task that finds the matched transactions of a scanned part. Its part file contains rows, not packed hits."""

    hits: Path
    """Path of the part's file of hits. A worker that does not see this file finds the hits again."""

    def scan(
        self, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[BlockHits]:
        """Yield the rows of each batch as packed columns, with its first block, and fill in `summary`.

        Raises OSError if a file cannot be read. Raises WorkStoppedError once `is_stopped` returns True, and SourceError
        if a required undo record cannot be used.
        """
        if os.access(self.hits, os.R_OK):
            found = PartFile(self.hits).blocks()
        else:
            found = scan_part(self, table, PartSummary(), is_stopped)
        hits = {block.hash: block.packed for block in found}
        part = PartColumns(self.part, _NAMES, self.undo, self.check, summary, hits)
        try:
            for refs, columns in part.batches(is_stopped):
                yield BlockHits(refs[0].hash, refs[0].height, refs[0].time, _packed(columns))
        except LackingError as error:
            raise SourceError(str(error)) from error


def transactions_key(task: PartTask) -> bytes:
    """Return the key of the task that finds the matched transactions of another task's part."""
    return sha256(b"spvfilter transactions 4\0" + task.key).digest()


def _packed(columns: Columns) -> bytes:
    """Serialize columns."""
    buffers = [(column.validity, column.offsets, column.data) for column in columns]
    sizes = [_SIZES.pack(*(_NONE if each is None else len(each) for each in several)) for several in buffers]
    parts = [each for several in buffers for each in several if each is not None]
    return b"".join((_U32.pack(columns[0].length), *sizes, *parts))


def _unpacked(packed: bytes) -> Columns:
    """Parse columns that `_packed` serialized. Raises struct.error or ValueError if they are damaged."""
    (length,) = _U32.unpack_from(packed)
    sizes = [_SIZES.unpack_from(packed, _U32.size + _SIZES.size * number) for number in range(len(_NAMES))]
    at = _U32.size + _SIZES.size * len(_NAMES)

    def take(size: int) -> bytes | None:
        nonlocal at
        if size == _NONE:
            return None
        at += size
        return packed[at - size : at]

    columns = [
        ColumnBuffers(length, take(validity), take(offsets), take(data) or b"") for validity, offsets, data in sizes
    ]
    if at != len(packed):
        raise ValueError(f"expected {at} bytes of columns, got {len(packed)}")
    return columns


def _batches(paths: Iterable[Path]) -> Iterator[Columns]:
    """Yield the columns in the part files of transactions.

    Raises SourceError if a file is damaged, and OSError if it cannot be read.
    """
    for path in paths:
        for block in PartFile(path).blocks():
            try:
                yield _unpacked(block.packed)
            except (struct.error, ValueError):
                raise SourceError(f"{path}: damaged: delete it and scan again") from None


_FLAGS = [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]  # the bits of each byte, lowest first
_DIGITS = bytes.maketrans(b"\0\1", b"01")


class _Texts(dict[int, bytes]):
    """The text of each entry in UTF-8, empty if it has none. If `text_of` is None, no entry has a text."""

    def __init__(self, text_of: Callable[[int], str | None] | None) -> None:
        super().__init__()
        self._text_of = text_of

    def __missing__(self, entry: int) -> bytes:
        text = None if self._text_of is None else self._text_of(entry)
        self[entry] = encoded = (text or "").encode()
        return encoded

    def column(self, entries: ColumnBuffers) -> ColumnBuffers:
        """Return a column of the entries' texts, with null for a row without an entry or a text."""
        if self._text_of is None:
            return ColumnBuffers(entries.length, bytes((entries.length + 7) // 8), bytes(4 * (entries.length + 1)), b"")
        numbers = array("i", entries.data)
        cells = [self[entry] for entry in numbers]
        if entries.validity is not None:
            flags = b"".join(map(_FLAGS.__getitem__, entries.validity))
            cells = [cell if flag else b"" for cell, flag in zip(cells, flags, strict=False)]
        digits = bytes(map(bool, cells)).translate(_DIGITS)[::-1]
        validity = int(digits or b"0", 2).to_bytes((len(cells) + 7) // 8, "little")
        offsets = array("i", accumulate(map(len, cells), initial=0))
        return ColumnBuffers(len(cells), validity, offsets.tobytes(), b"".join(cells))


class _UtcTexts(dict[int, bytes]):
    """Unix times as strings such as "2024-01-31T00:00:00Z"."""

    def __missing__(self, seconds: int) -> bytes:
        self[seconds] = text = utc_of(seconds).encode()
        return text

    def column(self, times: ColumnBuffers) -> ColumnBuffers:
        """Return a column of times as strings. No row lacks a time."""
        cells = list(map(self.__getitem__, array("q", times.data)))
        offsets = array("i", accumulate(map(len, cells), initial=0))
        return ColumnBuffers(len(cells), None, offsets.tobytes(), b"".join(cells))


class RowForm:
    """The columns of a file of transactions: the kernel's columns, the label, and the account if the list has accounts.

    Args:
        watch: The watch list of the scan.
    """

    def __init__(self, watch: WatchList) -> None:
        self._owners = {"label": _Texts(watch.label if watch.has_labels else None)}
        if watch.accounts:
            self._owners[ACCOUNT] = _Texts(watch.account)
        self.names: list[str] = self._with_owners(list(_SOURCES), list(self._owners))
        """Names of the columns in the file."""
        kernel_names = self._with_owners(_NAMES[:-1], [_TEXT] * len(self._owners))
        self.kernel_names: list[str] = kernel_names
        """For each column, the name of a kernel column with the same layout."""
        self.layouts: list[Layout] = list(map(layout_of, kernel_names))
        """The layout of each column."""
        self._times = _UtcTexts()

    def columns(self, found: Columns) -> Columns:
        """Return the columns of the file, made from the columns of a part file."""
        *columns, entries = found
        return self._with_owners(columns, [texts.column(entries) for texts in self._owners.values()])

    def lines(self, form: int, found: Columns) -> bytes:
        """Return the rows of a part file's columns as lines of CSV or JSON."""
        columns = self.columns(found)
        if form != CSV:
            return column_lines(form, self.names, self.layouts, columns)
        at = _TIME_AT + 1
        layouts = [*self.layouts[:at], Layout.TEXT, *self.layouts[at:]]
        columns = [*columns[:at], self._times.column(columns[_TIME_AT]), *columns[at:]]
        return column_lines(form, csv_columns(self.names), layouts, columns)

    def _with_owners(self, items: list[_Item], owners: list[_Item]) -> list[_Item]:
        """Insert the items `owners` for the label and account columns into the `items` for the kernel's columns."""
        return [*items[:_OWNERS_AT], *owners, *items[_OWNERS_AT:]]


def read_rows(paths: Iterable[Path], watch: WatchList) -> Iterator[dict[str, Any]]:
    """Yield the rows in the part files of transactions.

    Raises SourceError if a file is damaged, and OSError if it cannot be read.
    """
    form = RowForm(watch)
    several = (form.lines(JSON_LINES, columns) for columns in _batches(paths))
    return (json.loads(line) for lines in several for line in lines.splitlines())


def row_of(found: dict[str, Any]) -> TransactionRow:
    """Return a row with its hashes and its script as bytes."""
    script = found["script_pubkey"]
    hashes = {name: hash_from_hex(found[name]) for name in ("block_hash", "txid", "outpoint_txid")}
    return TransactionRow(**found | hashes | {"script_pubkey": None if script is None else bytes.fromhex(script)})


def write_transactions(
    path: Path, paths: Iterable[Path], watch: WatchList, parquet_form: ParquetForm, jobs: int = 1
) -> None:
    """Write the rows of all parts into one file. Its suffix chooses the format: .csv, .jsonl or .parquet.

    Several threads render the rows, and one thread writes them. Raises SourceError if a file is damaged, ParameterError
    if Parquet is chosen but pyarrow is missing, and OSError if a file cannot be read or written.
    """
    form = RowForm(watch)
    if path.suffix == ".parquet":
        _write_parquet(path, paths, form, parquet_form, jobs)
        return
    lines = CSV if path.suffix == ".csv" else JSON_LINES
    with replacing(path, SHARED) as file:
        if lines == CSV:
            file.write(",".join(csv_columns(form.names)).encode() + b"\n")
        file.writelines(in_threads(lambda columns: form.lines(lines, columns), _batches(paths), jobs))


def _write_parquet(path: Path, paths: Iterable[Path], form: RowForm, parquet_form: ParquetForm, jobs: int) -> None:
    """Write rows as Parquet, in row groups of `ROWS`.

    Raises ParameterError if pyarrow is missing, and OSError if the file cannot be written.
    """
    pa = pyarrow()
    schema = binary_schema(pa, _schema(pa, form)) if parquet_form.is_binary else _schema(pa, form)
    groups = _groups(pa, in_threads(lambda columns: _table(pa, columns, form, schema), _batches(paths), jobs))
    first = next(groups, schema.empty_table())
    with replacing(path, SHARED) as file, parquet_writer(pa, file, schema, parquet_form, first.num_rows) as write:
        for group in chain((first,), groups):
            write(group)


def _schema(pa: Any, form: RowForm) -> Any:  # Any: pyarrow has no types
    """Return the Parquet columns and their types, with hashes as strings."""
    of_layout = {Layout.INT32: pa.int64(), Layout.INT64: pa.int64(), Layout.BITS: pa.bool_()}
    types = {name: of_layout.get(layout, pa.string()) for name, layout in zip(form.names, form.layouts, strict=True)}
    return pa.schema(list((types | {"height": pa.int32(), "time": pa.timestamp("ms", tz="UTC")}).items()))


def _table(pa: Any, columns: Columns, form: RowForm, schema: Any) -> Any:
    """Return rows as an Arrow table."""
    arrays = [
        _array(pa, name, column, kind)
        for name, column, kind in zip(form.kernel_names, form.columns(columns), schema.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=form.names).cast(schema)


def _array(pa: Any, name: str, column: ColumnBuffers, kind: Any) -> Any:
    """Return a column as an Arrow array.

    Times are in seconds, and bytes become hex strings if `kind` asks for strings.
    """
    layout = layout_of(name)
    if name == "items.block_time":
        buffers = [None if column.validity is None else pa.py_buffer(column.validity), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(pa.timestamp("s", tz="UTC"), column.length, buffers)
    if layout in (Layout.HASH, Layout.BINARY) and kind == pa.string():
        return array_of(pa, name + HEX, _in_hex(column))
    return array_of(pa, name, column)


def _in_hex(column: ColumnBuffers) -> ColumnBuffers:
    """Return a column of bytes as a column of hex strings."""
    if column.offsets is None:
        offsets = array("i", range(0, 2 * HASH_SIZE * (column.length + 1), 2 * HASH_SIZE))
    else:
        offsets = array("i", [2 * at for at in array("i", column.offsets)])
    return ColumnBuffers(column.length, column.validity, offsets.tobytes(), column.data.hex().encode())


def _groups(pa: Any, tables: Iterable[Any]) -> Iterator[Any]:
    """Regroup the rows of tables into tables of `ROWS` rows. The last one may have fewer.

    Each column is a single chunk, so that the pages of the file depend only on the rows.
    """
    waiting: list[Any] = []
    rows = 0
    for table in tables:
        at = 0
        while table.num_rows - at >= ROWS - rows:
            yield pa.concat_tables([*waiting, table.slice(at, ROWS - rows)]).combine_chunks()
            at += ROWS - rows
            waiting, rows = [], 0
        waiting.append(table.slice(at))
        rows += table.num_rows - at
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()
