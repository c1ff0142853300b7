"""Filter headers: fetched from one peer, compared with the other peers', and judged by blocks (BIP-157).

Filter headers are chained, so a header commits to all filters below it. A peer supports our chain of filter headers if
it gives the same header.

If a peer gives a different header, the engine finds the first block where they differ and judges it. If the block
proves a filter false, the engine bans the peers that committed to it, and discards their headers.

Often, a block proves neither filter false. The engine then bans nobody and takes no majority vote. It fetches the whole
block and searches it, regardless of its filters. It does the same with every later block for which the two filters
differ, so a false element in one block cannot hide a payment in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from spvfilter.chain.difficulty import PERIOD as _PERIOD
from spvfilter.errors import LieError, UselessPeerError
from spvfilter.filters.bip158 import filter_headers
from spvfilter.kernel import chain_filter_headers
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import MAX_FILTER_DISPUTES, WITNESSES, Coverage
from spvfilter.light.engine.filterquestions import FilterQuestions, Stated
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.peers import COMPACT_FILTERS, Peer, PeerState
from spvfilter.light.engine.tasks import Change, Task, Wait
from spvfilter.light.engine.verdicts import Case, Outcome, Verdicts
from spvfilter.light.events import PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.protocol import CHECKPOINT_INTERVAL, MAX_CFHEADERS
from spvfilter.store.filters import CompactFilterBatch

T = TypeVar("T")

_PIPELINE = 4  # Outstanding requests for filter headers to one peer.

# The other peers are asked after this many more blocks, and always at the tip.
HEAR_EVERY = 10 * _PERIOD
MAX_UNDECIDED = 20  # Limit on undecided blocks in a peer's dispute before it ends (our choice).

# An ended dispute resumes this many blocks below our last filter header: a day's blocks (our choice).
MAX_RESUMED = 144
MAX_DISPUTERS = 1_000  # Latest addresses with remembered disputes (our choice).


@dataclass(slots=True)
class _Divergence:
    """A peer whose filter headers differ from ours, starting at an undecided block."""

    first: int
    """Height of that block."""
    compared: int
    """Height up to which the peer's filter hashes were compared with ours."""
    header: bytes | None
    """The peer's filter header at that height, if it is known."""
    is_ended: bool = False
    """True if the comparison is paused until our filter headers reach the tip."""
    resumed: int | None = None
    """Height above which the comparison was resumed, so that each differing block is judged."""


@dataclass(slots=True)
class _PeerFilterHeaders:
    """Filter headers that a peer has stated."""

    agreed: int = -1
    """Height up to which they agree with ours."""
    divergence: _Divergence | None = None
    is_asked: bool = False
    """True if a request to the peer is outstanding, or a block is being judged."""
    moved: Change = field(default_factory=lambda: Change("our filter headers or the peer's chain to move"))
    task: Task[None] | None = None
    """The task that compares the peer's filter headers with ours."""


class _Difference(NamedTuple):
    """A block for which a peer commits to a different filter from ours."""

    height: int
    digest: bytes
    """Hash of the peer's filter."""
    header: bytes
    """The peer's filter header."""


