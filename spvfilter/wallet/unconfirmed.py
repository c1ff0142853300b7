"""Unconfirmed transactions of a wallet: those that match, those that a late parent may turn into a match, and what each of them spends.

Everything is found by outpoint, so that the work for one transaction does not grow with the number of the others: anybody can invent
unconfirmed payments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredTx
from spvfilter.transaction import Transaction

MAX_UNMATCHED = 500  # mempool transactions without a match, kept because a late parent may turn them into one
MAX_UNMATCHED_SIZE = 100_000  # bytes of each, Core's largest standard transaction
MAX_PENDING_SIZE = 50_000_000  # bytes of unconfirmed matched transactions; those beyond are found once a block confirms them


class Identity(NamedTuple):
    """What makes a match the same one: the input or output of a transaction."""

    spend: bool
    txid: bytes
    n: int


def identity(hit: Hit) -> Identity:
    """The identity of a hit's match."""
    return Identity(hit.spend, hit.txid, hit.n)


class Unconfirmed:
    """Unconfirmed transactions by txid and by the outpoints that they spend."""

    def __init__(self, pending: Mapping[bytes, StoredTx], hits: Iterable[Hit]) -> None:
        self.pending: dict[bytes, StoredTx] = {}
        self.size = 0  # bytes
        self._hits: dict[bytes, dict[Identity, Hit]] = {}
        self._spenders: dict[bytes, dict[bytes, None]] = {}  # outpoint → txids
        self._unmatched: dict[bytes, tuple[bytes, int]] = {}  # txid → raw, and when it arrived; oldest first
        self._waiting: dict[bytes, dict[bytes, None]] = {}  # outpoint → txids of unmatched transactions that spend it
        for txid, each in sorted(pending.items(), key=lambda item: item[1].seen or 0):
            self.add(Transaction(each.raw, txid, Transaction.parse(each.raw).span), each)
        for hit in hits:
            self.record(hit)

    def __len__(self) -> int:
        return len(self.pending)

    def hits(self, txid: bytes) -> dict[Identity, Hit]:
        """The matches of an unconfirmed transaction."""
        return self._hits.get(txid, {})

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """The unconfirmed transactions that spend an outpoint."""
        return list(self._spenders.get(outpoint, ()))

    def has_room(self, raw: bytes) -> bool:
        """Whether there is room for another transaction."""
        return self.size + len(raw) <= MAX_PENDING_SIZE

    def add(self, tx: Transaction, pending: StoredTx) -> None:
        """Keep a transaction that is not there yet."""
        self.pending[tx.txid] = pending
        self.size += len(pending.raw)
        for outpoint in tx.inputs:
            self._spenders.setdefault(outpoint, {})[tx.txid] = None

    def replace(self, txid: bytes, pending: StoredTx) -> None:
        """Change what is known of a transaction; a peer may have sent it with another witness."""
        self.size += len(pending.raw) - len(self.pending[txid].raw)
        self.pending[txid] = pending

    def record(self, hit: Hit) -> bool:
        """Keep a match of a transaction; whether it is new."""
        known = self._hits.setdefault(hit.txid, {})
        if identity(hit) in known:
            return False
        known[identity(hit)] = hit
        return True

    def remove(self, txid: bytes) -> dict[Identity, Hit] | None:
        """Forget a transaction; its matches, or None if it is not there."""
        pending = self.pending.pop(txid, None)
        if pending is None:
            return None
        self.size -= len(pending.raw)
        for outpoint in set(Transaction.parse(pending.raw).inputs):
            spenders = self._spenders[outpoint]
            del spenders[txid]
            if not spenders:
                del self._spenders[outpoint]
        return self._hits.pop(txid, {})

    def descendants(self, txid: bytes) -> list[bytes]:
        """A transaction and all that spend from it, directly or through others."""
        family = [txid]
        members = {txid}
        for parent in family:  # grows while it is walked
            raw = self.pending.get(parent)
            outputs = len(Transaction.parse(raw.raw).span.outputs) if raw is not None else 0
            for index in range(outputs):
                for child in self.spenders(parent + index.to_bytes(4, "little")):
                    if child not in members:
                        members.add(child)
                        family.append(child)
        return family

    def older_than(self, since: int) -> list[bytes]:
        """The transactions that arrived at `since` or before."""
        return [txid for txid, pending in self.pending.items() if (pending.since or 0) <= since]

    # Without a match so far

    def set_aside(self, tx: Transaction, seen: int) -> None:
        """Keep a transaction that does not match, and when it arrived, among the latest 500 of them."""
        if len(tx.raw) > MAX_UNMATCHED_SIZE or tx.txid in self._unmatched:
            return
        self._unmatched[tx.txid] = tx.raw, seen
        for outpoint in tx.inputs:
            self._waiting.setdefault(outpoint, {})[tx.txid] = None
        if len(self._unmatched) > MAX_UNMATCHED:
            self._drop_unmatched(next(iter(self._unmatched)))

    def _drop_unmatched(self, txid: bytes) -> tuple[bytes, int]:
        raw, seen = self._unmatched.pop(txid)
        for outpoint in set(Transaction.parse(raw).inputs):
            waiting = self._waiting[outpoint]
            del waiting[txid]
            if not waiting:
                del self._waiting[outpoint]
        return raw, seen

    def take_waiting(self, outpoint: bytes) -> list[tuple[bytes, int]]:
        """Remove and return the unmatched transactions (raw, and when each arrived) that spend an outpoint."""
        return [self._drop_unmatched(txid) for txid in list(self._waiting.get(outpoint, ()))]

    def take_unmatched(self) -> list[tuple[bytes, int]]:
        """Remove and return all unmatched transactions (raw, and when each arrived)."""
        return [self._drop_unmatched(txid) for txid in list(self._unmatched)]


def made_by(hits: Iterable[Hit]) -> Iterator[bytes]:
    """The outpoints of the outputs among the hits."""
    return (hit.outpoint for hit in hits if not hit.spend)


class Queue:
    """Transactions that wait to be recorded, in order of arrival, bounded in number and bytes."""

    MOST = 10_000
    MOST_SIZE = 20_000_000  # bytes

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether `put` takes another transaction."""
        return len(self._waiting) < self.MOST and self._size < self.MOST_SIZE

    def put(self, raw: bytes) -> bool:
        """Add a transaction; whether there was room."""
        if not self.has_room:
            return False
        self._waiting.append(raw)
        self._size += len(raw)
        return True

    def take(self) -> bytes:
        """The oldest transaction."""
        raw = self._waiting.popleft()
        self._size -= len(raw)
        return raw
