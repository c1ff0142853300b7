"""Outpoints that anybody may have invented: of outputs that only unconfirmed transactions of others made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice

from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.watch.watchlist import WatchList

MAX_STALE = 10_000  # outpoints of transactions that are forgotten, above which the watch list forgets them, too; ours
_LOOKS = (
    4  # at outpoints, for each that is added: so of n that are kept at most some n / 4 more are not known to be stale
)
_MOST_LOOKS = 500  # at once


class InventedOutpoints:
    """Outpoints that the watch list has learned, until a block has their transaction.

    Inventing payments, replacing them, costs nothing: the list would grow for as long as it is used. So the outpoints
    of transactions that are kept no longer are forgotten. If a block has one of these after all, they are learned again
    before a block can spend them.
    """

    def __init__(self, watch: WatchList, outpoints: Iterable[bytes]) -> None:
        self._watch = watch
        self._outpoints = OrderedDict.fromkeys(outpoints)  # those first that were looked at longest ago
        self._stale: dict[bytes, None] = {}  # those of transactions that were not kept when they were looked at
        self._due = 0  # looks, for what was added

    def __len__(self) -> int:
        return len(self._outpoints) + len(self._stale)

    def add(self, outpoint: bytes) -> None:
        """An unconfirmed transaction of a stranger made an output."""
        self._stale.pop(outpoint, None)
        self._outpoints[outpoint] = None
        self._due += _LOOKS

    def discard(self, outpoint: bytes) -> None:
        """A block has made it."""
        self._outpoints.pop(outpoint, None)
        self._stale.pop(outpoint, None)

    def left_out(self, elements: Iterable[bytes]) -> dict[bytes, None]:
        """Elements of a filter but for these outpoints; those that are entries of the list stay."""
        kept = dict.fromkeys(elements)
        for outpoint in (*self._outpoints, *self._stale):
            if self._watch.table.find(EntryKind.OUTPOINT, outpoint) == NO_ENTRY:
                kept.pop(outpoint, None)
        return kept

    def trim(self, is_kept: Callable[[bytes], bool]) -> None:
        """Look whether a few transactions are kept, told by txid, in proportion to what came; forget the outpoints of
        many that are not.
        """
        looked_at = list(islice(self._outpoints, min(self._due, _MOST_LOOKS)))
        self._due -= len(looked_at)
        for outpoint in looked_at:
            self._outpoints.move_to_end(outpoint)
            if not is_kept(outpoint[:32]):
                del self._outpoints[outpoint]
                self._stale[outpoint] = None
        if len(self._stale) > MAX_STALE:
            back = [outpoint for outpoint in self._stale if is_kept(outpoint[:32])]
            for outpoint in back:
                del self._stale[outpoint]
            self._outpoints.update(dict.fromkeys(back))
            self._watch.forget_outpoints(self._stale)
            self._stale.clear()
