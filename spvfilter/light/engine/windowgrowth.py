"""Growth of keychains' windows: after a confirmed use, the client stores and watches new scripts, and searches again.

A thread derives the scripts, since a thousand take a twentieth of a second. Until they are watched, the client records
no block. `Synced` therefore says that every block was searched for all scripts of the windows, in any order of uses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from spvfilter.errors import InexpressibleError
from spvfilter.filters.bip37 import most_elements
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.options import Options
from spvfilter.light.events import Mode
from spvfilter.store.keychains import KeychainChange
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import Ahead


class WindowGrowth:
    """Moves windows one after the other: derive, store, watch, search again."""

    def __init__(self, context: Context, search_again: Callable[[], None], grown: Callable[[], None]) -> None:
        """`search_again` is called in the commit that has new entries, `grown` when these are watched."""
        self._context = context
        self._search_again = search_again
        self._grown = grown
        self._is_under_way = False

    def advance(self) -> None:
        """Begin if a window must move, and entries are not being stored."""
        if self._context.books.is_window_due and not self._is_under_way and not self._context.is_storing:
            self._is_under_way = True
            self._derive()

    def _derive(self) -> None:
        self._context.out.work(self._context.books.watch.windows.ahead, self._derived)

    def _derived(self, ahead: object) -> None:
        """The scripts are known, or cannot be derived: then the client ends, as it could not be entered again
        either.
        """
        context, books = self._context, self._context.books
        if isinstance(ahead, Exception):
            context.out.end(ahead)
            return
        assert isinstance(ahead, list)
        windows = books.watch.windows
        fresh = windows.unwatched(ahead)
        if not fits(books.watch, len(fresh), context.options):
            if windows.shorten():
                self._derive()
            else:
                context.out.end(
                    InexpressibleError(
                        f"{len(fresh)} more scripts of keychains do not fit into a BIP-37 filter: use mode compact",
                        (),
                    )
                )
            return
        labels, accounts, table = windows.labels_of(ahead), windows.accounts_of(ahead), books.watch.table
        new = [(EntryKind.SCRIPT, script, labels[script]) for script in fresh]
        ids = dict(zip(fresh, books.store_entries(new, accounts), strict=True))
        self._claim(accounts)
        for chain, more in zip(windows, ahead, strict=True):
            places = [
                (at, ids.get(each) or books.ids[table.find(EntryKind.SCRIPT, each)])
                for at, each in _numbered(chain.end, more)
            ]
            if more:
                books.batch.keychains.append(KeychainChange(chain.name, window=chain.end + len(more), places=places))
        self._search_again()
        context.is_storing = True
        context.out.after_commit(partial(self._stored, ahead))

    def _claim(self, accounts: Mapping[bytes, str | None]) -> None:
        """Store the accounts of scripts that are watched without an account already."""
        books, claimed = self._context.books, dict[str, list[int]]()
        for script, account in accounts.items():
            entry = NO_ENTRY if account is None else books.watch.table.find(EntryKind.SCRIPT, script)
            if account is not None and entry != NO_ENTRY and books.watch.account(entry) is None:
                claimed.setdefault(account, []).append(entry)
        for account, entries in claimed.items():
            books.claim(account, entries)

    def _stored(self, ahead: Ahead) -> None:
        context = self._context
        context.books.is_window_due = context.books.watch.windows.move(ahead)
        context.is_storing = self._is_under_way = False
        context.changed()
        self._grown()


def _numbered(first: int, new: Sequence[tuple[bytes, ...]]) -> Iterator[tuple[int, bytes]]:
    """Index and script of everything that a window gains, from an index on."""
    return ((index, script) for index, scripts in enumerate(new, first) for script in scripts)


def fits(watch: WatchList, scripts: int, options: Options) -> bool:
    """Return True if the filters of the mode have room for a number of further scripts without a higher rate."""
    return (
        options.mode is not Mode.BIP37
        or not watch.keychains
        or len(watch.bloom_elements()) + scripts <= most_elements(options.fp_rate)
    )


def extend(watch: WatchList, options: Options, settled: Collection[str] = ()) -> bool:
    """Extend windows before a run, and return True if a window has moved.

    The windows reach one lookahead beyond their required ends, if the filters of the mode have room for the scripts. An
    earlier run has already extended the keychains whose names are in `settled`. Their windows move only if they must.

    Raises KeychainError.
    """
    before = [each.end for each in watch.keychains]
    watch.windows.note()
    margin = None if fits(watch, sum(each.lookahead for each in watch.keychains), options) else 0
    watch.widen(margin, settled)
    watch.advance()
    return [each.end for each in watch.keychains] != before
