"""Read keychains from the database: windows, used indexes and next addresses. Nothing is derived."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.store.schema import HAS_VALUE, RUN_CLASS, RUN_CLASSES
from spvfilter.watch.keychain import MAX_LISTED, all_used, identity_of, listed_keychains

# a function that returns checked rows of a table, given the rest of a query and its values
Checked = Callable[[str, str, tuple[object, ...]], Iterator[tuple[Any, ...]]]
_FEW = 500  # limit on rows that one query names, and on lookups of entries before all runs are read (our choice)
_SIZES = ", ".join(f"({number}, {most})" for number, most in enumerate(RUN_CLASSES))
_MATCHES = "{0} >= runs.entry AND {0} < runs.entry + runs.indexes * runs.scripts"


@public
@dataclass(frozen=True, slots=True)
class KeychainStatus:
    """A keychain of the wallet, and its used indexes."""

    name: str
    """Name of the keychain: its descriptor, if it has one. For sp(), the address without a label."""
    label: str | None
    """Label of its entries."""
    descriptor: str | None
    """Descriptor with its checksum, or None if the program passed a function that derives the scripts."""
    lookahead: int
    """Number of indexes to watch after the last used one."""
    window: int
    """Number of watched indexes: all indexes below this one are watched."""
    used: tuple[int, ...]
    """Indexes that confirmed transactions have ever paid, in ascending order, even if a reorganization removed them."""
    revealed: int
    """First index that `LightClient.reveal_address` has neither returned nor skipped yet, or 0 if it has returned
    none.
    """
    next_index: int | None
    """Lowest index that has been neither paid nor revealed. None if there is none, which is common for an unranged
    descriptor.
    """
    next_address: str | None
    """Address at `next_index`; for sp(), the one without a label. None if the scripts do not have addresses."""
    account: str | None = None
    """Name of the account that the keychain belongs to, or None."""
    revealed_elsewhere: tuple[int, ...] = ()
    """Indexes at or above `revealed` whose address another keychain, even a removed one, has revealed."""
    pending: tuple[int, ...] = ()
    """Indexes that pending transactions pay, in ascending order."""


def keychains_of(
    checked: Checked, network: Network, name: str | None = None, account: int | None = None
) -> list[KeychainStatus]:
    """Return the keychains in the order in which they were added.

    With `name`, only the keychains that `chosen` returns are included. With `account`, only keychains of the account
    with this id are included. Raises StoreCorruptError, and ParameterError if no keychain has the name.
    """
    rows = _keychains(checked, name, account)
    names = _account_names(checked, {row[7] for row in rows} - {None})
    windows = _Windows(checked, None if name is None and account is None else [row[0] for row in rows])
    free = {row: windows.free_index(row) for row, _, _, descriptor, *_ in rows if not _is_silent(descriptor)}
    addresses = windows.addresses(
        {row: free[row] for row, *_, window, _ in rows if free.get(row, window) < window}, network
    )
    return [
        KeychainStatus(
            full_name,
            label,
            descriptor,
            lookahead,
            0 if _is_silent(descriptor) else window,
            tuple(windows.used.get(row, ())),
            windows.revealed.get(row, 0),
            free[row] if free.get(row, size) < size else None,
            full_name if _is_silent(descriptor) else addresses.get(row),
            None if owner is None else names[owner],
            () if _is_silent(descriptor) else tuple(sorted(windows.elsewhere.get(row, ()))),
            () if _is_silent(descriptor) else tuple(sorted(windows.pending.get(row, ()))),
        )
        for row, full_name, label, descriptor, lookahead, size, window, owner in rows
    ]


def _is_silent(descriptor: str | None) -> bool:
    """Return True for sp(). The name of its keychain is its address, which may be paid any number of times."""
    return descriptor is not None and descriptor.startswith("sp(")


def _account_names(checked: Checked, accounts: Collection[int]) -> dict[int, str]:
    """Return the names of these accounts, keyed by row id."""
    where = "FROM accounts" if len(accounts) > _FEW else f"FROM accounts WHERE id IN ({_listed(accounts)})"
    return {row: name for row, name, _ in checked("accounts", where, ())}


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


class _Windows:
    """The windows of several keychains, read together: which indexes have been paid, and which have been revealed.

    Args:
        checked: Function that reads rows.
        keychains: Row ids of the keychains, or None for all. Rows of other keychains are read only if scripts are
            shared.
    """

    def __init__(self, checked: Checked, keychains: Sequence[int] | None) -> None:
        self._checked = checked
        self._is_all = keychains is None
        chosen = "1" if keychains is None else f"keychain IN ({_listed(keychains)})"
        self._of_mine = f"WHERE runs.{chosen}"
        self._places = EntryPlaces(checked)
        self._scripts: dict[int, bytes] = {}
        self._runs: dict[int, list[_Run]] = {}
        for run in map(_Run._make, checked("runs", f"FROM runs WHERE {chosen} ORDER BY keychain, first, entry", ())):
            self._runs.setdefault(run.keychain, []).append(run)
        self.used: dict[int, list[int]] = {}
        """Indexes that confirmed transactions have paid, in ascending order, keyed by the keychain's row id."""
        for keychain, index in checked("used", f"FROM used WHERE {chosen} ORDER BY keychain, place", ()):
            self.used.setdefault(keychain, []).append(index)
        self.revealed: dict[int, int] = self._read_revealed()
        """First index that has not been revealed, keyed by the keychain's row id. Zeros are omitted."""
        self.elsewhere: dict[int, set[int]] = {}
        """Indexes, at or above the first unrevealed index, whose address was revealed elsewhere, keyed by row id."""
        for keychain, index in self._revealed_elsewhere():
            if index >= self.revealed.get(keychain, 0):
                self.elsewhere.setdefault(keychain, set()).add(index)
        self.pending: dict[int, set[int]] = {}
        """Indexes that pending transactions pay, keyed by the keychain's row id."""
        for keychain, index in self._paid_unconfirmed():
            self.pending.setdefault(keychain, set()).add(index)

    def free_index(self, keychain: int) -> int:
        """Return the lowest index that has been neither paid nor revealed. It may be the end of the window."""
        taken = {*self.used.get(keychain, ()), *self.pending.get(keychain, ()), *self.elsewhere.get(keychain, ())}
        index = self.revealed.get(keychain, 0)
        while index in taken:
            index += 1
        return index

    def addresses(self, places: Mapping[int, int], network: Network) -> dict[int, str]:
        """Return the address at one index of each keychain. A keychain whose scripts have no address is omitted."""
        entries = {keychain: _entries_in(self._runs.get(keychain, ()), index) for keychain, index in places.items()}
        scripts = self._read_scripts(chain.from_iterable(entries.values()))
        found: dict[int, str] = {}
        for keychain, rows in entries.items():
            if address := _address_of((scripts[row] for row in rows if row in scripts), network):
                found[keychain] = address
        return found

    def _read_scripts(self, entries: Iterable[int]) -> dict[int, bytes]:
        """Return the scripts of these entries, and of all entries read earlier, keyed by row id.

        The next address of most keychains is the script that identifies them.
        """
        self._scripts |= _scripts_of(self._checked, (row for row in entries if row not in self._scripts))
        return self._scripts

    def _read_revealed(self) -> dict[int, int]:
        if not any(self._checked("revealed", "FROM revealed LIMIT 1", ())):
            return {}
        firsts = {keychain: _entries_in(runs, 0) for keychain, runs in self._runs.items()}
        scripts = self._read_scripts(chain.from_iterable(firsts.values()))
        identities = {
            keychain: identity_of(scripts[row] for row in rows if row in scripts) for keychain, rows in firsts.items()
        }
        named = (
            "1"
            if self._is_all
            else "keychain IN (" + ", ".join(f"x'{each.hex()}'" for each in identities.values()) + ")"
        )
        ends = {identity: end for identity, end, _ in self._checked("revealed", f"FROM revealed WHERE {named}", ())}
        return {keychain: ends[identity] for keychain, identity in identities.items() if identity in ends}

    def _paid_unconfirmed(self) -> Iterator[tuple[int, int]]:
        """Yield the keychain and index of each output of an unconfirmed transaction."""
        where = "FROM matches WHERE height IS NULL AND spend = 0"
        if not self._is_all:
            where = (
                "FROM runs CROSS JOIN matches INDEXED BY matches_by_entry ON"
                f" {_MATCHES.format('matches.entry')} AND matches.height IS NULL AND matches.spend = 0 {self._of_mine}"
            )
        for entry in {row[7] for row in self._checked("matches", where, ())}:
            yield from self._places.owners(entry)

    def _revealed_elsewhere(self) -> Iterator[tuple[int, int]]:
        """Yield the keychain and index of each script that another keychain, possibly a removed one, has revealed."""
        if any(self._checked("revealed_scripts", "FROM revealed_scripts LIMIT 1", ())):
            where = (
                f"FROM revealed_scripts CROSS JOIN watch ON kind = 0 AND {HAS_VALUE.format('revealed_scripts.script')}"
            )
            if not self._is_all:
                where = (
                    f"FROM runs CROSS JOIN watch ON {_MATCHES.format('watch.id')} CROSS JOIN revealed_scripts"
                    f" ON revealed_scripts.script = watch.value {self._of_mine}"
                )
            for entry in {row[0] for row in self._checked("watch", where, ())}:
                yield from self._places.owners(entry)
        if not any(self._checked("revealed", "FROM revealed LIMIT 1", ())):
            return
        for run, other in self._shared():
            is_read = self._is_all or other.keychain in self._runs
            revealed = self.revealed.get(other.keychain, 0) if is_read else _revealed(self._checked, other.keychain)
            last = other.entry_of(revealed)
            for entry in range(max(run.entry, other.entry), min(run.end, other.end, last)):
                yield run.keychain, run.index_of(entry)

    def _shared(self) -> Iterator[tuple[_Run, _Run]]:
        """Yield each run with each run of another keychain that shares an entry with it, in both orders."""
        runs = sorted(chain.from_iterable(self._runs.values()), key=lambda run: run.entry)
        for at, run in enumerate(runs):
            if not self._is_all:
                found = _overlapping(self._checked, run.entry, run.end)
                yield from ((run, other) for other in found if other.keychain != run.keychain)
                continue
            for position in range(at + 1, len(runs)):
                if (other := runs[position]).entry >= run.end:
                    break
                if other.keychain != run.keychain:
                    yield from ((run, other), (other, run))