class FilterHeaders:
    """The filter headers of the best chain, and their supporters."""

    def __init__(
        self,
        context: Context,
        headers: PeerHeaders,
        questions: FilterQuestions,
        blocks: BlockRequests,
        coverage: Coverage,
    ) -> None:
        self._context = context
        self._on_taken_back: list[Callable[[int], None]] = []
        self._headers = headers
        self._questions = questions
        self._coverage = coverage
        self.verdicts: Verdicts = Verdicts(context, questions, blocks, self.supporters)
        self._stated: dict[Peer, _PeerFilterHeaders] = {}
        self._leader: Peer | None = None
        self._next = 0  # First height of the next request to the leader.
        self._undecided: dict[str, set[bytes]] = {}  # Blocks disputed by a peer that were not decided, by its address.
        # Height up to which blocks count as undecided for a peer that disputed too many, by its address.
        self._ended: dict[str, int] = {}
        # When the last supporter of our filter headers was gone, while a peer gives another chain.
        self._alone_since: float | None = None
        # How often we switched to another chain in spite of supporters, since the last complete search.
        self._switches = 0
        # Heights up to which former supporters agreed with our filter headers, by address, the latest last.
        self._former_supporters: dict[str, int] = {}
        context.pool.on_gone(self._gone)
        context.pool.on_lie(self._lied)

    def _lied(self, peer: Peer) -> None:
        self._former_supporters.pop(peer.address, None)
        self._coverage.remove_filter_dispute(peer.address)

    def _gone(self, peer: Peer) -> None:
        stated = self._stated.pop(peer, None)
        if stated is not None and stated.task is not None:
            stated.task.cancel()
        if stated is not None and stated.agreed >= 0:
            agreed = max(stated.agreed, self._former_supporters.pop(peer.address, -1))
            self._former_supporters = dict(
                [*self._former_supporters.items(), (peer.address, agreed)][-MAX_FILTER_DISPUTES:]
            )
        if stated is not None and stated.divergence is not None and stated.divergence.resumed is not None:
            self._ended[peer.address] = max(stated.divergence.resumed, stated.divergence.compared)
        self._coverage.left(peer.address)
        if peer is self._leader:
            self._leader = None

    def _stated_by(self, peer: Peer) -> _PeerFilterHeaders:
        stated = self._stated.get(peer)
        if stated is None:
            stated = self._stated[peer] = _PeerFilterHeaders()
        return stated

    @property
    def members(self) -> tuple[Peer, ...]:
        """Connected peers that serve compact filters."""
        return self._context.pool.ready(COMPACT_FILTERS)

    def supporters(self, height: int) -> list[Peer]:
        """Return the connected peers that support our filter header at a height."""
        return [peer for peer in self.members if self._stated_by(peer).agreed >= height]

    @property
    def is_hearing(self) -> bool:
        """True if a peer that usually answers promptly has not yet answered about our filter headers."""
        asked = (peer for peer, stated in self._stated.items() if stated.is_asked and peer.state is PeerState.READY)
        return not all(map(self.verdicts.lacks_block, asked))

    @property
    def leader(self) -> Peer | None:
        """The peer that sent our latest filter headers."""
        return self._leader

    # The chain

    def disconnect_to(self, height: int) -> None:
        """Drop the filter headers above a height, because the blocks were disconnected."""
        self._context.rows.cut(height)
        self._limit(height)

    def on_taken_back(self, call: Callable[[int], None]) -> None:
        """Register a function to call with a height whenever our filter headers above that height are discarded."""
        self._on_taken_back.append(call)

    def _limit(self, height: int) -> None:
        for peer in self.verdicts.disconnect_to(height):
            self._stated_by(peer).is_asked = False
        self._next = min(self._next, height + 1)
        self._former_supporters = {
            address: min(supported, height) for address, supported in self._former_supporters.items()
        }
        self._ended = {address: min(ended, height) for address, ended in self._ended.items()}
        for stated in self._stated.values():
            stated.agreed, divergence = min(stated.agreed, height), stated.divergence
            if divergence is not None and divergence.resumed is not None and divergence.first <= height:
                divergence.resumed = min(divergence.resumed, height)
                if divergence.compared > height:  # the blocks below were judged, or are in doubt
                    divergence.compared, divergence.header = height, None
            elif divergence is not None and divergence.compared > height:
                stated.divergence = None  # the peer is asked again
        self._coverage.limit(height)

    # Steps

    def advance(self) -> None:
        """Extend our filter headers, and compare them with the headers of each peer."""
        tasks = self._context.tasks
        self._questions.advance()
        self._extend()
        for peer in self.members:
            stated = self._stated_by(peer)
            if stated.task is None or stated.task.is_done:
                what = f"compare filter headers with {peer.address}"
                stated.task = tasks.begin(partial(self._hear, peer), what, partial(self._context.failed, peer))
                tasks.run()
            self._resume_ended(stated)
            stated.moved.announce()
            tasks.run()
        self._check_supporters()
        tasks.run()
        self.verdicts.advance()
        tasks.run()
        if self._coverage.proven < self._context.rows.height:
            self._coverage.agreed(self._agreed_height(2))
        # A peer that contradicted our headers and is gone leaves doubt until three groups support ours.
        if self._coverage.filter_disputes or self._coverage.forgotten:
            self._coverage.outweigh(self._agreed_height(WITNESSES), {peer.address for peer in self._context.pool})

    def _agreed_height(self, number: int) -> int:
        """Return the height up to which this many network groups support our filter headers."""
        best: dict[str, int] = {}
        for peer in self.members:
            best[peer.group] = max(best.get(peer.group, -1), self._stated_by(peer).agreed)
        ranked = sorted(best.values(), reverse=True)
        return ranked[number - 1] if len(ranked) >= number else -1

    def _check_supporters(self) -> None:
        """Discard our filter headers if they have no supporter left and a peer gives a different chain.

        A former supporter may come back in a moment, and then all blocks would be searched twice, so the engine first
        waits `answer_s`. It also switches if the supporters cannot extend our headers, but a peer with a different
        chain can. In that case, the wait doubles with each switch.
        """
        diverging = {
            peer: stated.divergence.first for peer, stated in self._stated.items() if stated.divergence is not None
        }
        first, now, context = min(diverging.values(), default=0), self._context.now.monotonic, self._context
        if is_done := context.rows.height == context.books.cursor == context.chain.height and bool(
            self.supporters(context.chain.height)
        ):
            self._switches = 0
        remaining = [peer for peer in self.members if peer not in diverging and self._headers.knows(peer) >= first]
        is_stuck = (
            (can_go_on := any(map(self._brings_on, diverging)))
            and not is_done
            and not any(map(self._brings_on, remaining))
        )
        if not diverging or (remaining and not is_stuck):
            self._alone_since = None
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        heights = {peer.address: self._stated_by(peer).agreed for peer in remaining}
        supported = {
            address: height for address, height in (self._former_supporters | heights).items() if height >= first
        }
        allowed = context.options.timeouts.answer_s * (2.0**self._switches if remaining else 1.0 if supported else 0.0)
        is_asked = any(
            each.is_asked and (peer.state is PeerState.READY or not can_go_on) for peer, each in self._stated.items()
        )
        if is_asked or now - self._alone_since < allowed:
            return
        self._switches = min(self._switches + bool(remaining), 12)
        last, disputed = self._context.rows.height, self._coverage.disputed.copy()
        self._take_back(first)
        self._coverage.lost_supporters(first, last, supported)
        for height, block_hash in disputed.items():  # The other chain is not right just because its peers are the last.
            self._coverage.dispute(height, block_hash)

    def _brings_on(self, peer: Peer) -> bool:
        """True if a peer answers promptly, and has the block after our last filter header, if there is one."""
        return peer.state is PeerState.READY and self._headers.knows(peer) >= min(
            self._context.rows.height + 1, self._context.chain.height
        )

    def _take_back(self, height: int) -> None:
        """Discard our filter headers at and above a height, and the search that used them."""
        context = self._context
        context.rows.cut(height - 1)
        context.books.change_filters(CompactFilterBatch(fork=height - 1))
        context.books.searches.doubt(height)
        self._leader = None
        self._limit(height - 1)
        self._ended.clear()  # otherwise a liar could have every later block searched whole
        for call in self._on_taken_back:
            call(height - 1)
        context.changed()

    # Extending

    def _extend(self) -> None:
        context = self._context
        top = context.chain.height
        if context.rows.height >= top or context.out.is_backed_up:
            return
        leader = self._leader
        if leader is None or not self._can_lead(leader):
            leader = self._leader = self._choose_leader()
            if leader is None:
                return
            self._next = context.rows.height + 1
        self._next = max(self._next, context.rows.height + 1)
        last = min(self._headers.knows(leader), top)
        while self._next <= last and self._next <= context.rows.height + _PIPELINE * MAX_CFHEADERS:
            first, end = self._next, min(self._next + MAX_CFHEADERS - 1, last)
            stop = context.chain.hash_at(end)
            asked = self._questions.ask_hashes(leader, first, end, stop)
            if asked is None:
                return  # the same request is already outstanding
            asked.then(partial(self._take, leader, first, stop, asked))
            self._next = end + 1

    def _can_lead(self, peer: Peer) -> bool:
        return (
            self._context.pool.has(peer)
            and peer.state is PeerState.READY
            and self._headers.knows(peer) > self._context.rows.height
        )

    def _choose_leader(self) -> Peer | None:
        """Return the peer with the most known blocks that is not in dispute and has no request outstanding, or None."""

        def rank(peer: Peer) -> tuple[bool, int, int]:
            return peer.state is PeerState.READY, self._headers.knows(peer), self._stated_by(peer).agreed

        knowing = [peer for peer in self.members if self._headers.knows(peer) > self._context.rows.height]
        stated_headers = ((peer, self._stated_by(peer)) for peer in knowing if not self.verdicts.has_case(peer))
        able = [peer for peer, stated in stated_headers if stated.divergence is None and not stated.is_asked]
        return max(able, key=rank, default=None)

    def _take(self, peer: Peer, first: int, stop: bytes, answer: Wait[Stated]) -> None:
        """Record a peer's filter hashes for the blocks starting at `first`, if they follow ours. Raises LieError."""
        context, (previous, hashes) = self._context, answer.result()
        end = first + len(hashes) - 1
        if context.rows.height != first - 1 or end > context.chain.height or context.chain.hash_at(end) != stop:
            self._next = min(self._next, context.rows.height + 1)
            return
        if previous != context.rows.header_at(first - 1):
            if self._stated_by(peer).agreed >= first - 1:
                raise LieError(f"filter header before block {first}", cause=Lie.CONTRADICTION)
            self._leader = None
            self._stated_by(peer).moved.announce()
            return
        packed = b"".join(hashes)
        headers = chain_filter_headers(packed, previous)
        self._check_checkpoints(first, headers)
        context.rows.append(packed, headers)
        context.books.change_filters(CompactFilterBatch(hashes=hashes))
        self._stated_by(peer).agreed = end
        self._coverage.agrees(peer.address, end)

    def _check_checkpoints(self, first: int, headers: bytes) -> None:
        for height, known in self._context.chain.network.filter_checkpoints:
            if (
                first <= height < first + len(headers) // 32
                and headers[32 * (height - first) : 32 * (height - first) + 32] != known
            ):
                raise LieError(f"filter header {height} differs from the known one", cause=Lie.FALSE_FILTER_HEADER)

    # Hearing

    async def _hear(self, peer: Peer) -> None:
        """Compare a peer's filter headers with ours until it disconnects.

        Normally, only the latest header is compared. During a dispute, the headers are compared block by block.
        """
        stated = self._stated_by(peer)
        while True:
            first, last = await stated.moved.until(partial(self._due, peer, stated))
            if stated.divergence is None:
                await self._hear_latest(peer, stated, last)
            else:
                await self._compare(peer, stated, stated.divergence, first, last)

    def _due(self, peer: Peer, stated: _PeerFilterHeaders) -> tuple[int, int] | None:
        """Return the first and the last height to ask a peer about; None if it need not be asked."""
        rows, top, divergence = self._context.rows, self._context.chain.height, stated.divergence
        height = min(rows.height, self._headers.knows(peer))
        if divergence is None:
            is_extending = rows.height < top and self._leader is not None and height < self._headers.knows(peer)
            is_new = height - stated.agreed >= (HEAR_EVERY if is_extending else 1)
            return (height, height) if is_new else None
        first = divergence.compared + 1
        last = min(first + MAX_CFHEADERS - 1, height)
        return (first, last) if first <= last and not divergence.is_ended else None

    async def _hear_latest(self, peer: Peer, stated: _PeerFilterHeaders, height: int) -> None:
        """Ask for the peer's filter header at a height. If it differs from ours, judge the first block that differs."""
        context, rows = self._context, self._context.rows
        stop = context.chain.hash_at(height)
        answer = await self._answer(stated, self._questions.ask_hashes(peer, height, height, stop))
        if answer is None or not self._reaches(height, stop):
            return
        (header,) = filter_headers(answer.hashes, answer.previous)
        if header == rows.header_at(height):
            stated.agreed = max(stated.agreed, height)
            self._coverage.agrees(peer.address, height)
            return
        self._coverage.add_filter_dispute(peer.address, stated.agreed, height)
        found = await self._locate(peer, stated.agreed, height, header)
        if found is not None:
            stated.agreed = max(stated.agreed, found.height - 1)
            self._coverage.compared(peer.address, found.height - 1)
            await self._judge(peer, found)

    async def _locate(self, peer: Peer, below: int, above: int, header: bytes) -> _Difference | None:
        """Find the first block above height `below`, up to `above`, where a peer's filter header differs from ours.

        Returns None if our headers have changed in the meantime. Raises LieError if the peer contradicts itself.
        """
        rows, chain, stated = self._context.rows, self._context.chain, self._stated_by(peer)
        stop, told = chain.hash_at(above), None
        if above - below > MAX_CFHEADERS:
            checkpoints = await self._answer(stated, self._questions.ask_checkpoints(peer, above, stop))
            # The peer's header may have become ours in the meantime.
            if checkpoints is None or not self._reaches(above, stop) or header == rows.header_at(above):
                return None
            for height, checkpoint in _between(checkpoints, below, above):
                if checkpoint != rows.header_at(height):
                    above, header = height, checkpoint
                    break
                below, told = height, checkpoint
            if not 0 < above - below <= MAX_CFHEADERS:
                raise LieError(f"filter checkpoints up to block {above}", cause=Lie.CONTRADICTION)
            stop = chain.hash_at(above)
        answer = await self._answer(stated, self._questions.ask_hashes(peer, below + 1, above, stop))
        if answer is None or not self._reaches(above, stop):
            return None
        theirs = list(filter_headers(answer.hashes, answer.previous))
        if answer.previous != rows.header_at(below) or theirs[-1] != header:
            is_false = below < 0 or theirs[-1] != header or told not in (None, answer.previous)
            if is_false or stated.agreed >= below:
                raise LieError(f"filter headers from block {below + 1} to {above}", cause=Lie.CONTRADICTION)
            return None  # the peer is asked again
        for height, (digest, their) in enumerate(zip(answer.hashes, theirs, strict=True), below + 1):
            if their != rows.header_at(height):
                return _Difference(height, digest, their)
        return None

    async def _compare(
        self, peer: Peer, stated: _PeerFilterHeaders, divergence: _Divergence, first: int, last: int
    ) -> None:
        """Ask a peer in dispute for its next filter hashes, and judge the next block where they differ."""
        context, rows = self._context, self._context.rows
        stop = context.chain.hash_at(last)
        answer = await self._answer(stated, self._questions.ask_hashes(peer, first, last, stop))
        if answer is None or not self._reaches(last, stop):
            return
        if stated.divergence is not divergence or divergence.compared != first - 1:
            return
        ours = rows.header_at(first - 1)  # it cannot be the peer's, because the peer has stated another one below
        if answer.previous == ours if divergence.header is None else answer.previous != divergence.header:
            raise LieError(f"filter header before block {first}", cause=Lie.CONTRADICTION)
        theirs = filter_headers(answer.hashes, answer.previous)
        for height, (digest, header) in enumerate(zip(answer.hashes, theirs, strict=True), first):
            if digest != rows.hash_at(height):
                self._coverage.add_filter_dispute(peer.address, height - 1, last)
                await self._judge(peer, _Difference(height, digest, header))
                return
            divergence.compared, divergence.header = height, header
        self._coverage.compared(peer.address, last)
        context.changed()

    async def _answer(self, stated: _PeerFilterHeaders, asked: Wait[T] | None) -> T | None:
        """Return the answer to a request; None if it was not sent because the same one is already outstanding."""
        if asked is None:
            return None
        stated.is_asked = True
        try:
            return await asked
        finally:
            stated.is_asked = False

    def _reaches(self, height: int, stop: bytes) -> bool:
        """True if the chain and our filter headers still contain a block."""
        return (
            height <= min(self._context.rows.height, self._context.chain.height)
            and self._context.chain.hash_at(height) == stop
        )

    def _resume_ended(self, stated: _PeerFilterHeaders) -> None:
        """Resume a peer's ended dispute if our filter headers have reached the tip."""
        divergence, is_at_tip = stated.divergence, self._context.rows.height == self._context.chain.height
        if divergence is not None and divergence.is_ended and is_at_tip and not stated.is_asked:
            self._resume(divergence)

    def _resume(self, divergence: _Divergence) -> None:
        """Resume an ended dispute by judging the latest blocks. The earlier blocks remain in doubt."""
        divergence.is_ended, height = False, self._context.rows.height
        divergence.resumed = height if divergence.resumed is None else max(divergence.resumed, height - MAX_RESUMED)
        if divergence.compared < divergence.resumed:
            divergence.compared, divergence.header = divergence.resumed, None
        self._coverage.add_undecided(divergence.first, divergence.compared)

    # Judging

    async def _judge(self, peer: Peer, found: _Difference) -> None:
        """Judge a block for which a peer commits to a different filter from ours.

        If the peer's dispute ended above this block, the block is not judged again.
        """
        context, stated, height = self._context, self._stated_by(peer), found.height
        if height <= self._ended.get(peer.address, -1) and (
            stated.divergence is None or stated.divergence.resumed is None
        ):
            stated.divergence = stated.divergence or _Divergence(height, height, found.header)
            self._end_dispute(peer, height)
            return
        case = Case(
            peer, height, context.chain.hash_at(height), found.digest, found.header, opened=context.now.monotonic
        )
        stated.is_asked = True
        try:
            verdict = await self.verdicts.judge(case)
        finally:
            stated.is_asked = False
        if verdict is not None and self._reaches(case.height, case.block_hash):
            self._judged(case, *verdict)

    def _judged(self, case: Case, outcome: Outcome, reason: str) -> None:
        stated = self._stated_by(case.peer)
        lie = LieError(
            f"the filter of block {case.height} {reason or 'differs from the filter that the block gives'}",
            cause=Lie.FALSE_FILTER_HEADER,
        )
        if outcome in (Outcome.THEIRS_FALSE, Outcome.BOTH_FALSE):
            self._context.pool.drop(case.peer, lie, self._context.now)
        if outcome in (Outcome.OURS_FALSE, Outcome.BOTH_FALSE):
            self.refute(case.height, lie)
        if outcome is Outcome.UNDECIDED:
            undecided, is_resumed = (
                self._undecided_of(case.peer.address),
                stated.divergence is not None and stated.divergence.resumed is not None,
            )
            if not is_resumed and len(undecided) <= MAX_UNDECIDED:
                undecided.add(case.block_hash)
            if case.block.is_done:
                self._search_whole(case.height, case.block_hash)
            else:
                self._coverage.add_undecided(
                    case.height, case.height
                )  # no peer has the block, so it cannot be searched whole
            self._coverage.compared(case.peer.address, case.height)
            divergence = stated.divergence = stated.divergence or _Divergence(case.height, case.height, case.header)
            divergence.compared, divergence.header = case.height, case.header
            if len(undecided) > MAX_UNDECIDED and not is_resumed:
                self._end_dispute(case.peer, case.height)

    def _undecided_of(self, address: str) -> set[bytes]:
        """Return the blocks that a peer disputed and that were not decided."""
        found = self._undecided[address] = self._undecided.pop(address, set())
        while len(self._undecided) > MAX_DISPUTERS:
            del self._undecided[next(iter(self._undecided))]
        return found

    def refute(self, height: int, lie: LieError) -> None:
        """Ban the supporters of our filter at a height, because the block proves it false.

        Our filter headers are discarded, starting at the first disputed block, because the supporters may have lied
        there as well.
        """
        for supporter in self.supporters(height):
            self._context.pool.drop(supporter, lie, self._context.now)
        firsts = [stated.divergence.first for stated in self._stated.values() if stated.divergence is not None]
        self._take_back(min([height, *firsts]))

    def _search_whole(self, height: int, block_hash: bytes) -> None:
        books = self._context.books
        if self._coverage.dispute(height, block_hash) and height <= books.cursor and books.blocks.has(height):
            books.searches.rewind(height - 1)

    def _end_dispute(self, peer: Peer, height: int) -> None:
        """End a dispute that no block decides: for a while, drop the peers on the side with fewer supporters.

        That does not prove the other side right. All blocks starting at the first disputed one are in doubt.

        If both chains have equally many network groups, the engine drops one peer for a substitute. Without a
        substitute, all peers stay, and the comparison pauses. Later blocks are compared again, even if dropped peers
        come back.
        """
        context, stated, until = self._context, self._stated_by(peer), self._ended.pop(peer.address, None)
        self._ended = dict(
            [*self._ended.items(), (peer.address, context.rows.height if until is None else until)][-MAX_DISPUTERS:]
        )
        blocks = f"block {height} and the {MAX_UNDECIDED} before it"
        error = UselessPeerError(
            f"commits to different filters from other peers for {blocks}, and no block shows which ones are right"
        )
        assert stated.divergence is not None
        stated.divergence.is_ended, stated.divergence.resumed, supporters = True, until, self.supporters(height)
        diverging = {
            other: stated.divergence for other, stated in self._stated.items() if stated.divergence is not None
        }
        balance = len({other.group for other in diverging}) - len(
            {supporter.group for supporter in supporters}
        )  # difference in the number of network groups
        first, last = min(each.first for each in diverging.values()), context.rows.height
        if balance > 0:
            for supporter in supporters:
                context.pool.drop(supporter, error, context.now)
            self._take_back(first)
        else:
            self._coverage.remove_filter_dispute(peer.address)
            if balance < 0 and until is None:
                context.pool.drop(peer, error, context.now)
            elif not balance and context.pool.has_substitute(peer, context.now):
                context.pool.drop(context.random.choice((peer, context.random.choice(supporters))), error, context.now)
            else:
                context.out.emit(PeerWarning(peer.address, error, False))
        self._coverage.add_undecided(first, last)  # after `_take_back`, which would remove it
        context.changed()


def _between(checkpoints: Sequence[bytes], below: int, above: int) -> Iterator[tuple[int, bytes]]:
    """Yield the height and the filter header of each checkpoint above `below` and up to `above`."""
    for height, checkpoint in enumerate(checkpoints, 1):
        if below < height * CHECKPOINT_INTERVAL <= above:
            yield height * CHECKPOINT_INTERVAL, checkpoint
