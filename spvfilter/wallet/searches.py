"""Searches: the search's cursor, and the blocks that have been searched for each entry."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.store.searched import Searched
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.saved import SavedBooks


class Searches:
    """The search's cursor, and the blocks that have been searched for each entry of the watch list."""

    def __init__(self, changes: Changes, saved: SavedBooks) -> None:
        self.cursor: int = saved.cursor
        """Height up to which blocks have been searched."""
        self.searched: int = saved.searched
        """Height up to which blocks had been searched before the cursor moved back for new entries."""
        self.blocks: Searched = saved.blocks
        """The blocks that have been searched for each entry."""
        self._changes = changes

    @property
    def first_height(self) -> int:
        """Height to record for a transaction that the wallet sees for the first time."""
        return max(self.searched, 0)

    def begin_at(self, height: int | None, wanted: tuple[int | None, int | None] | None = None) -> None:
        """Begin the wallet's search at a height.

        Args:
            height: The height; None if it is not known yet.
            wanted: A height and a birthday. The search begins at the lower of the two.
        """
        self.blocks.start, self.blocks.wanted = height, wanted
        self._changes.put_searched(self.blocks)

    def skip_to(self, height: int) -> None:
        """Begin a new wallet's search above a height."""
        self._move_cursor(height)

    def record(self, height: int) -> None:
        """Record that the blocks above the cursor, up to a height, have been searched."""
        self.blocks.record(self.cursor + 1, height)
        self._move_cursor(height)

    def search_again(self, height: int) -> None:
        """Move the cursor back so that blocks above `height` are searched again. Their matches stay."""
        if height < self.cursor:
            self.blocks.again(max(height, -1), self.cursor)
            self._move_cursor(max(height, -1))

    def rewind(self, height: int) -> None:
        """Move the cursor back and search the blocks above `height` again, because their matches are in doubt."""
        self.blocks.cut(max(height, -1))
        self._changes.put_searched(self.blocks)
        self.search_again(height)

    def doubt(self, height: int) -> None:
        """Search the blocks at and above a height again, as far as they have been searched for any entry."""
        lowest = self.blocks.lowest
        first = self.cursor + 1 if lowest is None else min(lowest, self.cursor + 1)
        self.rewind(max(height, first) - 1)

    def disconnect(self, fork: int) -> None:
        """Forget the blocks above height `fork`, which left the best chain."""
        self.cursor, self.searched = min(self.cursor, fork), min(self.searched, fork)
        self.blocks.cut(fork)
        self._changes.put_searched(self.blocks)

    def add_entries(self, number: int, like: int | None) -> int:
        """Add `number` entries, and return the row id of the first. For `like`, see `Searched.add_entries`."""
        first = self.blocks.add_entries(number, like)
        self._changes.put_searched(self.blocks)
        return first

    def keep_entries(self, ids: Sequence[int]) -> None:
        """Forget all entries except those with these row ids."""
        self.blocks.keep_entries(ids)
        self._changes.put_searched(self.blocks)

    def _move_cursor(self, height: int) -> None:
        self.cursor = height
        self._changes.move_cursor(height)
        self.searched = max(self.searched, height)
        self._changes.put_searched(self.blocks)
