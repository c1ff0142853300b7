"""Accounts of a watch list: their names, and the account of each entry that belongs to no keychain."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import ParameterError, UnknownAccountError
from spvfilter.kernel import EntryKind
from spvfilter.watch.descriptor.keys import secret_in
from spvfilter.watch.entrytexts import EntryAccounts
from spvfilter.watch.keychain import Keychain

MAX_NAME = 255
"""Largest length of an account's name in characters (our choice)."""


def normalized(name: str) -> str:
    """Return a name as it is stored and compared: in Unicode NFC, so é may be typed as one character or as two."""
    return unicodedata.normalize("NFC", name) if isinstance(name, str) else name


def checked_name(name: str) -> str:
    """Check the name of an account, and return it as it is stored (Unicode NFC).

    Raises ParameterError if a line of a text file cannot contain the name, or if it may be a private key.
    """
    if not isinstance(name, str):
        raise ParameterError(f"an account's name must be text, not {type(name).__name__}")
    name = normalized(name)
    if (what := secret_in(name)) is not None:
        raise ParameterError(
            f"the account's name contains {what}: choose a different name, and keep the key in a safe place"
        )
    if not name.isprintable() or name != name.strip() or not 0 < len(name) <= MAX_NAME:
        raise ParameterError(
            f"an account's name must be 1 to {MAX_NAME} printable characters, without leading or trailing spaces, not"
            f" {name[:80]!r}"
        )
    return name


@dataclass(slots=True)
class Accounts:
    """The accounts of a watch list. A keychain knows its own account; `entries` covers entries outside keychains."""

    names: dict[str, None] = field(default_factory=dict)
    """Names in the order in which the accounts were added."""
    entries: dict[int, str] | EntryAccounts = field(default_factory=dict)
    """Accounts of entries, keyed by entry number."""
    current: str | None = None
    """Account of new entries in the list, or None for no account."""

    def check(self, name: str) -> None:
        """Raise UnknownAccountError if there is no account with this name."""
        if not isinstance(name, str) or name not in self.names:
            raise UnknownAccountError(name)

    def rename(self, old: str, new: str) -> None:
        """Rename an account, which keeps its place.

        Raises UnknownAccountError if there is no account `old`, and ParameterError if the new name is taken.
        """
        self.check(old)
        if (new := checked_name(new)) in self.names and new != old:
            raise ParameterError(f"there is already an account {new[:80]!r}: choose a different name")
        self.names = {new if name == old else name: None for name in self.names}
        self.entries = {entry: new if name == old else name for entry, name in self.entries.items()}

    def copy(self) -> Accounts:
        """Return an independent copy."""
        return Accounts(self.names.copy(), self.entries.copy())

    def without(self, gone: Sequence[int], name: str | None) -> Accounts:
        """Return a copy without some entries and without an account. Later entries get lower numbers.

        Args:
            gone: Numbers of the entries to leave out, in ascending order.
            name: Name of the account to leave out, or None.
        """
        removed = frozenset(gone)
        entries = {
            entry - bisect_left(gone, entry): account
            for entry, account in self.entries.items()
            if entry not in removed and account != name
        }
        return Accounts({each: None for each in self.names if each != name}, entries)


@public
class AccountPlan(NamedTuple):
    """The entries and keychains that an account adds to a watch list."""

    name: str
    """Name of the account."""
    keychains: tuple[tuple[Keychain, list[tuple[bytes, ...]]], ...]
    """New keychains with empty windows, each with the scripts to watch at each index."""
    entries: tuple[tuple[EntryKind, bytes, str | None], ...]
    """New entries outside keychains, as `WatchList.entries` lists them."""
    claimed: tuple[int, ...]
    """Numbers of entries outside keychains that did not belong to an account."""
    adopted: tuple[str, ...]
    """Names of keychains that did not belong to an account."""
    labels: tuple[tuple[bytes, str], ...]
    """Scripts that have a label of their own, with that label."""

    @property
    def chains(self) -> list[Keychain]:
        """The new keychains."""
        return [each for each, _ in self.keychains]

    def scripts(self) -> dict[bytes, str | None]:
        """Return the scripts of the new windows. Each has its own label, or else that of its first keychain."""
        labels: dict[bytes, str | None] = {}
        for chain, window in self.keychains:
            for script in (script for each in window for script in each):
                labels.setdefault(script, chain.label)
        return labels | {script: label for script, label in self.labels if script in labels}


def same_elsewhere(found: Collection[tuple[Keychain, int] | None]) -> Keychain | None:
    """Return the keychain whose index 0 contains all of these scripts, or None if there is no such keychain.

    Args:
        found: Keychain and index at which each script was found, or None for a script that belongs to no keychain.
    """
    owners = {(place[0].name, place[1]) if place is not None else None for place in found}
    first = next(iter(found), None)
    return first[0] if first is not None and len(owners) == 1 and first[1] == 0 else None
