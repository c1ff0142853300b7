"""Changes of the books that are not committed yet."""

from __future__ import annotations

from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.confirmed import Identity, identity


class Changes:
    """The batch that takes changes, and sealed batches, which must be applied before it."""

    def __init__(self) -> None:
        self.batch: Batch = Batch()
        self._matches: dict[Identity, StoredMatch | None] = {}  # None: the match is withdrawn
        self._sealed: list[Batch] = []

    def put_match(self, found: StoredMatch) -> None:
        """Write a match, in place of an earlier state of it."""
        self._matches[identity(found.hit)] = found

    def withdraw(self, mark: Identity) -> None:
        """Delete a match."""
        self._matches[mark] = None

    def seal(self) -> None:
        """Apply all changes so far before the changes that follow."""
        self._finish()
        self._sealed.append(self.batch)
        self.batch = Batch()

    def take(self) -> list[Batch]:
        """The batches since the last call that change something, in the order in which they must be committed."""
        self._finish()
        batches = [each for each in (*self._sealed, self.batch) if not each.is_empty]
        if batches:
            self._sealed, self.batch = [], Batch()
        return batches

    def _finish(self) -> None:
        self.batch.withdrawn += [mark for mark, found in self._matches.items() if found is None]
        self.batch.matches += [found for found in self._matches.values() if found is not None]
        self._matches = {}
