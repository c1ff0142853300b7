"""Outpoints that anybody may have invented: of outputs that only unconfirmed transactions of others made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.watch.watchlist import WatchList

MAX_STALE = 10_000  # outpoints of transactions that are forgotten, above which the watch list forgets them, too; ours


class InventedOutpoints:
    """Outpoints that the watch list has learned, until a block has their transaction.

    Inventing payments, replacing them, costs nothing: the list would grow for as long as it is used. So the outpoints of transactions
    that are kept no longer are forgotten. If a block has one of these after all, they are learned again before a block can spend them.
    """

    def __init__(self, watch: WatchList, outpoints: Iterable[bytes]) -> None:
        self._watch = watch
        self._outpoints = set(outpoints)
        self._limit = 2 * len(self._outpoints) + MAX_STALE

    def __len__(self) -> int:
        return len(self._outpoints)

    def add(self, outpoint: bytes) -> None:
        """An unconfirmed transaction of a stranger made an output."""
        self._outpoints.add(outpoint)

    def discard(self, outpoint: bytes) -> None:
        """A block has made it."""
        self._outpoints.discard(outpoint)

    def left_out(self, elements: Iterable[bytes]) -> dict[bytes, None]:
        """Elements of a filter but for these outpoints; those that are entries of the list stay."""
        kept = dict.fromkeys(elements)
        for outpoint in self._outpoints:
            if self._watch.table.find(EntryKind.OUTPOINT, outpoint) == NO_ENTRY:
                kept.pop(outpoint, None)
        return kept

    def trim(self, is_kept: Callable[[bytes], bool]) -> None:
        """Forget the outpoints of transactions, told by txid, that are not kept, if these may be many: work in proportion to what came."""
        if len(self._outpoints) <= self._limit:
            return
        stale = [outpoint for outpoint in self._outpoints if not is_kept(outpoint[:32])]
        self._watch.forget_outpoints(stale)
        self._outpoints.difference_update(stale)
        self._limit = 2 * len(self._outpoints) + MAX_STALE
