"""Reads keychains from the database: windows, used indexes and next addresses. No library derives anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.watch.keychain import all_used

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
    next_index: int | None
    """Lowest index that was never paid; None if all indexes of a fixed descriptor were."""
    next_address: str | None
    """Address of `next_index`; None if the keychain's scripts have no address."""


def keychains_of(checked: Checked, network: Network) -> list[tuple[int, KeychainStatus]]:
    """Return the keychains with their row ids, in the order in which they were added. Raises StoreCorruptError."""
    found: list[tuple[int, KeychainStatus]] = []
    for row, name, label, descriptor, lookahead, size, window in checked("keychains", "FROM keychains ORDER BY id", ()):
        used = [index for _, index in checked("used", "FROM used WHERE keychain = ? ORDER BY place", (row,))]
        index = next((at for at, each in enumerate(used) if at != each), len(used))
        address = None
        if index < window:
            addresses = (script_to_address(script, network) for script in _scripts_at(checked, row, index))
            address = next(filter(None, addresses), None)
        free = index if index < size else None
        found.append((row, KeychainStatus(name, label, descriptor, lookahead, window, tuple(used), free, address)))
    return found


def _scripts_at(checked: Checked, keychain: int, index: int) -> Iterator[bytes]:
    """Yield the scripts of an index of a window."""
    for _, first, entry, _, scripts in checked(
        "runs",
        "FROM runs WHERE keychain = ? AND first <= ? AND first + indexes > ? ORDER BY entry",
        (keychain, index, index),
    ):
        start = entry + (index - first) * scripts
        for row in range(start, start + scripts):
            yield from (value for _, _, value, _ in checked("watch", "FROM watch WHERE id = ?", (row,)))


def chosen(known: Sequence[tuple[int, KeychainStatus]], name: str) -> list[tuple[int, KeychainStatus]]:
    """Return the keychains with a name, a descriptor without its checksum, or a label, which several may have.

    Raises ParameterError if there is none.
    """
    for names in (
        (each.name for _, each in known),
        (each.name.partition("#")[0] for _, each in known),
        (each.label for _, each in known),
    ):
        if found := [each for each, given in zip(known, names, strict=True) if given == name]:
            return found
    raise ParameterError(f"the wallet has no keychain {name[:80]!r}" + ("" if known else "; it has none at all"))


def next_of(known: Sequence[tuple[int, KeychainStatus]], name: str | None) -> KeychainStatus:
    """Return a keychain that has a next address, by default the first. Raises ParameterError if it has none."""
    if name is None and not known:
        raise ParameterError("the wallet has no keychain: watch its descriptor")
    _, found = known[0] if name is None else chosen(known, name)[0]
    if found.next_index is None:
        raise ParameterError(f"every address of keychain {found.name[:80]!r} has been used")
    if found.next_index >= found.window:
        raise ParameterError(all_used(found.name))
    if found.next_address is None:
        raise ParameterError(f"the scripts of keychain {found.name[:80]!r} have no address")
    return found


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


def place_of_entry(checked: Checked, entry: int) -> tuple[str | None, int | None]:
    """Return the name of the keychain of an entry, and the index there. If several have it, the first one counts."""
    for owner, first, start, _, scripts in checked(
        "runs", f"FROM runs WHERE {_MATCHES.format('?')} ORDER BY keychain LIMIT 1", (entry, entry)
    ):
        for row in checked("keychains", "FROM keychains WHERE id = ?", (owner,)):
            return row[1], first + (entry - start) // scripts
    return None, None


def narrowed(column: str, keychains: Sequence[int]) -> str:
    """Return an SQL condition: the column, an entry's id, belongs to one of these keychains."""
    numbers = ", ".join(map(str, keychains))
    return f"EXISTS (SELECT 1 FROM runs WHERE runs.keychain IN ({numbers}) AND {_MATCHES.format(column)})"
