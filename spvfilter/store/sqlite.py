"""SQLite files: create them with mode 0600, classify errors by cause, and keep a checksum for each row."""

from __future__ import annotations

import errno
import os
import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from spvfilter.errors import (
    FormatError,
    SpvFilterError,
    StoreCorruptError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from spvfilter.kernel import row_mark

MIN_SQLITE = (3, 37, 0)  # the first version with STRICT tables
COMPANIONS = ("", "-wal", "-shm", "-journal")  # suffixes of the files that belong to a database
_M63 = (1 << 63) - 1
_BY_ERRNO = {
    errno.EACCES: StoreReadOnlyError,
    errno.EPERM: StoreReadOnlyError,
    errno.EROFS: StoreReadOnlyError,
    errno.ENOSPC: StoreFullError,
    errno.EDQUOT: StoreFullError,
}


def check_sqlite(path: pathlib.Path) -> None:
    """Raise StoreError if this Python's SQLite library is too old for STRICT tables."""
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise StoreError(
            f"{path}: a wallet's database needs SQLite 3.37 or later, but this Python uses {sqlite3.sqlite_version}: "
            "use a Python with a newer SQLite library"
        )


def create(path: pathlib.Path) -> bool:
    """Create an empty file with mode 0600 unless one exists. Return True if it was created.

    Raises OSError if the file cannot be created, or if it exists but cannot be written.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not os.access(path, os.W_OK):  # open() would reveal the cause, but close() would drop this process's locks
            raise PermissionError(errno.EACCES, "cannot be written") from None
        return False
    return True


def _by_code() -> dict[int, tuple[type[StoreError], str]]:
    """Return the error class and a description of the cause for each primary result code of SQLite."""
    return {
        sqlite3.SQLITE_BUSY: (StoreLockedError, "in use by another process"),
        sqlite3.SQLITE_LOCKED: (StoreLockedError, "in use by another process"),
        sqlite3.SQLITE_FULL: (StoreFullError, "the disk is full"),
        sqlite3.SQLITE_READONLY: (StoreReadOnlyError, "cannot be written"),
        sqlite3.SQLITE_PERM: (StoreReadOnlyError, "cannot be written"),
        sqlite3.SQLITE_CANTOPEN: (StoreReadOnlyError, "cannot be opened"),
        sqlite3.SQLITE_CORRUPT: (StoreCorruptError, "damaged"),
        sqlite3.SQLITE_NOTADB: (StoreForeignError, "not an SQLite database, or damaged"),
    }


@contextmanager
def translated(path: pathlib.Path) -> Iterator[None]:
    """Turn errors from SQLite and the system into StoreError and its subclasses."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) or 0
        kind, cause = _by_code().get(code & 0xFF, (StoreError, ""))
        if kind is StoreCorruptError:
            check_sqlite(path)  # an older SQLite reports a STRICT table as damage
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError)):
            kind, cause = StoreCorruptError, "contradicts itself"
        raise kind(f"{path}: {cause + ': ' if cause else ''}{error}") from error
    except UnicodeDecodeError as error:  # from sqlite3's message about a damaged schema
        raise StoreCorruptError(f"{path}: damaged: {error}") from error
    except OSError as error:
        kind = _BY_ERRNO.get(error.errno or 0, StoreError)
        raise kind(f"{path}: {error.strerror}") from error


# errors that a parser raises for malformed bytes and rows
_MALFORMED = (FormatError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError)


@contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """Turn errors about values in the database into StoreCorruptError, and treat others as `translated` does.

    This package's errors about the caller's arguments, such as ParameterError, pass through.
    """
    with translated(path):
        try:
            yield
        except (*_MALFORMED, ValueError) as error:
            if isinstance(error, (SpvFilterError, UnicodeDecodeError)) and not isinstance(error, FormatError):
                raise
            raise StoreCorruptError(f"{path}: a value cannot be read: {ascii(error)[:200]}") from error


mark: Callable[[str, Iterable[object]], int] = row_mark
"""The checksum in the last column of a row: see `kernel.row_mark`."""


def number(value: int) -> bytes:
    """Encode a number as a signed little-endian integer of 8 bytes."""
    return value.to_bytes(8, "little", signed=True)


def numbers(raw: bytes) -> list[int]:
    """Parse concatenated results of `number`."""
    return [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8)]


