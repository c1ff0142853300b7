"""Keychains as readers of the database see them: windows, uses and next addresses, without a library that derives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any  # rows are as SQLite gives them

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.watch.keychain import all_used

# rows of a table, by the rest of a query and its values
Checked = Callable[[str, str, tuple[object, ...]], Iterator[tuple[Any, ...]]]
_MATCHES = "{0} >= runs.entry AND {0} < runs.entry + runs.indexes * runs.scripts"


@public
@dataclass(frozen=True, slots=True)
class KeychainStatus:
    """A keychain of the wallet, and what of it was used."""

    name: str
    """Of one that was made of a descriptor: the descriptor."""
    label: str | None
    descriptor: str | None
    """With its checksum; None for one that the wallet derives by itself."""
    lookahead: int
    window: int
    """The indexes below are watched."""
    used: tuple[int, ...]
    """The indexes that were paid, ascending, whatever became of the payment."""
    next_index: int | None
    """The lowest one that was never used; None if all of a fixed descriptor's are."""
    next_address: str | None
    """Of that index, if its scripts have one."""


def keychains_of(checked: Checked, network: Network) -> list[tuple[int, KeychainStatus]]:
    """The keychains with the ids of their rows, in the order in which they were added. Raises StoreCorruptError."""
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
    """The scripts of an index of a window."""
    for _, first, entry, _, scripts in checked(
        "runs",
        "FROM runs WHERE keychain = ? AND first <= ? AND first + indexes > ? ORDER BY entry",
        (keychain, index, index),
    ):
        start = entry + (index - first) * scripts
        for row in range(start, start + scripts):
            yield from (value for _, _, value, _ in checked("watch", "FROM watch WHERE id = ?", (row,)))


def chosen(known: Sequence[tuple[int, KeychainStatus]], name: str) -> list[tuple[int, KeychainStatus]]:
    """The keychains with a name, a descriptor without its checksum, or a label, which several may have.

    Raises ParameterError for none.
    """
    for names in (
        (each.name for _, each in known),
        (each.name.partition("#")[0] for _, each in known),
        (each.label for _, each in known),
    ):
        if found := [each for each, given in zip(known, names, strict=True) if given == name]:
            return found
    raise ParameterError(f"the wallet has no keychain {name[:80]!r}" + ("" if known else ", nor any other"))


def next_of(known: Sequence[tuple[int, KeychainStatus]], name: str | None) -> KeychainStatus:
    """The keychain that a next address is asked of, by default the first. Raises ParameterError if it has none."""
    if name is None and not known:
        raise ParameterError("the wallet has no keychain: watch its descriptor")
    _, found = known[0] if name is None else chosen(known, name)[0]
    if found.next_index is None:
        raise ParameterError(f"every address of keychain {found.name[:80]!r} was used")
    if found.next_index >= found.window:
        raise ParameterError(all_used(found.name))
    if found.next_address is None:
        raise ParameterError(f"the scripts of keychain {found.name[:80]!r} have no address")
    return found


def is_script_used(checked: Checked, script: bytes) -> bool:
    """Whether an output that pays a script was found, or its index of a keychain was used."""
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
    """The name of the keychain that an entry belongs to, and the index there; the first one's, where several have
    it.
    """
    for owner, first, start, _, scripts in checked(
        "runs", f"FROM runs WHERE {_MATCHES.format('?')} ORDER BY keychain LIMIT 1", (entry, entry)
    ):
        for row in checked("keychains", "FROM keychains WHERE id = ?", (owner,)):
            return row[1], first + (entry - start) // scripts
    return None, None


def narrowed(column: str, keychains: Sequence[int]) -> str:
    """The condition that a column, the id of an entry, is of one of these keychains."""
    numbers = ", ".join(map(str, keychains))
    return f"EXISTS (SELECT 1 FROM runs WHERE runs.keychain IN ({numbers}) AND {_MATCHES.format(column)})"
