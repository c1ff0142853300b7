"""Network group quotas: which foreign unconfirmed transactions are evicted when a limit is exceeded.

Transactions are counted by the set of network groups that announced them. Sets with few groups lose transactions first.
Among sets with the same number of groups, the set with the most transactions loses its latest.

An attacker in three network groups can announce transactions from seven sets of groups, and so fills at most seven
shares. Every other set keeps its share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

Groups = Collection[str]
MANY = 4
"""A transaction announced by this many network groups is never evicted (our choice).

An attacker is assumed to have fewer."""
_TRIED = 8
"""Number of transactions from one set that `evictable` yields before it moves on to other sets (our choice)."""


class NetgroupQuota:
    """Foreign unconfirmed transactions, grouped by the set of network groups that announced them."""

    def __init__(self) -> None:
        self._party: dict[bytes, _Party] = {}
        # by the number of groups, less one; transactions without a group are in the first
        self._parties = [_Parties() for _ in range(MANY)]

    def __len__(self) -> int:
        return len(self._party)

    def announce(self, txid: bytes, groups: Iterable[str] = ()) -> None:
        """Record that peers in these groups announced or sent a transaction."""
        known = self._party.get(txid)
        names = _names(groups, () if known is None else known.names)
        if known is not None:
            if names is known.names:
                return
            self._of(known.names).remove(known, txid)
        self._party[txid] = self._of(names).add(names, txid)

    def _of(self, names: tuple[str, ...]) -> _Parties:
        return self._parties[max(len(names), 1) - 1]

    def groups_of(self, txid: bytes) -> int:
        """Return how many groups announced a transaction, from 1 to `MANY`; 1 if none is known, as after a restart."""
        party = self._party.get(txid)
        return 1 if party is None else max(len(party.names), 1)

    def forget(self, txid: bytes) -> None:
        """Remove a transaction that was evicted, confirmed, or broadcast by this wallet."""
        party = self._party.pop(txid, None)
        if party is not None:
            self._of(party.names).remove(party, txid)

    def evictable(self, groups: Groups) -> Iterator[bytes]:
        """Yield the txids that may be evicted to free space for a new transaction, best candidates first.

        `groups` are the network groups that announced it. A set of groups loses transactions only if it has more of
        them than the newcomer's set would, or contains fewer groups. A candidate that the caller keeps is yielded last
        the next time.
        """
        names = _names(groups)
        held = self._of(names).held_by(names)
        for number, parties in enumerate(self._parties[:-1], 1):
            most = parties.largest
            if most is None or most.names == names or len(most.txids) <= 1 + (held if number >= len(names) else 0):
                continue
            for _ in range(min(_TRIED, len(most.txids))):
                txid = next(reversed(most.txids))
                most.txids.move_to_end(txid, last=False)
                yield txid


def _names(groups: Iterable[str], known: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the sorted names in `known` and `groups`, at most `MANY` of them; `known` itself if no name is new."""
    for group in groups:
        if len(known) < MANY and group not in known:
            known = tuple(sorted((*known, group))) if known else (group,)
    return known


class _Party:
    """A set of groups and the transactions that they announced. The last transaction is evicted first."""

    __slots__ = ("names", "txids")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.txids = OrderedDict[bytes, None]()


class _Parties:
    """The sets with the same number of groups. There may be many sets, so finding the largest needs no search."""

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], _Party] = {}
        self._by_number: dict[int, dict[_Party, None]] = {}  # by their number of transactions
        self._most = 0  # the greatest of these numbers

    @property
    def largest(self) -> _Party | None:
        """A set with the most transactions; None if there is no set."""
        return next(iter(self._by_number[self._most])) if self._most else None

    def held_by(self, names: tuple[str, ...]) -> int:
        """Return how many transactions a set of groups has."""
        party = self._by_names.get(names)
        return 0 if party is None else len(party.txids)

    def add(self, names: tuple[str, ...], txid: bytes) -> _Party:
        """Add a transaction to a set of groups."""
        party = self._by_names.get(names)
        if party is None:
            party = self._by_names[names] = _Party(names)
        self._leave(party)
        party.txids[txid] = None
        self._enter(party)
        if len(party.txids) > self._most:
            self._most = len(party.txids)
        return party

    def remove(self, party: _Party, txid: bytes) -> None:
        """Remove a transaction from a set of groups."""
        self._leave(party)
        del party.txids[txid]
        self._enter(party)
        if self._most not in self._by_number:  # this set was the largest, and now has one transaction fewer
            self._most = len(party.txids)
        if not party.txids:
            del self._by_names[party.names]

    def _leave(self, party: _Party) -> None:
        if number := len(party.txids):
            parties = self._by_number[number]
            if len(parties) > 1:
                del parties[party]
            else:
                del self._by_number[number]

    def _enter(self, party: _Party) -> None:
        if number := len(party.txids):
            parties = self._by_number.get(number)
            if parties is None:
                self._by_number[number] = {party: None}
            else:
                parties[party] = None
