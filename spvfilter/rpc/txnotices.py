"""Raw transactions that Bitcoin Core publishes over ZMQ (-zmqpubrawtx; doc/zmq.md): a source for Matcher.match_txs."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from spvfilter._public import public
from spvfilter.rpc.subscription import Receive, missing_between, subscription

_log = logging.getLogger(__name__)
_TOPIC = b"rawtx"
_WAITING = 1_000
"""Number of messages that libzmq queues (Core's default high-water mark). It drops any more."""
_RECENT = 1_000
"""Number of recent messages to remember, in order to recognize a repeated or late message (our choice)."""


@public
class TxNotices:
    """The raw transactions that a node publishes, as an asynchronous iterator. Create one with `TxNotices.subscribed`.

    A node publishes a transaction when its mempool accepts it, and again when a block contains it. The iterator never
    ends. If the connection to the node is lost, it is reopened. Lost messages are counted and logged. Cancelling a
    call, for example because of a timeout, does not lose messages.
    """

    def __init__(self, receive: Receive) -> None:
        self.received: int = 0
        """Number of transactions received so far."""
        self.lost: int = 0
        """Number of lost transactions, computed from the gaps in the counters of the messages."""
        self.repeated: int = 0
        """Number of repeated messages that were skipped."""
        self.malformed: int = 0
        """Number of malformed messages that were skipped."""
        self.restarts: int = 0
        """Number of times the node has restarted, as shown by its counter. Transactions may be missing after each
        restart.
        """
        self._receive = receive
        self._receiving: asyncio.Future[list[bytes]] | None = None
        """The task that receives the next message. It continues if a caller is cancelled."""
        self._last: int | None = None
        self._recent: OrderedDict[int, int] = OrderedDict()  # hash of the transaction for each counter
        self._missing: OrderedDict[int, None] = OrderedDict()  # counters that a gap skipped

    @classmethod
    @asynccontextmanager
    async def subscribed(cls, addresses: Sequence[str]) -> AsyncIterator[TxNotices]:
        """Subscribe to one or more addresses of a node, and return a TxNotices.

        Addresses have the form tcp://HOST:PORT or ipc://PATH. Raises ParameterError if an address is malformed or the
        `zmq` extra is not installed.
        """
        async with subscription(addresses, [_TOPIC], _WAITING) as receive:
            notices = cls(receive)
            try:
                yield notices
            finally:
                if notices._receiving is not None:
                    notices._receiving.cancel()

    def __aiter__(self) -> TxNotices:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._receiving is None:
                self._receiving = asyncio.ensure_future(self._receive())
            receiving = self._receiving
            parts = await asyncio.shield(receiving)
            if self._receiving is not receiving:  # another call has taken this message
                continue
            self._receiving = None
            if len(parts) != 3 or parts[0] != _TOPIC or len(parts[2]) != 4:
                self.malformed += 1
                _log.debug("skipped a ZMQ message in an unknown format")
            elif self._is_new(int.from_bytes(parts[2], "little"), hash(parts[1])):
                self.received += 1
                return parts[1]

    def _is_new(self, counter: int, digest: int) -> bool:
        """Record the counter of a message. Return False if the message is a repetition."""
        if self._recent.get(counter) == digest:
            self.repeated += 1
            return False
        if counter in self._missing:  # late rather than lost
            del self._missing[counter]
            self.lost -= 1
        else:
            self._advance(counter)
        self._recent[counter] = digest
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        return True

    def _advance(self, counter: int) -> None:
        before, self._last = self._last, counter
        missing = missing_between(before, counter)
        if not missing or before is None:
            return
        if counter <= before:
            self.restarts += 1
            self._recent.clear()
            self._missing.clear()
            _log.warning("the node's transaction counter restarted: some transactions may be missing")
            return
        self.lost += missing
        self._missing.update(dict.fromkeys(range(max(before + 1, counter - _RECENT), counter)))
        while len(self._missing) > _RECENT:
            self._missing.popitem(last=False)
        _log.warning("missed published transactions: %d", missing)
