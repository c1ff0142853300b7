"""Whole transactions of a scan: every input and output of each matched transaction, with fee and sizes."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.errors import SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import WatchTable, unpack_hits
from spvfilter.kernel.blocktables import SCRIPT_TYPES, Column, Layout
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.exportcolumns import layout_of
from spvfilter.scan.exporttables import pyarrow
from spvfilter.scan.parquetrows import ROWS, ParquetForm, parquet_writer
from spvfilter.scan.partcolumns import LackingError, PartColumns
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary
from spvfilter.scan.parts import PartTask, scan_part

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

ROW_COLUMNS = (
    *("kind", "block_hash", "height", "time", "txid", "index", "outpoint_txid", "outpoint_index", "value"),
    *("script_pubkey", "address", "type", "is_match", "coinbase", "fee", "size", "virtual_size", "weight"),
)
"""The columns of a file of transactions."""
_NAMES = (
    *("transactions.hash", "transactions.block_hash", "transactions.block_number", "transactions.block_timestamp"),
    *("transactions.is_coinbase", "transactions.fee", "transactions.size", "transactions.virtual_size"),
    *("transactions.weight", "inputs.transaction_hash", "inputs.index", "inputs.spent_transaction_hash"),
    *("inputs.spent_output_index", "inputs.value", "inputs.spent_script", "inputs.address", "inputs.type"),
    *("outputs.transaction_hash", "outputs.index", "outputs.value", "outputs.script", "outputs.address"),
    "outputs.type",
)
_PIECE = 1_000  # rows that are compressed together (our choice)
_CODES = {Layout.INT8: "<b", Layout.INT32: "<i", Layout.INT64: "<q"}


class _Wanted(NamedTuple):
    """The matches of a part. Hashes are in display order."""

    matches: set[tuple[bytes, bool, int]]
    """The txid of each match, True for an input, and the position in the transaction."""
    txids: dict[bytes, set[bytes]]
    """The matched transactions of each block, by the hash of the block."""


@public
@dataclass(frozen=True, slots=True)
class TransactionRow:
    """An input or an output of a matched transaction. Facts that need undo data are None without it."""

    kind: str
    """"input" or "output"."""
    block_hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    height: int | None
    """Height of the block; None if it is unknown."""
    time: int
    """Time of the block's header, in seconds since 1970."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    index: int
    """Position of the input or output in the transaction, from 0."""
    outpoint_txid: bytes
    """Id of the transaction with the output, or with the output that the input spends, 32 bytes in wire order."""
    outpoint_index: int
    """Position of that output in its transaction, from 0."""
    value: int | None
    """Value of that output in satoshi; None for an input without undo data."""
    script_pubkey: bytes | None
    """Script of that output; None for an input without undo data."""
    address: str | None
    """Address of that script; None if it has none, or for an input without undo data."""
    type: str | None
    """Type of that script in Bitcoin Core's words, such as "pubkeyhash"; None for an input without undo data."""
    is_match: bool
    """True if this input or output is itself a match of the scan."""
    coinbase: bool
    """True if the transaction is a coinbase. It has no row for its input."""
    fee: int | None
    """Fee of the transaction in satoshi; None for a coinbase and without undo data."""
    size: int
    """Size of the transaction in bytes."""
    virtual_size: int
    """Size of the transaction in virtual bytes."""
    weight: int
    """Weight of the transaction in weight units."""

    @property
    def block_hash_hex(self) -> str:
        """The field `block_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.block_hash)

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def outpoint_txid_hex(self) -> str:
        """The field `outpoint_txid` in hex, as block explorers show it."""
        return hash_to_hex(self.outpoint_txid)


@dataclass(frozen=True, slots=True)
class TransactionsTask(PartTask):
    """A task that finds the matched transactions of a scanned part. Its part file has rows in place of packed hits."""

    hits: Path
    """Path of the part's file with the hits. A worker that does not see this file finds the hits again."""

    def scan(
        self, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[BlockHits]:
        """Yield compressed JSON lines of up to 1,000 rows, with the block of the first row, and fill in `summary`.

        Raises OSError if a file cannot be read. Raises StoppedError once `is_stopped` returns True, and SourceError if
        a required undo record cannot be used.
        """
        if os.access(self.hits, os.R_OK):
            hits = PartFile(self.hits).blocks()
        else:
            hits = scan_part(self, table, PartSummary(), is_stopped)
        wanted = _wanted(hits)
        part = PartColumns(self.part, _NAMES, self.undo, self.check, summary)
        try:
            for _, columns in part.batches(is_stopped, lambda block: block.ref.hash[::-1] in wanted.txids):
                rows = _rows(dict(zip(_NAMES, columns, strict=True)), wanted)
                while piece := list(islice(rows, _PIECE)):
                    lines = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in piece)
                    first = piece[0]
                    block = hash_from_hex(first["block_hash"])
                    yield BlockHits(block, first["height"], first["time"], zlib.compress(lines, 1))
        except LackingError as error:
            raise SourceError(str(error)) from error


