"""The tables that the kernel makes from blocks: their columns, and the layout of each column in memory."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NO_HEIGHT = -1  # Stands for a block height that is not known.
HEX = ":hex"  # Suffix of a column's name that asks for its bytes as hex text.

# Bitcoin Core's names of the script types (script/solver.cpp GetTxnOutputType), indexed by their number in a column.
SCRIPT_TYPES = (
    *("nonstandard", "pubkey", "pubkeyhash", "scripthash", "multisig", "witness_v0_keyhash"),
    *("witness_v0_scripthash", "witness_v1_taproot", "anchor", "nulldata", "witness_unknown"),
)


class Layout(StrEnum):
    """The layout of a column's values, as in Arrow's columnar format. Numbers are little endian."""

    INT8 = "int8"
    """1-byte integers: numbers of script types."""
    INT32 = "int32"
    """4-byte integers."""
    INT64 = "int64"
    """8-byte integers."""
    FLOAT64 = "float64"
    """8-byte floating-point numbers."""
    BITS = "bits"
    """Booleans, 1 bit each, lowest bit first."""
    HASH = "hash"
    """32-byte hashes in display order, which is the reverse of the wire order."""
    BINARY = "binary"
    """Bytes of any length, with offsets."""
    TEXT = "text"
    """Text in UTF-8, with offsets."""


class ColumnBuffers(NamedTuple):
    """The values of a column as buffers of Arrow's columnar format."""

    length: int
    """Number of rows."""
    validity: bytes | None
    """One bit for each row, lowest bit first: 1 if the row has a value, or None if all rows have one."""
    offsets: bytes | None
    """Offsets of the values in `data`, as int32, one more than the rows. None unless the layout is BINARY or TEXT."""
    data: bytes
    """The values. A row without a value contains zero or nothing here."""


_PLACE = {
    "block_hash": Layout.HASH,
    "block_number": Layout.INT32,
    "block_timestamp": Layout.INT64,
}

BLOCK_TABLES: dict[str, dict[str, Layout]] = {
    "blocks": {
        "hash": Layout.HASH,
        "number": Layout.INT32,
        "timestamp": Layout.INT64,
        "previous_hash": Layout.HASH,
        "merkle_root": Layout.HASH,
        "version": Layout.INT32,
        "bits": Layout.INT64,
        "nonce": Layout.INT64,
        "size": Layout.INT32,
        "stripped_size": Layout.INT32,
        "weight": Layout.INT32,
        "transaction_count": Layout.INT32,
        "coinbase_param": Layout.BINARY,
    },
    "transactions": {
        "hash": Layout.HASH,
        "witness_hash": Layout.HASH,
        **_PLACE,
        "index": Layout.INT32,
        "version": Layout.INT32,
        "lock_time": Layout.INT64,
        "size": Layout.INT32,
        "virtual_size": Layout.INT32,
        "weight": Layout.INT32,
        "is_coinbase": Layout.BITS,
        "input_count": Layout.INT32,
        "output_count": Layout.INT32,
        "input_value": Layout.INT64,
        "output_value": Layout.INT64,
        "fee": Layout.INT64,
        "fee_rate": Layout.FLOAT64,
    },
    "inputs": {
        "transaction_hash": Layout.HASH,
        **_PLACE,
        "transaction_index": Layout.INT32,
        "index": Layout.INT32,
        "spent_transaction_hash": Layout.HASH,
        "spent_output_index": Layout.INT64,
        "script": Layout.BINARY,
        "sequence": Layout.INT64,
        "witness_size": Layout.INT32,
        "witness": Layout.BINARY,
        "inscription_count": Layout.INT32,
        "content_type": Layout.TEXT,
        "content_size": Layout.INT64,
        "content_hash": Layout.HASH,
        "type": Layout.INT8,
        "value": Layout.INT64,
        "address": Layout.TEXT,
        "spent_script": Layout.BINARY,
        "spent_block_number": Layout.INT32,
    },
    "outputs": {
        "transaction_hash": Layout.HASH,
        **_PLACE,
        "transaction_index": Layout.INT32,
        "index": Layout.INT32,
        "type": Layout.INT8,
        "value": Layout.INT64,
        "script": Layout.BINARY,
        "address": Layout.TEXT,
        "op_return": Layout.BINARY,
        "op_return_script": Layout.BINARY,
        "op_return_protocol": Layout.TEXT,
    },
}
"""The layout of each column, keyed by the names of its table and the column. The kernel calls a column TABLE.COLUMN."""

ITEMS: dict[str, Layout] = {
    "kind": Layout.TEXT,
    "block_hash": Layout.HASH,
    "block_number": Layout.INT32,
    "block_time": Layout.INT64,
    "transaction_hash": Layout.HASH,
    "index": Layout.INT32,
    "source_transaction_hash": Layout.HASH,
    "source_output_index": Layout.INT64,
    "value": Layout.INT64,
    "script": Layout.BINARY,
    "address": Layout.TEXT,
    "type": Layout.TEXT,
    "is_match": Layout.BITS,
    "entry": Layout.INT32,
    "is_coinbase": Layout.BITS,
    "fee": Layout.INT64,
    "size": Layout.INT32,
    "virtual_size": Layout.INT32,
    "weight": Layout.INT32,
}
"""The layout of each column of the `items` table, which contains a row for each input and output.

The source of an input is the output that it spends; an output is its own source. The entry is that of the row's hit, or
the lowest one if the row has several hits.
"""

TABLES: dict[str, dict[str, Layout]] = BLOCK_TABLES | {"items": ITEMS}
"""The layout of each column that the kernel makes, keyed by the names of its table and the column."""
