"""Windows: the keychains of a watch list, the entries that belong to them, and how their windows move."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain as joined, groupby
from operator import itemgetter
from typing import NamedTuple, TypeGuard

from spvfilter._public import public
from spvfilter.address import script_to_address
from spvfilter.errors import KeychainError, ParameterError
from spvfilter.kernel import NO_ENTRY, EntryKind, Hit, WatchTable
from spvfilter.network import Network
from spvfilter.watch import derivers, silentkeychain
from spvfilter.watch.keychain import (
    GAP_LIMIT,
    MAX_INDEXES,
    MAX_REVEALED,
    Budget,
    Keychain,
    all_used,
    listed_keychains,
)

_NOBODY = 0  # number for "no keychain"; the keychains are numbered from 1
_MAX_KEYCHAINS = 65_000
"""Largest number of keychains of a watch list (our choice)."""
MAX_AHEAD = 10_000
"""Largest number of indexes that a client adds to its windows in one step of about ten milliseconds (our choice)."""
STEP = 2_000
"""Scripts or indexes processed in one step of about two milliseconds (our choice)."""

Places = tuple[bytes, bytes, dict[int, list[tuple[int, int]]]]
"""The keychain and the index of each entry of a watch list, as `Windows.places` returns them."""
Ahead = dict[str, list[tuple[bytes, ...]]]
"""The scripts of the next indexes of each window that moves, by keychain name."""


class _Places(NamedTuple):
    """Indexes of one keychain and their entries, as arrays, which the garbage collector need not traverse."""

    indexes: array[int]
    """Index of each entry."""
    entries: array[int]
    """Number of each entry."""

    def add(self, index: int, entry: int) -> None:
        self.indexes.append(index)
        self.entries.append(entry)


def is_silent(keychain: Keychain | None) -> TypeGuard[silentkeychain.SilentKeychain]:
    """Return True if a keychain belongs to an sp() descriptor."""
    return keychain is not None and keychain.finds_scripts


@public
class Windows:
    """The keychains of a watch list by name, and the keychain and index of each entry.

    If two keychains have the same script, it belongs to the first one, but an output with this script moves the windows
    of both. Each entry takes 6 bytes of memory.
    """

    __slots__ = (
        *(
            "_budget",
            "_chains",
            "_due",
            "_firsts",
            "_fresh",
            "_indexes",
            "_names",
            "_owners",
            "_shared",
            "_silent",
            "_table",
        ),
        "revealed_scripts",
    )

    def __init__(self, table: WatchTable) -> None:
        self._table = table
        self._budget: Budget | None = None  # only while a file is read
        self._chains: list[Keychain] = []
        self._silent: list[silentkeychain.SilentKeychain] = []
        self._names: dict[str, int] = {}
        self._firsts: dict[str, str] = {}
        """Name of the first keychain of each account."""
        self._due: set[str] = set()
        """Names of keychains whose window must move, because an index was used or revealed after the last `move`."""
        self._owners = array("H")  # entry → number of its keychain
        self._indexes = array("I")  # entry → index in this keychain
        self._shared: dict[int, list[tuple[int, int]]] = {}  # entry → other keychains and indexes
        self._fresh: dict[tuple[int, int], None] = {}  # keychains and indexes that were used since `take_fresh`
        self.revealed_scripts: set[bytes] = set()
        """Scripts that removed keychains revealed, which no other keychain may reveal."""

    @classmethod
    def with_places(cls, table: WatchTable, chains: list[Keychain], places: Places) -> Windows:
        """Return the windows of keychains whose scripts are already in the table.

        Args:
            table: The table.
            chains: The keychains.
            places: The keychain and the index of each entry, as the `places` property returned them.
        """
        made = cls(table)
        for chain in chains:
            made._append(chain)
        owners, indexes, made._shared = places
        made._owners.frombytes(owners)
        made._indexes.frombytes(indexes)
        return made

    @property
    def places(self) -> Places:
        """The keychain number and the index of each entry, as two arrays.

        A third item, a dict, contains the remaining (keychain number, index) pairs of entries in several keychains.
        """
        return self._owners.tobytes(), self._indexes.tobytes(), self._shared

    @property
    def shared(self) -> Collection[int]:
        """The entries that belong to several keychains."""
        return self._shared.keys()

    def __len__(self) -> int:
        return len(self._chains)

    def __iter__(self) -> Iterator[Keychain]:
        return iter(self._chains)

    def get(self, name: str) -> Keychain | None:
        """Return the keychain with this name, or None if the list has no such keychain."""
        number = self._names.get(name)
        return None if number is None else self._chains[number - 1]

    def add(self, keychain: Keychain) -> None:
        """Watch a keychain whose name is new.

        Raises:
            KeychainError: The keychain's scripts cannot be derived.
            ParameterError: The list already has 65,000 keychains, or the budget of `limited_by` is exhausted.
        """
        if len(self._chains) >= _MAX_KEYCHAINS:
            raise ParameterError(f"a watch list can have at most {_MAX_KEYCHAINS:,} keychains")
        self._charge(keychain, 0)
        new = keychain.grow()
        number = self._append(keychain)
        if self._claim(number, 0, new):
            self.take_coins()  # known outpoints may have used scripts that were watched before

    def _append(self, keychain: Keychain) -> int:
        """Append a keychain, and return its number."""
        self._chains.append(keychain)
        if is_silent(keychain):
            self._silent.append(keychain)
        self._names[keychain.name] = len(self._chains)
        self.assign(keychain, keychain.account)
        return len(self._chains)

    def assign(self, keychain: Keychain, account: str | None) -> None:
        """Put a keychain into an account, or into none if `account` is None."""
        keychain.account = account
        if account is not None:
            first = self._firsts.setdefault(account, keychain.name)
            self._firsts[account] = min(first, keychain.name, key=self._names.__getitem__)

    def rename_account(self, old: str, new: str) -> None:
        """Tell an account's keychains its new name."""
        for each in self._chains:
            if each.account == old:
                each.account = new
        if (first := self._firsts.pop(old, None)) is not None:
            self._firsts[new] = first

    @contextmanager
    def limited_by(self, budget: Budget) -> Iterator[None]:
        """Charge the growth of windows in a `with` block to a budget. Raises ParameterError once it is exhausted."""
        self._budget = budget
        try:
            yield
        finally:
            self._budget = None

    def _charge(self, keychain: Keychain, margin: int) -> None:
        if self._budget is not None:
            self._budget.charge(keychain.derivations(margin))

    def at(self, entry: int) -> tuple[Keychain, int] | None:
        """Return the keychain and the index of an entry, or None if the entry is in no keychain."""
        return (self._chains[self._owners[entry] - 1], self._indexes[entry]) if self._is_owned(entry) else None

    def by_entry(self, value_of: Callable[[Keychain], str | None]) -> list[str | None]:
        """Return a value for each entry, taken from its keychain, with None for entries outside keychains."""
        values = [None, *map(value_of, self._chains)]
        return [values[number] for number in self._owners] + [None] * (len(self._table) - len(self._owners))

    def rename(self, old: str, new: str, descriptor: str | None) -> None:
        """Give a keychain another name, and the spelling of its descriptor that goes with it."""
        number = self._names[new] = self._names.pop(old)
        chain = self._chains[number - 1]
        chain.name, chain.descriptor = new, descriptor
        if chain.account is not None and self._firsts[chain.account] == old:
            self._firsts[chain.account] = new

    def account_at(self, entry: int) -> str | None:
        """Return the account of an entry, taken from the first of its keychains that has one, or None."""
        if not self._is_owned(entry):
            return None
        account = self._chains[self._owners[entry] - 1].account
        if account is None and entry in self._shared:
            owners = (self._chains[number - 1].account for number, _ in self._shared[entry])
            account = next(filter(None, owners), None)
        return account

    def entries_of(self, account: str) -> tuple[list[int], list[int]]:
        """Return the entries that only an account's keychains contain, and the entries shared with others."""
        mine = {number for number, each in enumerate(self._chains, 1) if each.account == account}
        owned = [entry for entry, number in enumerate(self._owners) if number in mine] if mine else []
        shared = list[int]()
        for entry, places in self._shared.items():
            numbers = {self._owners[entry], *(number for number, _ in places)}
            if numbers & mine and not numbers <= mine:
                shared.append(entry)
        return sorted(set(owned) - set(shared)), shared

    def scripts_by_index(self, name: str) -> list[tuple[bytes, ...]]:
        """Return the scripts of each index in a keychain's window. For sp(), this is the anchor alone."""
        if is_silent(chain := self.get(name)):
            return [(chain.anchor,)]
        places = sorted(self.entries_beyond({name: 0})[name])
        return self._scripts_of(places, 0, MAX_INDEXES)

    def of(self, entry: int, script: bytes | None) -> tuple[Keychain, int] | None:
        """Return the keychain and the index of an entry, or else of a script, or None if no keychain contains either.

        `script` is the script of the output. It is needed for an outpoint entry, which itself belongs to no keychain.
        """
        found = self.at(entry)
        return found if found or not script or not self._chains else self.at(self._table.find(EntryKind.SCRIPT, script))

    def use(self, hits: Iterable[Hit]) -> list[bytes]:
        """Mark the indexes of hits as used, move the windows, and return the newly watched scripts.

        Raises:
            KeychainError: Scripts cannot be derived. The indexes are marked, and the other windows have moved.
        """
        return self.grow() if self._note((hit.entry, hit.script) for hit in hits) else []

    def place(self, entry: int, script: bytes | None) -> tuple[str | None, int | None]:
        """Return the keychain's name and the index of an entry, or else of a script.

        Returns (None, None) if no keychain contains either.
        """
        found = self.of(entry, script) if self._chains else None
        if found is None:
            return None, None
        return found[0].name, None if is_silent(found[0]) else found[1]

    @property
    def silent(self) -> Sequence[silentkeychain.SilentKeychain]:
        """The keychains of sp() descriptors."""
        return self._silent

    def _take_chains(self, chains: list[Keychain]) -> None:
        """Replace the keychains, and keep a list of the sp() keychains, which are needed for each block."""
        self._chains, self._silent = chains, [each for each in chains if is_silent(each)]

    def add_found(
        self, keychain: silentkeychain.SilentKeychain, script: bytes, found: silentkeychain.Found
    ) -> int | None:
        """Watch an output script that pays a silent payment address, and return the number of its entry.

        Returns None if the keychain has already found the script.
        """
        if script in keychain.found:
            return None
        entry = self._table.add(EntryKind.SCRIPT, script)
        self._own(self._names[keychain.name], [(entry, 1)])
        keychain.found[script] = found
        return entry

    def anchor_silent(self) -> None:
        """Add the anchors of the sp() keychains, which a client's list needs."""
        for each in self.silent:
            if not each.is_anchored:
                self._own(self._names[each.name], [(self._table.add(EntryKind.SCRIPT, each.anchor), 0)])
                each.is_anchored = True

    def restore_found(self, keychain: silentkeychain.SilentKeychain, found: Mapping[int, silentkeychain.Found]) -> None:
        """Restore the scripts that an sp() keychain of this list has found, given their entries."""
        self._own(self._names[keychain.name], ((entry, 1) for entry in found))
        for entry, each in found.items():
            script = self._table.entry(entry)[1]
            known = keychain.found.get(script)
            if known is None or not known.tweak:
                keychain.found[script] = each

    def found_at(self, entry: int, script: bytes | None) -> silentkeychain.Found | None:
        """Return the facts about the silent payment to an entry, or else to a script, or None if there is none."""
        place = self.of(entry, script) if self._chains else None
        if place is None or not is_silent(chain := place[0]):
            return None
        return chain.found.get(script or self._table.entry(entry)[1])

    def next_address(self, name: str | None, network: Network) -> str:
        """Return a keychain's address at the lowest index that is neither used nor revealed.

        Args:
            name: Name of the keychain, or None for the first keychain.
            network: Network of the address.

        Raises:
            ParameterError: There is no such keychain, all its watched indexes are used, or its scripts have no address.
        """
        chain = next(iter(self), None) if name is None else self.get(name)
        if chain is None:
            raise ParameterError("the watch list has no keychain" + ("" if name is None else f" {name[:80]!r}"))
        if is_silent(chain):
            return chain.address()
        index = chain.next_index
        if index is None:
            raise ParameterError(f"every address of keychain {chain.name[:80]!r} has been used or revealed")
        if index >= chain.end:  # a payment to an unwatched address would be missed
            raise ParameterError(all_used(chain.name))
        for script in chain.scripts(index):
            if address := script_to_address(script, network):
                return address
        raise ParameterError(f"the scripts of keychain {chain.name[:80]!r} have no address")

    def chosen(self, name: str | None, accounts: Collection[str]) -> Keychain:
        """Return the keychain that a name refers to: the first, if there are several.

        Args:
            name: The name of an account or of a keychain, a keychain's descriptor without its checksum, or its label,
                tried in this order; None for the first keychain.
            accounts: Names of all accounts.

        Raises:
            ParameterError: There is no such keychain, or the account contains none.
        """
        if name is not None and name in accounts:
            if name not in self._firsts:
                raise ParameterError(f"account {name[:80]!r} has no keychain, so its addresses cannot be revealed")
            return self._chains[self._names[self._firsts[name]] - 1]
        found = next(iter(self), None) if name is None else self.get(name)
        if found is None and name is not None:
            is_descriptor = "(" in name  # its checksum has eight characters
            described = (each for each in self._chains if is_descriptor and each.name[:-9] == name)
            labelled = (each for each in self._chains if each.label == name)
            found = next(joined(described, labelled), None)
        if found is None and name is not None:
            known = listed_keychains((each.name, each.label) for each in self._chains)
            raise ParameterError(f"the watch list has no keychain {name[:80]!r}; it has {known}")
        if found is None:
            raise ParameterError("the watch list has no keychain")
        return found

    def to_reveal(self, keychain: Keychain, network: Network) -> tuple[int, str]:
        """Return the index that a keychain would reveal next, and its address, without revealing it.

        An index is skipped if another keychain, even a removed one, has revealed one of its scripts. For an sp()
        keychain, the index is the number of the address's label.

        Raises:
            ParameterError: All indexes are revealed or used, or the scripts have no address.
            KeychainError: The scripts cannot be derived, or differ from the watched scripts.
        """
        if is_silent(keychain):
            return keychain.to_reveal()
        first, last = keychain.index_to_reveal, min(keychain.size, MAX_REVEALED)
        if first is None:
            raise ParameterError(f"every address of keychain {keychain.name[:80]!r} has been revealed or used")
        for index in range(first, min(first + MAX_AHEAD, last)):
            scripts = keychain.scripts(index)
            if not any(self._is_revealed(script) for script in scripts):
                break
        else:
            raise ParameterError(
                f"other keychains have revealed the addresses of keychain {keychain.name[:80]!r} starting at index"
                f" {first}: use those keychains"
            )
        if index < keychain.end and not all(self.watches(keychain.name, index, script) for script in scripts):
            raise KeychainError(
                f"keychain {keychain.name[:80]!r}: the script at index {index} has changed: the function must always"
                " return the same script for an index"
            )
        address = next(filter(None, (script_to_address(script, network) for script in scripts)), None)
        if address is None:
            raise ParameterError(f"the scripts of keychain {keychain.name[:80]!r} have no address")
        return index, address

    def _is_revealed(self, script: bytes) -> bool:
        """Return True if a keychain has revealed the index of a script. Keychains may overlap."""
        return script in self.revealed_scripts or any(
            index < self._chains[number - 1].revealed for number, index in self._places_of(script)
        )

    def _places_of(self, script: bytes) -> list[tuple[int, int]]:
        """Return the number of each keychain that watches a script, and the index of the script in that keychain."""
        entry = self._table.find(EntryKind.SCRIPT, script)
        places = [(self._owners[entry], self._indexes[entry])] if self._is_owned(entry) else []
        return [*places, *self._shared.get(entry, ())]

    def reveal(self, keychain: Keychain, index: int) -> list[Keychain]:
        """Mark an index as revealed, even in other keychains with its scripts. Return the keychains that changed."""
        changed = [keychain]
        self._reveal(keychain, index)
        if is_silent(keychain):
            return changed
        for script in keychain.scripts(index):
            for number, other in self._places_of(script):
                chain = self._chains[number - 1]
                if other >= chain.revealed:
                    self._reveal(chain, other)
                    changed.append(chain)
        return changed

    def _reveal(self, keychain: Keychain, index: int) -> None:
        if keychain.reveal(index):
            self._due.add(keychain.name)

    def reach(self, keychain: Keychain, end: int) -> None:
        """Make the next `grow` extend a window to at least `end`, without revealing anything.

        Raises the same errors as `Keychain.reach`.
        """
        keychain.reach(end)
        if keychain.end < keychain.required:
            self._due.add(keychain.name)

    def note(self, hits: Iterable[Hit] | None = None) -> bool:
        """Mark the indexes of hits as used, and return True if a window must now move, without moving it.

        By default, the indexes of all known outpoints become used.
        """
        if not self._chains:
            return False
        return self._note_coins() if hits is None else self._note((hit.entry, hit.script) for hit in hits)

    def see(self, hits: Iterable[Hit]) -> None:
        """Record that unconfirmed transactions pay the indexes of hits. `next_address` skips them; no window moves."""
        for hit in hits if self._chains else ():
            if (place := self.of(hit.entry, hit.script)) is not None:
                place[0].see(place[1])

    def use_script(self, script: bytes) -> list[bytes]:
        """Mark the index of a script as used, move the windows, and return the newly watched scripts.

        Raises:
            KeychainError: Scripts cannot be derived.
        """
        return self.grow() if self._note([(NO_ENTRY, script)]) else []

    def grow(self) -> list[bytes]:
        """Extend all windows to their required ends, and return the newly watched scripts.

        Raises:
            KeychainError: Scripts cannot be derived.
        """
        new: list[bytes] = []
        again = True
        while again:
            again = False
            due = [(number, each) for number, each in enumerate(self._chains, 1) if each.end < each.required]
            apart = self._derived_apart((each, each.missing()) for _, each in due)
            for number, keychain in due:
                again = self._take(number, keychain, 0, new, apart) or again
        self._due.clear()
        return new

    def widen(self, margin: int | None, settled: Collection[str] = ()) -> list[bytes]:
        """Extend all windows beyond their required ends, and return the newly watched scripts.

        Args:
            margin: Number of additional indexes to watch, or None for the lookahead of each keychain.
            settled: Names of keychains whose windows are extended only if they must move.

        Raises:
            KeychainError: Scripts cannot be derived.
        """
        new: list[bytes] = []
        margins = [
            0 if each.name in settled and each.end >= each.required else _margin(each, margin) for each in self._chains
        ]
        longer = [
            (number, each, far)
            for number, (each, far) in enumerate(zip(self._chains, margins, strict=True), 1)
            if far or each.end < each.required
        ]
        apart = self._derived_apart((each, each.missing(far)) for _, each, far in longer)
        due = [self._take(number, each, far, new, apart) for number, each, far in longer]
        return new + self.grow() if any(due) else new

    def _derived_apart(self, wanted: Iterable[tuple[Keychain, range]]) -> Mapping[str, list[tuple[bytes, ...]]]:
        """Derive scripts of keychains in other processes, as `derivers.derive` does, and return them.

        While a budget limits the derivations, nothing is derived here, because the budget must be charged first.
        """
        return derivers.derive(wanted) if self._budget is None else {}

    def _take(
        self,
        number: int,
        keychain: Keychain,
        margin: int,
        new: list[bytes],
        apart: Mapping[str, list[tuple[bytes, ...]]],
    ) -> bool:
        """Extend the window of keychain number `number`, and return True if another window must move.

        The window ends `margin` indexes after its required end. The newly watched scripts are appended to `new`.
        `apart` contains the scripts that other processes derived.
        """
        self._charge(keychain, margin)
        first, before = keychain.end, len(self._table)
        was_watched = self._claim(number, first, keychain.grow(margin, apart.get(keychain.name)))
        self._due.discard(keychain.name)
        new += (self._table.entry(entry)[1] for entry in range(before, len(self._table)))
        return was_watched and self._note_coins()

    # Steps of a client that extends windows: derive scripts in a thread, store them, and only then watch them

    @property
    def is_due(self) -> bool:
        """True if a window must move, because one of its indexes has been used or revealed since the last `move`."""
        return bool(self._due)

    def ahead(self, margin: int | None = None) -> Ahead:
        """Return the scripts that `widen` would add to the windows that must move, without changing anything.

        The result covers at most 10,000 indexes. If the windows need more, they must move again after `move`.

        Args:
            margin: Number of indexes beyond the required ends, or None for the lookahead of each keychain.

        Raises:
            KeychainError: Scripts cannot be derived.
        """
        left, wanted = MAX_AHEAD, list[tuple[Keychain, range]]()
        for number in sorted(self._names[name] for name in self._due):
            each = self._chains[number - 1]
            wanted.append((each, each.missing(_margin(each, margin), left if each.end < each.required else 0)))
            left -= len(wanted[-1][1])
        apart = self._derived_apart(wanted)
        return {
            each.name: each.ahead(_margin(each, margin), len(missing), apart.get(each.name)) for each, missing in wanted
        }

    def unwatched(self, ahead: Ahead) -> list[bytes]:
        """Return the scripts in `ahead` that are not watched yet, in the order in which `move` adds them."""
        scripts = dict.fromkeys(script for new in ahead.values() for each in new for script in each)
        return [script for script in scripts if self._table.find(EntryKind.SCRIPT, script) == NO_ENTRY]

    def accounts_of(self, ahead: Ahead) -> dict[bytes, str | None]:
        """Return the account of each script in `ahead`, as `account_at` returns it after `move`."""
        accounts: dict[bytes, str | None] = {}
        for name, new in ahead.items():
            account = self._chains[self._names[name] - 1].account
            for script in (script for scripts in new for script in scripts):
                accounts[script] = accounts.get(script) or account
        return accounts

    def labels_of(self, ahead: Ahead) -> dict[bytes, str | None]:
        """Return the label of each script in `ahead`: the label of the first keychain that derives the script."""
        labels: dict[bytes, str | None] = {}
        for name, new in ahead.items():
            label = self._chains[self._names[name] - 1].label
            for script in (script for scripts in new for script in scripts):
                labels.setdefault(script, label)
        return labels

    def move(self, ahead: Ahead) -> bool:
        """Extend the windows by the scripts in `ahead`, and watch them. Return True if a window must move again."""
        was_watched = False
        for name, new in ahead.items():
            number = self._names[name]
            keychain = self._chains[number - 1]
            first = keychain.end
            keychain.move(new)
            was_watched = self._claim(number, first, new) or was_watched
            if keychain.end >= keychain.required:
                self._due.discard(name)
        if was_watched:
            self._note_coins()
        return self.is_due

    def shorten(self) -> bool:
        """Halve the lookaheads of the keychains, down to the gap limit.

        Returns False if all of them were already at the gap limit, else True.
        """
        longer = [each for each in self._chains if each.lookahead > GAP_LIMIT]
        for each in longer:
            each.lookahead = max(GAP_LIMIT, each.lookahead // 2)
        return bool(longer)

    def take_coins(self) -> list[bytes]:
        """Mark the indexes of known outpoints as used, move the windows, and return the newly watched scripts.

        Raises:
            KeychainError: Scripts cannot be derived.
        """
        self._note_coins()
        return self.grow()

    def _note_coins(self) -> bool:
        return bool(self._chains) and self._note((coin.entry, coin.script) for _, coin in self._table.coins())

    def _note(self, outputs: Iterable[tuple[int, bytes | None]]) -> bool:
        """Mark the indexes of outputs as used, and return True if a window must move.

        Each output is a pair: the number of its entry, and its script, or None if the script is unknown.
        """
        due = False
        for entry, script in dict.fromkeys(outputs):  # keeps the order, in which a database stores the used indexes
            if not self._is_owned(entry):
                entry = self._table.find(EntryKind.SCRIPT, script) if script else NO_ENTRY
            if self._is_owned(entry):
                for number, index in [(self._owners[entry], self._indexes[entry]), *self._shared.get(entry, ())]:
                    keychain = self._chains[number - 1]
                    if is_silent(keychain):
                        continue
                    if index not in keychain.used:
                        self._fresh[number, index] = None
                    if keychain.use(index):
                        due = True
                        self._due.add(keychain.name)
        return due

    def _is_owned(self, entry: int) -> bool:
        return 0 <= entry < len(self._owners) and self._owners[entry] != _NOBODY

    def _claim(self, number: int, first: int, new: list[tuple[bytes, ...]]) -> bool:
        """Watch new scripts of a keychain, and return True if some of them may have been watched before.

        Args:
            number: Number of the keychain, from 1.
            first: Index of the first scripts in `new`.
            new: The scripts of successive indexes.
        """
        add, kind, start = self._table.add, EntryKind.SCRIPT, len(self._table)
        self._reach_table()
        entries = [add(kind, script) for scripts in new for script in scripts]
        indexes = [index for index, scripts in enumerate(new, first) for _ in scripts]
        if len(self._table) - start == len(entries):  # all entries are new and consecutive
            self._owners.extend(array("H", [number]) * len(entries))
            self._indexes.extend(indexes)
            return False
        self._own(number, zip(entries, indexes, strict=True))
        return True

    def _own(self, number: int, places: Iterable[tuple[int, int]]) -> None:
        """Record that entries of the table, each with an index, belong to a keychain."""
        self._reach_table()
        owners, indexes = self._owners, self._indexes
        for entry, index in places:
            if owners[entry] == _NOBODY:
                owners[entry], indexes[entry] = number, index
            elif (owners[entry], indexes[entry]) != (number, index):
                self._shared.setdefault(entry, []).append((number, index))

    def _reach_table(self) -> None:
        """Record that the latest entries of the table belong to no keychain."""
        if (missing := len(self._table) - len(self._owners)) > 0:
            self._owners.extend(array("H", bytes(2 * missing)))
            self._indexes.extend(array("I", bytes(self._indexes.itemsize * missing)))

    # For the database of a client

    def take_fresh(self) -> dict[str, list[int]]:
        """Return the indexes that have become used since the previous call, by keychain name."""
        fresh: dict[str, list[int]] = {}
        for number, index in self._fresh:
            fresh.setdefault(self._chains[number - 1].name, []).append(index)
        self._fresh.clear()
        return fresh

    def entries_beyond(self, firsts: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
        """Return the entries at and above given indexes of keychains, as (index, entry) pairs keyed by keychain name.

        Args:
            firsts: The lowest index to return for each keychain, by name.
        """
        least = [0, *(firsts.get(each.name, MAX_INDEXES) for each in self._chains)]
        owned = ((entry, *place) for entry, place in enumerate(zip(self._owners, self._indexes, strict=True)))
        shared = ((entry, *place) for entry, places in self._shared.items() for place in places)
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in firsts}
        for entry, number, index in joined(owned, shared):
            if number != _NOBODY and index >= least[number]:
                found[self._chains[number - 1].name].append((index, entry))
        return found

    def watches(self, name: str, index: int, script: bytes) -> bool:
        """Return True if the script is watched for this index of the keychain with this name."""
        entry = self._table.find(EntryKind.SCRIPT, script)
        return self._is_owned(entry) and self._has(self._names[name], index, entry)

    def _has(self, number: int, index: int, entry: int) -> bool:
        return (self._owners[entry], self._indexes[entry]) == (number, index) or (
            (number, index) in self._shared.get(entry, ())
        )

    def first_foreign(self, name: str, window: Iterable[tuple[int, ...]]) -> int | None:
        """Return the first index at which a keychain does not have an entry that `window` gives for it, or None.

        Args:
            name: Name of the keychain.
            window: For each index, starting with 0, the numbers of its entries.
        """
        number = self._names[name]
        self._reach_table()
        for index, entries in enumerate(window):
            for entry in entries:
                if not self._has(number, index, entry):
                    return index
        return None

    def restore(self, keychain: Keychain, window: Sequence[tuple[int, ...]], used: Iterable[int]) -> None:
        """Restore the window and the used indexes of a keychain, and add the keychain if it is new.

        Args:
            keychain: The keychain.
            window: For each index of the keychain's window, the numbers of its entries.
            used: The used indexes of the keychain.

        Raises:
            ParameterError: The list already has 65,000 keychains, or a used index is not in the window.
        """
        number = self._names.get(keychain.name)
        if number is None:
            if len(self._chains) >= _MAX_KEYCHAINS:
                raise ParameterError(f"a watch list can have at most {_MAX_KEYCHAINS:,} keychains")
            number = self._append(keychain)
        first = keychain.end
        if more := window[first:]:
            keychain.restore(len(more), tuple(self._table.entry(entry)[1] for entry in more[-1]))
            self._own(number, ((entry, index) for index, entries in enumerate(more, first) for entry in entries))
        for index in used:
            keychain.use(index)
        if keychain.end < keychain.required:
            self._due.add(keychain.name)

    def state(self) -> list[tuple[object, ...]]:
        """Return the values that determine whether the keychains of two lists are equal."""
        return sorted((keychain.state() for keychain in self._chains), key=lambda state: str(state[0]))

    def move_to(self, table: WatchTable) -> None:
        """Switch to another table with the same entries."""
        self._table = table

    def without(self, table: WatchTable, gone: Sequence[int], account: str | None = None) -> Windows:
        """Return the windows for another table without some of the entries, in which later entries have lower numbers.

        The keychains are shared, not copied.

        Args:
            table: The other table.
            gone: Numbers of the missing entries, in ascending order.
            account: Account whose keychains are left out, or None to keep all keychains.
        """
        twin = self._twin(table)
        twin._take_chains(self._chains.copy())
        if account is not None:
            twin.revealed_scripts |= self._revealed_by(account)
            twin._drop(account)
        twin._owners, twin._indexes = _left(twin._owners, gone), _left(twin._indexes, gone)
        removed = frozenset(gone)
        twin._shared = {
            entry - bisect_left(gone, entry): places for entry, places in twin._shared.items() if entry not in removed
        }
        return twin

    def _revealed_by(self, account: str) -> set[bytes]:
        """Return the scripts that the keychains of an account have revealed."""
        ends = {each.name: each.revealed for each in self._chains if each.account == account and each.revealed}
        found = self.entries_beyond(dict.fromkeys(ends, 0)) if ends else {}
        places = ((ends[name], *place) for name, chain in found.items() for place in chain)
        return {self._table.entry(entry)[1] for end, index, entry in places if index < end}

    def _drop(self, account: str) -> None:
        """Drop the keychains of an account. Their entries pass to other keychains that contain them, or to none."""
        left = [each for each in self._chains if each.account != account]
        names = {each.name: number for number, each in enumerate(left, 1)}
        numbers = [_NOBODY, *(names.get(each.name, _NOBODY) for each in self._chains)]  # new number by old number
        shared: dict[int, list[tuple[int, int]]] = {}
        for entry, places in self._shared.items():
            all_places = [(self._owners[entry], self._indexes[entry]), *places]
            kept = [(numbers[number], index) for number, index in all_places if numbers[number] != _NOBODY]
            if kept:
                shared[entry] = kept
        self._owners = array("H", map(numbers.__getitem__, self._owners))
        for entry, kept in shared.items():
            self._owners[entry], self._indexes[entry] = kept[0]
        self._shared = {entry: kept[1:] for entry, kept in shared.items() if len(kept) > 1}
        self._take_chains(left)
        self._names = names
        self._due &= names.keys()
        self._firsts.pop(account, None)
        self._fresh = {(numbers[number], index): None for number, index in self._fresh if numbers[number] != _NOBODY}

    def become(self, other: Windows) -> None:
        """Take over a copy's table, with the keychain and index of each entry. The keychains remain the same objects.

        Keychains that the copy lacks are dropped.
        """
        self._take_chains([each for each in self._chains if each.name in other._names])
        if len(self._names) != len(other._names):
            self._fresh = other._fresh
        self._names, self._firsts, self._due = other._names.copy(), other._firsts, other._due
        self.revealed_scripts |= other.revealed_scripts
        self._table, self._owners, self._indexes, self._shared = (
            other._table,
            other._owners,
            other._indexes,
            other._shared,
        )

    def take_uses(self, other: Windows) -> Iterator[None]:
        """Take over the used indexes and the longer windows of a copy of these keychains, in steps.

        The scripts come from the copy's table, so none are derived. The generator yields after a few thousand scripts
        or used indexes at most, so that an event loop can run between the steps. After each step, every keychain is
        consistent.

        Args:
            other: The keychains of a copy of this watch list. They are matched by name; unknown names are ignored.
        """
        pairs = [(self._names[each.name], each) for each in other if each.name in self._names]
        gained: dict[str, _Places] = {}
        if any(each.end > self._chains[number - 1].end for number, each in pairs):
            gained = yield from other._beyond({each.name: self._chains[number - 1].end for number, each in pairs})
        work = 0
        for number, each in pairs:
            mine, places = self._chains[number - 1], gained.get(each.name)
            if is_silent(mine) and is_silent(each):
                mine.take_from(each)
                for script, found in each.found.items():
                    self.add_found(mine, script, found)
                self._reveal(mine, each.revealed - 1)
                yield
                continue
            ordered = [] if places is None else sorted(zip(places.indexes, places.entries, strict=True))
            while (first := mine.end) < each.end:  # another client may have extended the window in the meantime
                new = other._scripts_of(ordered, first, min(each.end, first + STEP))
                mine.restore(len(new), new[-1])
                self._claim(number, first, new)
                work += len(new)
                if work >= STEP:
                    work = 0
                    yield
            if each.revealed:
                self._reveal(mine, each.revealed - 1)
            for index in [index for index in each.used if index not in mine.used]:
                if mine.use(index):
                    self._due.add(mine.name)
                work += 1
                if work >= STEP:
                    work = 0
                    yield
            work += 1

    def _beyond(self, ends: Mapping[str, int]) -> Generator[None, None, dict[str, _Places]]:
        """Return, in steps, the indexes and entries at and above given indexes of keychains, keyed by keychain name.

        Args:
            ends: The lowest index to return for each keychain, by name.
        """
        least = [MAX_INDEXES, *(ends.get(each.name, MAX_INDEXES) for each in self._chains)]
        found: dict[int, _Places] = {}  # by the number of the keychain; most windows have not grown
        for start in range(0, len(self._owners), STEP):
            part = zip(self._owners[start : start + STEP], self._indexes[start : start + STEP], strict=True)
            for entry, (number, index) in enumerate(part, start):
                if index >= least[number]:
                    _places_in(found, number).add(index, entry)
            yield
        for entry, places in self._shared.items():
            for number, index in places:
                if index >= least[number]:
                    _places_in(found, number).add(index, entry)
        return {self._chains[number - 1].name: places for number, places in found.items()}

    def _scripts_of(self, places: Sequence[tuple[int, int]], first: int, end: int) -> list[tuple[bytes, ...]]:
        """Return the scripts of each index from `first` up to, but not including, `end`.

        `places` contains (index, entry) pairs in ascending order.
        """
        chosen = places[bisect_left(places, (first, 0)) : bisect_left(places, (end, 0))]
        table = self._table
        return [tuple(table.entry(entry)[1] for _, entry in group) for _, group in groupby(chosen, itemgetter(0))]

    def copy(self, table: WatchTable) -> Windows:
        """Return a copy of these windows for `table`, which is a copy of their table."""
        twin = self._twin(table)
        twin._take_chains([keychain.copy() for keychain in self._chains])
        return twin

    def _twin(self, table: WatchTable) -> Windows:
        """Return a copy that has no keychains yet."""
        twin = Windows(table)
        twin._names, twin._firsts, twin._due = self._names.copy(), self._firsts.copy(), self._due.copy()
        twin._owners, twin._indexes = self._owners[:], self._indexes[:]
        twin._shared = {entry: places.copy() for entry, places in self._shared.items()}
        twin.revealed_scripts = self.revealed_scripts.copy()
        return twin


def _left(values: array[int], gone: Sequence[int]) -> array[int]:
    """Return the values except those at the positions in `gone`, which must be in ascending order."""
    left, first = array(values.typecode), 0
    for place in gone:
        left += values[first:place]
        first = place + 1
    return left + values[first:]


def _places_in(found: dict[int, _Places], number: int) -> _Places:
    if number not in found:
        found[number] = _Places(array("I"), array("I"))
    return found[number]


def _margin(keychain: Keychain, margin: int | None) -> int:
    """Return the number of indexes to watch beyond the required end of a keychain's window.

    It is 0 if no function derives more scripts. Otherwise it is `margin`, by default the keychain's lookahead.
    """
    return 0 if keychain.is_dormant else keychain.lookahead if margin is None else margin