class MarkedRows:
    """Tables whose last column, the mark, is a checksum of the other columns.

    The sum of a table's marks detects missing rows. The "meta" table (key, value, mark) stores the sums of the other
    tables.

    Args:
        db: Connection to the database.
        path: Path of the file, for error messages.
        columns: For each table, the columns that its marks cover.
        check: Function that checks the values of all rows in a table, and raises StoreCorruptError if one is wrong.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        path: pathlib.Path,
        columns: Mapping[str, str],
        check: Callable[[sqlite3.Connection, pathlib.Path, str], None] | None = None,
    ) -> None:
        self._db = db
        self._path = path
        self._columns = columns
        self._check = check
        self._sums = dict.fromkeys(sorted(columns.keys() - {"meta"}), 0)
        self.is_committed: bool = False  # whether the last transaction was committed

    def count(self) -> None:
        """Compute the sums of all tables. Raises StoreCorruptError if a row is damaged."""
        sums = {table: self._sum(table) for table in self._columns}
        del sums["meta"]
        self._sums = dict(sorted(sums.items()))

    def verify(self) -> None:
        """Raise StoreCorruptError if a row is damaged or missing."""
        self.count()
        if self.numbers("sums") != list(self._sums.values()):
            raise StoreCorruptError(f"{self._path}: rows are missing")

    def take_sum(self, table: str) -> None:
        """Add up the marks of the rows that are already in a table. Call this before `write_sums`."""
        self._sums[table] = self._sum(table)

    def _sum(self, table: str) -> int:
        total = 0
        for row in self._db.execute(f"SELECT {self._columns[table]}, mark FROM {table}"):
            stated = row[-1]
            if stated != mark(table, row[:-1]):
                raise StoreCorruptError(f"{self._path}: a row in table {table} is damaged")
            total += stated
        if self._check is not None:
            self._check(self._db, self._path, table)
        return total & _M63

    def insert(self, table: str, row: Sequence[object]) -> None:
        """Write a new row. In "meta", which has no sum, it replaces the row with the same key."""
        self._insert(table, row, "OR REPLACE " if table == "meta" else "")

    def insert_all(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Write new rows to a table other than "meta" in one statement, which is three times as fast as one by one."""
        total = self._sums[table]

        def marked() -> Iterator[tuple[object, ...]]:
            nonlocal total
            for row in rows:
                stated = mark(table, row)
                total += stated
                yield (*row, stated)

        columns = self._columns[table].count(",") + 1
        self._db.executemany(f"INSERT INTO {table} VALUES ({'?, ' * columns}?)", marked())
        self._sums[table] = total & _M63

    def put(self, table: str, row: Sequence[object], where: str, values: Sequence[object]) -> None:
        """Write a row, replacing the one with the same key.

        The SQL condition `where` selects the old row; `values` are its parameters.
        """
        if not self.insert_new(table, row):
            self.remove(table, where, values)
            self._insert(table, row, "")

    def insert_new(self, table: str, row: Sequence[object]) -> bool:
        """Write a row unless the table contains its key. Return True if the row was written."""
        return self._insert(table, row, "OR IGNORE ")

    def _insert(self, table: str, row: Sequence[object], conflict: str) -> bool:
        """Return True if the row was written."""
        stated = mark(table, row)
        if not self._db.execute(f"INSERT {conflict}INTO {table} VALUES ({'?, ' * len(row)}?)", (*row, stated)).rowcount:
            return False
        if table in self._sums:
            self._sums[table] = self._sums[table] + stated & _M63
        return True

    def remove(self, table: str, where: str, values: Sequence[object]) -> None:
        """Delete the rows that match an SQL condition."""
        for (stated,) in self._db.execute(f"DELETE FROM {table} WHERE {where} RETURNING mark", values).fetchall():
            if table in self._sums:
                self._sums[table] = self._sums[table] - stated & _M63

    def set_meta(self, key: str, value: bytes | None) -> None:
        """Write a named value. None deletes it."""
        if value is None:
            self.remove("meta", "key = ?", (key,))
        else:
            self.insert("meta", (key, value))

    def meta(self, key: str) -> bytes | None:
        """Return a named value, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if not isinstance(row[0], bytes):
            raise StoreCorruptError(f"{self._path}: {key!r} is not bytes")
        return row[0]

    def numbers(self, key: str) -> list[int]:
        """Return the numbers of a named value. Raises StoreCorruptError if it is missing or damaged."""
        raw = self.meta(key)
        if raw is None or len(raw) % 8:
            raise StoreCorruptError(f"{self._path}: {key!r} is missing or damaged")
        return numbers(raw)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that the `with` block writes, or nothing. If an error is raised, `is_committed` says which.

        A signal that arrives during the wait for the disk can raise an error after the commit.
        """
        before = dict(self._sums)
        self.is_committed, is_written = False, False
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.write_sums()
            is_written = True
            self._db.execute("COMMIT")
            self.is_committed = True
        except BaseException as error:
            if is_written and not self._db.in_transaction and not isinstance(error, sqlite3.Error):
                self.is_committed = True
            else:
                self._sums = before
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    def write_sums(self) -> None:
        """Write the sums of the marks at the end of a transaction."""
        self.set_meta("sums", self._all_sums())

    def check_unchanged(self) -> None:
        """Raise StoreLockedError if another process has written the file despite the lock.

        Call this within a transaction.
        """
        if self.meta("sums") != self._all_sums():
            raise StoreLockedError(f"{self._path}: another process has changed it in the meantime")

    def _all_sums(self) -> bytes:
        return b"".join(map(number, self._sums.values()))
