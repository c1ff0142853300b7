"""On whose word unconfirmed transactions of others rest: the network groups of those who announced them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

Groups = Collection[str]
_TRIED = 8  # transactions that are looked at to find one that makes room; ours


class Words:
    """Each transaction is on one group's word, or on several: then it is kept before all others."""

    def __init__(self, txids: Iterable[bytes]) -> None:
        """Of these nobody has told in this run."""
        self._group: dict[bytes, str | None] = dict.fromkeys(txids, "")  # None: several
        self._alone: dict[str, OrderedDict[bytes, None]] = {"": OrderedDict.fromkeys(self._group)}  # by group; the latest last
        self._passed: set[bytes] = set()  # txids of those before which another was put, since room was made
        self._left_out: list[bytes] = []  # txids and wtxids of what found no room, or made it

    def __len__(self) -> int:
        return len(self._group)

    def said(self, txid: bytes, *groups: str) -> None:
        """Peers of these groups announce a transaction that is kept, or gave it."""
        if txid not in self._group:
            self._put(txid, "")
        for group in groups:
            known = self._group[txid]
            if known is not None and known != group:
                self._leave(txid, known)
                self._put(txid, None if known else group)

    def _put(self, txid: bytes, group: str | None) -> None:
        self._group[txid] = group
        if group is not None:
            self._alone.setdefault(group, OrderedDict())[txid] = None

    def is_of_several(self, txid: bytes) -> bool:
        """Whether more than one group has announced it."""
        return self._group.get(txid, "") is None

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
        """All others of its group make room before it."""
        group = self._group[txid]
        if group is not None:
            self._alone[group].move_to_end(txid, last=False)

    def spare_before(self, txid: bytes, descendant: bytes) -> None:
        """Too much spends from a transaction: what spends from it through many others is the next to make room.

        Once with each until room was made: if that cannot make room either, it is the turn of others.
        """
        group = self._group.get(descendant)
        if group is not None and txid not in self._passed:
            self._passed.add(txid)
            self._alone[group].move_to_end(descendant)

    def forget(self, txid: bytes) -> None:
        """A transaction is kept no more, or is ours."""
        self._passed.discard(txid)
        known = self._group.pop(txid, None)
        if known is not None:
            self._leave(txid, known)

    def _leave(self, txid: bytes, group: str) -> None:
        alone = self._alone.get(group)
        if alone is not None:
            alone.pop(txid, None)
            if not alone:
                del self._alone[group]

    def spare(self, groups: Groups) -> Iterator[bytes]:
        """Which ones may make room for another one of these groups: the latest few of the group that has most, if those are more.

        Those that are given and stay are the last to be given again.
        """
        most = max(self._alone, key=lambda each: len(self._alone[each]), default="")
        alone = self._alone.get(most, OrderedDict[bytes, None]())
        own = next(iter(groups), "") if len(groups) < 2 else None
        if most == own or len(alone) <= 1 + (0 if own is None else len(self._alone.get(own, ()))):
            return
        for _ in range(min(_TRIED, len(alone))):
            txid = next(reversed(alone))
            alone.move_to_end(txid, last=False)
            yield txid