class _Run(NamedTuple):
    """Consecutive indexes of a keychain whose entries have consecutive ids."""

    keychain: int
    first: int
    entry: int
    indexes: int
    scripts: int

    @property
    def end(self) -> int:
        """Row id after the last entry."""
        return self.entry + self.indexes * self.scripts

    def index_of(self, entry: int) -> int:
        """Return the index of an entry in the run."""
        return self.first + (entry - self.entry) // self.scripts

    def entry_of(self, index: int) -> int:
        """Return the row id of the first entry of an index, as if the run had no end."""
        return self.entry + (index - self.first) * self.scripts


def _entries_in(runs: Iterable[_Run], index: int) -> list[int]:
    """Return the row ids of the entries of an index."""
    found: list[int] = []
    for run in runs:
        if run.first <= index < run.first + run.indexes:
            found += range(run.entry_of(index), run.entry_of(index + 1))
    return sorted(found)


def _scripts_of(checked: Checked, entries: Iterable[int]) -> dict[int, bytes]:
    """Return the scripts of entries, keyed by row id."""
    left, found = iter(entries), dict[int, bytes]()
    while some := list(islice(left, _FEW)):
        rows = checked("watch", f"FROM watch WHERE id IN ({_listed(some)})", ())
        found |= {row: value for row, _, value, _, _ in rows}
    return found


