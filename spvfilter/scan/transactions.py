"""Loose transactions matched in the order of arrival: a spend is found even if it arrives before its parent."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.errors import FormatError
from spvfilter.kernel import Hit, spent_outpoints
from spvfilter.primitives import Serializable, hash_to_hex, to_bytes
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

RawTransactions = Iterable[bytes | Serializable] | AsyncIterable[bytes | Serializable]
"""A source of transactions: bytes, or objects that serialize themselves."""

REMEMBERED = 50_000_000
"""Bytes of memory for transactions that may spend an output which has not arrived yet (our choice)."""
AT_ONCE = 64_000
"""Bytes of transactions that the event loop's own thread scans at once (our choice: well below 1 ms)."""
EACH = 300
"""Bytes of work that a transaction counts for besides its size."""
_OBJECTS = 250
"""Bytes of memory that a remembered transaction takes besides its own (measured with CPython 3.11)."""
_PER_INPUT = 310
"""Bytes of memory for each outpoint of a remembered transaction, with its entry in the index (measured)."""


@public
class TxMatches(NamedTuple):
    """A transaction of a stream that concerns the wallet, or that is malformed."""

    number: int
    """Position of the transaction in the source, from 0."""
    raw: bytes
    """The serialized transaction, as it arrived."""
    matches: list[Match]
    """Its matches that were not yielded before; empty if the transaction is malformed."""
    error: FormatError | None = None
    """The reason why the transaction is malformed; None if it is not."""

    @property
    def txid(self) -> bytes:
        """The txid, 32 bytes in wire order. Raises FormatError for a malformed transaction."""
        return Transaction.parse(self.raw).txid

    @property
    def txid_hex(self) -> str:
        """The txid in display order, as hex. Raises FormatError for a malformed transaction."""
        return hash_to_hex(self.txid)


class _Arrived:
    """A transaction that has arrived, with the matches of it that were yielded."""

    __slots__ = ("found", "number", "outpoints", "raw", "size")

    def __init__(self, number: int, raw: bytes) -> None:
        self.number = number
        self.raw = raw
        self.outpoints = spent_outpoints(raw)
        self.size = len(raw) + _OBJECTS + _PER_INPUT * len(self.outpoints)  # bytes of memory, approximately
        self.found: frozenset[tuple[MatchKind, int]] = frozenset()


class _Remembered:
    """The latest transactions of a stream, up to a number of bytes, by the outpoints that they spend."""

    def __init__(self, limit: int) -> None:
        self._left = limit  # bytes
        self._txs: deque[_Arrived] = deque()
        self._spenders: dict[bytes, list[_Arrived]] = {}

    def __iter__(self) -> Iterator[_Arrived]:
        return iter(self._txs)

    def add(self, tx: _Arrived) -> None:
        """Remember a transaction, and drop the oldest ones beyond the limit."""
        spenders = self._spenders
        for outpoint in tx.outpoints:
            others = spenders.get(outpoint)
            if others is None:
                spenders[outpoint] = [tx]
            else:
                others.append(tx)
        self._txs.append(tx)
        self._left -= tx.size
        while self._left < 0:
            self._drop(self._txs.popleft())

    def _drop(self, tx: _Arrived) -> None:
        self._left += tx.size
        for outpoint in tx.outpoints:
            spenders = self._spenders[outpoint]
            spenders.remove(tx)
            if not spenders:
                del self._spenders[outpoint]

    def spending(self, outpoint: bytes) -> tuple[_Arrived, ...]:
        """The remembered transactions that spend an outpoint (36 bytes), in the order of arrival."""
        return tuple(self._spenders.get(outpoint, ()))


class TxStream:
    """The matches of transactions that arrive one after the other.

    `accept` learns the hits of a transaction and returns its matches. It may use a thread.
    """

    def __init__(
        self, watch: WatchList, accept: Callable[[bytes, list[Hit]], Awaitable[list[Match]]], remember: int
    ) -> None:
        self._watch = watch
        self._accept = accept
        self._remembered = _Remembered(remember)
        self._arrived = 0  # number of transactions
        self._work = 0  # bytes since other tasks could run

    async def matches(self, source: RawTransactions) -> AsyncGenerator[TxMatches]:
        """Yield the transactions that concern the watch list, and malformed ones with their error."""
        async with aclosing(each_of(source)) as arriving:
            async for item in arriving:
                raw = to_bytes(item)
                number = self._arrived
                self._arrived += 1
                self._work += len(raw) + EACH
                if self._work > AT_ONCE:
                    await self._rest()
                try:
                    hits = await self._scan(raw) if len(raw) > AT_ONCE else self._watch.table.scan_tx(raw)
                    tx = _Arrived(number, raw)
                except FormatError as error:
                    yield TxMatches(number, raw, [], error)
                    continue
                self._remembered.add(tx)
                if hits:
                    async with aclosing(self._found(tx)) as found:
                        async for each in found:
                            yield each

    async def _found(self, tx: _Arrived) -> AsyncGenerator[TxMatches]:
        """Yield the new matches of a transaction, and of remembered transactions that match because of it."""
        queue, table = deque([tx]), self._watch.table
        while queue:
            tx = queue.popleft()
            watched = len(table)
            hits = await self._scan(tx.raw)
            matches = await self._accept(tx.raw, hits) if hits else []
            if new := [match for match in matches if (match.kind, match.index) not in tx.found]:
                tx.found = frozenset((match.kind, match.index) for match in matches)
                yield TxMatches(tx.number, tx.raw, new)
            for match in new:
                if match.kind == MatchKind.OUTPUT:
                    queue += self._remembered.spending(bytes(match.outpoint))
            if len(table) > watched:  # a keychain window moved: earlier transactions may pay the new scripts
                queue += [each for each in tuple(self._remembered) if await self._scan(each.raw)]

    async def _scan(self, raw: bytes) -> list[Hit]:
        self._work += len(raw) + EACH
        if self._work > AT_ONCE:
            await self._rest()
        scan = self._watch.table.scan_tx
        return await asyncio.to_thread(scan, raw) if len(raw) > AT_ONCE else scan(raw)

    async def _rest(self) -> None:
        """Let other tasks run."""
        self._work = 0
        await asyncio.sleep(0)


async def each_of(source: RawTransactions) -> AsyncGenerator[bytes | Serializable]:
    """The transactions of a source. Raises TypeError for a single transaction."""
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    elif isinstance(source, Iterable) and not isinstance(source, (str, bytes, bytearray, memoryview)):
        for item in source:
            yield item
    else:
        raise TypeError(f"an iterable of raw transactions expected, not {type(source).__name__}")
