"""Changes to the watch list and the searched blocks while the client is running.

A task makes them one by one. Each is stored before it takes effect. From the moment a change is written until it is in
the watch list, it is shielded from cancellation, and no block is searched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import assert_never

from spvfilter.errors import InexpressibleError, ParameterError, counted
from spvfilter.filters.bip37 import most_elements
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.expressible import check_addition
from spvfilter.light.engine.longchange import is_long
from spvfilter.light.engine.requests import (
    AddAccount,
    AddEntries,
    CancelBlock,
    FetchBlock,
    ReachIndex,
    RelabelEntries,
    RelabelKeychains,
    RemoveAccount,
    RemoveEntries,
    RenameAccount,
    Request,
    Rescan,
    RevealAddress,
    SearchStart,
)
from spvfilter.light.engine.reveals import Reveals
from spvfilter.light.engine.start import StartHeight
from spvfilter.light.engine.tasks import Change, Task, Wait
from spvfilter.light.engine.windowgrowth import WindowGrowth
from spvfilter.light.events import Mode
from spvfilter.store.labels import script_of
from spvfilter.store.searched import gaps
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.parts import Parts, whole
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList

NewEntries = Sequence[tuple[EntryKind, bytes, str | None]]


class WatchChanges:
    """Carries out requests. While entries are being stored, no block is searched.

    Otherwise a block could count as searched for an entry too early.
    """

    def __init__(
        self,
        context: Context,
        coverage: Coverage,
        start: StartHeight,
        changed: Callable[[Renumbering | None], None],
    ) -> None:
        """`changed` is called when the watch list has changed or blocks are to be searched again.

        Its argument says which entries were removed; it is None if none were.
        """
        self._context = context
        self._coverage = coverage
        self._start = start
        self._changed = changed
        self._waiting: deque[tuple[int, Request]] = deque()
        self._reveals = Reveals(context)
        self._growth = WindowGrowth(context, self._reveals.first_to_search, self._search_again, self._grown)
        self._imported: list[Label] = []  # labels for scripts that were added
        self._turn = Change("a request of the program")
        self._task = self._begin()
        self.done: list[Request] = []  # requests that changed the watch list and have been stored

    def begin(self) -> None:
        """Begin a run. If it starts below the wallet's first search, search all blocks from its start again."""
        books = self._context.books
        if books.searched >= 0 and self._start.is_given:
            self._search_from(self._start, below=books.blocks.start or 0)

    def begin_search(self) -> bool:
        """Begin a new wallet's search at the start that the user gave, or at the next block if that is above the tip.

        Returns:
            False if the header chain does not have the network's minimum work yet. A peer with a shorter chain could
            otherwise choose the height for a birthday.
        """
        books, chain = self._context.books, self._context.chain
        if chain.work < chain.network.min_chain_work:
            return False
        first = min(self._start.first(chain), chain.height + 1)
        if books.blocks.start != first or books.blocks.wanted is not None:
            books.searches.begin_at(first)
        if first > 0:
            books.searches.skip_to(first - 1)
        return True

    def ask(self, token: int, request: Request) -> None:
        """Carry out a request when its turn comes."""
        self._waiting.append((token, request))
        self._continue()

    def advance(self) -> None:
        """Move the keychain windows if an address near their end has been used."""
        if self._task.is_done:
            self._task = self._begin()
        self._growth.advance()

    def disconnect_to(self, fork: int) -> None:
        """Record that the blocks above `fork` were disconnected."""
        self._reveals.disconnect_to(fork)

    def _grown(self, scripts: Sequence[bytes]) -> None:
        """Handle the scripts that windows have gained."""
        self._changed(None)
        self.look_up_labels(scripts)
        self._reveals.grew()
        self._continue()

    def look_up_labels(self, scripts: Sequence[bytes]) -> None:
        """Apply labels that were imported for these scripts before they were watched."""
        self._context.out.read(lambda store: store.waiting_labels(scripts), self._take_labels)

    def _take_labels(self, waiting: object) -> None:
        """Remember labels that were imported earlier for scripts that have just been added."""
        assert isinstance(waiting, list)
        self._imported += waiting
        self._continue()

    def _use_labels(self) -> None:
        """Apply labels that were imported earlier to scripts that were added, unless these have labels."""
        books, labels = self._context.books, dict[bytes, Label]()
        imported, self._imported = self._imported, []
        for label in imported:
            script = script_of(label, books.watch.network)
            entry = NO_ENTRY if script is None else books.watch.table.find(EntryKind.SCRIPT, script)
            if script is not None and entry != NO_ENTRY and books.watch.own_label(entry) is None:
                labels[script] = label
        if labels:
            books.batch.bip329 = [*books.batch.bip329, *labels.values()]
            request = RelabelEntries(tuple((EntryKind.SCRIPT, script, each.label) for script, each in labels.items()))
            self._relabel(request)
            self._context.out.after_commit(partial(self.done.append, request))

    def _search_again(self, first: int) -> None:
        """Search blocks again, starting at height `first`, for the scripts that windows have gained."""
        books = self._context.books
        if books.searched >= 0:
            books.searches.search_again(first - 1)
            self._coverage.forget_unwitnessed(books.cursor)

    # Requests

    def _begin(self) -> Task[None]:
        return self._context.tasks.begin(self._serve, "change the watch list")

    def _continue(self) -> None:
        self._turn.announce()
        self._context.tasks.run()

    async def _serve(self) -> None:
        """Carry out requests one by one, while no entries are being stored and no window is due to move."""
        context = self._context
        while True:
            if not self._is_turn():
                await self._turn.until(self._is_turn)
            if self._imported and not context.is_storing:  # a removal relies on unchanged labels
                self._use_labels()
            if self._waiting and not context.is_held:
                token, request = self._waiting.popleft()
                with context.tasks.shield():
                    try:
                        await self._carry_out(token, request)
                    except ParameterError as error:
                        context.out.finish(token, error)

    def _is_turn(self) -> bool:
        context = self._context
        return (bool(self._imported) and not context.is_storing) or (bool(self._waiting) and not context.is_held)

    async def _carry_out(self, token: int, request: Request) -> None:
        match request:
            case AddAccount(account, start):
                await self._add_account(token, request, account, start)
            case RemoveAccount(name):
                await self._remove(token, request, partial(Renumbering.of_account, self._context.books.watch, name))
            case RenameAccount(old, new):
                self._context.out.tell_foreign()
                self._context.books.entries.rename_account(old, new)
                self._after_commit(token, request, None)
            case AddEntries(entries, start):
                await self._add(token, request, entries, start)
            case RemoveEntries(entries):
                numbers = self._removable(entries)
                await self._remove(token, request, partial(Renumbering, self._context.books.watch, numbers))
            case RelabelEntries():
                watched = self._watched(request) if request.may_lack else request
                self._relabel(watched)
                self._after_commit(token, watched, None)
            case RelabelKeychains(names, label):
                self._relabel_keychains(names, label)
                self._after_commit(token, request, None)
            case Rescan(start):
                self._context.books.seeks_double_spends = True
                first = self._search_from(start.height)
                self._changed(None)
                self._after_commit(token, request, first)
            case RevealAddress():
                self._answer(token, await self._reveals.reveal(request))
            case ReachIndex():
                await self._reveals.reach(request)
                self._answer(token, None)
            case FetchBlock() | CancelBlock():
                raise AssertionError("BlockFetches carries out these requests")
            case _:
                assert_never(request)

    def _answer(self, token: int, address: str | None) -> None:
        """Answer a request for an address once all changes so far are stored."""
        self._context.out.after_commit(partial(self._context.out.finish, token, address))

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Context manager for storing and then watching entries: no blocks are recorded in the meantime."""
        self._context.is_storing = True
        try:
            yield
        finally:
            self._context.is_storing = False

    def _watched(self, request: RelabelEntries) -> RelabelEntries:
        """Return the request, leaving out entries that are not watched."""
        find = self._context.books.watch.table.find
        return RelabelEntries(tuple(each for each in request.entries if find(*each[:2]) != NO_ENTRY))

    def _relabel(self, request: RelabelEntries) -> None:
        """Change the labels of entries. Raises ParameterError if an entry is not watched."""
        watch = self._context.books.watch
        numbers = self._numbers((kind, value) for kind, value, _ in request.entries)
        for number, (_, _, label) in zip(numbers, request.entries, strict=True):
            watch.relabel(number, label)
        self._context.books.relabel({number: watch.label(number) for number in numbers})

    def _relabel_keychains(self, names: Sequence[str], label: str | None) -> None:
        """Change the label of keychains and of all scripts in their windows. Raises ParameterError."""
        books = self._context.books
        changed = books.watch.relabel_keychains(names, label)
        books.batch.keychain_labels |= dict.fromkeys(names, label)
        books.relabel({number: books.watch.label(number) for number in changed})

    def _after_commit(self, token: int, request: Request, answer: object) -> None:
        """Answer the request once it is stored."""

        def stored() -> None:
            self.done.append(request)
            self._context.out.finish(token, answer)

        self._context.out.after_commit(stored)

    def _search_from(self, start: StartHeight, below: int | None = None) -> int:
        """Search blocks again, starting at `start`, and return the first height that is searched.

        If `below` is given and the start is not below that height, nothing is searched, and `below` is returned.
        """
        books, first = self._context.books, start.first(self._context.chain)
        if below is not None and first >= below:
            return below
        self._start.lower(start)
        if books.searched < 0:  # the first search has not begun
            books.searches.begin_at(None, self._start.wanted)
            return first
        if first < (books.blocks.start or 0):
            books.searches.begin_at(first)
        books.searches.search_again(first - 1)
        self._coverage.forget_unwitnessed(books.cursor)
        return min(first, books.cursor + 1)

    # Entries

    def _numbers(self, entries: Iterable[tuple[EntryKind, bytes]]) -> list[int]:
        """Return the numbers of entries. Raises ParameterError if an entry is not watched."""
        found = [self._context.books.watch.table.find(kind, value) for kind, value in entries]
        if NO_ENTRY in found:
            raise ParameterError("an entry cannot be changed because it is not watched")
        return found

    def _removable(self, entries: Iterable[tuple[EntryKind, bytes]]) -> list[int]:
        """Return the numbers of entries. Raises ParameterError if an entry is not watched or belongs to a keychain."""
        numbers, books = self._numbers(entries), self._context.books
        for place in map(books.watch.keychain_of, numbers):
            if place is not None:
                raise ParameterError(
                    f"the script at index {place[1]} in keychain {place[0].name[:80]!r} cannot be removed on its own: "
                    "the keychain is watched as a whole"
                )
        return numbers

    async def _remove(self, token: int, request: Request, make: Callable[[], Renumbering]) -> None:
        """Remove entries, once a thread has computed the watch list without them."""
        context = self._context
        with self._storing():
            change = await context.out.worked(make, "the watch list without some entries")
            context.changed()
            if not len(change.left):
                raise ParameterError("no entries would be left to watch: add another entry first, or stop the client")
            if change.name is not None:
                self._reveals.removing(each for each in context.books.watch.keychains if each.account == change.name)
            context.out.tell_foreign()
            await self._made(context.books.remove_entries_in_parts(change, context.out.emit))
        self._changed(change)
        self._after_commit(token, request, None)

    async def _made(self, parts: Parts[None]) -> None:
        """Make a change that processes every match, in several steps if there are many."""
        context, made = self._context, Wait[None]("a change of all matches")
        if not is_long(len(context.books.facts.confirmed) + context.books.intake.pool.matches):
            whole(parts)
            return

        def all_parts() -> Parts[None]:
            yield from parts
            made.set(None)

        context.change.begin(all_parts())
        await made

    async def _add(self, token: int, request: AddEntries, entries: NewEntries, start: SearchStart) -> None:
        """Store entries and the request to search blocks for them, then watch the entries."""
        books = self._context.books
        check_addition(books.watch, request.ways, self._context.options.mode)
        fresh = [each for each in entries if not self._is_watched(each)]
        first = self._first(start)
        missing = [first] if fresh else []
        numbers = {books.watch.table.find(kind, value): label for kind, value, label in entries}
        numbers.pop(NO_ENTRY, None)
        for ranges in {books.blocks.ranges_of(books.entries.ids[number]) for number in numbers}:
            missing += (gap.first for gap in gaps(ranges, books.cursor, first))
        labels: dict[int, str | None] = {
            number: label
            for number, label in numbers.items()
            if label is not None and label != books.watch.label(number)
        }
        books.relabel(labels)
        books.entries.store(fresh)
        searched = self._search_for(first, missing, start)
        with self._storing():
            await self._context.out.committed_all()
            for kind, value, label in fresh:
                labels[books.watch.table.add(kind, value)] = label
            for number, label in labels.items():
                books.watch.relabel(number, label)
        self._added(token, request, searched)

    def _search_for(self, first: int, missing: Sequence[int], start: SearchStart) -> int:
        """Search blocks for new entries, starting at the lowest height in `missing`. Return the first one searched."""
        books = self._context.books
        has_begun = books.searched >= 0
        if not has_begun and start.height.is_given:
            self._start.lower(start.height)
            books.searches.begin_at(None, self._start.wanted)
        elif has_begun and missing:
            books.searches.search_again(min(missing) - 1)
            self._coverage.forget_unwitnessed(books.cursor)
        return min(first, books.cursor + 1) if has_begun else first

    # Accounts

    async def _add_account(self, token: int, request: AddAccount, account: WatchList, start: SearchStart) -> None:
        """Store an account and the request to search blocks for it, then watch the account."""
        books, options = self._context.books, self._context.options
        check_addition(books.watch, request.ways, options.mode)
        plan = books.watch.plan_account(account.index, extend=request.extend)
        self._reveals.added(plan.chains)
        known = {books.watch.table.find(kind, value) for kind, value, _ in account.entries()}
        new = len(account) - len(known - {NO_ENTRY})
        is_bip37 = options.mode is Mode.BIP37
        if new and is_bip37 and len(books.bloom_elements()) + new > most_elements(options.fp_rate):
            more = counted(new, "more script")
            message = f"{more} would not fit into a BIP-37 filter: use compact mode, or a shorter lookahead"
            raise InexpressibleError(message, ())
        first = self._first(start)
        missing = [first] if NO_ENTRY in known else []
        for ranges in {books.blocks.ranges_of(books.entries.ids[number]) for number in known - {NO_ENTRY}}:
            missing += (gap.first for gap in gaps(ranges, books.cursor, first))
        books.store_account(plan)
        searched = self._search_for(first, missing, start)
        with self._storing():
            await self._context.out.committed_all()
            books.is_window_due = books.watch.take_account(plan) or books.is_window_due
        self._added(token, request, searched)

    def _is_watched(self, entry: tuple[EntryKind, bytes, str | None]) -> bool:
        kind, value, label = entry
        table = self._context.books.watch.table
        if kind == EntryKind.OUTPOINT and label is None:
            return table.coin(value) is not None  # its script was learned from a different entry, and belongs to that
        return table.find(kind, value) != NO_ENTRY

    def _first(self, start: SearchStart) -> int:
        """Return the first height to be searched for new entries."""
        chosen = start.height if start.height.is_given else self._start
        stored = self._context.books.blocks.start
        return stored if not chosen.is_given and stored is not None else chosen.first(self._context.chain)

    def _added(self, token: int, request: Request, first: int) -> None:
        """Answer a request whose entries are now watched. The answer is the first height that is searched."""
        self.done.append(request)
        self._changed(None)
        self._context.out.finish(token, first)