def _overlapping(checked: Checked, start: int, end: int) -> list[_Run]:
    """Return the runs that contain an entry from `start` up to `end`, without reading the runs of other entries.

    A run that contains `start` begins at most its own length below it. The index contains the runs by length class.
    """
    where = (
        f"FROM (VALUES {_SIZES}) AS size CROSS JOIN runs WHERE {RUN_CLASS} = size.column1"
        " AND runs.entry > ? - size.column2 AND runs.entry < ? AND runs.entry + runs.indexes * runs.scripts > ?"
    )
    return list(map(_Run._make, checked("runs", where, (start, end, start))))


def _revealed(checked: Checked, keychain: int) -> int:
    """Return the first index of a keychain that has not been revealed."""
    identity = identity_of(script for _, script in _entries_at(checked, keychain, 0))
    return next((row[1] for row in checked("revealed", "FROM revealed WHERE keychain = ?", (identity,))), 0)


def _entries_at(checked: Checked, keychain: int, index: int) -> list[tuple[int, bytes]]:
    """Return the row id and script of each entry at an index of a window."""
    where = "FROM runs WHERE keychain = ? AND first <= ? AND first + indexes > ? ORDER BY entry"
    runs = map(_Run._make, checked("runs", where, (keychain, index, index)))
    return list(_scripts_of(checked, _entries_in(runs, index)).items())


