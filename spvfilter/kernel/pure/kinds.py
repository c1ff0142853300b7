"""What a column of keys is: the kind of its keys, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from spvfilter.errors import ColumnError

Key = str | bytes | int | None  # None: it is null


class Kind(StrEnum):
    """What the keys of a column are."""

    TEXT = "text"
    BINARY = "binary"
    INTEGERS = "integers"
    NOTHING = "nulls"
    """Every row is null."""


class Column(NamedTuple):
    """A column of keys, of which `rows` raises ColumnError where it is malformed."""

    kind: Kind
    length: int
    rows: Callable[[int], Iterator[Key]]
    """Given the number of the first one among the caller's keys."""


def text_of(raw: bytes, row: int) -> str:
    """UTF-8. Raises ColumnError."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ColumnError("it is not valid UTF-8", row=row, field="text") from None
