"""Reads keychains from the database: windows, used indexes and next addresses. No library derives anything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.watch.keychain import MAX_LISTED, all_used, identity_of, listed_keychains

# a function that returns checked rows of a table, from the rest of a query and its values
Checked = Callable[[str, str, tuple[object, ...]], Iterator[tuple[Any, ...]]]
_MATCHES = "{0} >= runs.entry AND {0} < runs.entry + runs.indexes * runs.scripts"


@public
@dataclass(frozen=True, slots=True)
class KeychainStatus:
    """A keychain of the wallet, and the indexes that were used."""

    name: str
    """Name of the keychain. A keychain from a descriptor has the descriptor as its name."""
    label: str | None
    """Label of its entries."""
    descriptor: str | None
    """Descriptor with its checksum; None if a function of the program derives the scripts."""
    lookahead: int
    """Number of scripts to watch after the last used index."""
    window: int
    """Number of watched indexes: all indexes below this one are watched."""
    used: tuple[int, ...]
    """Indexes that were paid, in ascending order, whatever became of the payment."""
    revealed: int
    """First index that `LightClient.reveal_address` has not given or skipped yet; 0 if it gave none."""
    next_index: int | None
    """Lowest index that was never paid; None if all indexes of a fixed descriptor were."""
    next_address: str | None
    """Address of `next_index`; None if the keychain's scripts have no address."""
    account: str | None = None
    """Name of the account that the keychain belongs to; None if it belongs to no account."""


def keychains_of(
    checked: Checked, network: Network, name: str | None = None, account: int | None = None
) -> list[KeychainStatus]:
    """Return the keychains in the order in which they were added; with `name`, the keychains that `chosen` returns.

    With `account`, only keychains of the account with this id. Raises StoreCorruptError, and ParameterError if no
    keychain has the name.
    """
    rows = _keychains(checked, name, account)
    names = {row: each for row, each, _ in checked("accounts", "FROM accounts", ())}
    found: list[KeychainStatus] = []
    seen = _seen(checked)
    for row, full_name, label, descriptor, lookahead, size, window, owner in rows:
        used = [index for _, index in checked("used", "FROM used WHERE keychain = ? ORDER BY place", (row,))]
        paid = sorted({*used, *seen.get(row, ())})
        index = next((at for at, each in enumerate(paid) if at != each), len(paid))
        address = _address_at(checked, row, index, network) if index < window else None
        free = index if index < size else None
        status = KeychainStatus(
            full_name, label, descriptor, lookahead, window, tuple(used), _revealed(checked, row), free, address
        )
        found.append(status if owner is None else replace(status, account=names[owner]))
    return found


def _revealed(checked: Checked, keychain: int) -> int:
    """Return the first index of a keychain that was not revealed."""
    if not any(checked("revealed", "FROM revealed LIMIT 1", ())):
        return 0
    identity = identity_of(_scripts_at(checked, keychain, 0))
    return next((row[1] for row in checked("revealed", "FROM revealed WHERE keychain = ?", (identity,))), 0)