def _free_place(checked: Checked, keychain: int, window: int) -> tuple[int, list[bytes]]:
    """Return the lowest index that has been neither paid nor revealed, and its scripts.

    The index may be the end of the window, which has no scripts. `_Windows` gives the same index, but these queries
    read neither other keychains nor all used indexes.
    """
    is_any_revealed = any(checked("revealed", "FROM revealed LIMIT 1", ()))
    index = _unused_from(checked, keychain, _revealed(checked, keychain) if is_any_revealed else 0)
    places = EntryPlaces(checked) if is_any_revealed else None
    while index < window:
        entries = _entries_at(checked, keychain, index)
        if not any(_is_taken(checked, places, keychain, *each) for each in entries):
            return index, [script for _, script in entries]
        index = _unused_from(checked, keychain, index + 1)
    return index, []


def _unused_from(checked: Checked, keychain: int, first: int) -> int:
    """Return the lowest index, at or above `first`, that no confirmed transaction has paid."""
    if not any(checked("used", "FROM used WHERE keychain = ? AND place = ?", (keychain, first))):
        return first
    after = "SELECT 1 FROM used AS after WHERE after.keychain = used.keychain AND after.place = used.place + 1"
    where = f"FROM used WHERE keychain = ? AND place >= ? AND NOT EXISTS ({after}) ORDER BY place LIMIT 1"
    return next(int(place) + 1 for _, place in checked("used", where, (keychain, first)))


def _is_taken(checked: Checked, places: EntryPlaces | None, keychain: int, entry: int, script: bytes) -> bool:
    """Return True if an unconfirmed transaction pays an entry, or if the entry's script was revealed elsewhere.

    If `places` is None, no keychain in the database has revealed an index.
    """
    return (
        any(checked("matches", "FROM matches WHERE entry = ? AND height IS NULL AND spend = 0 LIMIT 1", (entry,)))
        or any(checked("revealed_scripts", "FROM revealed_scripts WHERE script = ?", (script,)))
        or any(
            owner != keychain and at < _revealed(checked, owner)
            for owner, at in (places.owners(entry) if places else ())
        )
    )


def _address_of(scripts: Iterable[bytes], network: Network) -> str | None:
    """Return the first address among scripts, or None if they have none."""
    return next(filter(None, (script_to_address(script, network) for script in scripts)), None)


def _keychains(checked: Checked, name: str | None, account: int | None) -> list[tuple[Any, ...]]:
    """Return the rows of the keychains with this name and account.

    None means any. Raises the same errors as `chosen`.
    """
    if name is not None:
        found = chosen(checked, name)
        if account is not None and not (found := [row for row in found if row[7] == account]):
            raise ParameterError(f"the account has no keychain {name[:80]!r}")
        return found
    if account is None:
        return list(checked("keychains", "FROM keychains ORDER BY id", ()))
    return list(checked("keychains", "FROM keychains WHERE account = ? ORDER BY id", (account,)))


def chosen(checked: Checked, name: str) -> list[tuple[Any, ...]]:
    """Return the rows of the keychains with this name, this label, or this descriptor without its checksum.

    Several keychains may have the same label. The query reads only the rows that it returns, in order of their ids.

    Raises ParameterError if there is no such keychain.
    """
    if not isinstance(name, str):
        raise ParameterError(f"keychain: expected the name or label of a keychain, not {type(name).__name__}")
    ways: list[tuple[str, tuple[str, ...]]] = [("name = ?", (name,)), ("label = ?", (name,))]
    if "#" not in name:  # the name of a keychain with a descriptor ends with '#' and the checksum
        ways.insert(1, ("name >= ? AND name < ?", (f"{name}#", f"{name}$")))
    if any("\ud800" <= each <= "\udfff" for each in name):  # SQLite cannot store such a name
        ways.clear()
    for where, values in ways:
        if found := list(checked("keychains", f"FROM keychains WHERE {where} ORDER BY id", values)):
            return found
    rows = checked("keychains", "FROM keychains ORDER BY id LIMIT ?", (MAX_LISTED + 1,))
    known = listed_keychains((each, label) for _, each, label, *_ in rows)
    raise ParameterError(f"the wallet has no keychain {name[:80]!r}; it has {known}")


