"""The kind and the rows of a column of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from spvfilter.errors import ColumnError

Key = str | bytes | int | None  # None is a null.


class Kind(StrEnum):
    """The type of the keys of a column."""

    TEXT = "text"
    """Keys of type str."""
    BINARY = "binary"
    """Keys of type bytes."""
    INTEGERS = "integers"
    """Keys of type int."""
    NOTHING = "nulls"
    """Every row is null."""


class KeyColumn(NamedTuple):
    """A column of keys."""

    kind: Kind
    """Type of the keys."""
    length: int
    """Number of rows."""
    rows: Callable[[int], Iterator[Key]]
    """Yields the keys.

    The argument is the number of the first key in the caller's batch. Raises ColumnError if the column is malformed.
    """


def text_of(raw: bytes, row: int) -> str:
    """Decode UTF-8. Raises ColumnError if it is not valid."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ColumnError("it is not valid UTF-8", row=row, field="text") from None
