"""Outstanding requests for compact filters (BIP-157), and the checks on the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from typing import NamedTuple, assert_never

from spvfilter.errors import LieError
from spvfilter.kernel import filter_hashes
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import Peer
from spvfilter.light.engine.tasks import Wait
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import BASIC_FILTER_TYPE, CHECKPOINT_INTERVAL, HASH_SIZE
from spvfilter.wire.messages.filters import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters

MAX_REPEATED = 100
"""Number of answered requests to one peer for which further, late answers are ignored (our choice)."""


class Stated(NamedTuple):
    """Filter headers of successive blocks, as stated by a peer."""

    previous: bytes
    """The filter header before the first block."""
    hashes: Sequence[bytes]
    """The filter hashes of the blocks."""


@dataclass(slots=True, eq=False)
class _Flight:
    """Filters of successive blocks in one request to one peer."""

    blocks: Sequence[bytes]
    hashes: Sequence[bytes]
    """Filter hashes of these blocks, as stated by the peer."""
    answer: Wait[list[bytes]]
    data: list[bytes]
    """The filters that have arrived, each in its place. The other places contain empty bytes."""
    missing: int
    """The number of filters that have not arrived."""


@dataclass(slots=True, eq=False)
class _Range:
    """A request for the filter hashes of successive blocks."""

    message: GetCFHeaders
    due: int
    """The number of filter hashes."""
    answer: Wait[Stated]
    probe_at: float
    """When the next ping tests whether the peer has ignored the request (monotonic seconds)."""
    wait_s: float
    """Seconds from the request, or from the last such ping, to the next ping."""
    repeats: int = 0
    """How often the request has been sent again."""


@dataclass(slots=True)
class _Open:
    """One peer's outstanding requests."""

    checkpoints: dict[bytes, tuple[int, Wait[Sequence[bytes]]]] = field(default_factory=dict)
    """The number of filter headers due, and the Wait for them, by stop hash."""
    ranges: dict[bytes, _Range] = field(default_factory=dict)
    """Requests for filter hashes, by stop hash."""
    repeated: dict[bytes, int] = field(default_factory=dict)
    """How many more answers may arrive, by stop hash, because a request was sent again before the peer answered it.

    The latest request comes last."""
    filters: dict[bytes, tuple[_Flight, int]] = field(default_factory=dict)
    """The flight that contains a filter, and the filter's place in it, by block hash."""
    flights: int = 0

    def take(self, flight: _Flight, place: int, blocks: list[bytes], data: list[bytes]) -> int:
        """Store filters in a flight, starting at `place`, and stop before the first false one.

        Returns:
            The number of filters that were stored.
        """
        size = min(len(blocks), len(flight.blocks) - place)
        run = blocks[:size]
        if [*map(self.filters.get, run)] != [*zip(repeat(flight), range(place, place + size), strict=False)]:
            size, run = 1, blocks[:1]  # a different order, or a filter that was not requested here
        hashes, due = filter_hashes(data[:size]), flight.hashes[place : place + size]
        if hashes != b"".join(due):
            size = next(
                at for at, each in enumerate(due) if each != hashes[HASH_SIZE * at : HASH_SIZE * at + HASH_SIZE]
            )
        flight.data[place : place + size] = data[:size]
        flight.missing -= size
        for block_hash in run[:size]:
            del self.filters[block_hash]
        return size


