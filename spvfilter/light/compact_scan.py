"""Filters fetched in parallel from every peer that stands by their headers, matched in order, matching blocks fetched whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred
from spvfilter.errors import BlockFilterError, UselessPeerError
from spvfilter.filters.batch import match_filters
from spvfilter.filters.verify import spent_script, witnesses
from spvfilter.kernel import GcsQuery
from spvfilter.light.events import Event, Phase, Progress
from spvfilter.light.peers import LOST
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Batch
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import asyncio
    import random

    from spvfilter.light.compact import CompactSync
    from spvfilter.light.remote import Remote
else:
    asyncio = deferred("asyncio")
    random = deferred("random")

_BLOCKS = 16  # matching blocks fetched at once, and recorded together


@dataclass(slots=True, eq=False)
class _Part:
    """Successive blocks whose filters are fetched together."""

    first: int
    hashes: Sequence[bytes]
    headers: Sequence[bytes]  # of their filters, and the one before
    digests: Sequence[bytes]  # hashes of their filters
    filters: Sequence[bytes] | None = None
    is_kept: bool = False  # its filters come from the database
    asked: dict[asyncio.Task[list[bytes]], Remote] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return self.first + len(self.hashes) - 1


class FilterScan:
    """One pass over the filters above the cursor. Ends at the last filter header, or early where something else must be done first."""

    def __init__(self, sync: CompactSync) -> None:
        self._sync = sync
        self._rows = sync.ledger.store.compact_filters
        self._elements: list[bytes] | None = None
        self._entries = 0  # of the watch list that these are
        self._query = GcsQuery(())
        self._parts: deque[_Part] = deque()
        self._next = 0

    async def run(self) -> None:
        """Raises StoreError, UselessPeerError where nobody has a block that matches."""
        first = self._next = self._sync.ledger.store.cursor + 1
        try:
            while not self._sync.is_interrupted:
                await self._fill()
                if not self._parts:
                    return
                self._assign()
                part = self._parts[0]
                if part.filters is not None:
                    self._parts.popleft()
                    if not await self._search(part, part.filters):
                        return
                    done, total = self._sync.ledger.store.cursor - first + 1, self._sync.chain.height - first + 1
                    await self._sync.tell(Progress(Phase.FILTERS, min(done, total), total))
                elif not await self._wait():
                    return
        finally:
            await self._drop()

    async def _drop(self) -> None:
        """What was asked for may still come; nobody waits for it."""
        tasks = [task for part in self._parts for task in part.asked]
        self._parts.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Fetching

    async def _fill(self) -> None:
        """Look as far ahead as the peers may be asked, and twice."""
        window = 2 * self._sync.limits.filter_flights * max(1, len(self._sync.members))
        while len(self._parts) < window and self._next <= self._sync.headers.height:
            first = self._next
            last = min(first + self._sync.limits.filters - 1, self._sync.headers.height)
            hashes = [self._sync.chain.hash_at(height) for height in range(first, last + 1)]
            digests = [self._rows.hash_at(height) for height in range(first, last + 1)]
            part = _Part(first, hashes, self._rows.headers(first - 1, last), digests)
            self._parts.append(part)
            self._next = last + 1
            kept = await self._sync.db(self._rows.kept, first, last)
            if len(kept) == len(hashes):
                part.filters, part.is_kept = [kept[height] for height in range(first, last + 1)], True

    def _assign(self) -> None:
        """Ask for what nobody was asked for yet."""
        for part in self._parts:
            if part.filters is None and not part.asked and not self._ask(part):
                return

    def _ask(self, part: _Part) -> bool:
        """Ask the least busy of the peers that stand by the headers; False where all are busy."""
        able = [remote for remote in self._sync.headers.vouching(part.last) if remote not in part.asked.values()]
        random.shuffle(able)
        remote = next((remote for remote in able if remote.compact.owes(part.hashes)), None)  # from a search that was broken off
        remote = remote or min(able, key=lambda remote: remote.compact.flights, default=None)
        if remote is None or (remote.compact.flights >= self._sync.limits.filter_flights and not remote.compact.owes(part.hashes)):
            return False
        asking = asyncio.create_task(remote.compact.filters(part.first, part.hashes, part.headers))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # a part may be done before all who were asked are
        part.asked[asking] = remote
        return True

    async def _wait(self) -> bool:
        """Until filters have come; False where nobody was asked."""
        tasks = {task: part for part in self._parts for task in part.asked}
        if not tasks:
            return False
        done, _ = await asyncio.wait(tasks, timeout=self._sync.limits.stall_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            part = tasks[task]
            remote = part.asked.pop(task)
            try:
                filters = task.result()
                part.filters = part.filters or filters
            except LOST as error:
                self._sync.peers.leave(remote, error)
        if not done and self._parts[0].filters is None:
            self._ask(self._parts[0])  # a second time, of another peer: the first may be slow
        return True

    # Searching

    async def _search(self, part: _Part, filters: Sequence[bytes]) -> bool:
        """Match the filters, fetch the blocks that match, record all; False where that was not possible to the end."""
        if self._sync.keeps_filters and not part.is_kept:
            batch = Batch(compact_filters=CompactFilterBatch(kept=list(zip(part.digests, filters, strict=True))))
            await self._sync.db(self._sync.ledger.store.commit, batch)
        at, wanted = 0, None
        while at < len(filters):
            if self._elements is None or wanted is None:
                wanted = await self._match(part, filters)
            if wanted is None:
                return False
            end = at
            group: list[int] = []
            while end < len(filters) and len(group) < _BLOCKS:
                if part.hashes[end] in wanted:
                    group.append(end)
                end += 1
            raws = await self._fetch(part, group)
            blocks = [
                ScannedBlock(
                    part.first + place, part.hashes[place], raw=raws.get(place), completeness=self._completeness(part.first + place)
                )
                for place in range(at, end)
            ]
            if not await self._record(blocks):
                return False
            at = end
        return True

    def _completeness(self, height: int) -> Completeness:
        return self._sync.headers.completeness(height)

    async def _match(self, part: _Part, filters: Sequence[bytes]) -> set[bytes] | None:
        """Hashes of the blocks whose filters match; None where one of the filters is none."""
        elements = await self._sync.db(self._wanted)
        if elements != self._elements:
            self._query = GcsQuery(elements)
        self._elements = elements
        candidates = match_filters(zip(part.hashes, filters, strict=True), self._query)
        try:
            found = await asyncio.to_thread(list, candidates) if elements else []
        except BlockFilterError as error:
            self._sync.headers.refute(part.first + part.hashes.index(error.block_hash), f"is malformed: {error.message}")
            return None
        return {*found, *self._sync.whole.intersection(part.hashes)}

    def _wanted(self) -> list[bytes]:
        """In the database's thread. Blocks that hold a transaction we wait for are wanted too, whoever it pays, and its rivals.

        Of these an input tells the script that they spend too, unless that is taproot's or bare.
        """
        ledger = self._sync.ledger
        self._entries = len(ledger.watch)
        scripts = dict.fromkeys(ledger.watch.gcs_elements())
        for pending in ledger.pending.values():
            raw, tx = pending.raw, Transaction.parse(pending.raw).span
            scripts.update(dict.fromkeys(raw[start:end] for _, start, end in tx.outputs if end > start))
            spent = (spent_script(raw[start:end], stack) for (_, start, end), stack in zip(tx.inputs, witnesses(raw, tx), strict=True))
            scripts.update(dict.fromkeys(script for script in spent if script))
        return list(scripts)

    async def _fetch(self, part: _Part, places: Sequence[int]) -> dict[int, bytes]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {place: group.create_task(self._sync.fetch(part.first + place, part.hashes[place])) for place in places}
        except* UselessPeerError as errors:
            raise UselessPeerError(str(errors.exceptions[0])) from None
        return {place: task.result() for place, task in tasks.items()}

    async def _record(self, blocks: Sequence[ScannedBlock]) -> bool:
        """Record blocks that are still of the best chain and next; whether all were."""
        await self._sync.apply()
        chain, due = self._sync.chain, self._sync.ledger.store.cursor + 1
        last = blocks[-1]
        if blocks[0].height != due or last.height > chain.height or chain.hash_at(last.height) != last.hash:
            return False
        events = await self._sync.db(self._connect, blocks)
        if not events:
            return False
        if any(isinstance(event, MatchFound) for event in events):
            self._elements = None  # what was learned may have a script that was not asked for
        await self._sync.tell(*events)
        return True

    def _connect(self, blocks: Sequence[ScannedBlock]) -> Sequence[Event]:
        """In the database's thread; nothing is recorded if entries were added since the filters were matched."""
        ledger = self._sync.ledger
        return ledger.connect(blocks) if len(ledger.watch) == self._entries else []
