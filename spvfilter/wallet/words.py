"""On whose word unconfirmed transactions of others rest: the network groups of those who announced them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

Groups = Collection[str]
MANY = (
    4  # groups on whose word a transaction is kept before all others: who invents payments is taken to have fewer; ours
)
_TRIED = 8  # transactions that are looked at to find one that makes room, of each number of groups; ours


class Words:
    """Each transaction rests on the word of a party, the groups that announced it.

    The more these are, the longer it is kept.

    Room is made by the parties of fewest groups, and of these by the one that has most. Who speaks for three groups and
    invents payments has seven parties, and so at most seven shares of the room; each party of others has one.
    """

    def __init__(self, txids: Iterable[bytes]) -> None:
        """Of these nobody has told in this run."""
        self._party: dict[bytes, _Party] = {}
        # by the number of groups, less one; the party of nobody is in the first
        self._parties = [_Parties() for _ in range(MANY)]
        self._passed: set[bytes] = set()  # txids of those before which another was put, since room was made
        self._left_out: list[bytes] = []  # txids and wtxids of what found no room, or made it
        for txid in txids:
            self._put(txid, ())

    def __len__(self) -> int:
        return len(self._party)

    def said(self, txid: bytes, *groups: str) -> None:
        """Peers of these groups announce a transaction that is kept, or gave it."""
        known = self._party.get(txid)
        names = _names(groups, () if known is None else known.names)
        if known is None:
            self._put(txid, names)
        elif names is not known.names:
            self._of(known.names).remove(known, txid)
            self._put(txid, names)

    def _put(self, txid: bytes, names: tuple[str, ...]) -> None:
        self._party[txid] = self._of(names).add(names, txid)

    def _of(self, names: tuple[str, ...]) -> _Parties:
        return self._parties[max(len(names), 1) - 1]

    def rank(self, txid: bytes) -> int:
        """How many groups have announced it, up to `MANY`; 1 also for none, as of a transaction that an earlier run has
        left.
        """
        party = self._party.get(txid)
        return 1 if party is None else max(len(party.names), 1)

    def leave_out(self, *hashes: bytes) -> None:
        """There is no room for a transaction, told by txid and wtxid."""
        self._left_out += hashes

    def made_room(self, *hashes: bytes) -> None:
        """Transactions, told by txid and wtxid, make room."""
        self._left_out += hashes
        self._passed.clear()

    def take_left_out(self) -> list[bytes]:
        """The txids and wtxids of those that were left out since the last call."""
        taken, self._left_out = self._left_out, []
        return taken

    def spare_last(self, txid: bytes) -> None:
        """All others of its party make room before it."""
        self._party[txid].txids.move_to_end(txid, last=False)

    def spare_before(self, txid: bytes, descendant: bytes) -> None:
        """Too much spends from a transaction: what spends from it through many others is the next to make room.

        Once with each until room was made: if that cannot make room either, it is the turn of others.
        """
        party = self._party.get(descendant)
        if party is not None and txid not in self._passed:
            self._passed.add(txid)
            party.txids.move_to_end(descendant)

    def forget(self, txid: bytes) -> None:
        """A transaction is kept no more, or is ours."""
        self._passed.discard(txid)
        party = self._party.pop(txid, None)
        if party is not None:
            self._of(party.names).remove(party, txid)

    def spare(self, groups: Groups) -> Iterator[bytes]:
        """Which ones may make room for another one of these groups: of fewer groups first, the latest few of the party
        that has most.

        That party has more than these groups would have, where it is not of fewer. Those that are given and stay are
        the last to be given again. Of `MANY` groups none is given.
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
    """The names of a party of these groups and those that are `known`, which is returned itself if it has them all, or
    `MANY`.
    """
    for group in groups:
        if len(known) < MANY and group not in known:
            known = tuple(sorted((*known, group))) if known else (group,)
    return known


class _Party:
    """Groups that announced the same transactions, and these, in the order in which they make room: the last one
    first.
    """

    __slots__ = ("names", "txids")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.txids = OrderedDict[bytes, None]()


class _Parties:
    """The parties of as many groups.

    Which has most is known without a look at each: a stranger may make many parties.
    """

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], _Party] = {}
        self._by_number: dict[int, dict[_Party, None]] = {}  # by how many transactions they have
        self._most = 0  # of these numbers

    @property
    def largest(self) -> _Party | None:
        """A party that has most, if there is any."""
        return next(iter(self._by_number[self._most])) if self._most else None

    def held_by(self, names: tuple[str, ...]) -> int:
        """How many transactions a party has."""
        party = self._by_names.get(names)
        return 0 if party is None else len(party.txids)

    def add(self, names: tuple[str, ...], txid: bytes) -> _Party:
        """A transaction is on the word of these from now on."""
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
        """It is so no more."""
        self._leave(party)
        del party.txids[txid]
        self._enter(party)
        if self._most not in self._by_number:  # it was the one that had most, and has one less now
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