class FilterQuestions:
    """Sends requests for filters. Each `ask_…` method returns a Wait for the answer.

    It returns None if the same request is already outstanding.

    A request remains outstanding even if nobody needs the answer any more, so that a late answer does not count as a
    lie. If the peer disconnects, the Wait never completes.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[Peer, _Open] = {}
        context.pool.on_gone(lambda peer: self._open.pop(peer, None))

    def flights(self, peer: Peer) -> int:
        """Return the number of flights that were requested from a peer and have not arrived in full yet."""
        return self._of(peer).flights

    def owes(self, peer: Peer, block_hash: bytes) -> bool:
        """True if the filter of a block was requested from this peer and has not arrived yet."""
        return block_hash in self._of(peer).filters

    def _of(self, peer: Peer) -> _Open:
        owed = self._open.get(peer)
        if owed is None:
            owed = self._open[peer] = _Open()
        return owed

    # Asking

    def ask_checkpoints(self, peer: Peer, height: int, stop: bytes) -> Wait[Sequence[bytes]] | None:
        """Ask for the filter headers of blocks 1,000, 2,000 … up to the block at `height`, whose hash is `stop`."""
        owed = self._of(peer)
        if stop in owed.checkpoints:
            return None
        answer = Wait[Sequence[bytes]](f"filter checkpoints up to block {height} of {peer.address}")
        owed.checkpoints[stop] = height // CHECKPOINT_INTERVAL, answer
        self._context.pool.ask(peer, ("cfcheckpt", stop), self._context.now, GetCFCheckpt(BASIC_FILTER_TYPE, stop))
        return answer

    def ask_hashes(self, peer: Peer, first: int, last: int, stop: bytes) -> Wait[Stated] | None:
        """Ask for the filter hashes of at most 2,000 blocks. `stop` is the hash of the last block.

        Requests with the same last block count as the same request.
        """
        owed = self._of(peer)
        if stop in owed.ranges:
            return None
        now, stall_s = self._context.now, self._context.options.timeouts.stall_s
        answer = Wait[Stated](f"filter headers {first} to {last} of {peer.address}")
        message = GetCFHeaders(BASIC_FILTER_TYPE, first, stop)
        owed.ranges[stop] = _Range(message, last - first + 1, answer, now.monotonic + stall_s, stall_s)
        self._context.pool.ask(peer, ("cfheaders", stop), now, message)
        return answer

    def ask_filters(
        self, peer: Peer, first: int, blocks: Sequence[bytes], hashes: Sequence[bytes]
    ) -> Wait[list[bytes]] | None:
        """Ask for the filters of successive blocks. The first has height `first`, and the peer stated their `hashes`.

        A request that shares a block with an outstanding one counts as the same request.
        """
        owed = self._of(peer)
        if any(map(owed.filters.__contains__, blocks)):
            return None
        answer = Wait[list[bytes]](f"filters {first} to {first + len(blocks) - 1} of {peer.address}")
        flight = _Flight(blocks, hashes, answer, [b""] * len(blocks), len(blocks))
        owed.filters.update(zip(blocks, zip(repeat(flight), count()), strict=False))  # the places never end
        owed.flights += 1
        question = GetCFilters(BASIC_FILTER_TYPE, first, blocks[-1])
        self._context.pool.ask(peer, ("cfilter", flight), self._context.now, question)
        return answer

    def advance(self) -> None:
        """Request filter hashes again if a peer ignored the request, as Core does while its index lags.

        A ping shows this: if the pong arrives before the answer, the peer does not have the filters yet.
        """
        now = self._context.now.monotonic
        for peer, owed in self._open.items():
            for question in owed.ranges.values():
                if now >= question.probe_at:
                    question.wait_s *= 2
                    question.probe_at = now + question.wait_s
                    self._context.out.fence(peer.number, partial(self._ask_again, peer, owed, question))

    def _ask_again(self, peer: Peer, owed: _Open, question: _Range) -> None:
        if owed.ranges.get(question.message.stop_hash) is question:
            question.repeats += 1
            self._context.out.send(peer.number, question.message)

    # Answers

    def take(self, peer: Peer, message: CFilter | CFHeaders | CFCheckpt) -> None:
        """Process an answer. Raises LieError if it is false, or if no outstanding request matches it."""
        if message.filter_type != BASIC_FILTER_TYPE:
            raise LieError(f"filters of type {message.filter_type}", cause=Lie.UNASKED_FILTER)
        match message:
            case CFilter():
                self.take_filters(peer, ((message.block_hash, message.data),))
            case CFHeaders():
                self._take_hashes(peer, message)
            case CFCheckpt():
                self._take_checkpoints(peer, message)
            case _:
                assert_never(message)

    def take_filters(self, peer: Peer, filters: Iterable[tuple[bytes, bytes]]) -> None:
        """Process filters, each with the hash of its block.

        Raises LieError in the same cases as `take`, but keeps the filters before the false one.
        """
        owed, heard = self._of(peer), dict[_Flight, None]()
        blocks, data = map(list, zip(*filters, strict=True))
        while blocks:
            found = owed.filters.get(blocks[0])
            if found is None:
                raise LieError(f"the filter of block {hash_to_hex(blocks[0])}", cause=Lie.UNASKED_FILTER)
            flight, place = found
            heard[flight] = None
            taken = owed.take(flight, place, blocks, data)
            if not taken:
                raise LieError(f"the filter of block {hash_to_hex(blocks[0])}", cause=Lie.FALSE_FILTER)
            del blocks[:taken], data[:taken]
            if not flight.missing:
                self._finish(peer, owed, flight)
                if not self._context.pool.has(peer):
                    return
        for each in heard:
            if each.missing:
                self._context.pool.heard(peer, ("cfilter", each), self._context.now)

    def _finish(self, peer: Peer, owed: _Open, flight: _Flight) -> None:
        """Handle a flight whose filters have all arrived."""
        owed.flights -= 1
        self._context.pool.answered(peer, ("cfilter", flight), self._context.now)
        self._context.changed()
        flight.answer.set(flight.data)

    def _take_hashes(self, peer: Peer, message: CFHeaders) -> None:
        owed, stop = self._of(peer), message.stop_hash
        question, where = owed.ranges.get(stop), f"up to block {hash_to_hex(stop)}"
        is_fitting = question is not None and len(message.filter_hashes) == question.due
        if not is_fitting and owed.repeated.get(stop, 0):  # it was slow, and answers an earlier copy of the request
            owed.repeated[stop] -= 1
            return
        if question is None:
            raise LieError(f"filter headers {where}", cause=Lie.UNASKED_FILTER)
        if not is_fitting:
            raise LieError(
                f"{len(message.filter_hashes)} filter headers {where} instead of {question.due}",
                cause=Lie.UNASKED_FILTER,
            )
        del owed.ranges[stop]
        if question.repeats:
            repeats = owed.repeated.pop(stop, 0) + question.repeats
            owed.repeated = dict([*owed.repeated.items(), (stop, repeats)][-MAX_REPEATED:])
        self._context.pool.answered(peer, ("cfheaders", stop), self._context.now)
        self._context.changed()
        question.answer.set(Stated(message.previous, message.filter_hashes))

    def _take_checkpoints(self, peer: Peer, message: CFCheckpt) -> None:
        due, answer = self._of(peer).checkpoints.get(message.stop_hash, (0, None))
        if answer is None:
            raise LieError(f"filter checkpoints up to block {hash_to_hex(message.stop_hash)}", cause=Lie.UNASKED_FILTER)
        if len(message.filter_headers) != due:
            raise LieError(
                f"{len(message.filter_headers)} filter checkpoints instead of {due}", cause=Lie.UNASKED_FILTER
            )
        del self._of(peer).checkpoints[message.stop_hash]
        self._context.pool.answered(peer, ("cfcheckpt", message.stop_hash), self._context.now)
        self._context.changed()
        answer.set(message.filter_headers)
