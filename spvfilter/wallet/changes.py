"""Changes to the books that have not been committed yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spvfilter.store.batch import AccountChange, Batch, NewEntry
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.keychains import KeychainChange, SilentKeys
from spvfilter.store.ledger import StoredMatch, StoredTx
from spvfilter.store.searched import Searched
from spvfilter.wallet.confirmed import Identity, identity
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.silentkeychain import SilentKeychain


class Changes:
    """The batch that collects changes, and the sealed batches that must be applied before it.

    Two changes are computed only once a batch is complete: which blocks have been searched, and which keychain indexes
    have been used.
    """

    def __init__(self, watch: TxOutIndex) -> None:
        self.batch: Batch = Batch()
        self._watch = watch
        self._matches: dict[Identity, StoredMatch | None] = {}  # None if the match is withdrawn
        self._searched: Searched | None = None  # None if they have not changed
        self._sealed: list[Batch] = []

    # Matches and transactions

    def put_match(self, found: StoredMatch) -> None:
        """Write a match, replacing its earlier state."""
        self._matches[identity(found.hit)] = found

    def withdraw(self, mark: Identity) -> None:
        """Delete a match."""
        self._matches[mark] = None

    def put_tx(self, txid: bytes, row: StoredTx) -> None:
        """Write a transaction's complete row."""
        self.batch.transactions[txid] = row

    def remove_tx(self, txid: bytes) -> None:
        """Delete a transaction."""
        self.batch.transactions[txid] = None

    # Blocks

    def put_branch(self, txid: bytes, block_hash: bytes, branch: bytes) -> None:
        """Write the merkle branch of a transaction in a block."""
        self.batch.branches[txid] = block_hash, branch

    def extend(self, headers: bytes) -> None:
        """Add headers (80 bytes each) that follow the stored ones."""
        self.batch.headers += headers

    def disconnect(self, fork: int, headers: bytes) -> None:
        """Delete everything above height `fork`, and add the headers that follow it. Earlier changes are sealed."""
        self.seal()
        self.batch.fork, self.batch.headers = fork, headers

    def move_cursor(self, height: int) -> None:
        """Write the height up to which blocks have been searched."""
        self.batch.cursor = height

    def put_searched(self, blocks: Searched) -> None:
        """Write the blocks that have been searched for each entry.

        The batch stores the state that they have when it is complete.
        """
        self._searched = blocks

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Write filter hashes and filters."""
        if self.batch.compact_filters is not None and change.fork is not None:
            self.seal()
        known = self.batch.compact_filters
        self.batch.compact_filters = change if known is None else known.extended(change)

    # Entries of the watch list

    def add_entries(self, entries: Iterable[NewEntry]) -> None:
        """Add entries that follow the last one."""
        self.batch.entries += entries

    def remove_entries(self, numbers: Sequence[int]) -> None:
        """Remove entries. Later changes go into the next batch, in which the other entries have new numbers."""
        self.batch.removed = numbers

    def relabel(self, labels: Mapping[int, str | None]) -> None:
        """Write labels, keyed by entry number. None removes a label."""
        self.batch.labels |= labels

    def move_window(self, change: KeychainChange) -> None:
        """Write the window of a keychain."""
        self.batch.keychains.append(change)

    def put_silent(self, keychain: SilentKeychain) -> None:
        """Write the scan key and the labels of an sp() keychain."""
        keys = SilentKeys(keychain.silent.secret, keychain.labels.copy(), keychain.depth)
        self.batch.sp_keys.append((keychain.name, keys))

    def put_output(self, row: int, found: tuple[int | None, bytes]) -> None:
        """Write the facts about a silent payment. `row` is the row id of its script."""
        self.batch.sp_outputs[row] = found

    def change_account(self, change: AccountChange) -> None:
        """Add or change an account."""
        self.batch.accounts.append(change)

    # Batches

    def seal(self) -> None:
        """Seal the batch, so that all changes so far are applied before later ones."""
        self._finish()
        self._sealed.append(self.batch)
        self.batch = Batch()

    def take(self) -> list[Batch]:
        """Return the batches since the last call, in the order in which to commit them. Empty batches are left out."""
        self._finish()
        batches = [each for each in (*self._sealed, self.batch) if not each.is_empty]
        if batches:
            self._sealed, self.batch = [], Batch()
        return batches

    def _finish(self) -> None:
        self.batch.withdrawn += [mark for mark, found in self._matches.items() if found is None]
        self.batch.matches += [found for found in self._matches.values() if found is not None]
        self._matches = {}
        used = self._watch.windows.take_fresh()
        self.batch.keychains += (KeychainChange(name, indexes) for name, indexes in used.items())
        if self._searched is not None:
            self.batch.searched, self._searched = self._searched.encode(), None
