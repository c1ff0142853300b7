"""The checksum of a row of the wallet's database, in readable Python: the reference for binding/rows.c."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def _heads(kind: bytes) -> list[bytes]:
    """Return, for each length, the prefix that a value of that length gets in the input of a checksum."""
    return [kind + size.to_bytes(8, "little") for size in range(256)]


_INTS, _BYTES, _STRS = _heads(b"i"), _heads(b"b"), _heads(b"s")
_NONE = b"N" + (4).to_bytes(8, "little") + b"None"


def row_mark(table: str, row: Iterable[object], /) -> int:
    """Return a 63-bit checksum of a table's name and a row of str, bytes, int and None.

    It reveals any change to the row. It is half of a BLAKE2b hash of the kind, the size and the value of each column.

    Raises:
        TypeError: The name is not a str, or the row is not iterable.
    """
    if not isinstance(table, str):
        raise TypeError(f"a table's name must be a str, not {type(table).__name__}")
    parts = [table.encode()]
    for value in tuple(row):
        if isinstance(value, int):
            data = b"%d" % value
            parts += (_INTS[len(data)], data)
            continue
        if value is None:
            parts.append(_NONE)
            continue
        if isinstance(value, bytes):
            heads, data = _BYTES, value
        elif isinstance(value, str):
            heads, data = _STRS, value.encode("utf-8", "surrogatepass")
        else:  # a float, which only a damaged file can contain
            heads, data = _heads(type(value).__name__[:1].encode()), str(value).encode("utf-8", "surrogatepass")
        size = len(data)
        parts += (heads[size] if size < 256 else heads[0][:1] + size.to_bytes(8, "little"), data)
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "little") >> 1
