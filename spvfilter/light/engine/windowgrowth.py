"""Growth of keychains' windows: after a confirmed payment or a reveal, the client stores and watches new scripts.

It then searches blocks again for the new scripts.

A thread derives the scripts, because a thousand of them take a twentieth of a second. The client does not record blocks
until they are watched. `Synced` therefore means that every block was searched for all scripts in the windows,
regardless of the order of payments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from spvfilter.errors import InexpressibleError, counted
from spvfilter.filters.bip37 import most_elements
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.tasks import Change, Task, Wait
from spvfilter.light.events import Mode
from spvfilter.store.keychains import KeychainChange
from spvfilter.wallet.books import Books
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import Ahead


class WindowGrowth:
    """Moves windows one by one: derive, store, watch, search again."""

    def __init__(
        self,
        context: Context,
        first_to_search: Callable[[Keychain], int | None],
        search_from: Callable[[int], None],
        grown: Callable[[Sequence[bytes]], None],
    ) -> None:
        """Start with no growth in progress.

        Args:
            context: The shared objects of the engine.
            first_to_search: Function that returns the height at which to start searching for a keychain's new scripts,
                or None for no search.
            search_from: Function to call with the lowest height to search, in the same commit as the new entries.
            grown: Function to call with the new scripts of the windows once they are watched.
        """
        self._context = context
        self._first_to_search = first_to_search
        self._search_from = search_from
        self._grown = grown
        self._due = Change("a window to move")
        self._task = self._begin()

    def advance(self) -> None:
        """Start if a window must move and no entries are being stored."""
        if self._task.is_done:
            self._task = self._begin()
        self._context.tasks.run()
        self._due.announce()
        self._context.tasks.run()

    def _begin(self) -> Task[None]:
        return self._context.tasks.begin(self._grow, "move windows")

    async def _grow(self) -> None:
        """Move windows whenever an address near their end has been used."""
        context, books = self._context, self._context.books
        while True:
            await self._due.until(lambda: books.is_window_due and not context.is_storing)
            ahead = await self._derived()
            labels, accounts = books.watch.windows.labels_of(ahead), books.watch.windows.accounts_of(ahead)
            with context.tasks.shield():  # the books contain the entries before the watch list does
                self._write(ahead, labels, accounts)
                context.is_storing = True
                await context.out.committed_all()
                books.is_window_due = books.watch.windows.move(ahead)
                context.is_storing = False
            context.changed()
            self._grown([script for new in ahead.values() for scripts in new for script in scripts])

    def _write(self, ahead: Ahead, labels: Mapping[bytes, str | None], accounts: Mapping[bytes, str | None]) -> None:
        """Store the scripts that windows gain, and the request to search blocks for them."""
        ids, starts = dict[bytes, int](), list[int]()
        for name, new in ahead.items():
            keychain = self._context.books.watch.windows.get(name)
            if keychain and new and (first := self._store(keychain, new, labels, accounts, ids)) is not None:
                starts.append(first)
        self._claim(accounts)
        self._label(labels)
        if starts:
            self._search_from(min(starts))

    async def _derived(self) -> Ahead:
        """Return the scripts that windows gain. If the filters have no room for all of them, return fewer.

        If that is not enough, shorten the lookaheads of the keychains.

        If the scripts cannot be derived, the client ends, because the next run would fail as well.
        """
        context, windows, margin = self._context, self._context.books.watch.windows, None
        try:
            while True:
                ahead = await context.out.worked(partial(windows.ahead, margin), "the next scripts of keychains")
                fresh = windows.unwatched(ahead)
                if fits(context.books.watch, len(fresh), context.options):
                    return ahead
                if margin is not None and not windows.shorten():
                    more = counted(len(fresh), "more keychain script")
                    message = f"{more} would not fit into a BIP-37 filter: use compact mode"
                    raise InexpressibleError(message, ())
                margin = 0 if margin is None else None
        except Exception as error:
            context.out.end(error)
            return await Wait[Ahead]("the end of the client")

    def _store(
        self,
        keychain: Keychain,
        new: Sequence[tuple[bytes, ...]],
        labels: Mapping[bytes, str | None],
        accounts: Mapping[bytes, str | None],
        ids: dict[bytes, int],
    ) -> int | None:
        """Store the scripts that a keychain's window gains, and return the height at which to start searching for them.

        Blocks that need no search count as searched if they were searched for the last script in the window.

        Args:
            keychain: The keychain.
            new: The scripts of the next indexes.
            labels: Labels of the scripts.
            accounts: Accounts of the scripts.
            ids: Row ids of the scripts that this growth has already stored. The new scripts' ids are added.
        """
        books = self._context.books
        table, first = books.watch.table, self._first_to_search(keychain)
        is_whole = first is not None and first <= start_of(books, keychain)
        last = table.find(EntryKind.SCRIPT, keychain.scripts(keychain.end - 1)[0])
        like = None if is_whole or last == NO_ENTRY else books.entries.ids[last]
        scripts = dict.fromkeys(script for each in new for script in each)
        fresh = [each for each in scripts if each not in ids and table.find(EntryKind.SCRIPT, each) == NO_ENTRY]
        rows = books.entries.store([(EntryKind.SCRIPT, script, labels[script]) for script in fresh], accounts, like)
        ids |= zip(fresh, rows, strict=True)
        places = [
            (at, ids.get(each) or books.entries.ids[table.find(EntryKind.SCRIPT, each)])
            for at, each in _numbered(keychain.end, new)
        ]
        books.batch.keychains.append(KeychainChange(keychain.name, window=keychain.end + len(new), places=places))
        return first

    def _claim(self, accounts: Mapping[bytes, str | None]) -> None:
        """Store the accounts of scripts that were already watched, but without an account."""
        books, claimed = self._context.books, dict[str, list[int]]()
        for script, account in accounts.items():
            entry = NO_ENTRY if account is None else books.watch.table.find(EntryKind.SCRIPT, script)
            if account is not None and entry != NO_ENTRY and books.watch.account(entry) is None:
                claimed.setdefault(account, []).append(entry)
        for account, entries in claimed.items():
            books.claim(account, entries)

    def _label(self, labels: Mapping[bytes, str | None]) -> None:
        """Store the labels of scripts that were already watched, but without a keychain or a label."""
        books, found = self._context.books, dict[int, str | None]()
        for script, label in labels.items():
            entry = NO_ENTRY if label is None else books.watch.table.find(EntryKind.SCRIPT, script)
            if entry != NO_ENTRY and books.watch.keychain_of(entry) is None and books.watch.own_label(entry) is None:
                found[entry] = label
        books.relabel(found)


def _numbered(first: int, new: Sequence[tuple[bytes, ...]]) -> Iterator[tuple[int, bytes]]:
    """Return the index and the script of everything that a window gains. Its first new index is `first`."""
    return ((index, script) for index, scripts in enumerate(new, first) for script in scripts)


def start_of(books: Books, keychain: Keychain) -> int:
    """Return the height at which to start searching for all scripts of a keychain.

    This is the height where the wallet's search starts, or a lower one if the keychain has been searched from there:
    its account may be older than the wallet.
    """
    start, entry = books.blocks.start or 0, books.watch.table.find(EntryKind.SCRIPT, keychain.scripts(0)[0])
    ranges = () if entry == NO_ENTRY else books.blocks.ranges_of(books.entries.ids[entry])
    searched = ranges[0].first if ranges else books.cursor + 1  # the search for a new account begins there
    return min(start, searched)


def fits(watch: TxOutIndex, scripts: int, options: Options) -> bool:
    """Return True if the mode's filters have room for this many more scripts at the same false-positive rate."""
    return (
        options.mode is not Mode.BIP37
        or not watch.keychains
        or len(watch.bloom_elements()) + scripts <= most_elements(options.fp_rate)
    )


def extend(watch: WatchList, options: Options, settled: Collection[str] = ()) -> bool:
    """Extend windows before a run, and return True if a window has moved.

    The windows reach one lookahead beyond their required ends if the mode's filters have room for the scripts.
    Keychains named in `settled` were already extended by an earlier run, so their windows move only if they must.

    Raises KeychainError.
    """
    before = [each.end for each in watch.keychains]
    watch.windows.note()
    margin = None if fits(watch.index, sum(each.lookahead for each in watch.keychains), options) else 0
    watch.widen(margin, settled)
    watch.advance()
    return [each.end for each in watch.keychains] != before