def transactions_key(task: PartTask) -> bytes:
    """Return the key of the task that finds the matched transactions of another task's part."""
    return sha256(b"spvfilter transactions 2\0" + task.key).digest()


def _wanted(hits: Iterable[BlockHits]) -> _Wanted:
    """Return the matches of a part. Raises OSError; SourceError for a damaged file."""
    wanted = _Wanted(set(), {})
    for block in hits:
        found = {(hit.txid[::-1], hit.spend, hit.n) for hit in unpack_hits(block.packed)}
        wanted.matches.update(found)
        wanted.txids.setdefault(block.hash[::-1], set()).update(txid for txid, _, _ in found)
    return wanted


class _Reader:
    """Reads single values of a column of the kernel."""

    def __init__(self, name: str, column: Column) -> None:
        self._layout = layout_of(name)
        self._column = column

    def __getitem__(self, row: int) -> Any:  # Any: the type depends on the column
        _, validity, offsets, data = self._column
        if validity is not None and not validity[row >> 3] >> (row & 7) & 1:
            return None
        if offsets is not None:
            start, end = struct.unpack_from("<ii", offsets, 4 * row)
            return data[start:end].decode() if self._layout is Layout.TEXT else data[start:end]
        if self._layout is Layout.HASH:
            return data[HASH_SIZE * row : HASH_SIZE * (row + 1)]
        if self._layout is Layout.BITS:
            return bool(data[row >> 3] >> (row & 7) & 1)
        code = _CODES[self._layout]
        return struct.unpack_from(code, data, struct.calcsize(code) * row)[0]


def _rows(columns: dict[str, Column], wanted: _Wanted) -> Iterator[dict[str, Any]]:
    """Yield the rows of the wanted transactions in the order of the blocks, inputs before outputs."""
    read = {name: _Reader(name, column) for name, column in columns.items()}
    txids = set().union(*wanted.txids.values())
    by_txid = {table: _by_txid(columns[f"{table}.transaction_hash"].data, txids) for table in ("inputs", "outputs")}
    for number in range(columns["transactions.hash"].length):
        txid = read["transactions.hash"][number]
        block = read["transactions.block_hash"][number]
        if txid not in wanted.txids[block]:
            continue
        tx = {
            "block_hash": block.hex(),
            "height": read["transactions.block_number"][number],
            "time": read["transactions.block_timestamp"][number] // 1000,
            "txid": txid.hex(),
            "coinbase": read["transactions.is_coinbase"][number],
        } | {name: read[f"transactions.{name}"][number] for name in ("fee", "size", "virtual_size", "weight")}
        for table, is_spend in (("inputs", True), ("outputs", False)):
            for row in by_txid[table].get(txid, ()):
                found = tx | _item(read, table, row, txid)
                found["is_match"] = (txid, is_spend, found["index"]) in wanted.matches
                yield {name: found[name] for name in ROW_COLUMNS}


