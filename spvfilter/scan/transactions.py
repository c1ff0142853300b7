"""Transactions outside blocks, matched in the order in which they arrive.

A spend is found even if it arrives before its parent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence, Set
from contextlib import aclosing
from itertools import islice
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import FormatError
from spvfilter.kernel import Hit, spent_outpoints
from spvfilter.primitives import Serializable, hash_to_hex, to_bytes
from spvfilter.scan.silentstream import SilentStream
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList

RawTransactions = Iterable[bytes | Serializable] | AsyncIterable[bytes | Serializable]
"""A source of transactions: bytes, or objects that serialize themselves."""

REMEMBERED = 50_000_000
"""Bytes of memory for transactions that may spend an output that has not arrived yet (our choice)."""
AT_ONCE = 64_000
"""Bytes of transactions that the event loop's own thread scans at a time (our choice: well below 1 ms)."""
EACH = 300
"""Bytes of work that a transaction counts for in addition to its size."""
_EACH_MATCH = 100
"""Bytes of work that a match counts for."""
_OBJECTS = 150
"""Bytes of memory that a remembered transaction takes in addition to its own (measured with CPython 3.11)."""
_PER_INPUT = 160
"""Bytes of memory for each outpoint of a remembered transaction, including its entry in the index (measured)."""
STEP = 1_000
"""Number of outpoints that are indexed at a time (our choice: about 0.3 ms)."""


@public
class TxMatches(NamedTuple):
    """A transaction of a stream that has matches, or that is malformed."""

    number: int
    """Position of the transaction in the source, starting at 0."""
    raw: bytes
    """The serialized transaction, as it arrived."""
    matches: list[Match]
    """Matches of the transaction that have not been yielded before. Empty if the transaction is malformed."""
    error: FormatError | None = None
    """The error in the transaction if it is malformed, or None."""

    @property
    def txid(self) -> bytes:
        """The txid of the transaction, 32 bytes in wire order. Raises FormatError if the transaction is malformed."""
        return Transaction.parse(self.raw).txid

    @property
    def txid_hex(self) -> str:
        """The txid of the transaction in display order, as hex. Raises FormatError if the transaction is malformed."""
        return hash_to_hex(self.txid)


Found = Set[tuple[bool, int]]
"""Identities of hits in a transaction: `spend` and `n` of each."""


def unseen(hits: Iterable[Hit], found: Found) -> list[Hit]:
    """Return the hits whose identities are not in `found`."""
    return [hit for hit in hits if (hit.spend, hit.n) not in found]


_Tx = tuple[int, bytes, tuple[bytes, ...]]
"""A transaction that has arrived: its number, its bytes, and the outpoints that it spends.

It is a plain tuple, which the garbage collector does not track: with 50 MB of other objects, a collection took 10 ms.
"""


def _arrived(number: int, raw: bytes) -> _Tx:
    return number, raw, tuple(spent_outpoints(raw))


def _size(tx: _Tx) -> int:
    """Return approximately how many bytes of memory a remembered transaction takes."""
    return len(tx[1]) + _OBJECTS + _PER_INPUT * len(tx[2])


