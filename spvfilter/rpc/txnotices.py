"""Raw transactions that Bitcoin Core publishes by ZMQ (-zmqpubrawtx; doc/zmq.md): a source for Matcher.match_txs."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.rpc.subscription import Receive, missing_between, subscription

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_log = logging.getLogger(__name__)
_TOPIC = b"rawtx"
_WAITING = 1_000
"""Messages that libzmq keeps before it drops more (Core's default high-water mark)."""
_RECENT = 1_000
"""Messages in which a repeated or a late one is recognized (our choice)."""


@public
class TxNotices:
    """The raw transactions that a node publishes, as an asynchronous iterator. Made by `TxNotices.subscribed`.

    A node publishes a transaction when its mempool accepts it, and once more when a block contains it. The iterator
    never ends. A node that goes away is connected to again. Messages that were lost are counted and logged. A call that
    is cancelled, such as by a timeout, loses none.
    """

    def __init__(self, receive: Receive) -> None:
        self.received = 0
        """Number of transactions."""
        self.lost = 0
        """Number of transactions that are missing, by the counters of the messages."""
        self.repeated = 0
        """Number of messages that came twice; the copy is skipped."""
        self.malformed = 0
        """Number of messages of another form; they are skipped."""
        self.restarts = 0
        """Number of times that the counter began again: the node was restarted, and transactions may be missing."""
        self._receive = receive
        self._receiving: asyncio.Future[list[bytes]] | None = None
        """The receipt of the next message, which goes on if a caller is cancelled."""
        self._last: int | None = None
        self._recent: OrderedDict[int, int] = OrderedDict()  # by counter: hash of the transaction
        self._missing: OrderedDict[int, None] = OrderedDict()  # counters that a gap skipped

    @classmethod
    @asynccontextmanager
    async def subscribed(cls, addresses: Sequence[str]) -> AsyncIterator[TxNotices]:
        """Subscribe to one or several addresses of one node, tcp://HOST:PORT or ipc://PATH.

        Raises ParameterError for a bad address, and without the extra `zmq`.
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
                _log.debug("a ZMQ message of an unknown form was skipped")
            elif self._is_new(int.from_bytes(parts[2], "little"), hash(parts[1])):
                self.received += 1
                return parts[1]

    def _is_new(self, counter: int, digest: int) -> bool:
        """Take the counter of a message. False if the message has come before."""
        if self._recent.get(counter) == digest:
            self.repeated += 1
            return False
        if counter in self._missing:  # late, and not lost
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
            _log.warning("the node's counter of transactions began again: some may be missing")
            return
        self.lost += missing
        self._missing.update(dict.fromkeys(range(max(before + 1, counter - _RECENT), counter)))
        while len(self._missing) > _RECENT:
            self._missing.popitem(last=False)
        _log.warning("%d published transactions are missing", missing)
