"""Known scripts: the script hashes that belong to the wallet, and the unknown hashes that sessions have sent.

A further script is a keychain's script past the end of its window, which the watch list does not contain yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spvfilter.electrum.histories import script_hash_of
from spvfilter.kernel import EntryKind, WatchTable
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import STEP

FURTHER = 1_000
"""Number of indexes past a keychain's window whose scripts are derived to find an unknown hash (our choice)."""
MAX_FURTHER = 100_000
"""Largest number of scripts that are derived to find one unknown hash: five seconds of work in a thread (our
choice).
"""
MAX_UNKNOWN = 10_000
"""Largest number of unknown script hashes kept in memory (our choice). The oldest are dropped."""


@dataclass(frozen=True, slots=True)
class FurtherScript:
    """A keychain's script past the end of its window."""

    keychain: str
    """Name of the keychain."""
    index: int
    """Index of the script."""


class KnownScripts:
    """Tracks which script hashes belong to the wallet."""

    def __init__(self) -> None:
        self._hashes: dict[str, None] = {}
        self._table: WatchTable | None = None  # the watch list's table, which a removal replaces
        self._entries = 0  # number of the table's entries that have been hashed
        self._further: dict[str, tuple[int, dict[str, int]]] = {}
        """For each keychain name, the end of its window, and the index of each further script, keyed by script hash."""
        self.unknown: dict[str, None] = {}
        """Script hashes that belong to no keychain and no entry, latest last."""
        self.unknown_count: int = 0
        """Number of unknown script hashes so far."""

    def __contains__(self, script_hash: str) -> bool:
        return script_hash in self._hashes

    def update(self, watch: WatchList) -> Iterator[None]:
        """Add the scripts that are new in the watch list since the last call, in steps of two milliseconds."""
        if watch.table is self._table and len(watch) == self._entries:
            return
        while self._take(watch):
            yield
        for script_hash in [each for each in self.unknown if each in self._hashes]:
            del self.unknown[script_hash]

    def _take(self, watch: WatchList) -> bool:
        """Add the next scripts. Return False if there are no more."""
        if watch.table is not self._table:  # entries were removed, possibly between two steps
            self._table, self._hashes, self._entries = watch.table, {}, 0
        end = min(self._entries + STEP, len(watch))
        for kind, value in map(watch.table.entry, range(self._entries, end)):
            if kind == EntryKind.SCRIPT:
                self._hashes[script_hash_of(value)] = None
        self._entries = end
        return end < len(watch)

    def find(self, script_hash: str) -> FurtherScript | None:
        """Return the further script with this hash, or None if none has been derived."""
        for name, (_, indexes) in self._further.items():
            if (index := indexes.get(script_hash)) is not None:
                return FurtherScript(name, index)
        return None

    def to_derive(self, keychains: Sequence[Keychain]) -> list[tuple[Keychain, int, int]]:
        """Return the keychains whose window has moved since their further scripts were derived.

        Each keychain is returned with the first and the last index to derive. The total number of scripts is bounded.
        """
        found, left = list[tuple[Keychain, int, int]](), MAX_FURTHER
        for keychain in keychains:
            count = min(FURTHER, keychain.size - keychain.end)
            known = self._further.get(keychain.name)
            if keychain.is_dormant or (known is not None and known[0] == keychain.end):
                continue
            if count <= 0 or count * keychain.keys > left:
                continue
            left -= count * keychain.keys
            found.append((keychain, keychain.end, keychain.end + count - 1))
        return found

    def take_derived(self, name: str, first: int, scripts: Sequence[tuple[bytes, ...]]) -> None:
        """Store more scripts of a keychain: a tuple for each index, starting at `first`, the end of its window."""
        indexes = {script_hash_of(script): first + at for at, each in enumerate(scripts) for script in each}
        self._further[name] = first, indexes

    def note_unknown(self, script_hash: str) -> bool:
        """Record that a script hash is unknown. Return True if it had not been recorded before."""
        if script_hash in self.unknown:
            return False
        self.unknown[script_hash] = None
        self.unknown_count += 1
        if len(self.unknown) > MAX_UNKNOWN:
            del self.unknown[next(iter(self.unknown))]
        return True


def derived(keychain: Keychain, first: int, last: int) -> list[tuple[bytes, ...]]:
    """Return a keychain's scripts at a range of indexes. Any thread may call this. Raises KeychainError."""
    return [keychain.scripts(index) for index in range(first, last + 1)]
