"""What a light client does all day with compact filters (BIP-157): headers, filter headers, filters, then the blocks that match.

A peer does not know what is ours, so for the mempool every transaction that is announced is fetched, from the tip on.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar  # whatever the base's arguments are

from spvfilter._public import deferred, public
from spvfilter.chain import Update
from spvfilter.errors import InexpressibleError, UselessPeerError
from spvfilter.light.compact_headers import FilterHeaders
from spvfilter.light.compact_scan import FilterScan
from spvfilter.light.events import Event, PeerChanged, Phase, Progress, Synced
from spvfilter.light.peers import LOST
from spvfilter.light.remote import Remote
from spvfilter.light.sync import TICK_S, Sync
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Completeness
from spvfilter.wire.events import Service

if TYPE_CHECKING:
    import asyncio
    import random
else:
    asyncio = deferred("asyncio")
    random = deferred("random")

T = TypeVar("T")

_MAX_HEARD = 50_000  # txids and wtxids of the mempool that are remembered; ours

logger = logging.getLogger(__name__)


@public
class Mode(StrEnum):
    """How blocks are searched."""

    BIP37 = "bip37"
    COMPACT = "compact"
    AUTO = "auto"  # compact where a peer serves it and the watch list can be said in it, else bip37


class CompactSync(Sync):
    """Synchronisation by compact filters, or with `Mode.AUTO` by whichever way there is."""

    def __init__(self, *args: Any, mode: Mode, keep_filters: bool, **named: Any) -> None:
        super().__init__(*args, **named)
        self.keeps_filters = keep_filters
        self.headers = FilterHeaders(self)
        self.limits = self._limits
        self.slow: set[Remote] = set()  # peers that kept us waiting: others are asked first
        self.whole: set[bytes] = set()  # blocks to be fetched whatever their filters say
        self._mode = mode
        self._searching = -1  # epoch of the watch list that filters are searched for
        self._led_by: Remote | None = None
        self._patience: float | None = None  # until when peers are waited for
        self._behind_since: float | None = None  # since when nobody is there who knows the tip
        self._heard: dict[bytes, None] = {}  # txid and wtxid of what came from the mempool, the oldest first

    # For headers and scan

    @property
    def members(self) -> list[Remote]:
        """Connected peers that serve compact filters."""
        return [remote for remote in self.peers.ready.values() if _serves_filters(remote)]

    @property
    def is_interrupted(self) -> bool:
        """Whether something is to be done before the search goes on."""
        return self._searching != self.epoch or self.headers.is_refuted

    async def tell(self, *events: Event) -> None:
        await self._tell(events)

    async def apply(self) -> None:
        """Let the database follow the chain."""
        await self._follow_chain()
        if not self._moves:
            self.headers.followed()

    def headers_came(self, remote: Remote, update: Update | None) -> None:
        if update is not None and update.old_hashes:
            self.headers.turned(update.fork_height)
            self._heard.clear()  # what stood in the blocks left behind comes again
        super().headers_came(remote, update)

    def entries_changed(self) -> None:
        self._heard.clear()
        super().entries_changed()

    def has_tx(self, digest: bytes) -> bool:
        return digest in self._heard

    def tx_came(self, remote: Remote, raw: bytes) -> None:
        before = len(self._txs)
        super().tx_came(remote, raw)
        if len(self._txs) > before:
            tx = Transaction.parse(raw)
            self._heard.update(dict.fromkeys((tx.txid, tx.wtxid)))
            while len(self._heard) > _MAX_HEARD:
                del self._heard[next(iter(self._heard))]

    async def in_time(self, remote: Remote, asked: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """A peer's answer. Raises SlowError where it is slow and there are others to ask; its answer may still come."""
        task = asked if isinstance(asked, asyncio.Task) else asyncio.create_task(asked)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._stall_s)
                if not task.done() and any(other is not remote for other in self.members):
                    self._stall_s = min(2 * self._stall_s, self.limits.max_stall_s)
                    self.slow.add(remote)
                    if self.slow.issuperset(self.members):
                        self.slow = {remote}  # once more
                    raise SlowError
            self._stall_s = max(self.limits.stall_s, self._stall_s * 0.85)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def fetch(self, height: int, digest: bytes) -> bytes:
        """A whole block from a random peer, checked; from others where that one is slow. Raises UselessPeerError where nobody has it."""
        others = [remote for remote in self.peers.ready.values() if remote.knows >= height]
        random.shuffle(others)
        others.sort(key=lambda remote: remote not in self.slow)
        asked: dict[asyncio.Task[bytes], Remote] = {}
        try:
            while asked or others:
                if others:
                    remote = others.pop()
                    asked[asyncio.create_task(remote.fetch_block(digest))] = remote
                done, _ = await asyncio.wait(asked, timeout=self.limits.stall_s if others else None, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    remote = asked.pop(task)
                    try:
                        return task.result()
                    except LOST as error:
                        self.peers.leave(remote, error)
            raise UselessPeerError(f"nobody has block {height}")
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    # The loop

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._spawn = group.create_task
            try:
                while True:
                    if await self._prefers_compact():
                        await self._follow_filters()
                    else:
                        await self._turn()
            finally:
                await self.headers.close()

    async def _prefers_compact(self) -> bool:
        """Whether to search by compact filters now; waits for peers where that depends on them. Raises InexpressibleError."""
        if self._mode is Mode.COMPACT:
            return True
        try:
            await self.db(self.ledger.watch.gcs_elements)
        except InexpressibleError:
            await self.db(self.ledger.bloom_elements)  # raises where this does not do either
            return False
        deadline = self._clock.monotonic() + self.limits.stall_s
        while not self.members:
            has_waited = not self.peers.connecting or self._clock.monotonic() >= deadline
            if has_waited and any(remote.has_bloom for remote in self.peers.ready.values()):
                await self.db(self.ledger.bloom_elements)
                return False
            self._refuse_useless(bloom=True)
            await self._sleep(self.limits.stall_s)
        return True

    def _refuse_useless(self, *, bloom: bool = False) -> None:
        if self.peers.exhausted:
            raise UselessPeerError("no peer is left: every one of them lied")
        for remote in self.peers.ready.values():
            if not _serves_filters(remote) and not (bloom and remote.has_bloom):
                self.peers.leave(remote, UselessPeerError("serves no compact filters (NODE_COMPACT_FILTERS)"))

    async def _follow_filters(self) -> None:
        """Until, with Mode.AUTO, another way is better."""
        self._searching = self.epoch
        while True:
            await self.apply()
            if not self.members:
                await self._tell_leader(None)
                if self._mode is Mode.AUTO:
                    return
                self._refuse_useless()
                await self._sleep()
                continue
            if not await self._step():
                return

    async def _step(self) -> bool:
        """Do what is due next. False where compact filters no longer do."""
        if not await self._greet_all():
            return True
        await self._begin()
        self.headers.ask_around()
        if await self.headers.settle():
            return True
        await self._take_txs()
        if self._searching != self.epoch:
            self._searching = self.epoch
            if self._mode is Mode.AUTO:
                return False  # perhaps
        if self.headers.height < self.chain.height and (leader := self.headers.leader()) is not None:
            await self._tell_leader(leader)
            await self._extend(leader)
            return True
        if await self._hears():
            return True
        cursor = self._store.cursor
        if cursor < self.headers.height:
            try:
                await FilterScan(self).run()
            except UselessPeerError as error:
                logger.debug("%s", error)
            if self._store.cursor == cursor and not self.is_interrupted:
                await self._sleep(self.limits.stall_s)  # nobody can be asked just now
            return True
        if (
            self._store.cursor == self.chain.height
            and self.ledger.has_one_peer_matches
            and self.headers.completeness(self.chain.height) == Completeness.PROVEN
        ):
            await self.db(self.ledger.mark_proven)
        if self._store.cursor == self.chain.height and self._synced != self.chain.tip_hash:
            if all(remote.headers.is_behind for remote in set(self.members) - self.headers.asking):
                await self._wait_for_tip()
                return True
            self._behind_since = None
            self._synced = self.chain.tip_hash
            for remote in self.headers.vouching(self.chain.height):
                self.peers.did_well(remote)
            await self._emit(Synced(self.chain.height, self.chain.tip_hash))
        if self._synced is not None and self._mempool:
            await self._listen()
        if not self._moves and not self._txs and not self.is_interrupted:
            await self._idle()
        return True

    async def _wait_for_tip(self) -> None:
        """Nobody who is there knows the tip, which an earlier run or another peer told: wait a moment for those that are behind."""
        now = self._clock.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since < self.limits.stall_s:
            await self._sleep(self.limits.stall_s)
            return
        self._behind_since = None
        for remote in set(self.members) - self.headers.asking:
            if remote.headers.is_behind:
                self.peers.leave(remote, remote.headers.lack)
        await self._sleep(self.limits.stall_s)

    async def _listen(self) -> None:
        """Have every peer's announcements fetched; those that serve BIP-37 also tell, without a filter, what was announced before."""
        wants, self._wants_mempool = self._wants_mempool, False
        for remote in self.members:
            is_new, remote.takes_all = not remote.takes_all, True
            try:
                if remote.has_bloom and (is_new or wants):
                    await remote.ask_mempool()
                await remote.ask_announced()
            except LOST as error:
                self.peers.leave(remote, error)

    async def _tell_leader(self, leader: Remote | None) -> None:
        if leader is self._led_by:
            return
        self._led_by = leader
        if leader is None:
            await self._emit(PeerChanged(None))
        else:
            await self._tell_peer(leader)

    async def _extend(self, leader: Remote) -> None:
        try:
            await self.headers.extend(leader)
        except SlowError:
            pass  # another one is asked
        except LOST as error:
            self.peers.leave(leader, error)
            while self.peers.ready.get(leader.address) is leader:  # until its reader has ended
                await self._sleep()

    async def _greet_all(self) -> bool:
        """Hear of every peer's headers: of the first before all else, of the others meanwhile. False until the first has told all."""
        ready = set(self.peers.ready.values())
        self.slow &= ready
        waiting = ready & self._company.keys()
        fresh = [remote for remote in ready - waiting if not remote.is_greeted]
        if any(remote.is_greeted for remote in ready):
            for remote in fresh:
                self._accompany(remote, partial(self._greet, remote))
            return True
        late = self._clock.monotonic() - self.limits.stall_s
        if fresh and all(remote.last_heard <= late for remote in waiting):
            remote = max(fresh, key=_serves_filters)
            self._accompany(remote, partial(self._greet, remote))
        done = max((remote.headers.height for remote in waiting), default=0)
        total = max((remote.connection.ready.version.start_height for remote in waiting), default=0)
        await self._emit(Progress(Phase.HEADERS, done, max(done, total, self.chain.height)))
        await self._sleep(self.limits.stall_s)
        return False

    async def _hears(self) -> bool:
        """Wait for what peers say of our filter headers, and for peers that are coming, but not long; whether that was worth it."""
        asking = self.headers.asking - self.slow
        coming = self.peers.connecting or any(remote not in self.slow for remote in self._company if _serves_filters(remote))
        alone = bool(coming) and len(self.headers.vouching(self.headers.height)) < 2
        if not asking and not alone:
            self._patience = None
            return False
        now = self._clock.monotonic()
        if self._patience is None:
            self._patience = now + self.limits.stall_s
        if now >= self._patience:
            self.slow |= asking | self._company.keys()
            return False
        await self._sleep(self._patience - now)
        return True

    async def _idle(self) -> None:
        """Until something happens; where nothing does for long, all peers are asked for headers."""
        await self._sleep(min(TICK_S, self.limits.stale_tip_s))
        heard = max((remote.last_heard for remote in self.peers.ready.values()), default=0.0)
        if self._clock.monotonic() - heard >= self.limits.stale_tip_s:
            for remote in self.peers.ready.values():
                remote.is_greeted = False
        await self.tell(*await self.db(self.ledger.expire, int(self._clock.wall())))


def _serves_filters(remote: Remote) -> bool:
    return bool(remote.connection.services & Service.COMPACT_FILTERS)


class SlowError(Exception):
    """A peer's answer takes so long that another one is asked."""
