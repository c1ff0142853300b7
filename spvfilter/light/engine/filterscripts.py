"""The scripts to look up in compact filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spvfilter.errors import InexpressibleError
from spvfilter.filters.verify import spent_script, witnesses
from spvfilter.kernel import GcsQuery
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.txgraph import TxRecord

MAX_OVERLAY = 5_000
"""Largest number of scripts from foreign unconfirmed transactions (our choice). A million would match every block."""


class Position(NamedTuple):
    """How far a block has been matched: the scripts that it was tested against."""

    base: int = 0
    """Number of scripts from the watch list, blocks and the wallet's own transactions."""
    overlay: int = 0
    """Number of the latest foreign unconfirmed transaction whose scripts were tested."""


class _Sighted(NamedTuple):
    """A foreign unconfirmed transaction whose scripts are wanted."""

    number: int
    """Number of the sighting, counted from 1."""
    height: int
    """Height up to which blocks had been searched when it was first seen. Its scripts are looked up only above that."""
    scripts: tuple[bytes, ...]
    """The scripts that it pays and spends."""


class FilterScripts:
    """Scripts from the watch list, blocks, the wallet's own transactions, and foreign unconfirmed transactions.

    The client wants each block that contains an unconfirmed transaction or a conflict with one. The inputs of a
    transaction reveal the spent scripts, except for taproot, bare scripts, and hashes of scripts that do not end in a
    signature check.

    The scripts of foreign transactions are limited in number, matched only against later blocks, and removed along with
    their transaction. Otherwise, an attacker who pays an address could choose which blocks the client fetches.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._scripts: dict[bytes, None] = {}
        self._list: list[bytes] = []
        self._queries: dict[int, tuple[int, GcsQuery]] = {}  # The end index and the query, by the start index.
        self._changed_own = books.judgement.follow_own()
        self._has_own = False  # True if the scripts of all the wallet's own transactions were added.
        self._overlay: dict[bytes, _Sighted] = {}  # The key is a txid.
        self._overlaid = 0  # Number of scripts in the overlay.
        self._waiting: dict[bytes, None] = {}  # Txids of transactions that wait for room in the overlay.
        self._number = 0  # Number of the latest sighting.
        self._entries = 0  # The scripts of this many entries of the watch list were added.
        self._is_loaded = False  # True if the scripts of outpoints were added as well.
        self._inexpressible: InexpressibleError | None = None  # Error for entries that compact filters cannot find.

    def entries_removed(self, change: Renumbering) -> None:
        """Drop the scripts of removed entries. If an outpoint or a transaction uses one, the next `load` restores it.

        The other scripts stay, because a watch list with many keychains may have a million of them.
        """
        self._queries, self._has_own, self._inexpressible = {}, False, None
        for script in change.scripts:
            self._scripts.pop(script, None)
        self._list = list(self._scripts)
        self._is_loaded = False
        self._entries = max(0, self._entries - len(change.removed))  # some of them may not have been loaded yet

    @property
    def position(self) -> Position:
        """The position after all scripts."""
        return Position(len(self._list), self._number)

    def load(self) -> None:
        """Add the scripts of new entries of the watch list, and the scripts of unconfirmed transactions.

        Raises InexpressibleError for entries that compact filters cannot find.
        """
        if self._inexpressible is not None:
            raise self._inexpressible
        if not self._is_loaded or len(self._books.watch) != self._entries:
            try:
                scripts = self._books.watch.gcs_scripts(self._entries)
            except InexpressibleError as error:
                self._inexpressible = error
                raise
            self._is_loaded, self._entries = True, len(self._books.watch)
            for script in scripts:
                self.add(script)
        self.refresh()

    def add(self, script: bytes | None) -> None:
        """Add a script to search for in all blocks."""
        if script and script not in self._scripts:
            self._scripts[script] = None
            self._list.append(script)

    def refresh(self) -> None:
        """Add the scripts of new unconfirmed transactions, and drop those of removed foreign transactions."""
        for own in self._fresh_own():
            for script in _scripts_of(own.raw):
                self.add(script)
        changed = self._books.intake.pool.take_changed()
        before = self._overlaid
        for txid in changed:
            record = self._books.facts.record(txid)
            known = self._overlay.get(txid)
            is_gone = record is None or txid not in self._books.intake.pool
            if known is not None and (record is None or is_gone or record.first_height < known.height):
                self._overlaid -= len(self._overlay.pop(txid).scripts)
            if is_gone:
                self._waiting.pop(txid, None)
        for txid in (*changed, *(self._waiting if self._overlaid < before else ())):
            record = self._books.facts.record(txid)
            if record is None or txid not in self._books.intake.pool or txid in self._overlay:
                continue
            scripts = tuple(dict.fromkeys(script for script in _scripts_of(record.raw) if script))
            self._waiting[txid] = None
            if self._overlaid + len(scripts) <= MAX_OVERLAY:
                del self._waiting[txid]
                self._number += 1
                self._overlaid += len(scripts)
                self._overlay[txid] = _Sighted(self._number, record.first_height, scripts)

    def _fresh_own(self) -> Sequence[TxRecord]:
        """Return our unconfirmed transactions that have changed since the last call. The first call returns all."""
        found = [record for record in map(self._books.judgement.own_record, self._changed_own) if record is not None]
        self._changed_own.clear()
        if self._has_own:
            return found
        self._has_own = True
        return self._books.judgement.own_records()

    def queries(self, done: Position, last: int) -> Callable[[], list[tuple[int, GcsQuery]]] | None:
        """Return a function that makes the queries for blocks up to a height.

        Returns None if all scripts have already been looked up in these blocks. Each query comes with a height and is
        meant only for the blocks above it. The function may run in a thread. Making a query for a million scripts takes
        a second, so it is made only once.

        Args:
            done: The scripts that were already looked up in these blocks.
            last: Height of the last block.
        """
        upto, start = len(self._list), done.base
        overlay = dict[int, dict[bytes, None]]()  # by the height at which each was first seen
        for each in self._overlay.values():
            if each.number > done.overlay and each.height < last:
                overlay.setdefault(each.height, {}).update(dict.fromkeys(each.scripts))
        wanted, queries = self._list[start:upto], self._queries
        if not wanted and not overlay:
            return None
        known = queries.get(start)

        def make() -> list[tuple[int, GcsQuery]]:
            made = [(height, GcsQuery(list(scripts))) for height, scripts in overlay.items()]
            if known is not None and known[0] == upto:
                return [*made, (-1, known[1])]
            if wanted:
                query = GcsQuery(wanted)
                made.append((-1, query))
                queries[start] = upto, query
                for oldest in list(queries)[:-4]:  # other threads may do the same
                    queries.pop(oldest, None)
            return made

        return make


def _scripts_of(raw: bytes) -> Iterator[bytes | None]:
    """Yield the scripts that a transaction pays, and the spent scripts that its inputs reveal."""
    span = Transaction.parse(raw).span
    for _, start, end in span.outputs:
        yield raw[start:end]
    for (_, start, end), stack in zip(span.inputs, witnesses(raw, span), strict=True):
        yield spent_script(raw[start:end], stack)
