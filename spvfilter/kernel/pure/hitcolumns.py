"""Packed hits as columns. This is the readable reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spvfilter.kernel.blocktables import Layout
from spvfilter.kernel.pure.address import address_of, check_network
from spvfilter.kernel.pure.arguments import offset, snapshot, whole
from spvfilter.kernel.pure.packed import MAX_U32, block_hash_of, hits_in, label_of
from spvfilter.kernel.pure.tables import ColumnRows
from spvfilter.kernel.values import NO_VALUE, Hit

_COLUMNS = {
    "kind": Layout.TEXT,
    "block_hash": Layout.HASH,
    "height": Layout.INT32,
    "time": Layout.INT64,
    "txid": Layout.HASH,
    "index": Layout.INT64,
    "outpoint_txid": Layout.HASH,
    "outpoint_index": Layout.INT64,
    "value": Layout.INT64,
    "script_pubkey": Layout.TEXT,
    "address": Layout.TEXT,
    "label": Layout.TEXT,
    "coinbase": Layout.BITS,
    "fee": Layout.INT64,
}
_MAX_HEIGHT = 0x7FFFFFFF


class _Block(NamedTuple):
    """The facts of a block that all its rows have in common."""

    hash: bytes
    """Hash of the block in display order."""
    height: int | None
    """Height, or None if it is not known."""
    time: int
    """Time of the block, in milliseconds of Unix time."""


def hit_columns(
    blocks: Iterable[tuple[bytes, int | None, int, bytes]],
    start: int,
    rows: int,
    is_binary: bool,
    label_places: bytes,
    label_texts: bytes,
    p2pkh_version: int,
    p2sh_version: int,
    hrp: str,
    /,
) -> list[tuple[int, bytes | None, bytes | None, bytes]]:
    """Return the packed hits of some blocks as columns, in the same order as in `hit_lines`.

    A column is (number of rows, validity, offsets, data), as in Arrow's columnar format. For each row, `coinbase` takes
    one bit, the height 32 bits, and every other number 64 bits. The time is in milliseconds. Empty or unknown text is
    null.

    Args:
        blocks: Tuples (hash, height, time, packed) with the arguments of `hit_lines`.
        start: Number of hits to skip.
        rows: Largest number of rows.
        is_binary: True if hashes are 32 bytes in display order; False if they are hex text.
        label_places: Offsets of the labels, as for `hit_lines`.
        label_texts: The labels in UTF-8, as for `hit_lines`.
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses.

    Raises:
        FormatError: The bytes are not packed hits, or the label of a hit is outside `label_texts`.
        ParameterError: An argument is out of range, or an address cannot be encoded.
        TypeError: An argument has the wrong type.
        OverflowError: A column has more than 2,147,483,647 bytes.
    """
    is_binary, several = bool(is_binary), [_checked(given) for given in blocks]
    skip, left = offset(start), offset(rows)
    places, texts = snapshot(label_places), snapshot(label_texts)
    check_network(p2pkh_version, p2sh_version, hrp)
    columns = [
        ColumnRows("hits", name, Layout.TEXT if layout is Layout.HASH and not is_binary else layout)
        for name, layout in _COLUMNS.items()
    ]
    for given in several:
        packed = snapshot(given[3])
        block = _Block(
            block_hash_of(given[0])[::-1],
            None if given[1] is None else whole(given[1], 0, _MAX_HEIGHT, "a height must be from 0 to 2^31 - 1"),
            1000 * whole(given[2], 0, MAX_U32, "a block's time must be from 0 to 2^32 - 1"),
        )
        for hit in list(hits_in(packed)):  # all hits of a block are read before its first row is made
            if skip:
                skip -= 1
            elif left:
                left -= 1
                label = label_of(places, texts, hit.entry)
                address = address_of(hit.script or b"", p2pkh_version, p2sh_version, hrp)
                for column, value in zip(columns, _row(hit, block, address, label, is_binary), strict=True):
                    column.add(value)
    return [(made.length, made.validity, made.offsets, made.data) for made in map(ColumnRows.packed, columns)]


def _checked(given: tuple[bytes, int | None, int, bytes]) -> tuple[bytes, int | None, int, bytes]:
    """Return a block as it was given. Raises TypeError if it is not a tuple of four items."""
    if not isinstance(given, tuple) or len(given) != len(_Block._fields) + 1:
        raise TypeError(f"a block must be a tuple (hash, height, time, packed), not {type(given).__name__}")
    return given


def _row(
    hit: Hit, block: _Block, address: str | None, label: bytes, is_binary: bool
) -> tuple[int | bytes | str | None, ...]:
    """Return the values of a row."""
    block_hash, txid, source = (
        shown if is_binary else shown.hex() for shown in (block.hash, hit.txid[::-1], hit.outpoint[31::-1])
    )
    return (
        *("input" if hit.spend else "output", block_hash, block.height, block.time, txid, hit.n, source),
        *(int.from_bytes(hit.outpoint[32:], "little"), None if hit.value == NO_VALUE else hit.value),
        *((hit.script or b"").hex() or None, address, label or None, hit.position == 0),
        None if hit.fee == NO_VALUE else hit.fee,
    )