def _seen(checked: Checked) -> dict[int, set[int]]:
    """Return the indexes that unconfirmed transactions pay, by the row id of the keychain."""
    seen: dict[int, set[int]] = {}
    for *_, row, _, _, _ in checked("matches", "FROM matches WHERE height IS NULL AND spend = 0", ()):
        where = f"FROM runs WHERE {_MATCHES.format('?')}"
        for keychain, first, entry, _, scripts in checked("runs", where, (row, row)):
            seen.setdefault(keychain, set()).add(first + (row - entry) // scripts)
    return seen


def _address_at(checked: Checked, keychain: int, index: int, network: Network) -> str | None:
    """Return the address of an index of a window; None if its scripts have no address."""
    addresses = (script_to_address(script, network) for script in _scripts_at(checked, keychain, index))
    return next(filter(None, addresses), None)


def _scripts_at(checked: Checked, keychain: int, index: int) -> Iterator[bytes]:
    """Yield the scripts of an index of a window."""
    for _, first, entry, _, scripts in checked(
        "runs",
        "FROM runs WHERE keychain = ? AND first <= ? AND first + indexes > ? ORDER BY entry",
        (keychain, index, index),
    ):
        start = entry + (index - first) * scripts
        for row in range(start, start + scripts):
            yield from (value for _, _, value, _, _ in checked("watch", "FROM watch WHERE id = ?", (row,)))


def _keychains(checked: Checked, name: str | None, account: int | None) -> list[tuple[Any, ...]]:
    """Return the rows of keychains with a name, of an account; None means all. Raises as `chosen`."""
    if name is not None:
        found = chosen(checked, name)
        if account is not None and not (found := [row for row in found if row[7] == account]):
            raise ParameterError(f"the account has no keychain {name[:80]!r}")
        return found
    if account is None:
        return list(checked("keychains", "FROM keychains ORDER BY id", ()))
    return list(checked("keychains", "FROM keychains WHERE account = ? ORDER BY id", (account,)))


def chosen(checked: Checked, name: str) -> list[tuple[Any, ...]]:
    """Return the rows of the keychains with a name, a descriptor without its checksum, or a label.

    Several keychains may have a label. The query reads only the rows that it returns, in the order of their ids.

    Raises ParameterError if there is no such keychain.
    """
    ways: list[tuple[str, tuple[str, ...]]] = [("name = ?", (name,)), ("label = ?", (name,))]
    if "#" not in name:  # the name of a keychain from a descriptor ends with '#' and the checksum
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
    """Return the address of the lowest unused index of a keychain, by default the first keychain.

    With `account`, only keychains of the account with this id count. The queries read the row of the keychain, and
    neither other keychains nor all used indexes.

    Raises ParameterError if there is no such keychain, or if it has no unused address in its window.
    """
    if name is None and account is None:
        rows = list(checked("keychains", "FROM keychains ORDER BY id LIMIT 1", ()))
    else:
        rows = _keychains(checked, name, account)
    if not rows:
        whose = "wallet" if account is None else "account"
        raise ParameterError(f"the {whose} has no keychain: watch its descriptor")
    row, full_name, _, _, _, size, window, _ = rows[0]
    index, seen = _next_index(checked, row), _seen(checked).get(row, set())
    while index in seen or (seen and any(checked("used", "FROM used WHERE keychain = ? AND place = ?", (row, index)))):
        index += 1
    if index >= size:
        raise ParameterError(f"every address of keychain {full_name[:80]!r} has been used")
    if index >= window:
        raise ParameterError(all_used(full_name))
    address = _address_at(checked, row, index, network)
    if address is None:
        raise ParameterError(f"the scripts of keychain {full_name[:80]!r} have no address")
    return address


def _next_index(checked: Checked, keychain: int) -> int:
    """Return the lowest unused index of a keychain."""
    if not any(checked("used", "FROM used WHERE keychain = ? AND place = 0", (keychain,))):
        return 0
    after = "SELECT 1 FROM used AS after WHERE after.keychain = used.keychain AND after.place = used.place + 1"
    where = f"FROM used WHERE keychain = ? AND NOT EXISTS ({after}) ORDER BY place LIMIT 1"
    return next(int(place) + 1 for _, place in checked("used", where, (keychain,)))


def is_script_used(checked: Checked, script: bytes) -> bool:
    """Return True if an output that pays a script was found, or if its index of a keychain was used."""
    for row, *_ in checked("watch", "FROM watch WHERE kind = ? AND value = ?", (int(EntryKind.SCRIPT), script)):
        for owner, first, entry, _, scripts in checked("runs", f"FROM runs WHERE {_MATCHES.format('?')}", (row, row)):
            if any(
                checked("used", "FROM used WHERE keychain = ? AND place = ?", (owner, first + (row - entry) // scripts))
            ):
                return True
        if any(checked("matches", "FROM matches WHERE spend = 0 AND entry = ?", (row,))):
            return True
    return False


class EntryPlaces:
    """The keychain and the index of entries. All runs are read once, when the first entry is looked up."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._runs: list[tuple[int, int, int, int, int]] | None = None  # entry, end, keychain, first, scripts; by entry
        self._reach: list[int] = []  # highest end of the runs up to each run
        self._names: dict[int, str | None] = {}

    def find(self, entry: int) -> tuple[str | None, int | None]:
        """Return the name of the keychain of an entry, and the index there.

        If several keychains have the entry, the first one counts. The result is (None, None) if none has it.
        """
        runs = self._load() if self._runs is None else self._runs
        owners: list[tuple[int, int]] = []  # keychain and index
        at = bisect_right(runs, entry, key=lambda run: run[0]) - 1
        while at >= 0 and self._reach[at] > entry:  # runs overlap only if keychains have a script in common
            start, end, keychain, first, scripts = runs[at]
            if entry < end:
                owners.append((keychain, first + (entry - start) // scripts))
            at -= 1
        if not owners:
            return None, None
        keychain, index = min(owners)
        return self._name(keychain), index

    def _load(self) -> list[tuple[int, int, int, int, int]]:
        rows = self._checked("runs", "FROM runs ORDER BY entry", ())
        self._runs = [
            (entry, entry + indexes * scripts, keychain, first, scripts)
            for keychain, first, entry, indexes, scripts in rows
        ]
        self._reach = list(accumulate((end for _, end, *_ in self._runs), max))
        return self._runs

    def _name(self, keychain: int) -> str | None:
        if keychain not in self._names:
            rows = self._checked("keychains", "FROM keychains WHERE id = ?", (keychain,))
            self._names[keychain] = next((name for _, name, *_ in rows), None)
        return self._names[keychain]


def narrowed(column: str, keychains: Sequence[int]) -> str:
    """Return an SQL condition: the column, an entry's id, belongs to one of these keychains."""
    numbers = ", ".join(map(str, keychains))
    return f"EXISTS (SELECT 1 FROM runs WHERE runs.keychain IN ({numbers}) AND {_MATCHES.format(column)})"