def _by_txid(hashes: bytes, txids: set[bytes]) -> dict[bytes, list[int]]:
    """Return the numbers of the rows with these txids, by txid."""
    found: dict[bytes, list[int]] = {}
    for row, at in enumerate(range(0, len(hashes), HASH_SIZE)):
        txid = hashes[at : at + HASH_SIZE]
        if txid in txids:
            found.setdefault(txid, []).append(row)
    return found


def _item(read: dict[str, _Reader], table: str, row: int, txid: bytes) -> dict[str, Any]:
    """Return the facts of an input or output."""
    index, kind = read[f"{table}.index"][row], read[f"{table}.type"][row]
    is_input = table == "inputs"
    script = read["inputs.spent_script" if is_input else "outputs.script"][row]
    return {
        "kind": "input" if is_input else "output",
        "index": index,
        "outpoint_txid": (read["inputs.spent_transaction_hash"][row] if is_input else txid).hex(),
        "outpoint_index": read["inputs.spent_output_index"][row] if is_input else index,
        "value": read[f"{table}.value"][row],
        "script_pubkey": None if script is None else script.hex(),
        "address": read[f"{table}.address"][row],
        "type": None if kind is None else SCRIPT_TYPES[kind],
    }


def _pieces(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the JSON lines in the part files of transactions. Raises OSError; SourceError for a damaged file."""
    for path in paths:
        for block in PartFile(path).blocks():
            yield zlib.decompress(block.packed)


def read_rows(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the rows in the part files of transactions. Raises OSError; SourceError for a damaged file."""
    return (json.loads(line) for lines in _pieces(paths) for line in lines.splitlines())


def row_of(found: dict[str, Any]) -> TransactionRow:
    """Return a row with its hashes and its script as bytes."""
    script = found["script_pubkey"]
    hashes = {name: hash_from_hex(found[name]) for name in ("block_hash", "txid", "outpoint_txid")}
    return TransactionRow(**found | hashes | {"script_pubkey": None if script is None else bytes.fromhex(script)})


def write_transactions(path: Path, paths: Iterable[Path], form: ParquetForm) -> None:
    """Write the rows of all parts into one file. Its suffix chooses the format: .csv, .jsonl or .parquet.

    Raises OSError; SourceError for a damaged file; ParameterError for Parquet without pyarrow.
    """
    if path.suffix == ".parquet":
        _write_parquet(path, read_rows(paths), form)
        return
    with replacing(path, SHARED) as file:
        if path.suffix == ".jsonl":
            file.writelines(_pieces(paths))
            return
        file.write(",".join(ROW_COLUMNS).encode() + b"\n")
        for row in read_rows(paths):
            file.write(",".join(_cell(row[name]) for name in ROW_COLUMNS).encode() + b"\n")


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], form: ParquetForm) -> None:
    """Write rows as Parquet. Raises OSError; ParameterError without pyarrow."""
    pa = pyarrow()
    kinds = {"height": pa.int32(), "time": pa.timestamp("s", tz="UTC"), "is_match": pa.bool_(), "coinbase": pa.bool_()}
    kinds |= dict.fromkeys(("index", "outpoint_index", "value", "fee", "size", "virtual_size", "weight"), pa.int64())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in ROW_COLUMNS])
    stored = schema.set(ROW_COLUMNS.index("time"), pa.field("time", pa.timestamp("ms", tz="UTC")))
    batch = list(islice(rows, ROWS))
    with replacing(path, SHARED) as file, parquet_writer(pa, file, stored, form, len(batch)) as write:
        while batch:
            write(pa.Table.from_pylist(batch, schema=schema).cast(stored))
            batch = list(islice(rows, ROWS))


def _cell(value: object) -> str:
    """Return a value as a cell of CSV. No text in a row has a comma or a quote."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
