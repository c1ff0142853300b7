"""What is left to do of unconfirmed transactions, where not all of it is to be done at once: anybody can invent what is
much work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from math import inf
from operator import attrgetter

from spvfilter.kernel import Hit
from spvfilter.wallet.unmatched import Arrival

_FREE = 4  # transactions that are looked at for a unit of work


class Unfinished:
    """How much may be done now, and what waits for another time.

    A unit of work is a match recorded or withdrawn, some 20 us.

    Nothing of it is in the database: after a restart each unconfirmed transaction is matched again.
    """

    def __init__(self, txids: Iterable[bytes]) -> None:
        self.left: float = inf  # units that may be done now; without a limit where nobody sets one
        # those that are not recorded; None: it is to be scanned
        self.matches: dict[bytes, Sequence[Hit] | None] = dict.fromkeys(txids)
        self._again: list[
            bytes
        ] = []  # txids of what is to be scanned for new entries; a list of 100,000 is made within a millisecond
        self.late: OrderedDict[bytes, Arrival] = OrderedDict[
            bytes, Arrival
        ]()  # transactions whose parents have become known, by txid; the oldest first
        self._expired = OrderedDict[
            bytes, int
        ]()  # what is to be withdrawn for its age, by txid, with when it arrived; the oldest first

    def __len__(self) -> int:
        return len(self.matches) + len(self._again) + len(self.late) + len(self._expired)

    def match_again(self) -> None:
        """The entries of the watch list have other numbers."""
        self.matches = dict.fromkeys((*self.matches, *self._again))
        self._again = []

    def match_all(self, txids: Iterable[bytes]) -> None:
        """The watch list has new entries: all transactions are scanned again."""
        self.matches, self._again = {}, list(txids)

    def take_match(self) -> tuple[bytes, Sequence[Hit] | None] | None:
        """A transaction whose matches may not all be recorded, with the others; None if there is none."""
        self.looked_at(1)
        if self._again:
            return self._again.pop(), None
        return self.matches.popitem() if self.matches else None

    def add_late(self, found: Iterable[Arrival]) -> None:
        """Parents of transactions have become known: these are looked at in the order of their arrival."""
        if fresh := list(found):
            self.late = OrderedDict(
                (each.txid, each) for each in sorted((*self.late.values(), *fresh), key=attrgetter("age"))
            )

    def take_late(self) -> Arrival | None:
        """A transaction whose parent has become known, if it may be looked at now."""
        return self.late.popitem(last=False)[1] if self.late and self.left > 0 else None

    def add_expired(self, found: Iterable[tuple[bytes, int]]) -> None:
        """These txids are to be withdrawn, unless they arrive again; the oldest first."""
        self._expired = OrderedDict(found)

    def first_expired(self, found: Iterable[tuple[bytes, int]]) -> None:
        """These come before all others, the last one first."""
        for txid, since in found:
            self._expired[txid] = since
            self._expired.move_to_end(txid, last=False)

    def take_expired(self) -> tuple[bytes, int] | None:
        """What is to be withdrawn next, if it may be now, and when it arrived."""
        return self._expired.popitem(last=False) if self._expired and self.left > 0 else None

    def spend(self, units: float) -> None:
        """So much is being done."""
        self.left -= units

    def looked_at(self, txs: int) -> None:
        """So many transactions were looked at."""
        self.left -= txs / _FREE