class _Remembered:
    """The latest transactions of a stream, up to a number of bytes, indexed by the outpoints that they spend.

    The index is divided into 256 dicts: a large dict takes 20 ms to grow.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit  # bytes
        self._txs: deque[_Tx] = deque()
        # for each first byte of an outpoint, then for each outpoint: one transaction, or several
        self._spenders: list[dict[bytes, _Tx | list[_Tx]]] = [{} for _ in range(256)]
        # large transactions that were dropped, and those of their outpoints that are still in the index
        self._leaving: deque[tuple[_Tx, Iterator[bytes]]] = deque()

    def __iter__(self) -> Iterator[_Tx]:
        return iter(self._txs)

    def __contains__(self, number: int) -> bool:
        """True if the transaction with this number has arrived and is remembered."""
        return bool(self._txs) and self._txs[0][0] <= number

    def index(self, tx: _Tx, outpoints: Iterable[bytes]) -> None:
        """Add up to 1,000 outpoints that a transaction spends to the index."""
        for outpoint in outpoints:
            spenders = self._spenders[outpoint[0]]
            others = spenders.setdefault(outpoint, tx)
            if isinstance(others, list):
                if others[-1] is not tx:  # an invalid transaction may spend an output twice
                    others.append(tx)
            elif others is not tx:
                spenders[outpoint] = [others, tx]
        if self._leaving:
            oldest, left = self._leaving[0]
            some = list(islice(left, STEP))
            self._remove(oldest, some)
            if len(some) < STEP:
                self._leaving.popleft()

    def keep(self, tx: _Tx) -> None:
        """Remember a transaction whose outpoints are in the index.

        Drop the oldest transactions if the limit is exceeded.
        """
        self._txs.append(tx)
        self._left -= _size(tx)
        while self._left < 0:
            oldest = self._txs.popleft()
            self._left += _size(oldest)
            if len(oldest[2]) <= STEP:
                self._remove(oldest, oldest[2])
            else:
                self._leaving.append((oldest, iter(oldest[2])))

    def _remove(self, tx: _Tx, outpoints: Iterable[bytes]) -> None:
        for outpoint in outpoints:
            spenders = self._spenders[outpoint[0]]
            others = spenders.get(outpoint)
            if others is tx:
                del spenders[outpoint]
            elif isinstance(others, list) and tx in others:
                others.remove(tx)
                if len(others) == 1:
                    spenders[outpoint] = others[0]

    def spending(self, outpoint: bytes) -> Sequence[_Tx]:
        """Return the remembered transactions that spend an outpoint (36 bytes), in the order in which they arrived."""
        found = self._spenders[outpoint[0]].get(outpoint, ())
        return found if isinstance(found, list) else (found,) if found else ()


class _Matched:
    """The hits of a transaction that were yielded as matches, and its txid."""

    __slots__ = ("found", "txid")

    def __init__(self) -> None:
        self.found: set[tuple[bool, int]] = set()
        self.txid: bytes | None = None  # None until it is needed


_Pending = dict[int, tuple[_Tx, list[Hit]]]
"""Transactions and their newly found hits, keyed by the number of the transaction."""


class TxStream:
    """The matches of transactions that arrive one by one.

    `accept` learns hits of a transaction and returns their matches. If the watch list has changed, it searches the
    transaction again, and omits the hits that were found before. It may use a thread. `silent` searches each
    transaction for silent payments.
    """

    def __init__(
        self,
        watch: WatchList,
        accept: Callable[[bytes, list[Hit], Found], Awaitable[list[Match]]],
        remember: int,
        silent: SilentStream | None = None,
    ) -> None:
        self._watch = watch
        self._silent = silent
        self._accept = accept
        self._remembered = _Remembered(remember)
        self._entries = len(watch)  # number of entries that the remembered transactions have been searched for
        self._matched: dict[int, _Matched] = {}  # transactions with matches, keyed by number
        self._arrived = 0  # number of transactions
        self._work = 0  # bytes of work since other tasks could last run

    async def matches(self, source: RawTransactions) -> AsyncGenerator[TxMatches]:
        """Yield the transactions that have matches, and malformed transactions with their error."""
        async with aclosing(each_of(source)) as arriving:
            async for item in arriving:
                raw = to_bytes(item)
                number = self._arrived
                self._arrived += 1
                self._work += len(raw) + EACH
                if self._work > AT_ONCE:
                    await self._let_others_run()
                try:
                    if self._silent is not None:
                        await self._silent.look_at(raw)
                    if len(raw) > AT_ONCE:
                        hits, tx = await asyncio.to_thread(self._scan_new, number, raw)
                    else:
                        hits, tx = self._scan_new(number, raw)
                except FormatError as error:
                    yield TxMatches(number, raw, [], error.with_traceback(None))
                    continue
                if len(tx[2]) <= STEP:
                    self._remembered.index(tx, tx[2])
                else:
                    await self._index_large(tx)
                self._remembered.keep(tx)
                if hits or len(self._watch.table) != self._entries:
                    async with aclosing(self._found({number: (tx, hits)} if hits else {})) as found:
                        async for each in found:
                            yield each
                    self._forget()

    async def _found(self, pending: _Pending) -> AsyncGenerator[TxMatches]:
        """Yield the new matches of transactions, and of remembered transactions that match because of them."""
        await self._search_again(pending)
        while pending:
            number = next(iter(pending))
            tx, hits = pending.pop(number)
            known = self._matched.setdefault(number, _Matched())
            matches = await self._accept(tx[1], hits, known.found)
            if matches:
                yield TxMatches(number, tx[1], matches)
            for match in matches:
                known.found.add((match.kind is MatchKind.INPUT, match.index))
                if match.kind is MatchKind.OUTPUT:
                    await self._add_spends(bytes(match.outpoint), pending)
                await self._count_work(_EACH_MATCH)
            await self._search_again(pending)

    async def _add_spends(self, outpoint: bytes, pending: _Pending) -> None:
        """Add the inputs of remembered transactions that spend a newly learned output."""
        spenders = self._remembered.spending(outpoint)
        coin = self._watch.table.coin(outpoint) if spenders else None
        if coin is None:
            return
        for tx in tuple(spenders):
            number, raw, outpoints = tx
            known = self._matched.setdefault(number, _Matched())
            if known.txid is None:
                known.txid = Transaction.parse(raw).txid
                await self._count_work(len(raw))
            index = -1
            for _ in range(outpoints.count(outpoint)):  # an invalid transaction may spend an output twice
                index = outpoints.index(outpoint, index + 1)
                if (True, index) not in known.found:
                    hit = Hit(True, 0, known.txid, index, outpoint, coin.value, coin.script, coin.entry)
                    pending.setdefault(number, (tx, []))[1].append(hit)
            await self._count_work(_EACH_MATCH + len(outpoints))

    async def _search_again(self, pending: _Pending) -> None:
        """Add remembered transactions that pay new entries, such as the scripts of a moved window."""
        while (entries := len(self._watch)) != self._entries:
            has_new, self._entries = entries > self._entries, entries
            for tx in tuple(self._remembered) if has_new else ():
                number, raw, _ = tx
                await self._count_work(len(raw) + EACH)
                scan = self._watch.table.scan_tx
                hits = await asyncio.to_thread(scan, raw) if len(raw) > AT_ONCE else scan(raw)
                if hits:
                    known = self._matched.get(number)
                    if new := unseen(hits, known.found if known else frozenset()):
                        pending[number] = tx, new

    def _forget(self) -> None:
        """Forget the matches of transactions that are no longer remembered."""
        while self._matched and (oldest := next(iter(self._matched))) not in self._remembered:
            del self._matched[oldest]

    def _scan_new(self, number: int, raw: bytes) -> tuple[list[Hit], _Tx]:
        return self._watch.table.scan_tx(raw), _arrived(number, raw)

    async def _index_large(self, tx: _Tx) -> None:
        """Add the many outpoints of a large transaction to the index. Other tasks of the event loop run in between."""
        for start in range(0, len(tx[2]), STEP):
            self._remembered.index(tx, tx[2][start : start + STEP])
            await self._let_others_run()

    async def _count_work(self, work: int) -> None:
        """Count work in bytes, and let other tasks run once enough work has been done."""
        self._work += work
        if self._work > AT_ONCE:
            await self._let_others_run()

    async def _let_others_run(self) -> None:
        """Let other tasks of the event loop run."""
        self._work = 0
        await asyncio.sleep(0)


async def each_of(source: RawTransactions) -> AsyncGenerator[bytes | Serializable]:
    """Return an iterator over the transactions of a source. Raises TypeError if it is a single transaction."""
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    elif isinstance(source, Iterable) and not isinstance(source, (str, bytes, bytearray, memoryview)):
        for item in source:
            yield item
    else:
        raise TypeError(f"expected an iterable of raw transactions, not {type(source).__name__}")
