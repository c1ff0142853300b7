"""Questions about compact filters asked of one peer, and its answers held against them (BIP-157). Whether they are true is not known here.

A question whose asker has gone stays open: its answer may still come, and is no lie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any  # whatever the futures are for

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred
from spvfilter.errors import LieError
from spvfilter.filters.bip158 import filter_hash, filter_header, filter_headers
from spvfilter.light.flight import Lie
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import BASIC_FILTER_TYPE, CHECKPOINT_INTERVAL, MAX_CFHEADERS
from spvfilter.wire.messages.filters import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import Message

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


@dataclass(frozen=True, slots=True)
class Told:
    """What a peer says of successive blocks: the filter header before them, and their filter hashes."""

    previous: bytes
    hashes: Sequence[bytes]

    def headers(self) -> list[bytes]:
        return list(filter_headers(self.hashes, self.previous))


@dataclass(slots=True)
class _Range:
    count: int
    stop: bytes
    done: asyncio.Future[Told]


@dataclass(slots=True)
class _Flight:
    """Filters asked for together."""

    blocks: Sequence[bytes]
    headers: Sequence[bytes]
    data: list[bytes]
    missing: int
    done: asyncio.Future[list[bytes]]


class CompactQuestions:
    """What one peer was asked about compact filters and has not answered."""

    def __init__(self, send: Callable[[Message], Awaitable[None]], limits: Limits) -> None:
        self.flights = 0  # questions for filters that are open
        self._send = send
        self._limits = limits
        self._checkpoints: dict[bytes, tuple[int, asyncio.Future[Sequence[bytes]]]] = {}  # by stop hash: how many are due
        self._ranges: deque[_Range] = deque()
        self._filters: dict[bytes, tuple[_Flight, int, bytes, bytes]] = {}  # by block: its place, header, the header before
        self._heard = 0  # answers
        self._ended: BaseException | None = None

    def __bool__(self) -> bool:
        """Whether an answer is due."""
        return bool(self._checkpoints or self._ranges or self._filters)

    def end(self, error: BaseException) -> None:
        """The connection is gone: nothing asked is answered any more."""
        self._ended = error
        checkpoints: list[asyncio.Future[Any]] = [done for _, done in self._checkpoints.values()]
        for future in [*checkpoints, *(asked.done for asked in self._ranges), *(place[0].done for place in self._filters.values())]:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody need look at it

    async def _ask(self, question: Message) -> None:
        if self._ended is not None:
            raise self._ended
        await self._send(question)

    async def checkpoints(self, height: int, stop: bytes) -> Sequence[bytes]:
        """Filter headers of heights 1,000, 2,000 … up to a block. Raises PeerError, TimeoutError."""
        asked = self._checkpoints.get(stop)
        async with asyncio.timeout(self._limits.reply_s):
            if asked is None:
                asked = self._checkpoints[stop] = height // CHECKPOINT_INTERVAL, _future()
                await self._ask(GetCFCheckpt(BASIC_FILTER_TYPE, stop))
            return await asyncio.shield(asked[1])

    async def headers(self, first: int, last: int, stop: bytes) -> Told:
        """Filter hashes of the blocks from one height to another, `stop` the last one's hash. Raises PeerError, TimeoutError."""
        assert 0 <= last - first < MAX_CFHEADERS
        async with asyncio.timeout(self._limits.reply_s):
            while (other := next((asked for asked in self._ranges if asked.stop == stop), None)) is not None:
                await asyncio.wait({other.done})  # answers to the two could not be told apart
            asked = _Range(last - first + 1, stop, _future())
            self._ranges.append(asked)
            await self._ask(GetCFHeaders(BASIC_FILTER_TYPE, first, stop))
            return await asyncio.shield(asked.done)

    async def filters(self, first: int, blocks: Sequence[bytes], headers: Sequence[bytes]) -> list[bytes]:
        """The filters of successive blocks from a height on, each checked against its header; `headers` has the one before the first, too.

        Raises PeerError; TimeoutError after a long silence.
        """
        while (flight := next((self._filters[block][0] for block in blocks if block in self._filters), None)) is not None:
            if (flight.blocks, flight.headers) == (blocks, headers):  # somebody has asked and gone
                return await self._landed(flight)
            await self._landed(flight)
        flight = _Flight(blocks, headers, [b""] * len(blocks), len(blocks), _future())
        for place, block in enumerate(blocks):
            self._filters[block] = flight, place, headers[place + 1], headers[place]
        self.flights += 1
        await self._ask(GetCFilters(BASIC_FILTER_TYPE, first, blocks[-1]))
        return await self._landed(flight)

    def owes(self, blocks: Sequence[bytes]) -> bool:
        """Whether just these filters were asked for, and have not come."""
        owed = self._filters.get(blocks[-1])
        return owed is not None and owed[0].blocks == blocks

    async def _landed(self, flight: _Flight) -> list[bytes]:
        while not flight.done.done():
            heard = self._heard
            await asyncio.wait({flight.done}, timeout=self._limits.reply_s)
            if not flight.done.done() and heard == self._heard:
                raise TimeoutError(f"no filter for {self._limits.reply_s:g} s")
        return flight.done.result()

    def take(self, message: CFilter | CFHeaders | CFCheckpt) -> None:
        """Raises LieError for what was not asked for, or is not what was."""
        self._heard += 1
        if message.filter_type != BASIC_FILTER_TYPE:
            raise LieError(f"filters of type {message.filter_type}", cause=Lie.UNASKED_FILTER)
        match message:
            case CFilter():
                self._take_filter(message)
            case CFHeaders():
                self._take_headers(message)
            case CFCheckpt():
                self._take_checkpoints(message)

    def _take_filter(self, message: CFilter) -> None:
        if (found := self._filters.get(message.block_hash)) is None:
            raise LieError(f"the filter of block {hash_to_hex(message.block_hash)}", cause=Lie.UNASKED_FILTER)
        flight, place, header, previous = found
        if filter_header(filter_hash(message.data), previous) != header:
            raise LieError(f"the filter of block {hash_to_hex(message.block_hash)}", cause=Lie.FALSE_FILTER)
        del self._filters[message.block_hash]
        if not flight.done.done():
            flight.data[place] = message.data
        flight.missing -= 1
        if not flight.missing:
            self.flights -= 1
            _set(flight.done, flight.data)

    def _take_headers(self, message: CFHeaders) -> None:
        asked = next((asked for asked in self._ranges if asked.stop == message.stop_hash), None)
        if asked is None:
            raise LieError(f"filter headers up to block {hash_to_hex(message.stop_hash)}", cause=Lie.UNASKED_FILTER)
        if len(message.filter_hashes) != asked.count:
            where = f"up to block {hash_to_hex(message.stop_hash)}"
            raise LieError(f"{len(message.filter_hashes)} filter headers {where}, where {asked.count} are due", cause=Lie.UNASKED_FILTER)
        self._ranges.remove(asked)
        _set(asked.done, Told(message.previous, message.filter_hashes))

    def _take_checkpoints(self, message: CFCheckpt) -> None:
        due, done = self._checkpoints.get(message.stop_hash, (None, None))
        if done is None:
            raise LieError(f"filter checkpoints up to block {hash_to_hex(message.stop_hash)}", cause=Lie.UNASKED_FILTER)
        if len(message.filter_headers) != due:
            raise LieError(f"{len(message.filter_headers)} filter checkpoints where {due} are due", cause=Lie.UNASKED_FILTER)
        del self._checkpoints[message.stop_hash]
        _set(done, message.filter_headers)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _set(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)
