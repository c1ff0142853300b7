"""Blocks searched by a peer's filter: asked for in flights, recorded in order, compared with a witness's. Headers are elsewhere.

A block is recorded only while it is of the best chain and the next above the cursor, and only if the peer's filter was made of all
that is watched now: `epoch` counts the changes of the watch list, and a peer has the epoch of its filter.

What a peer omits shows where another one with the same filter, the witness, proves a transaction of ours in a block that was recorded
without it. Then the peer is left for good, and the blocks from there on are searched again. Where the witness does not know a
block yet, the comparison is made later. It is asked for a block only if its filter has the outpoints found in all blocks below, as
`covered` says: in those it was asked for itself, and in those that were recorded when its filter was loaded or added to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred
from spvfilter.chain import HeaderChain
from spvfilter.errors import FormatError, LieError, UselessPeerError
from spvfilter.light.events import Event, Phase, Progress
from spvfilter.light.flight import Flight, Lie
from spvfilter.light.peers import LOST, Peers
from spvfilter.light.remote import Remote
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import hash_to_hex
from spvfilter.wallet.ledger import Ledger
from spvfilter.wallet.scanned import FoundTx, ScannedBlock

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor
else:
    asyncio = deferred("asyncio")

P = ParamSpec("P")
T = TypeVar("T")
MAX_UNWITNESSED = 20_000  # blocks that wait for a witness; ours


class _Unwitnessed(NamedTuple):
    """A block that one peer alone has answered for."""

    height: int
    hash: bytes
    peer: str


@dataclass(slots=True)
class _UnderWay:
    """Blocks asked of a peer and, if `second` is there, of the witness."""

    wanted: Sequence[tuple[int, bytes]]
    flight: Flight
    witness: Remote | None = None
    second: Flight | None = None


class Search:
    """What is searched and how far. `emit` takes events in order and may wait; `database` is the store's one thread."""

    def __init__(
        self, ledger: Ledger, chain: HeaderChain, emit: Callable[[Event], Awaitable[None]], database: Executor, limits: Limits, clock: Clock
    ) -> None:
        self.ledger = ledger
        self.chain = chain
        self.peers: Peers
        self.epoch = 0
        self._store = ledger.store
        self._emit = emit
        self._database = database
        self._limits = limits
        self._clock = clock
        self._stall_s = limits.stall_s
        self._unwitnessed: deque[_Unwitnessed] = deque(maxlen=MAX_UNWITNESSED)
        self._first = ledger.store.cursor + 1  # height from which on the present search goes

    async def db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call in the database's thread; what was begun there ends there, whoever is cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._database, partial(call, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    async def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            await self._emit(event)

    async def _follow_chain(self) -> None:
        """Let the database follow the chain in memory."""
        raise NotImplementedError

    def _must_reload(self, remote: Remote) -> bool:
        """Whether the peer needs a new filter."""
        raise NotImplementedError

    def _current_witness(self, remote: Remote) -> Remote | None:
        """Who else may be asked the same as `remote`."""
        raise NotImplementedError

    # Patience

    def substitute(self, remote: Remote) -> Remote | None:
        """Who could take a peer's place."""
        return self.peers.best(lambda other: other.has_bloom and other.is_greeted, but=remote)

    def _check_patience(self, remote: Remote, since: float) -> None:
        """Raises UselessPeerError for a peer that was asked for something at `since` and is silent: soon where another one is there."""
        now = self._clock.monotonic()
        silent, waited = now - max(since, remote.last_heard), now - since
        if silent >= self._limits.reply_s:
            raise UselessPeerError(f"no answer for {silent:.1f} s")
        if self.substitute(remote) is None:
            return
        if silent >= self._stall_s:
            self._stall_s = min(2 * self._stall_s, self._limits.max_stall_s)
            raise UselessPeerError(f"no answer for {silent:.1f} s, another peer may be faster")
        if waited >= self._limits.max_stall_s:
            raise UselessPeerError(f"no whole answer for {waited:.1f} s, another peer may be faster")

    async def _landed(self, remote: Remote, flight: Flight) -> list[ScannedBlock]:
        """The flight's blocks. Raises UselessPeerError for a peer that stalls while another one is there, or for long."""
        since = self._clock.monotonic()
        while not flight.done.done():
            await asyncio.wait({flight.done}, timeout=self._stall_s)
            if not flight.done.done():
                self._check_patience(remote, since)
        blocks = flight.done.result()
        self._stall_s = max(self._limits.stall_s, self._stall_s * 0.85)
        for block in flight.whole:  # where the proof cannot be relied on, the whole block is
            block.raw, block.txs = await remote.fetch_block(block.hash), ()
        return blocks

    def _lags(self, remote: Remote) -> bool:
        """Whether a peer does not know the block that is next or, at the tip, has a chain of less work."""
        cursor = self._store.cursor
        return remote.knows <= cursor if cursor < self.chain.height else remote.headers.is_behind

    # Searching

    async def _search(self, remote: Remote) -> None:
        """Search the blocks above the cursor, several flights under way, as far as the peer knows or until something else comes first."""
        next_height = self._store.cursor + 1
        under_way: deque[_UnderWay] = deque()
        going = True
        while True:
            last = min(self.chain.height, remote.knows)
            while going and len(under_way) < self._limits.flights and next_height <= last:
                end = min(next_height + self._limits.flight - 1, last)
                wanted = [(height, self.chain.hash_at(height)) for height in range(next_height, end + 1)]
                under_way.append(_UnderWay(wanted, await remote.request(wanted)))
                next_height, last = end + 1, min(self.chain.height, remote.knows)
            if not under_way:
                return
            await self._ask_witness(remote, under_way)
            first = under_way.popleft()
            blocks = await self._landed(remote, first.flight)
            recorded = await self._record(remote, blocks)
            if len(recorded) == len(blocks):
                await self._witness(remote, blocks, first.witness, first.second)
            else:
                self._compare_later(remote, recorded)
                going = False
            await self._show_progress()
            going = going and not self._must_reload(remote)

    async def _show_progress(self) -> None:
        cursor, total = self._store.cursor, self.chain.height
        self._first = min(self._first, cursor + 1)
        await self._emit(Progress(Phase.BLOCKS, cursor - self._first + 1, max(total, cursor) - self._first + 1))
        if cursor >= total:
            self._first = cursor + 1

    async def _record(self, remote: Remote, blocks: Sequence[ScannedBlock]) -> Sequence[ScannedBlock]:
        """Record those of the blocks that are still of the best chain and next; which they were."""
        await self._follow_chain()
        if remote.epoch != self.epoch:
            return ()  # they were asked for with a filter that lacks what is new
        good = [block for block in blocks if block.height <= self.chain.height and self.chain.hash_at(block.height) == block.hash]
        if not good or good[0] is not blocks[0] or good[0].height != self._store.cursor + 1:
            return ()
        try:
            events = await self.db(self.ledger.connect, good)
        except FormatError as error:
            raise LieError(str(error), cause=Lie.MALFORMED) from error
        await self._tell(events)
        return good if events else ()

    # Comparing

    async def _ask_witness(self, remote: Remote, under_way: Iterable[_UnderWay]) -> None:
        witness = self._current_witness(remote)
        for each in under_way:
            if each.second is None:
                each.witness, each.second = witness, await self._second(witness, each.wanted)

    async def _second(self, witness: Remote | None, wanted: Sequence[tuple[int, bytes]]) -> Flight | None:
        """The same question to the witness, where it knows these blocks and its filter is such that it can answer."""
        if witness is None or witness.epoch != self.epoch or self.peers.ready.get(witness.address) is not witness:
            return None
        first, last = wanted[0][0], wanted[-1][0]
        below = (first if last - first == len(wanted) - 1 else last) - 1
        if witness.knows < last:
            return None
        try:
            if witness.covered < below <= self._store.cursor:
                await self._cover(witness)
            if witness.covered < below:
                return None
            witness.covered = max(witness.covered, last)
            return await witness.request(wanted)
        except LOST as error:
            self.peers.leave(witness, error)
            return None

    async def _cover(self, witness: Remote) -> None:
        """Add to the witness's filter what was found in all blocks that are recorded."""
        cursor, elements = await self.db(lambda: (self._store.cursor, self.ledger.bloom_elements()))
        await witness.add_elements(elements)
        witness.covered = max(witness.covered, cursor)

    def _uncover(self, height: int) -> None:
        """Blocks above a height are to be searched again, or are others now."""
        for remote in self.peers.ready.values():
            remote.covered = min(remote.covered, height)

    async def _witness(self, remote: Remote, blocks: Sequence[ScannedBlock], witness: Remote | None, second: Flight | None) -> None:
        """Compare recorded blocks with what the witness says. Raises LieError for a peer that left out something of ours."""
        theirs = await self._testimony(witness, second) if witness is not None and second is not None else None
        if theirs is None or witness is None:
            self._compare_later(remote, blocks)
            return
        for block, other in zip(blocks, theirs, strict=True):
            if remote.epoch != self.epoch:
                return
            if block.raw is not None or other.raw is not None:
                continue
            if shown := await self.db(self.ledger.relevant_txid, _without(block.txs, other.txs)):
                self.peers.leave(witness, _omitted(shown, block))
                break
        await self._judge(remote, theirs)

    def _compare_later(self, remote: Remote, blocks: Sequence[ScannedBlock]) -> None:
        self._unwitnessed.extend(_Unwitnessed(block.height, block.hash, str(remote.address)) for block in blocks)

    async def _testimony(self, witness: Remote, second: Flight) -> list[ScannedBlock] | None:
        try:
            return await self._landed(witness, second)
        except LOST as error:
            self.peers.leave(witness, error)
            return None

    async def _judge(self, remote: Remote, theirs: Sequence[ScannedBlock]) -> None:
        for other in theirs:
            if remote.epoch != self.epoch:
                return  # they were recorded for what was watched before
            if shown := await self.db(self.ledger.unrecorded_txid, other):
                await self.db(self.ledger.rewind, other.height - 1)
                self._uncover(other.height - 1)
                raise _omitted(shown, other)

    async def _catch_up(self, remote: Remote, witness: Remote) -> bool:
        """Ask the witness for blocks that one peer alone has answered for; whether it knew some. Raises LieError, for `remote` only."""
        self._unwitnessed = deque((each for each in self._unwitnessed if self._is_best(each)), MAX_UNWITNESSED)
        due = [each for each in self._unwitnessed if each.height <= witness.knows and each.peer != str(witness.address)]
        due = sorted(due[: self._limits.flight])
        if not due or witness.is_busy:
            return False
        second = await self._second(witness, [(each.height, each.hash) for each in due])
        theirs = await self._testimony(witness, second) if second is not None else None
        if theirs is None:
            return False
        done = set(due)
        self._unwitnessed = deque((each for each in self._unwitnessed if each not in done), MAX_UNWITNESSED)
        for each, other in zip(due, theirs, strict=True):
            if each.peer == str(remote.address):
                await self._judge(remote, [other])
            elif remote.epoch == self.epoch and (await self.db(self.ledger.unrecorded_txid, other)) is not None:  # who left it out is gone
                await self.db(self.ledger.rewind, other.height - 1)
                self._uncover(other.height - 1)
        return True

    def _is_best(self, block: _Unwitnessed) -> bool:
        return block.height <= self._store.cursor and self.chain.hash_at(block.height) == block.hash


def _omitted(digest: bytes, block: ScannedBlock) -> LieError:
    return LieError(f"transaction {hash_to_hex(digest)} of block {block.height}", cause=Lie.OMITTED_TX)


def _without(txs: Sequence[FoundTx], others: Sequence[FoundTx]) -> list[FoundTx]:
    """Those of one block's transactions that are not among the others."""
    there = {tx.position for tx in others}
    return [tx for tx in txs if tx.position not in there]
