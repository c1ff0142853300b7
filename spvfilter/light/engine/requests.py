"""Requests from the user of a running client, as plain values: changes to entries and accounts, rescans, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.kernel import EntryKind
from spvfilter.light.engine.start import StartHeight
from spvfilter.light.events import Mode
from spvfilter.watch.watchlist import WatchList


class SearchStart(NamedTuple):
    """The start of a search. If neither a height nor a birthday is given, it is the start of the client's search."""

    from_height: int | None = None
    birthday: int | None = None
    """Unix time."""

    @property
    def height(self) -> StartHeight:
        """The start as a height of a chain."""
        return StartHeight(self.from_height, self.birthday)


class AddEntries(NamedTuple):
    """Watch more entries. Returns the first height to be searched for them."""

    entries: tuple[tuple[EntryKind, bytes, str | None], ...]
    """The entries, as returned by WatchList.entries."""
    start: SearchStart
    ways: frozenset[Mode] = frozenset((Mode.COMPACT, Mode.BIP37))
    """Modes that can find the entries."""


class RemoveEntries(NamedTuple):
    """Remove entries from the watch list. Returns None."""

    entries: tuple[tuple[EntryKind, bytes], ...]


class RelabelEntries(NamedTuple):
    """Change or remove the labels of entries. Returns None."""

    entries: tuple[tuple[EntryKind, bytes, str | None], ...]
    """Kind, value and new label of each entry. None removes the label."""
    may_lack: bool = False
    """True to ignore entries that are not watched. Otherwise, they are an error."""


class RelabelKeychains(NamedTuple):
    """Change or remove the label of keychains. Scripts that have a label of their own keep it. Returns None."""

    names: tuple[str, ...]
    """Names of the keychains."""
    label: str | None


class Rescan(NamedTuple):
    """Search blocks again for all entries. Without a start, search all blocks.

    Returns the first height to be searched.
    """

    start: SearchStart


class RevealAddress(NamedTuple):
    """Reveal the next address of an account or a keychain. Returns the address."""

    account: str | None
    """Name of the account, or name or label of the keychain; None for the first keychain."""
    exclusive: bool
    """True if the program promises that no other program or database reveals the keychain's addresses."""


@dataclass(frozen=True, slots=True)
class ReachIndex:
    """Watch a keychain up to an index that another program uses, plus a lookahead. Returns None."""

    keychain: str
    """Name of the keychain."""
    index: int
    """Index that the window must contain."""


@dataclass(frozen=True, slots=True, eq=False)
class FetchBlock:
    """Fetch a whole block of the best chain from a peer. Returns the block."""

    block_hash: bytes
    """Hash of the block, 32 bytes in wire order."""


class CancelBlock(NamedTuple):
    """Cancel a request for a block. Only the cancelled request gets an answer, not this one."""

    request: FetchBlock
    """The request to cancel."""


class AddAccount(NamedTuple):
    """Watch an account. Returns the first height to be searched for its new entries."""

    account: WatchList
    """A watch list that contains only the account; see `WatchList.of_account`."""
    start: SearchStart
    ways: frozenset[Mode] = frozenset((Mode.COMPACT, Mode.BIP37))
    """The modes that can find its entries."""
    extend: bool = True
    """False to refuse to add sources to an existing account."""


class RemoveAccount(NamedTuple):
    """Stop watching an account. Returns None."""

    name: str
    """Name of the account."""


class RenameAccount(NamedTuple):
    """Rename an account. Returns None."""

    old: str
    """Current name of the account."""
    new: str
    """New name of the account."""


Request = (
    AddAccount
    | RemoveAccount
    | RenameAccount
    | AddEntries
    | RemoveEntries
    | RelabelEntries
    | RelabelKeychains
    | Rescan
    | RevealAddress
    | ReachIndex
    | FetchBlock
    | CancelBlock
)