def next_address_of(checked: Checked, network: Network, name: str | None, account: int | None = None) -> str:
    """Return the address at a keychain's lowest index that has been neither paid nor revealed.

    By default, the first keychain is used. With `account`, only keychains of the account with this id are considered.
    The queries do not read other keychains or all used indexes.

    Raises ParameterError if there is no such keychain, or if it has no unused address in its window.
    """
    if name is None and account is None:
        rows = list(checked("keychains", "FROM keychains ORDER BY id LIMIT 1", ()))
    else:
        rows = _keychains(checked, name, account)
    if not rows:
        whose = "wallet" if account is None else "account"
        raise ParameterError(f"the {whose} has no keychain: watch its descriptor")
    row, full_name, _, descriptor, _, size, window, _ = rows[0]
    if _is_silent(descriptor):
        return str(full_name)
    index, scripts = _free_place(checked, row, window)
    if index >= size:
        raise ParameterError(f"every address of keychain {full_name[:80]!r} has been used or revealed")
    if index >= window:
        raise ParameterError(all_used(full_name))
    address = _address_of(scripts, network)
    if address is None:
        raise ParameterError(f"the scripts of keychain {full_name[:80]!r} have no address")
    return address


def is_script_used(checked: Checked, script: bytes) -> bool:
    """Return True if a transaction that counts pays a script, or if the script's keychain index has been used."""
    places = EntryPlaces(checked)
    for row, *_ in checked("watch", f"FROM watch WHERE kind = 0 AND {HAS_VALUE.format('?')}", (script, script)):
        if any(any(checked("used", "FROM used WHERE keychain = ? AND place = ?", each)) for each in places.owners(row)):
            return True
        if any(checked("matches", "FROM matches WHERE entry = ? AND spend = 0 LIMIT 1", (row,))):
            return True
    return False


class EntryPlaces:
    """Looks up the keychains and indexes of entries. After many lookups, it reads all runs in one pass."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._questions = 0
        # for each first entry of a run, the end of the run and all runs there
        self._near: dict[int, tuple[int, list[_Run]]] = {}
        self._starts: list[int] = []  # the keys of this dictionary, in ascending order
        self._runs: list[_Run] | None = None  # all runs, sorted by their first entry, if they have been read
        self._reach: list[int] = []  # highest end among the runs up to each run
        self._names: dict[int, str | None] = {}

    def find(self, entry: int) -> tuple[str | None, int | None]:
        """Return the name of the keychain that contains an entry, and the entry's index in it.

        If several keychains contain the entry, the first one wins. Returns (None, None) if it belongs to none.
        """
        owners = self.owners(entry)
        if not owners:
            return None, None
        keychain, index = min(owners)
        return self._name(keychain), index

    def owners(self, entry: int) -> list[tuple[int, int]]:
        """Return the row id of each keychain that contains an entry, with the entry's index in it."""
        runs = self._among_all(entry) if self._questions > _FEW else self._among_near(entry)
        return [(run.keychain, run.index_of(entry)) for run in runs if run.entry <= entry < run.end]

    def _among_near(self, entry: int) -> list[_Run]:
        at = bisect_right(self._starts, entry) - 1
        end, found = self._near[self._starts[at]] if at >= 0 else (0, [])
        if entry < end:
            return found
        self._questions += 1
        found = _overlapping(self._checked, entry, entry + 1)
        if found:
            near = max(found, key=lambda run: run.entry)
            found = _overlapping(self._checked, near.entry, near.end)
            if near.entry not in self._near:
                insort(self._starts, near.entry)
            self._near[near.entry] = near.end, found
        return found

    def _among_all(self, entry: int) -> Iterator[_Run]:
        runs = self._load() if self._runs is None else self._runs
        at = bisect_right(runs, entry, key=lambda run: run.entry) - 1
        while at >= 0 and self._reach[at] > entry:  # runs overlap only if keychains have a script in common
            yield runs[at]
            at -= 1

    def _load(self) -> list[_Run]:
        self._runs = list(map(_Run._make, self._checked("runs", "FROM runs ORDER BY entry", ())))
        self._reach = list(accumulate((run.end for run in self._runs), max))
        return self._runs

    def _name(self, keychain: int) -> str | None:
        if keychain not in self._names:
            rows = self._checked("keychains", "FROM keychains WHERE id = ?", (keychain,))
            self._names[keychain] = next((name for _, name, *_ in rows), None)
        return self._names[keychain]


def narrowed(column: str, keychains: Sequence[int]) -> str:
    """Return the SQL condition that the entry whose id is in `column` belongs to one of these keychains."""
    numbers = ", ".join(map(str, keychains))
    return f"EXISTS (SELECT 1 FROM runs WHERE runs.keychain IN ({numbers}) AND {_MATCHES.format(column)})"
