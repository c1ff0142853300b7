"""What a light client does all day: headers, then blocks, then the tip, with one peer at a time and the others as its company.

The chain in memory is changed by whatever peer tells of it; the database follows in the same order, here and nowhere else. Transactions
of the mempool are recorded when no block is asked for: what they spend is put into the peer's filter before the next block is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.chain import HeaderChain, Update
from spvfilter.errors import UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags, reserve
from spvfilter.light.events import Event, PeerChanged, Phase, Progress, Synced
from spvfilter.light.peers import LOST
from spvfilter.light.remote import Remote
from spvfilter.light.search import Search
from spvfilter.light.waiting import WaitingTxs
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.store.store import Batch, Bip37Parameters
from spvfilter.transaction import Transaction
from spvfilter.wallet.ledger import Ledger
from spvfilter.wire.messages.table import InvItem

if TYPE_CHECKING:
    import asyncio
    import secrets
    from concurrent.futures import Executor
else:
    asyncio = deferred("asyncio")
    secrets = deferred("secrets")

_DRIFT = 4.0  # times the rate asked for at which the peer's filter, grown by what it matched, is loaded anew
_LEAST_ELEMENTS = 1_024  # that a filter has room for, decoys at first: what it learns makes it drift the later
_NO_BLOOM = UselessPeerError("serves no BIP-37 filters (NODE_BLOOM)")
TICK_S = 60.0  # between looks at what may have expired


class Sync(Search):
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
        mempool: bool,
        limits: Limits,
        clock: Clock,
    ) -> None:
        super().__init__(ledger, chain, emit, database, limits, clock)
        self._fp_rate = fp_rate
        self._start = start
        self._mempool = mempool  # whether transactions in no block are told of
        self._wake = asyncio.Event()
        self._moves: deque[Update] = deque()
        self._txs = WaitingTxs()
        self._own: set[bytes] = set()  # txid and wtxid of transactions of ours that were offered
        self._relayed: set[bytes] = set()  # txid and wtxid of ours that a peer announced, who did not have them from us
        self._wants_mempool = True
        self._filter: Bip37Filter | None = None  # the last one made, and
        self._filter_epoch = -1
        self._fresh_rate = 0.0
        self._parameters: Bip37Parameters | None = None
        self._witnessing: Remote | None = None
        self._spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]]
        self._company: dict[Remote, asyncio.Task[None]] = {}  # what is done for peers beside the one that is followed
        self._synced: bytes | None = None  # the tip that Synced told
        self._tip_since = clock.monotonic()  # when the last block came, or headers were asked for

    # What peers tell unasked (aio.remote.Listener)

    def headers_came(self, remote: Remote, update: Update | None) -> None:
        if update is not None:
            self._moves.append(update)
            self._tip_since = self._clock.monotonic()
        self._wake.set()

    def tx_came(self, remote: Remote, raw: bytes) -> None:
        if self._mempool:
            self._wants_mempool = not self._txs.put(raw) or self._wants_mempool
            self._wake.set()

    def has_tx(self, digest: bytes) -> bool:
        return False

    @property
    def room_for_txs(self) -> int:
        return self._txs.room

    def txs_announced(self, remote: Remote, items: Sequence[InvItem]) -> None:
        self._relayed.update(item.hash for item in items if item.hash in self._own and not remote.was_offered(item.hash))

    def wake(self) -> None:
        """Something changed that the loop should look at."""
        self._wake.set()

    def entries_changed(self) -> None:
        """The watch list is about to have new entries: what was asked for does not count, and filters must be loaded anew."""
        self.epoch += 1
        self._unwitnessed.clear()
        self._synced = None
        self._wants_mempool = True
        self._wake.set()

    async def sent(self, raw: bytes, tell: Callable[[Sequence[Event]], None]) -> None:
        """A transaction of ours that peers have taken; what of it concerns the list is told before anything else happens."""
        tell(await self.db(self.ledger.add_unconfirmed, raw, int(self._clock.wall()), own=True))
        await self._own_txs()
        await self._teach()

    # The loop

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._spawn = group.create_task
            while True:
                await self._turn()

    async def _turn(self) -> None:
        """Follow one peer, as long as it lasts."""
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
                self.peers.leave(other, _NO_BLOOM)
            await self._sleep()
        if (task := self._company.get(remote)) is not None:
            task.cancel()
            await asyncio.wait({task})
        return remote

    def _current_witness(self, remote: Remote) -> Remote | None:
        self._look_around(remote)
        return self._witnessing

    # Company: peers beside the one that is followed

    def _look_around(self, remote: Remote) -> None:
        """Greet who is new, and see that one peer has the same filter as `remote`."""
        if self.peers.ready.get(remote.address) is not remote:
            return  # its connection has ended: what is ready under its address is the same peer, come back, and no company
        others = [other for other in self.peers.ready.values() if other is not remote and other not in self._company]
        for other in others:
            if not other.has_bloom:
                self.peers.leave(other, _NO_BLOOM)
            elif not other.is_greeted:
                self._accompany(other, partial(self._greet, other))
        witness = self._witnessing
        if witness is None or witness is remote or self.peers.ready.get(witness.address) is not witness:
            witness = self._witnessing = self.substitute(remote)
        if witness is None or witness in self._company or witness.is_busy or self._filter is None or self._filter_epoch != self.epoch:
            return
        if witness.epoch != self.epoch or self._must_reload(witness):
            self._accompany(witness, partial(self._arm, witness, self._filter, self.epoch))

    def _accompany(self, other: Remote, work: Callable[[], Awaitable[None]]) -> None:
        async def guarded() -> None:
            try:
                await work()
            except LOST as error:
                self.peers.leave(other, error)

        def ended(_: asyncio.Task[None]) -> None:  # also where it was cancelled before its first step
            del self._company[other]
            self._wake.set()

        task = self._company[other] = self._spawn(guarded())
        task.add_done_callback(ended)

    async def _greet(self, other: Remote) -> None:
        await other.headers.sync()
        await self._offer_own(other)
        other.is_greeted = True  # last: who is cut short here is greeted again

    async def _arm(self, witness: Remote, made: Bip37Filter, epoch: int) -> None:
        await witness.load_filter(made)
        witness.epoch, witness.covered = epoch, -1
        await self._cover(witness)

    async def _offer_own(self, remote: Remote) -> None:
        """Transactions of ours are offered to every peer until one announces them that did not have them from us."""
        for raw, digests in (await self._own_txs()).items():
            if not digests & self._relayed and remote.takes_txs:
                await remote.offer(raw)

    async def _own_txs(self) -> dict[bytes, set[bytes]]:
        """Transactions of ours in no block, with txid and wtxid; those that are in one by now are forgotten."""
        own: dict[bytes, set[bytes]] = {}
        for raw in await self.db(self.ledger.own_unconfirmed):
            tx = Transaction.parse(raw)
            own[raw] = {tx.txid, tx.wtxid}
        self._own = {digest for digests in own.values() for digest in digests}
        self._relayed &= self._own
        return own

    async def _sleep(self, timeout_s: float | None = None) -> None:
        """Until something happens."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _follow(self, remote: Remote) -> None:
        if not remote.is_greeted:
            await self._sync_headers(remote)
            remote.is_greeted = True
            await self._offer_own(remote)
        await self._begin()
        remote.epoch = -1
        self._wants_mempool = True
        waited = False  # for the company to get ready
        while True:
            self._check_there(remote)
            self._look_around(remote)
            await self._follow_chain()
            if remote.epoch != self.epoch or self._must_reload(remote):
                await self._load_filter(remote)
                continue
            await self._take_txs()
            if self._store.cursor < self.chain.height:
                if self._store.cursor < remote.knows:
                    await self._search(remote)
                else:
                    await self._wait_for_news(remote)
                continue
            if self._wants_mempool and self._mempool:
                self._wants_mempool = False
                await remote.ask_mempool()
                await remote.fence()
                continue
            if self._unwitnessed:
                if self._witnessing is not None and await self._catch_up(remote, self._witnessing):
                    continue
                if self._company and not waited:
                    waited = True
                    await self._sleep(self._limits.stall_s)
                    continue
            if self._moves or self._txs or self._store.cursor < self.chain.height:
                continue
            if self._lags(remote):
                await self._wait_for_news(remote)
                continue
            if self._synced != self.chain.tip_hash:
                self._synced = self.chain.tip_hash
                self.peers.did_well(remote)
                await self._emit(Synced(self.chain.height, self.chain.tip_hash))
            await self._wait(remote)

    async def _begin(self) -> None:
        """A new wallet's search starts where it was told to."""
        if self._store.searched >= 0:
            return
        first = self._start(self.chain)
        if first > 0:
            await self.db(self._store.commit, Batch(cursor=min(first, self.chain.height + 1) - 1))
        self._first = self._store.cursor + 1

    async def _wait(self, remote: Remote) -> None:
        if not self._moves and not self._txs and remote.epoch == self.epoch:
            await self._sleep(min(TICK_S, self._limits.stale_tip_s))
        self._check_there(remote)
        if self._clock.monotonic() - self._tip_since >= self._limits.stale_tip_s:
            self._tip_since = self._clock.monotonic()
            await remote.headers.sync()
        await self._tell(await self.db(self.ledger.expire, int(self._clock.wall())))

    async def _wait_for_news(self, remote: Remote) -> None:
        """Another peer was faster to tell of a block, now or in an earlier run. Raises UselessPeerError where this one does not follow."""
        since = self._clock.monotonic()
        while self._lags(remote):
            await self._sleep(self._limits.stall_s)
            self._check_there(remote)
            await self._follow_chain()
            if self._clock.monotonic() - since >= self._limits.stall_s:
                if self._store.cursor >= self.chain.height:
                    raise remote.headers.lack
                raise UselessPeerError(f"does not know block {self._store.cursor + 1} of the best chain")

    def _check_there(self, remote: Remote) -> None:
        if self.peers.ready.get(remote.address) is not remote:
            raise ConnectionAbortedError(f"{remote.address}: the connection ended")

    # Headers

    async def _sync_headers(self, remote: Remote) -> None:
        task = asyncio.create_task(remote.headers.sync())
        task.add_done_callback(lambda _: self._wake.set())
        since = self._clock.monotonic()
        try:
            while not task.done():
                await self._follow_chain()
                self._look_around(remote)
                total = max(remote.connection.ready.version.start_height, self.chain.height, remote.headers.height)
                await self._emit(Progress(Phase.HEADERS, remote.headers.height, total))
                if not task.done():
                    await self._sleep(self._stall_s)
                if not task.done():
                    self._check_patience(remote, since)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._follow_chain()
        await self._emit(Progress(Phase.HEADERS, self.chain.height, self.chain.height))

    async def _follow_chain(self) -> None:
        while self._moves:
            joined = _joined(self._moves)
            if joined.old_hashes:
                self._uncover(joined.fork_height)
                events = await self.db(self.ledger.disconnect, joined.fork_height, joined.new_headers)
                await self._tell(events)
                self._wants_mempool = True  # what stood in the blocks left behind waits there now, and is not announced again
            elif joined.new_headers:
                await self.db(self._store.commit, Batch(headers=joined.new_headers))

    # Mempool

    async def _take_txs(self) -> None:
        """Record transactions of the mempool, and give what they spend to the peers' filters."""
        learned = False
        while self._txs and not self._moves:  # while the books lag behind the chain, one of them may stand in a block that has left it
            events = await self.db(self.ledger.add_unconfirmed, self._txs.take(), int(self._clock.wall()))
            learned = learned or bool(events)
            await self._tell(events)
        if learned:
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

    def _must_reload(self, remote: Remote) -> bool:
        """Whether what the peer has inserted makes its filter let through much more than one made now would, or is not known exactly."""
        now = remote.filter.current_fp_rate if remote.filter is not None else 0.0
        return remote.is_in_doubt or now > max(_DRIFT * self._fp_rate, 2 * self._fresh_rate)

    async def _make_filter(self) -> Bip37Filter:
        """The wallet's filter as it is now, with the parameters of before while everything fits."""
        wanted = _Elements(await self.db(self.ledger.bloom_elements))
        known = self._parameters or await self.db(lambda: self._store.bip37_parameters)
        if known is None or known.fp_rate != self._fp_rate or len(wanted.elements) > known.elements:
            key = known.decoy_key if known else await self.db(lambda: self._store.secret)
            tweak = known.tweak if known else secrets.randbits(32)
            room = reserve(len(wanted.elements), self._fp_rate, _LEAST_ELEMENTS)
            made = Bip37Filter.for_watchlist(wanted, self._fp_rate, tweak, UpdateFlags.ALL, elements=room, decoy_key=key)
            assert made.capacity is not None
            known = Bip37Parameters(tweak, made.capacity, self._fp_rate, key)
            await self.db(self._store.commit, Batch(bip37_parameters=known))  # before its first use
        self._parameters = known
        tweak, elements, rate, key = known
        return Bip37Filter.for_watchlist(wanted, rate, tweak, UpdateFlags.ALL, elements=elements, decoy_key=key)

    async def _load_filter(self, remote: Remote) -> None:
        epoch = self.epoch
        made = await self._make_filter()
        self._filter, self._filter_epoch, self._fresh_rate = made, epoch, made.current_fp_rate
        await remote.load_filter(made)
        remote.epoch, self._wants_mempool = epoch, True
        await self._teach()  # what came in the meantime


class _Elements:
    """What Bip37Filter.for_watchlist asks."""

    def __init__(self, elements: list[bytes]) -> None:
        self.elements = elements

    def bloom_elements(self) -> list[bytes]:
        return self.elements


def _joined(moves: deque[Update]) -> Update:
    """The first of the moves, with those that merely add headers upon it."""
    first = moves.popleft()
    headers = [first.new_headers]
    while moves and not moves[0].old_hashes and len(headers) < 10:
        headers.append(moves.popleft().new_headers)
    return Update(first.fork_height, first.stored, first.old_headers, first.old_hashes, b"".join(headers), first.new_hashes)
