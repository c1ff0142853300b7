"""What a light client does all day: headers, then blocks, then the tip, with one peer at a time and a second one as its witness.

The chain in memory is changed by whatever peer tells of it; the database follows in the same order, here and nowhere else. Blocks are
recorded in the order of their heights, from the cursor on, and only while they are of the best chain.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from spvfilter.aio.client import Clock, Limits
from spvfilter.aio.events import Event, PeerChanged, Phase, Progress, Synced
from spvfilter.aio.flight import Flight, Lie
from spvfilter.aio.ledger import FoundTx, Ledger, Searched
from spvfilter.aio.peers import LOST, Peers
from spvfilter.aio.remote import Remote
from spvfilter.chain import HeaderChain, Update
from spvfilter.errors import FormatError, LieError, UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from spvfilter.primitives import hash_to_hex
from spvfilter.store import Batch, FilterParameters
from spvfilter.wire.messages import InvItem

P = ParamSpec("P")
T = TypeVar("T")
_DRIFT = 4.0  # times the rate asked for at which the peer's filter, grown by what it matched, is loaded anew
TICK_S = 60.0  # between looks at what may have expired


class Sync:
    """The state of one synchronisation; `run` goes on until cancelled. `emit` takes events in order and may wait."""

    def __init__(
        self,
        ledger: Ledger,
        chain: HeaderChain,
        emit: Callable[[Event], Awaitable[None]],
        database: Executor,
        *,
        fp_rate: float,
        start: Callable[[HeaderChain], int],
        limits: Limits,
        clock: Clock,
    ) -> None:
        self.ledger = ledger
        self.chain = chain
        self.peers: Peers
        self._store = ledger.store
        self._emit = emit
        self._database = database
        self._fp_rate = fp_rate
        self._start = start
        self._limits = limits
        self._clock = clock
        self._wake = asyncio.Event()
        self._moves: deque[Update] = deque()
        self._txs: deque[bytes] = deque()
        self._announced: dict[bytes, set[str]] = {}  # txid or wtxid of ours → who announced it
        self._refilter = False
        self._wants_mempool = True
        self._fresh_rate = 0.0
        self._parameters: FilterParameters | None = None
        self._stall_s = limits.stall_s
        self._synced: bytes | None = None  # the tip that Synced told

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

    # What peers tell unasked (aio.remote.Listener)

    def headers_came(self, remote: Remote, update: Update) -> None:
        self._moves.append(update)
        self._wake.set()

    def tx_came(self, remote: Remote, raw: bytes) -> None:
        self._txs.append(raw)
        self._wake.set()

    def txs_announced(self, remote: Remote, items: Sequence[InvItem]) -> None:
        for item in items:
            if (who := self._announced.get(item.hash)) is not None:
                who.add(str(remote.address))

    def wake(self) -> None:
        """Something changed that the loop should look at."""
        self._wake.set()

    def entries_changed(self) -> None:
        """The watch list has new entries: the peer's filter must be loaded anew."""
        self._refilter = True
        self._wake.set()

    # The loop

    async def run(self) -> None:
        while True:
            await self._turn()

    async def _turn(self) -> None:
        """One peer, as long as it lasts."""
        remote = await self._pick()
        await self._tell_peer(remote)
        try:
            await self._follow(remote)
        except LOST as error:
            self.peers.leave(remote, error)
            await self._emit(PeerChanged(None))
            while self.peers.ready.get(remote.address) is remote:  # until its reader has ended
                await self._sleep()

    async def _tell_peer(self, remote: Remote) -> None:
        agent = remote.connection.ready.version.user_agent.decode("ascii", "backslashreplace")
        await self._emit(PeerChanged(str(remote.address), agent))

    async def _pick(self) -> Remote:
        while (remote := self.peers.best(lambda remote: remote.has_bloom)) is None:
            if self.peers.exhausted:
                raise UselessPeerError("no peer is left: every one of them lied")
            for other in self.peers.ready.values():
                if not other.has_bloom:
                    self.peers.leave(other, UselessPeerError("serves no BIP-37 filters (NODE_BLOOM)"))
            await self._sleep()
        return remote

    async def _sleep(self, timeout_s: float | None = None) -> None:
        """Until something happens."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _follow(self, remote: Remote) -> None:
        await self._sync_headers(remote)
        await self._begin()
        await self._load_filter(remote)
        self._wants_mempool = True
        while True:
            await self._apply()
            if self._refilter or self._has_drifted(remote):
                await self._load_filter(remote)
                self._wants_mempool = True
            if self._store.cursor < self.chain.height:
                await self._scan(remote)
                continue
            if self._wants_mempool:
                self._wants_mempool = False
                await remote.ask_mempool()
                await remote.fence()
                continue
            if self._synced != self.chain.tip_hash:
                self._synced = self.chain.tip_hash
                self.peers.did_well(remote)
                await self._emit(Synced(self.chain.height, self.chain.tip_hash))
            if self._moves or self._txs or self._refilter:
                continue
            await self._wait(remote)

    async def _begin(self) -> None:
        """A new wallet's search starts where it was told to."""
        if self._store.cursor < 0:
            first = self._start(self.chain)
            if first > 0:
                await self.db(self._store.commit, Batch(cursor=min(first, self.chain.height + 1) - 1))

    async def _wait(self, remote: Remote) -> None:
        waited_from = self._clock.monotonic()
        await self._sleep(min(TICK_S, self._limits.stale_tip_s))
        self._check_alive(remote)
        if self._clock.monotonic() - max(waited_from, remote.last_heard) >= self._limits.stale_tip_s:
            await remote.sync_headers()
        await self._tell(await self.db(self.ledger.expire, int(self._clock.wall())))

    def _check_alive(self, remote: Remote) -> None:
        if self.peers.ready.get(remote.address) is not remote:
            raise ConnectionAbortedError(f"{remote.address}: the connection ended")

    # Headers

    async def _sync_headers(self, remote: Remote) -> None:
        task = asyncio.create_task(remote.sync_headers())
        task.add_done_callback(lambda _: self._wake.set())
        try:
            while not task.done():
                await self._apply()
                total = max(remote.connection.ready.version.start_height, self.chain.height, remote.headers_height)
                await self._emit(Progress(Phase.HEADERS, remote.headers_height, total))
                if not task.done():
                    await self._sleep()
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._apply()
        await self._emit(Progress(Phase.HEADERS, self.chain.height, self.chain.height))

    async def _apply(self) -> None:
        """Let the database follow the chain, and record transactions of the mempool."""
        while self._moves:
            joined = _joined(self._moves)
            if joined.old_hashes:
                events = await self.db(self.ledger.disconnect, joined.fork_height, joined.new_headers)
                await self._tell(events)
                self._wants_mempool = True  # what stood in the blocks left behind waits there now, and is not announced again
            else:
                await self.db(self._store.commit, Batch(headers=joined.new_headers))
        while self._txs:
            raw = self._txs.popleft()
            events = await self.db(self.ledger.see, raw, int(self._clock.wall()))
            if events:
                await self._tell(events)
                await self._teach()

    async def _teach(self) -> None:
        """Give every peer with a filter the elements that are new and that it cannot know from what it served."""
        elements = await self.db(self.ledger.bloom_elements)
        for remote in list(self.peers.ready.values()):
            if remote.filter is not None:
                try:
                    await remote.add_elements(elements)
                except LOST as error:
                    self.peers.leave(remote, error)

    # Filter

    def _has_drifted(self, remote: Remote) -> bool:
        """Whether what the peer has inserted makes its filter let through much more than one made now would."""
        now = remote.filter.current_fp_rate if remote.filter is not None else 0.0
        return now > max(_DRIFT * self._fp_rate, 2 * self._fresh_rate)

    async def _make_filter(self) -> Bip37Filter:
        """The wallet's filter as it is now, with the parameters of before while everything fits."""
        wanted = _Elements(await self.db(self.ledger.bloom_elements))
        known = self._parameters or await self.db(lambda: self._store.filter_parameters)
        if known is None or known.fp_rate != self._fp_rate or len(wanted.elements) > known.elements:
            key = known.decoy_key if known else await self.db(lambda: self._store.secret)
            tweak = known.tweak if known else secrets.randbits(32)
            made = Bip37Filter.for_watchlist(wanted, self._fp_rate, tweak, UpdateFlags.ALL, decoy_key=key)
            assert made.capacity is not None
            known = FilterParameters(tweak, made.capacity, self._fp_rate, key)
            await self.db(self._store.commit, Batch(filter=known))  # before its first use
        self._parameters = known
        tweak, elements, rate, key = known
        return Bip37Filter.for_watchlist(wanted, rate, tweak, UpdateFlags.ALL, elements=elements, decoy_key=key)

    async def _load_filter(self, remote: Remote) -> None:
        self._refilter = False
        made = await self._make_filter()
        self._fresh_rate = made.current_fp_rate
        await remote.load_filter(made)
        if (witness := self._witness(remote)) is not None:
            try:
                await witness.sync_headers()
                await witness.load_filter(made)
            except LOST as error:
                self.peers.leave(witness, error)
        await self._teach()  # what came in the meantime

    def _witness(self, remote: Remote) -> Remote | None:
        return self.peers.best(lambda other: other.has_bloom and not other.is_busy, but=remote)

    # Blocks

    async def _scan(self, remote: Remote) -> None:
        """Search the blocks above the cursor, several flights under way, until the tip or until something else must be done first."""
        witness = self._witness(remote)
        if witness is not None and witness.filter is None:
            witness = None
        first = next_height = self._store.cursor + 1
        under_way: deque[tuple[Flight, Flight | None]] = deque()
        going = True
        while going or under_way:
            while going and len(under_way) < self._limits.flights and next_height <= self.chain.height:
                last = min(next_height + self._limits.flight - 1, self.chain.height)
                wanted = [(height, self.chain.hash_at(height)) for height in range(next_height, last + 1)]
                under_way.append((await remote.request(wanted), await self._second(witness, wanted)))
                next_height = last + 1
            if not under_way:
                return
            flight, second = under_way.popleft()
            blocks = await self._landed(remote, flight)
            omitted = await self._compare(remote, blocks, witness, second)
            going = await self._record(remote, blocks) and going and omitted is None
            await self._emit(Progress(Phase.BLOCKS, self._store.cursor - first + 1, self.chain.height - first + 1))
            if omitted is not None:
                raise omitted
            if self._refilter or self._has_drifted(remote):
                going = False

    async def _second(self, witness: Remote | None, wanted: Sequence[tuple[int, bytes]]) -> Flight | None:
        if witness is None or self.peers.ready.get(witness.address) is not witness:
            return None
        told = self.chain.height_of(witness.best)
        if told is None or told < wanted[-1][0]:
            return None  # it does not know these blocks yet
        try:
            return await witness.request(wanted)
        except LOST as error:
            self.peers.leave(witness, error)
            return None

    async def _landed(self, remote: Remote, flight: Flight) -> list[Searched]:
        """The flight's blocks. Raises UselessPeerError for a peer that stalls while another one is there, or for long."""
        while not flight.done.done():
            await asyncio.wait({flight.done}, timeout=self._stall_s)
            if flight.done.done():
                break
            silent = self._clock.monotonic() - remote.last_heard
            if silent >= self._limits.reply_s:
                raise UselessPeerError(f"no block for {silent:.0f} s")
            if silent >= self._stall_s and self._witness(remote) is not None:
                self._stall_s = min(2 * self._stall_s, self._limits.max_stall_s)
                raise UselessPeerError(f"no block for {silent:.1f} s, another peer may be faster")
        blocks = flight.done.result()
        self._stall_s = max(self._limits.stall_s, self._stall_s * 0.85)
        for block in flight.whole:  # where the proof cannot be relied on, the whole block is
            block.raw, block.txs = await remote.fetch_block(block.hash), ()
        return blocks

    async def _compare(self, remote: Remote, blocks: Sequence[Searched], witness: Remote | None, second: Flight | None) -> LieError | None:
        """Add what a second peer proves and the first one has left out; the error for the first, where it has."""
        if witness is None or second is None:
            return None
        try:
            theirs = await self._landed(witness, second)
        except LOST as error:
            self.peers.leave(witness, error)
            return None
        lie: LieError | None = None
        for block, other in zip(blocks, theirs, strict=True):
            if block.raw is not None or other.raw is not None:
                continue
            missing, extra = _without(other.txs, block.txs), _without(block.txs, other.txs)
            if shown := await self.db(self.ledger.concerning, missing):
                lie = LieError(f"transaction {hash_to_hex(shown)} of block {block.height}", cause=Lie.OMITTED_TX)
            if shown := await self.db(self.ledger.concerning, extra):
                his = LieError(f"transaction {hash_to_hex(shown)} of block {block.height}", cause=Lie.OMITTED_TX)
                self.peers.leave(witness, his)
            block.txs = sorted([*block.txs, *missing])
        return lie

    async def _record(self, remote: Remote, blocks: Sequence[Searched]) -> bool:
        """Record those of the blocks that are still of the best chain and next; whether all were."""
        await self._apply()
        due = self._store.cursor + 1
        good: list[Searched] = []
        for block in blocks:
            if block.height != due + len(good) or block.height > self.chain.height or self.chain.hash_at(block.height) != block.hash:
                break
            good.append(block)
        if good:
            try:
                events = await self.db(self.ledger.connect, good)
            except FormatError as error:
                raise LieError(str(error), cause=Lie.MALFORMED) from error
            await self._tell(events)
        return len(good) == len(blocks)


class _Elements:
    """What Bip37Filter.for_watchlist asks."""

    def __init__(self, elements: list[bytes]) -> None:
        self.elements = elements

    def bloom_elements(self) -> list[bytes]:
        return self.elements


def _without(txs: Sequence[FoundTx], others: Sequence[FoundTx]) -> list[FoundTx]:
    """Those of one block's transactions that are not among the others."""
    there = {tx.position for tx in others}
    return [tx for tx in txs if tx.position not in there]


def _joined(moves: deque[Update]) -> Update:
    """The first of the moves, with those that merely add headers upon it."""
    first = moves.popleft()
    headers = [first.new_headers]
    while moves and not moves[0].old_hashes and len(headers) < 10:
        headers.append(moves.popleft().new_headers)
    return Update(first.fork_height, first.stored, first.old_headers, first.old_hashes, b"".join(headers), first.new_hashes)
