"""Filter headers: fetched from one peer, vouched for by the others, disputed where they differ, and judged by the block (BIP-157).

Filter headers are chained, so one of them says everything about all filters below. A peer vouches for ours by telling the same one; it is
then held to that word, and asked for filters. Where a peer tells another, the first block of difference is sought, both filters are
fetched and the block judges. A peer that committed to a filter which the block refutes is banned, and what was taken from it is taken back.

A block often refutes neither. Then nobody is banned and no majority counts: the block is fetched whole and searched, whatever its filters
say, and every later block of which the two peers commit to different filters is judged in the same way. So a bogus element in one block
does not hide a payment in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred
from spvfilter.errors import LieError, UselessPeerError
from spvfilter.filters.verify import Verdict, verify_filter
from spvfilter.light.events import Phase, Progress
from spvfilter.light.flight import Lie
from spvfilter.light.peers import LOST
from spvfilter.light.remote_compact import Told
from spvfilter.p2p.address import Address
from spvfilter.protocol import CHECKPOINT_INTERVAL, MAX_CFHEADERS
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Batch
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import asyncio

    from spvfilter.light.compact import CompactSync
    from spvfilter.light.remote import Remote
else:
    asyncio = deferred("asyncio")

_PIPELINE = 4  # questions for filter headers under way
MAX_UNDECIDED = 20  # blocks that a peer may dispute and that decide nothing, before it is let go of for a while; ours


@dataclass(slots=True)
class Apart:
    """A peer whose filter headers differ from ours from an undecided block on; its filter hashes are compared one by one."""

    first: int  # height of that block
    compared: int  # height up to which its filter hashes were compared with ours
    header: bytes  # its filter header there


@dataclass(slots=True)
class Standing:
    """What a peer has said about filter headers."""

    vouched: int = -1  # height up to which its are ours
    claim: tuple[int, bytes] | None = None  # a height, and its filter header there, which is not ours
    apart: Apart | None = None  # where its headers differ from ours and the block did not tell whose are true
    asking: asyncio.Task[None] | None = None


class FilterHeaders:
    """The filter headers of the best chain, and who stands by them. Everything but the questions happens in the one loop of `sync`."""

    def __init__(self, sync: CompactSync) -> None:
        self._sync = sync
        self._rows = sync.ledger.store.compact_filters
        self._standings: dict[Remote, Standing] = {}
        self._fork: int | None = None  # the lowest at which the chain has turned off, until the database has followed
        self._false: int | None = None  # the lowest block from which on our filter headers are to be fetched anew
        self._unsearched: int | None = None  # the lowest block that was searched by its filter and is to be searched whole
        self._undecided: dict[Address, set[bytes]] = {}  # blocks that a peer disputed and that decided nothing
        self._doubted: int | None = None  # height from which on a peer that was let go of tells other filters

    @property
    def height(self) -> int:
        """Up to here filter headers are known."""
        height = min(self._rows.height, self._sync.chain.height)
        return height if self._fork is None else min(height, self._fork)

    def standing(self, remote: Remote) -> Standing:
        return self._standings.setdefault(remote, Standing())

    def vouching(self, height: int) -> list[Remote]:
        """Connected peers that stand by our filter header at a height."""
        return [remote for remote in self._sync.members if self.standing(remote).vouched >= height]

    def completeness(self, height: int) -> Completeness:
        """How sure it is that nothing at this height is left out."""
        is_doubted = self._doubted is not None and height >= self._doubted
        return Completeness.PROVEN if len(self.vouching(height)) > 1 and not is_doubted else Completeness.ONE_PEER

    def turned(self, fork: int) -> None:
        """The chain now turns off above a height; the database is still to follow."""
        self._fork = fork if self._fork is None else min(fork, self._fork)
        self._limit(fork)

    def followed(self) -> None:
        """The database has followed the chain."""
        self._fork = None

    def _limit(self, height: int) -> None:
        for standing in self._standings.values():
            standing.vouched = min(standing.vouched, height)
            if standing.claim is not None and standing.claim[0] > height:
                standing.claim = None
            if standing.apart is not None and standing.apart.compared > height:
                standing.apart = None  # it is asked again
        if self._doubted is not None and self._doubted > height:
            self._doubted = None

    async def close(self) -> None:
        tasks = [standing.asking for standing in self._standings.values() if standing.asking is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Vouching

    def ask_around(self) -> None:
        """Ask every peer that has not said so whether our last filter header is its own, too."""
        for gone in self._standings.keys() - set(self._sync.members):
            if (task := self._standings.pop(gone).asking) is not None:
                task.cancel()
        for remote in self._sync.members:
            standing, height = self.standing(remote), min(self.height, remote.knows)
            known = standing.vouched if standing.apart is None else standing.apart.compared
            if standing.asking is None and (standing.claim is not None or known < height):
                standing.asking = asyncio.create_task(self._talk(remote, standing, height))
        apart = self._apart()
        if apart and len(apart) == len(self._sync.members) and not self.asking:
            self._fetch_anew(min(apart))  # nobody is left who stands by ours

    def _apart(self) -> list[int]:
        """The heights from which on connected peers tell other filter headers than ours, and no block said whose are true."""
        standings = map(self.standing, self._sync.members)
        return [standing.apart.first for standing in standings if standing.apart is not None]

    @property
    def asking(self) -> set[Remote]:
        """Peers whose word is awaited."""
        return {remote for remote, standing in self._standings.items() if standing.asking is not None}

    @property
    def is_refuted(self) -> bool:
        """Whether `settle` has something to take back or to search again."""
        return self._false is not None or self._unsearched is not None

    async def _talk(self, remote: Remote, standing: Standing, height: int) -> None:
        """Hear what a peer says of a height, and dispute it where it is not what we have."""
        try:
            if standing.claim is None and standing.apart is None:
                await self._hear(remote, standing, height)
            if standing.claim is not None:
                await self._dispute(remote, standing, *standing.claim)
            if standing.apart is not None:
                await self._compare(remote, standing, standing.apart)
        except LOST as error:
            self._sync.peers.leave(remote, error)
        finally:
            standing.asking = standing.claim = None
            self._sync.slow.discard(remote)
            self._sync.wake()

    async def _hear(self, remote: Remote, standing: Standing, height: int) -> None:
        stop = self._sync.chain.hash_at(height)
        said: list[tuple[int, bytes]] = []
        if height - standing.vouched > CHECKPOINT_INTERVAL:
            said += self._placed(await remote.compact.checkpoints(height, stop))
        told = await remote.compact.headers(height, height, stop)
        said.append((height, told.headers()[0]))
        if not self._is_at(height, stop):
            return
        for at, header in said:
            if self._rows.header_at(at) != header:
                standing.claim = at, header
                return
            standing.vouched = max(standing.vouched, at)

    def _placed(self, checkpoints: Sequence[bytes]) -> list[tuple[int, bytes]]:
        return [(number * CHECKPOINT_INTERVAL, header) for number, header in enumerate(checkpoints, 1)]

    def _is_at(self, height: int, stop: bytes) -> bool:
        """Whether the chain and our filter headers still reach a block."""
        return height <= self.height and self._sync.chain.hash_at(height) == stop

    # Extending

    def leader(self) -> Remote | None:
        """Whom to ask for filter headers above ours: a peer that knows the most blocks, and is not in dispute."""
        standings = {remote: self.standing(remote) for remote in self._sync.members if remote.knows > self.height}
        able = [remote for remote, standing in standings.items() if standing.claim is None and standing.apart is None]
        return max(able, key=lambda remote: (remote not in self._sync.slow, remote.knows, self.standing(remote).vouched), default=None)

    async def extend(self, leader: Remote) -> None:
        """Take the filter headers that a peer has above ours, as far as nobody objects. Raises PeerError, OSError, TimeoutError."""
        chain, standing = self._sync.chain, self.standing(leader)
        first, last = self.height + 1, leader.knows
        checkpoints: Sequence[bytes] = ()
        if last - first >= CHECKPOINT_INTERVAL:
            checkpoints = await self._sync.in_time(leader, leader.compact.checkpoints(last, chain.hash_at(last)))
        under_way: deque[tuple[int, bytes, asyncio.Task[Told]]] = deque()
        try:
            while first <= last or under_way:
                while first <= last and len(under_way) < _PIPELINE:
                    end = min(first + MAX_CFHEADERS - 1, last)
                    stop = chain.hash_at(end)
                    under_way.append((first, stop, asyncio.create_task(leader.compact.headers(first, end, stop))))
                    first = end + 1
                start, stop, task = under_way.popleft()
                told = await self._sync.in_time(leader, task)
                if not await self._take(leader, standing, start, stop, told, checkpoints):
                    return
                await self._sync.tell(Progress(Phase.FILTER_HEADERS, self.height, chain.height))
                self.ask_around()
                if self.is_refuted:
                    return
                last = min(last, chain.height)
        finally:
            for _, _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, _, task in under_way), return_exceptions=True)

    async def _take(self, leader: Remote, standing: Standing, start: int, stop: bytes, told: Told, checkpoints: Sequence[bytes]) -> bool:
        """Record what the leader told of the blocks from a height on; False where that does not follow what we have."""
        await self._sync.apply()  # from here to the commit nobody else has a turn
        end = start + len(told.hashes) - 1
        if self._rows.height != start - 1 or end > self._sync.chain.height or self._sync.chain.hash_at(end) != stop:
            return False
        if told.previous != self._rows.header_at(start - 1):
            if start == 0 or standing.vouched >= start - 1:
                raise LieError(f"filter header before block {start}", cause=Lie.CONTRADICTION)
            standing.claim = start - 1, told.previous
            return False
        headers = told.headers()
        for height, checkpoint in self._placed(checkpoints):
            if start <= height <= end and headers[height - start] != checkpoint:
                raise LieError(f"filter checkpoint {height}", cause=Lie.CONTRADICTION)
        await self._sync.db(self._sync.ledger.store.commit, Batch(compact_filters=CompactFilterBatch(hashes=told.hashes)))
        standing.vouched = end
        return True

    # Disputes

    async def settle(self) -> bool:
        """Take back what was found to be false; whether there was anything."""
        unsearched, self._unsearched = self._unsearched, None
        if unsearched is not None and unsearched <= self._sync.ledger.store.cursor:
            await self._sync.db(self._sync.ledger.rewind, unsearched - 1)
        if (false := self._false) is None:
            return unsearched is not None
        self._false = None
        self._limit(false - 1)
        await self._sync.db(self._sync.ledger.rewind, false - 1)
        await self._sync.db(self._sync.ledger.store.commit, Batch(compact_filters=CompactFilterBatch(fork=false - 1)))
        self._limit(false - 1)
        return True

    def _condemn(self, height: int, error: LieError) -> None:
        """The block refutes our filter at a height: peers that stand by it are banned, and `settle` takes back what they told.

        That begins where another peer's headers went apart from theirs, as far as it is known: they are no better than this one.
        """
        for ally in self.vouching(height):
            self._sync.peers.leave(ally, error)
        self._fetch_anew(min([height, *self._apart()]))

    def _fetch_anew(self, height: int) -> None:
        """Our filter headers from a height on are given up, and fetched from whoever is there."""
        self._limit(height - 1)
        self._false = height if self._false is None else min(height, self._false)
        self._sync.wake()

    def refute(self, height: int, reason: str) -> None:
        """A filter that our header commits to is none."""
        self._condemn(height, _lie(height, reason))

    async def _dispute(self, remote: Remote, standing: Standing, height: int, header: bytes) -> None:
        if height > self.height or self._rows.header_at(height) == header:
            return
        below = standing.vouched
        if height - below > MAX_CFHEADERS:
            below, height, header = await self._narrow(remote, below, height, header)
        stop = self._sync.chain.hash_at(height)
        told = await remote.compact.headers(below + 1, height, stop)
        if not self._is_at(height, stop):
            return
        theirs = told.headers()
        if told.previous != self._rows.header_at(below) or theirs[-1] != header:
            raise LieError(f"filter headers from block {below + 1} to {height}", cause=Lie.CONTRADICTION)
        at = next(at for at, each in enumerate(theirs) if each != self._rows.header_at(below + 1 + at))
        first = below + 1 + at
        if await self._judge(remote, first, self._rows.header_at(first - 1), theirs[at]):
            standing.apart = Apart(first, first, theirs[at])

    async def _compare(self, remote: Remote, standing: Standing, apart: Apart) -> None:
        """Judge every further block of which a peer that is apart commits to another filter than ours."""
        while apart.compared < min(self.height, remote.knows) and standing.apart is apart:
            first = apart.compared + 1
            last = min(first + MAX_CFHEADERS - 1, self.height, remote.knows)
            stop = self._sync.chain.hash_at(last)
            told = await remote.compact.headers(first, last, stop)
            if not self._is_at(last, stop):
                return
            if told.previous != apart.header:
                raise LieError(f"filter header before block {first}", cause=Lie.CONTRADICTION)
            for height, (hash_, header) in enumerate(zip(told.hashes, told.headers(), strict=True), first):
                if not self._is_at(last, stop) or standing.apart is not apart:
                    return
                if hash_ != self._rows.hash_at(height) and not await self._judge(remote, height, apart.header, header):
                    return
                apart.compared, apart.header = height, header

    async def _narrow(self, remote: Remote, below: int, height: int, header: bytes) -> tuple[int, int, bytes]:
        """A height where a peer agrees and a near one above where it does not, by its checkpoints."""
        stop = self._sync.chain.hash_at(height)
        for at, checkpoint in self._placed(await remote.compact.checkpoints(height, stop)):
            if at <= below or at > self.height:
                continue
            if checkpoint != self._rows.header_at(at):
                return below, at, checkpoint
            below = at
        return below, height, header

    async def _judge(self, remote: Remote, height: int, before: bytes, header: bytes) -> bool:
        """A block of which a peer commits to another filter, by `header` behind its header `before`. Whether that stays undecided.

        Where it does, the block is searched whole.
        """
        block_hash, ours = self._sync.chain.hash_at(height), self._rows.header_at(height)
        undecided = self._undecided.setdefault(remote.address, set())
        if len(undecided) >= MAX_UNDECIDED and block_hash not in undecided:
            self._end_dispute(remote, height)
            return False
        (theirs,) = await remote.compact.filters(height, [block_hash], [before, header])
        filter_ = await self._filter_of(height, block_hash)
        raw = await self._sync.fetch(height, block_hash)
        if not self._is_at(height, block_hash) or self._rows.header_at(height) != ours:
            return False
        known = self._known()
        their_verdict = await asyncio.to_thread(verify_filter, raw, theirs, block_hash, known)
        our_verdict = None if filter_ is None else await asyncio.to_thread(verify_filter, raw, filter_, block_hash, known)
        if their_verdict.verdict is Verdict.FALSE:
            self._sync.peers.leave(remote, _lie(height, their_verdict.reason))
        if (our_verdict is not None and our_verdict.verdict is Verdict.FALSE) or their_verdict.verdict is Verdict.TRUE:
            self._condemn(height, _lie(height, our_verdict.reason if our_verdict is not None else ""))
            return False
        if their_verdict.verdict is Verdict.FALSE:
            return False
        undecided.add(block_hash)
        if block_hash not in self._sync.whole:
            self._sync.whole.add(block_hash)
            self._unsearched = height if self._unsearched is None else min(height, self._unsearched)
            self._sync.wake()
        return True

    def _end_dispute(self, remote: Remote, height: int) -> None:
        """A peer disputes block after block and none decides: the smaller side is let go of for a while.

        That does not make the other one right: from here on nothing is proven.
        """
        cause = f"another filter of block {height} and of {MAX_UNDECIDED} before it than most peers, and no block tells which are true"
        error = UselessPeerError(cause)
        vouching = self.vouching(height)
        apart = self._apart()
        if len(apart) > len(vouching):
            for ally in vouching:
                self._sync.peers.leave(ally, error)
            self._fetch_anew(min(apart))
        else:
            self._sync.peers.leave(remote, error)
        self._doubted = height if self._doubted is None else min(height, self._doubted)

    async def _filter_of(self, height: int, block_hash: bytes) -> bytes | None:
        """The filter that our header commits to, from whoever stands by it; None where nobody gives it."""
        before = self._rows.header_at(height - 1)
        if (kept := await self._sync.db(self._rows.kept, height, height)).get(height) is not None:
            return kept[height]
        for ally in self.vouching(height):
            try:
                (data,) = await ally.compact.filters(height, [block_hash], [before, self._rows.header_at(height)])
            except LOST as error:
                self._sync.peers.leave(ally, error)
            else:
                return data
        return None

    def _known(self) -> Callable[[bytes], bytes | None]:
        table = self._sync.ledger.watch.table

        def script_of(outpoint: bytes) -> bytes | None:
            coin = table.coin(outpoint)
            return coin.script or None if coin is not None else None

        return script_of


def _lie(height: int, reason: str) -> LieError:
    return LieError(f"the filter of block {height} {reason or 'is not what the block makes'}", cause=Lie.FALSE_FILTER_HEADER)
