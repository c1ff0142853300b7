"""Search by compact filters: fetch filters in parallel, match them, and fetch matching blocks whole.

The filters come from peers that support their headers, in parts of successive blocks. Several parts are searched at the
same time. Each part is matched against all watched scripts, and later against scripts that have been added since.

The engine records blocks in order, once their filters have been matched against all scripts. A block whose filter
matches is a candidate, which must first be fetched whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from spvfilter.errors import BlockFilterError, LieError
from spvfilter.filters.batch import match_filters
from spvfilter.kernel import GcsQuery, Hit, WatchTable
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context, is_next
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.filterheaders import FilterHeaders
from spvfilter.light.engine.filterquestions import FilterQuestions
from spvfilter.light.engine.filterscripts import FilterScripts, Position
from spvfilter.light.engine.longchange import is_long
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.engine.silentblocks import SilentBlocks
from spvfilter.light.engine.tasks import Change, Task, Wait
from spvfilter.light.lies import Lie
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Store
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import BlockConnected
from spvfilter.wallet.parts import Parts, whole
from spvfilter.wallet.scanned import ScannedBlock, branches_of

_AHEAD = 16  # Number of matching blocks to fetch in advance.
_MAX_PARTS = 16  # at the same time
_LARGE = 200_000  # A block of this many bytes is scanned in a thread.
_ANY_HEIGHT = 1 << 32


@dataclass(slots=True, eq=False)
class _Part:
    """Successive blocks whose filters are fetched and matched together."""

    first: int
    hashes: list[bytes]
    digests: Sequence[bytes]
    """Hashes of the filters of these blocks."""
    filters: list[bytes] | None = None
    is_kept: bool = False
    """True if the filters came from the database."""
    is_missing: bool = False
    """True if the database lacks the filters, so peers are asked for them."""
    matched: Position = field(default_factory=Position)
    """The scripts against which the filters have been matched."""
    is_matching: bool = False
    """True while the filters are matched in a thread."""
    candidates: list[int] = field(default_factory=list)
    """Heights at which a filter matched, ascending."""
    asked: set[Peer] = field(default_factory=set)
    asked_at: float = 0.0
    """When a peer was last asked."""
    moved: Change = field(default_factory=lambda: Change("filters, or more scripts to match them against"))
    task: Task[None] | None = None
    """The task that gets the filters and matches them."""

    @property
    def last(self) -> int:
        return self.first + len(self.hashes) - 1


class FilterSearch:
    """The search above the cursor, up to the last filter header."""

    def __init__(
        self,
        context: Context,
        headers: FilterHeaders,
        questions: FilterQuestions,
        blocks: BlockRequests,
        coverage: Coverage,
        silent: SilentBlocks,
        *,
        has_filters: bool,
    ) -> None:
        """`has_filters` is True if the database contains any filters."""
        self._silent = silent
        self._context = context
        self._headers = headers
        self._questions = questions
        self._blocks = blocks
        self._coverage = coverage
        self.scripts: FilterScripts = FilterScripts(context.books)
        self._parts: deque[_Part] = deque()
        self._next = 0  # height at which the next part begins
        self._raws: dict[bytes, tuple[int, bytes]] = {}  # height and bytes of candidates that have arrived, by hash
        self._kept_to = _ANY_HEIGHT if has_filters else -1  # height up to which the database may have filters
        self._large: Task[None] | None = None  # records a large block
        context.pool.on_gone(self._gone)
        headers.on_taken_back(self.disconnect_to)

    def _gone(self, peer: Peer) -> None:
        for part in self._parts:
            part.asked.discard(peer)

    def disconnect_to(self, height: int) -> None:
        """Drop the parts above a height, because blocks were disconnected or their filter headers have changed."""
        while self._parts and self._parts[-1].last > height:
            self._end(self._parts.pop())
        self._next = self._parts[-1].last + 1 if self._parts else 0
        self._raws = {each: came for each, came in self._raws.items() if came[0] <= height}
        self._blocks.disconnect_to(height)
        self._silent.forget_above(height)

    def entries_removed(self, change: Renumbering) -> None:
        """Match all wanted scripts again, after entries have been removed from the watch list."""
        self.scripts.entries_removed(change)
        self._drop_parts()

    def pause(self) -> None:
        """Cancel outstanding requests, because blocks are now searched by BIP-37."""
        self._drop_parts()
        self._raws.clear()

    def _drop_parts(self) -> None:
        while self._parts:
            self._end(self._parts.pop())
        self._silent.forget_above(-1)

    def search_unwitnessed(self) -> None:
        """Search unwitnessed ranges again, once the filters are proven or other network groups support them."""
        context, coverage, top = self._context, self._coverage, self._context.chain.height
        if coverage.proven >= top:
            context.books.searches.rewind(coverage.unwitnessed[0].first - 1)
            coverage.forget_unwitnessed()
            context.changed()
        elif context.rows.height == context.books.cursor == top and not self._headers.is_hearing:
            supporters = self._headers.supporters(top)
            owed = [
                span.first
                for peer in supporters
                if (span := coverage.unwitnessed_for(peer.group, peer.address)) is not None
            ]
            if owed:
                for peer in supporters:
                    coverage.witnessed(0, top, peer.group, peer.address)
                context.books.searches.search_again(min(owed) - 1)
                context.changed()

    def advance(self, *, may_record: bool) -> None:
        """Fetch, match and record as far as possible. `may_record` is False if a witness has not answered yet."""
        if self._context.out.is_backed_up:
            return
        cursor = self._context.books.cursor
        while self._parts and self._parts[0].last <= cursor:
            self._end(self._parts.popleft())
        self._raws = {each: came for each, came in self._raws.items() if came[0] > cursor}
        if self._parts and not self._parts[0].first <= cursor + 1:  # the cursor was moved back
            self._drop_parts()
        self._fill()
        self._ask()
        self._match()
        self._judge()
        self._fetch_blocks()
        if may_record and not self._context.is_held:
            self._record()

    # Filters

    def _fill(self) -> None:
        """Start as many parts as may be requested from the peers, and a few more."""
        context, timeouts = self._context, self._context.options.timeouts
        most = min(timeouts.filter_flights * max(1, len(self._headers.members)) + 2, _MAX_PARTS)
        if not self._parts:
            self._next = context.books.cursor + 1
        top = min(context.rows.height, context.chain.height)
        while len(self._parts) < most and self._next <= top:
            first, last = self._next, min(self._next + timeouts.filters - 1, top)
            part = _Part(first, context.chain.hashes(first, last), context.rows.hashes(first, last))
            self._parts.append(part)
            self._next = last + 1
        for part in self._parts:
            if part.task is None or part.task.is_done:
                what = f"search blocks {part.first} to {part.last}"
                part.task = context.tasks.begin(partial(self._search, part), what)
        context.tasks.run()

    def _end(self, part: _Part) -> None:
        """End the search of a part that has been recorded, or whose blocks are searched in a different way."""
        if part.task is not None:
            part.task.cancel()

    async def _search(self, part: _Part) -> None:
        """Get a part's filters from the database or from peers, and match them whenever scripts are added.

        `_ask` distributes the parts that the database lacks among the peers.
        """
        context = self._context
        if part.filters is None and not part.is_missing:
            part.filters = await self._kept(part)
            part.is_kept = part.filters is not None
            part.is_missing = not part.is_kept
        while True:
            filters, upto = await part.moved.until(partial(self._to_match, part))
            make = self.scripts.queries(part.matched, part.last)
            if make is not None:
                part.is_matching = True
                try:
                    found = set(await context.out.worked(partial(_matching, part, filters, make), "matching filters"))
                except BlockFilterError as error:
                    self._refute(part, error)
                    return
                finally:
                    part.is_matching = False
                matching = (height for height, each in enumerate(part.hashes, part.first) if each in found)
                part.candidates = sorted({*part.candidates, *matching})
            part.matched = upto

    async def _kept(self, part: _Part) -> list[bytes] | None:
        """Return a part's filters if the database contains them, or None."""
        if part.first > self._kept_to:
            return None
        function = partial(_kept, first=part.first, digests=part.digests)
        return await self._context.out.looked_up(function, "filters in the database")

    def _to_match(self, part: _Part) -> tuple[list[bytes], Position] | None:
        """Return a part's filters, and the current position if they have not been matched up to it; otherwise None."""
        upto = self.scripts.position
        return (part.filters, upto) if part.filters is not None and part.matched != upto else None

    def _match(self) -> None:
        """Let the parts match filters that have arrived, and scripts that were added."""
        for part in self._parts:
            part.moved.announce()
        self._context.tasks.run()

    def _refute(self, part: _Part, error: BlockFilterError) -> None:
        """Ban the peers that commit to a malformed filter. This drops the part."""
        height = part.first + part.hashes.index(error.block_hash)
        lie = LieError(f"the filter of block {height} is malformed: {error.message}", cause=Lie.FALSE_FILTER_HEADER)
        self._headers.refute(height, lie)

    def _ask(self) -> None:
        """Request parts that have been requested from no peer, or only from peers that stall.

        Then also request slow parts from idle peers.
        """
        now, timeouts = self._context.now.monotonic, self._context.options.timeouts
        missing = [part for part in self._parts if part.is_missing and part.filters is None]
        for part in missing:
            if not any(peer.state is PeerState.READY for peer in part.asked):
                self._ask_for(part, timeouts.filter_flights)
        for part in missing:
            if part.asked and now - part.asked_at >= timeouts.stall_s:
                self._ask_for(part, 1)

    def _ask_for(self, part: _Part, flights: int) -> None:
        """Request a part from a peer with fewer than `flights` flights outstanding."""
        able = [peer for peer in self._headers.supporters(part.last) if peer not in part.asked]
        able = [peer for peer in able if self._questions.flights(peer) < flights]
        if part.asked:
            able = [peer for peer in able if peer.state is PeerState.READY]
        if not able:
            return
        self._context.random.shuffle(able)
        peer = min(able, key=lambda peer: (peer.state is PeerState.SUSPECT, self._questions.flights(peer)))
        asked = self._questions.ask_filters(peer, part.first, part.hashes, part.digests)
        if asked is not None:
            asked.then(partial(self._came, part, peer, asked))
            part.asked.add(peer)
            part.asked_at = self._context.now.monotonic

    def _came(self, part: _Part, peer: Peer, answer: Wait[list[bytes]]) -> None:
        self._context.pool.served_filters(peer)
        part.filters = part.filters or answer.result()

    def _judge(self) -> None:
        """Search the filters of the next blocks for silent payments, if a source supplies the blocks' tweaks."""
        cursor, last = self._context.books.cursor, self._context.books.cursor + self._silent.ahead
        self._silent.forget_to(cursor)
        for part in self._parts:
            if part.filters is None:
                return
            for height in range(max(cursor + 1, part.first), min(part.last, last) + 1):
                at = height - part.first
                self._silent.judge(height, part.hashes[at], part.filters[at])

    # Blocks

    def _candidates(self, part: _Part) -> Sequence[int]:
        """Return, in ascending order, the heights of the part's blocks that are fetched whole.

        Their filters match, or are disputed. If a source says which outputs blocks spend, all blocks are fetched.
        """
        if self._silent.reads_all:
            return range(part.first, part.last + 1)
        disputed = [
            height
            for height in self._coverage.disputed
            if part.first <= height <= part.last
            and self._coverage.is_disputed(height, part.hashes[height - part.first])
        ]
        more = [*disputed, *self._silent.paying(part.first, part.hashes)]
        return sorted({*part.candidates, *more}) if more else part.candidates

    def _fetch_blocks(self) -> None:
        """Request the next candidates."""
        cursor, ahead = self._context.books.cursor, 0
        for part in self._parts:
            if not part.matched.base and self.scripts.position.base:
                return
            candidates = self._candidates(part)
            for height in candidates[bisect_right(candidates, cursor) :]:
                ahead += 1
                if ahead > _AHEAD:
                    return
                block_hash = part.hashes[height - part.first]
                if block_hash not in self._raws and not self._blocks.is_wanted(block_hash):
                    self._blocks.want(height, block_hash, partial(self._block_came, height, block_hash))

    def _block_came(self, height: int, block_hash: bytes, raw: bytes) -> None:
        if not self._parts:
            return  # blocks are now searched by BIP-37
        self._raws[block_hash] = height, raw
        if self._silent.is_needed:
            self._silent.want(height, block_hash, raw)
        self._context.changed()

    # Recording

    def _record(self) -> None:
        """Record blocks in order, up to the first block that has not been matched or has not arrived."""
        while self._parts and (self._large is None or self._large.is_done):
            part = self._parts[0]
            if part.filters is None or part.is_matching or not self._record_part(part):
                return
            if self._context.options.keep_filters and not part.is_kept:
                kept = list(zip(part.digests, part.filters, strict=True))
                self._context.books.change_filters(CompactFilterBatch(kept=kept))
                self._kept_to = max(self._kept_to, part.last)
            self._end(self._parts.popleft())

    def _record_part(self, part: _Part) -> bool:
        """Record the blocks of a part above the cursor. Returns True if all are recorded."""
        books, candidates = self._context.books, self._candidates(part)
        while books.cursor < part.last:
            if self._context.matches_left <= 0:
                self._context.changed()
                return False
            if part.matched != self.scripts.position:
                self._match()
                if part.matched != self.scripts.position:
                    return False  # a match has added a script
            next_height = books.cursor + 1
            at = bisect_left(candidates, next_height)
            height = candidates[at] if at < len(candidates) else part.last + 1
            if height > next_height:
                height = self._silent.judged_to(next_height, height)
                if height == next_height:
                    return False
                books.connect_empty(height - 1)
                told = max(next_height, height - 2)  # the journal keeps only the last block below the tip
                self._context.out.emit(
                    *map(BlockConnected, count(told), part.hashes[told - part.first : height - part.first])
                )
                continue
            block_hash = part.hashes[height - part.first]
            _, raw = self._raws.get(block_hash, (height, None))
            if raw is None or (self._silent.is_needed and not self._silent.settle(height, block_hash, raw)):
                return False
            time = int.from_bytes(raw[68:72], "little")
            block = ScannedBlock(
                height, block_hash, raw=raw, completeness=self._coverage.completeness(height), time=time
            )
            if len(raw) > _LARGE:
                what = "record a large block"
                self._large = self._context.tasks.begin(partial(self._record_large, part, block), what)
                self._context.tasks.run()
                return False
            if not self._connect(part, block, block.hits(books.watch.table)):
                return False
        return True

    async def _record_large(self, part: _Part, block: ScannedBlock) -> None:
        """Scan a large block in a thread, and record it. If the scan is then out of date, `_record` repeats it."""
        context, books, table = self._context, self._context.books, self._context.books.watch.table
        assert block.raw is not None
        entries = len(table)
        hits, branches = await context.out.worked(partial(_scan, table, block.raw), "the matches in a large block")
        is_current = part in self._parts and is_next(context, block)
        is_whole = books.watch.table is table and len(table) == entries
        if is_current and is_whole and part.matched == self.scripts.position:
            block.branches = branches
            self._connect(part, block, hits)

    def _connect(self, part: _Part, block: ScannedBlock, hits: Sequence[Hit]) -> bool:
        """Record a block. Returns False if this is left to the next steps, because the block contains many matches."""
        context = self._context
        context.matches_left -= len(hits)
        if is_long(len(hits)):
            context.change.begin(self._connecting_many(part, block, hits))
            return False
        whole(self._connecting(part, block, hits))
        return True

    def _connecting_many(self, part: _Part, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[None]:
        """Record a block at the end of a step, unless the rest of the step has moved the cursor."""
        if is_next(self._context, block):
            yield from self._connecting(part, block, hits)
        self._context.changed()

    def _connecting(self, part: _Part, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[None]:
        events = yield from self._context.books.connect_in_parts(block, hits)
        yield from self._context.out.emit_in_parts(events)
        self._raws.pop(block.hash, None)
        self._silent.forget(block.hash)
        for hit in hits:
            self.scripts.add(hit.script)


def _matching(part: _Part, filters: Sequence[bytes], make: Callable[[], Sequence[tuple[int, GcsQuery]]]) -> list[bytes]:
    """Return the hashes of the part's blocks whose filters match. Raises BlockFilterError."""
    blocks = list(zip(part.hashes, filters, strict=True))
    found = [match_filters(blocks[max(above + 1 - part.first, 0) :], query) for above, query in make()]
    return list(dict.fromkeys(block_hash for each in found for block_hash in each))


def _scan(table: WatchTable, raw: bytes) -> tuple[list[Hit], dict[int, bytes]]:
    """Return the hits in a large block, and the merkle branches of their transactions by position."""
    hits = table.scan_block(raw)
    return hits, branches_of(raw, {hit.position for hit in hits})


def _kept(store: Store, *, first: int, digests: Sequence[bytes]) -> list[bytes] | None:
    """Return the filters with these hashes, starting at height `first`, or None if the database lacks any of them."""
    known = store.compact_filters
    last = first + len(digests) - 1
    if known.height < last or known.hashes(first, last) != list(digests):
        return None
    kept = known.kept(first, last)
    return [kept[height] for height in range(first, last + 1)] if len(kept) == len(digests) else None
