"""Limits on foreign unconfirmed transactions, and the order in which they are evicted."""

from __future__ import annotations

from collections.abc import Iterator

from spvfilter.wallet.netgroupquota import Groups, NetgroupQuota
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.txgraph import TxRecord


class MempoolLayer:
    """A bounded set of foreign unconfirmed transactions, with the network groups that announced each one."""

    def __init__(self, limits: PendingLimits) -> None:
        self.limits: PendingLimits = limits
        self.quota: NetgroupQuota = NetgroupQuota()
        self.matches: int = 0
        self.size: int = 0
        self._room: dict[bytes, tuple[int, int]] = {}  # txid → bytes, matches
        self._changed: dict[bytes, None] = {}  # txids added or removed since `take_changed`
        self._ended: dict[bytes, None] = {}  # txids of transactions that no longer count, the oldest first

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._room

    def __len__(self) -> int:
        return len(self._room)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._room)

    def put(self, record: TxRecord, matches: int, groups: Groups = ()) -> None:
        """Add a transaction, or update its number of matches."""
        size, known = self._room.get(record.txid, (0, 0))
        self._changed[record.txid] = None
        self._room[record.txid] = len(record.raw), matches
        self.size += len(record.raw) - size
        self.matches += matches - known
        self.quota.announce(record.txid, groups)

    def remove(self, txid: bytes) -> None:
        """Remove a transaction that was evicted, confirmed, or broadcast by this wallet."""
        if txid not in self._room:
            return
        size, matches = self._room.pop(txid)
        self._changed[txid] = None
        self.size -= size
        self.matches -= matches
        self._ended.pop(txid, None)
        self.quota.forget(txid)

    def note_changed(self, txid: bytes) -> None:
        """Record that the facts about a transaction have changed."""
        if txid in self._room:
            self._changed[txid] = None

    def take_changed(self) -> list[bytes]:
        """Return the txids of transactions that were added or removed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def note_ended(self, txid: bytes, *, is_ended: bool) -> None:
        """Record whether a transaction is conflicted or inactive. If so, it is evicted first."""
        if not is_ended:
            self._ended.pop(txid, None)
        elif txid in self._room:
            self._ended[txid] = None

    def is_ended(self, txid: bytes) -> bool:
        """True if a transaction is conflicted or inactive. If so, its descendants are as well."""
        return txid in self._ended

    @property
    def is_over(self) -> bool:
        """True if one of the limits is exceeded."""
        limits = self.limits
        return len(self._room) > limits.number or self.size > limits.size or self.matches > limits.matches

    def evictable(self, groups: Groups) -> Iterator[bytes]:
        """Yield the txids that may be evicted to free space for a new transaction, best candidates first.

        `groups` are the network groups that announced the new transaction.
        """
        yield from list(self._ended)
        yield from self.quota.evictable(groups)

    def fewest_groups(self, records: list[TxRecord], *, oldest: bool = False) -> list[TxRecord]:
        """Sort records for eviction: fewest network groups first.

        Among equals, the latest comes first, or the oldest if `oldest` is True.
        """
        sign = 1 if oldest else -1
        return sorted(records, key=lambda record: (self.quota.groups_of(record.txid), sign * record.last_seen))
