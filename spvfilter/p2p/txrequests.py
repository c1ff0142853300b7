"""Decide which peer to ask for each announced transaction. Works without sockets."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

MAX_ANNOUNCEMENTS = 5_000
"""Largest number of pending announcements by one peer (Core txrequest MAX_PEER_TX_ANNOUNCEMENTS)."""
MAX_ANNOUNCERS = 8
"""Largest number of additional announcing peers to remember for one transaction (our choice)."""
REQUEST_S = 60.0
"""Seconds after which another peer is asked for a transaction (Core net_processing GETDATA_TX_INTERVAL)."""
SEEN = 100_000
"""Number of recent transaction ids that are not requested again (our choice: a few hours of mainnet)."""

Item = tuple[int, bytes]
"""Type of an inventory item, TX or WTX, and its hash."""


class _Open(NamedTuple):
    """A transaction that was requested and has not arrived."""

    peer: int
    """Number of the peer from which the transaction was requested."""
    deadline: float
    """Time, in seconds of the caller's clock, after which another peer is asked for the transaction."""
    others: deque[int]
    """Numbers of the other peers that announced the transaction."""


class TxRequests:
    """Outstanding requests for transactions from several peers. Each peer is identified by a number."""

    def __init__(self) -> None:
        self.unanswered: int = 0
        """Number of announced transactions that no peer sent when it was asked."""
        self.ignored: int = 0
        """Number of ignored announcements from peers that had reached MAX_ANNOUNCEMENTS."""
        self._open: OrderedDict[Item, _Open] = OrderedDict()  # in the order of the deadlines
        self._counts: Counter[int] = Counter()  # outstanding requests, by peer
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def announced(self, peer: int, items: Iterable[Item], now: float) -> list[Item]:
        """Process an inv message from a peer, and return the items to request from this peer."""
        wanted = []
        for item in items:
            if item[1] in self._seen:
                continue
            known = self._open.get(item)
            if known is not None:
                if peer != known.peer and peer not in known.others and len(known.others) < MAX_ANNOUNCERS:
                    known.others.append(peer)
            elif self._counts[peer] >= MAX_ANNOUNCEMENTS:
                self.ignored += 1
            else:
                self._ask(item, peer, now, deque())
                wanted.append(item)
        return wanted

    def arrived(self, txid: bytes, wtxid: bytes, tx_type: int, wtx_type: int) -> bool:
        """Process the arrival of a transaction, and return True if it is new.

        A peer may send a transaction late or without a request.
        """
        for item in ((tx_type, txid), (wtx_type, wtxid)):
            if (closed := self._open.pop(item, None)) is not None:
                self._counts[closed.peer] -= 1
        if txid in self._seen:
            return False
        for id_ in (txid, wtxid):
            self._seen[id_] = None
        while len(self._seen) > SEEN:
            self._seen.popitem(last=False)
        return True

    def missing(self, peer: int, items: Iterable[Item], now: float) -> dict[int, list[Item]]:
        """Process a notfound message from a peer, and return the items to request from other peers, keyed by peer."""
        asked = [item for item in dict.fromkeys(items) if (known := self._open.get(item)) and known.peer == peer]
        return self._next(asked, now)

    def expired(self, now: float) -> dict[int, list[Item]]:
        """Return the items to request because another peer has not answered in time, keyed by the peer to ask now."""
        late = []
        for item, known in self._open.items():
            if known.deadline > now:
                break
            late.append(item)
        return self._next(late, now)

    def left(self, peer: int, now: float) -> dict[int, list[Item]]:
        """Forget a disconnected peer, and return the items to request from other peers, keyed by peer."""
        for known in self._open.values():
            if peer in known.others:
                known.others.remove(peer)
        wanted = self._next([item for item, known in self._open.items() if known.peer == peer], now)
        del self._counts[peer]
        return wanted

    def _next(self, items: list[Item], now: float) -> dict[int, list[Item]]:
        wanted: dict[int, list[Item]] = {}
        for item in items:
            known = self._open.pop(item)
            self._counts[known.peer] -= 1
            if not known.others:
                self.unanswered += 1
                continue
            peer = known.others.popleft()
            self._ask(item, peer, now, known.others)
            wanted.setdefault(peer, []).append(item)
        return wanted

    def _ask(self, item: Item, peer: int, now: float, others: deque[int]) -> None:
        self._open[item] = _Open(peer, now + REQUEST_S, others)
        self._counts[peer] += 1
