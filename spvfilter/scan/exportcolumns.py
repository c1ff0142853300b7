"""The columns of an export: the names of each table's columns, the default columns, and a choice of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel.blocktables import BLOCK_TABLES, HEX, TABLES, Layout

_HEX_TEXT = "_hex"  # suffix of a column that contains the bytes of another column in hex

ALL = "all"  # stands for every column of the table
DEFAULT_COLUMNS: dict[str, tuple[str, ...]] = {
    "blocks": tuple(BLOCK_TABLES["blocks"]),
    "transactions": tuple(name for name in BLOCK_TABLES["transactions"] if name not in ("witness_hash", "block_hash")),
    "inputs": (
        *("transaction_hash", "block_number", "block_timestamp", "index", "spent_transaction_hash"),
        *("spent_output_index", "sequence", "witness_size", "type", "value", "spent_block_number"),
    ),
    "outputs": (
        *("transaction_hash", "block_number", "block_timestamp", "index", "type", "value", "script", "op_return"),
    ),
}
"""The columns of each table that an export writes by default."""


def column_names(table: str) -> list[str]:
    """Return the names of all columns of a table. Each binary column has a twin with the same bytes in hex."""
    return [
        twin
        for name, layout in BLOCK_TABLES[table].items()
        for twin in ((name, name + _HEX_TEXT) if layout is Layout.BINARY else (name,))
    ]


@public
@dataclass(frozen=True, slots=True)
class ExportColumns:
    """The tables and columns of an export."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    """The name of each table, and the names of its columns in order."""
    is_hex: bool
    """True if hashes are hex strings; False if they are 32 bytes in display order."""

    @classmethod
    def of(cls, columns: Mapping[str, Iterable[str]] | None = None, *, is_hex: bool = False) -> Self:
        """Return a choice of columns.

        Args:
            columns: The names of the columns of each table; ["all"] means every column. By default, the default columns
                of all tables.
            is_hex: True to write hashes in hex.

        Raises:
            ParameterError: A table or a column does not exist, a column is named twice, or no column is named.
        """
        chosen = tuple((table, _checked(table, list(names))) for table, names in (columns or DEFAULT_COLUMNS).items())
        return cls(chosen, is_hex)

    def kernel_names(self) -> Iterator[str]:
        """Yield the kernel's name for each column, in order. Raises ParameterError if a table does not exist."""
        for table, names in self.tables:
            for name in names:
                yield self.kernel_name(table, name)

    def kernel_name(self, table: str, name: str) -> str:
        """Return the kernel's name for a column of `table`. Raises ParameterError if there is no such table."""
        layout = _table(table).get(name)
        if layout is None:
            return f"{table}.{name.removesuffix(_HEX_TEXT)}{HEX}"
        return f"{table}.{name}{HEX if self.is_hex and layout is Layout.HASH else ''}"

    def __str__(self) -> str:
        hashes = "hashes in hex" if self.is_hex else "hashes in binary"
        return "; ".join(f"{table}: {', '.join(names)}" for table, names in self.tables) + f"; {hashes}"


def _table(name: str) -> Mapping[str, Layout]:
    """Return the columns of a table. Raises ParameterError if there is no such table."""
    if (found := BLOCK_TABLES.get(name)) is None:
        tables = ", ".join(BLOCK_TABLES)
        if name in ("coins", "balances"):
            raise ParameterError(f"the table {name!r} always has all its columns: choose columns of {tables}")
        raise ParameterError(f"there is no table {name[:100]!r}: the tables are {tables}")
    return found


def _checked(table: str, names: list[str]) -> tuple[str, ...]:
    """Return the names of a table's columns. Raises ParameterError if a name does not exist or occurs twice."""
    _table(table)
    known = column_names(table)
    if names == [ALL]:
        return tuple(known)
    for name in names:
        if name not in known:
            raise ParameterError(f"no column {name[:100]!r} in the table {table}: its columns are {', '.join(known)}")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ParameterError(f"column {twice} of table {table} is named twice: name it once")
    if not names:
        raise ParameterError(f"no column of table {table} is selected: omit the table instead")
    return tuple(names)


def layout_of(kernel_name: str) -> Layout:
    """Return the layout of the column with this kernel name."""
    table, _, name = kernel_name.removesuffix(HEX).partition(".")
    return Layout.TEXT if kernel_name.endswith(HEX) else TABLES[table][name]
