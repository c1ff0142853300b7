"""Changes of the books that are not committed yet."""

from __future__ import annotations

from spvfilter.store.batch import Batch


class Changes:
    """The batch that takes changes, and those before it, which must be applied first."""

    def __init__(self) -> None:
        self.batch: Batch = Batch()
        self._sealed: list[Batch] = []

    def seal(self) -> None:
        """What follows must be applied after all changes so far."""
        self._sealed.append(self.batch)
        self.batch = Batch()

    def take(self) -> list[Batch]:
        """The batches since the last call that change something, in the order in which they must be committed."""
        batches = [each for each in (*self._sealed, self.batch) if not each.is_empty]
        if batches:
            self._sealed, self.batch = [], Batch()
        return batches
