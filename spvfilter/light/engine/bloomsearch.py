"""Search by BIP-37: all peers with NODE_BLOOM get the filter and the same requests, then their answers are compared.

The engine records the first answer. If another peer proves a transaction of the wallet that the first answer omitted,
the peers that omitted it have lied. Blocks are searched again, starting with the block of this transaction, and a peer
that omits the transaction again has also lied.

An unwitnessed range has answers from fewer than three independent peers. The engine requests it from more peers when
they connect, in this run or a later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf

from spvfilter.errors import InexpressibleError, LieError, PrivacyError
from spvfilter.kernel import Hit
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.bloomfilters import BloomFilters
from spvfilter.light.engine.bloomlink import BloomLink, Flight
from spvfilter.light.engine.context import Context, is_next
from spvfilter.light.engine.coverage import WITNESSES, Coverage
from spvfilter.light.engine.demands import Demand
from spvfilter.light.engine.doublespends import DoubleSpends
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.longchange import is_long
from spvfilter.light.engine.netgroups import is_sheltered
from spvfilter.light.engine.peers import BLOOM, LIMITED_DEPTH, Peer, PeerState
from spvfilter.light.events import PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import BlockConnected
from spvfilter.wallet.parts import Parts, whole
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wire.messages.table import FilterAdd, FilterClear, FilterLoad, GetData, InvItem, InvType
from spvfilter.wire.transport import Transport

_RELOAD = "filterload"  # key of a request that a pong answers
_RELOAD_EVERY_S = 10.0  # Least time between reloads caused by a peer's unconfirmed transactions (our choice).
_MAX_PARTS = 64  # Limit on parts that are outstanding or being compared (our choice).
_MAX_SHOWN = 100  # Limit on blocks with remembered omissions; the latest are kept (our choice).


@dataclass(slots=True, eq=False)
class _Part:
    """Successive blocks of one request."""

    wanted: Sequence[tuple[int, bytes]]
    """Height and hash."""
    asked: set[Peer] = field(default_factory=set)
    answers: dict[Peer, list[ScannedBlock]] = field(default_factory=dict)
    is_recorded: bool = False

    @property
    def first(self) -> int:
        return self.wanted[0][0]

    @property
    def last(self) -> int:
        return self.wanted[-1][0]


class BloomSearch:
    """Searches blocks above the cursor, and unwitnessed ranges below it."""

    def __init__(
        self,
        context: Context,
        headers: PeerHeaders,
        blocks: BlockRequests,
        coverage: Coverage,
        filters: BloomFilters,
        found: Callable[[bytes | None], None],
    ) -> None:
        """Search with these filters.

        `found` is called with the script of each match, so that a search by compact filters can find its spends.
        """
        self._context = context
        self._headers = headers
        self._blocks = blocks
        self._coverage = coverage
        self._filters = filters
        self._found = found
        self._links: dict[Peer, BloomLink] = {}
        self._parts: deque[_Part] = deque()  # Ascending: first the recorded parts that are still being compared.
        self._repeated: list[_Part] = []  # Parts that were recorded in an earlier run, or before a peer connected.
        self._raws: dict[bytes, bytes] = {}  # Blocks fetched whole.
        # Positions and txids that one peer omitted and another proved, by block hash.
        self._shown: dict[bytes, dict[int, bytes]] = {}
        # When the last block was recorded, or when an older block was first requested.
        self._recorded_at: float | None = None
        self._epoch = 0  # Counts changes to the watch list.
        self.has_told: bool = False  # True if a peer got a filter in this run.
        self._has_warned = False  # True if in this run, a peer got a filter that others can read.
        self._expressible = -1, False  # The epoch, and True if BIP-37 can find all entries.
        context.pool.on_gone(self._gone)
        context.pool.on_lie(self._lied)

    def _gone(self, peer: Peer) -> None:
        self._links.pop(peer, None)
        for part in (*self._parts, *self._repeated):
            part.asked.discard(peer)

    def _lied(self, peer: Peer) -> None:
        """Discard the answers of a peer that lied. Its recorded answers no longer count for its group."""
        self._coverage.retract(peer.group, peer.address)
        self._ask_all_again()
        for part in self._parts:
            if not part.is_recorded:
                part.answers.pop(peer, None)

    @property
    def members(self) -> tuple[Peer, ...]:
        """Connected peers that serve BIP-37."""
        return self._context.pool.ready(BLOOM)

    def can_find_all(self) -> bool:
        """True if BIP-37 can find all watched entries."""
        if self._expressible[0] != self._epoch:
            try:
                self._context.books.bloom_elements()
                self._expressible = self._epoch, True
            except InexpressibleError:
                self._expressible = self._epoch, False
        return self._expressible[1]

    def link(self, peer: Peer) -> BloomLink:
        """Return the link to a peer: its filter and the outstanding requests to it."""
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = BloomLink()
        return link

    @property
    def is_comparing(self) -> bool:
        """True if a peer that usually answers promptly has not yet answered for a recorded block.

        A peer may be asked for many parts, so the engine waits for `answer_s` after the last recorded block. It waits
        longer only for a part that fewer than two network groups have answered.
        """
        now, answer_s = self._context.now.monotonic, self._context.options.timeouts.answer_s
        may_wait = self._recorded_at is None or now - self._recorded_at < answer_s
        parts = [
            part
            for part in self._parts
            if part.is_recorded and (may_wait or len({peer.group for peer in part.answers}) < 2)
        ]
        parts += self._repeated if may_wait else ()
        return any(peer.state is PeerState.READY and peer not in part.answers for part in parts for peer in part.asked)

    def disconnect_to(self, height: int) -> None:
        """Drop the requests above a height, because blocks were disconnected or must be searched again."""
        self._parts = deque(part for part in self._parts if part.last <= height)
        self._repeated = [part for part in self._repeated if part.last <= height]
        self._blocks.disconnect_to(height)
        self._raws.clear()
        self._coverage.forget_unwitnessed(height)
        for link in self._links.values():
            link.covered = min(link.covered, height)
            link.asked_to = min(link.asked_to, height)

    def entries_changed(self) -> None:
        """Start over with new filters, after the watch list has changed or when blocks must be searched again.

        Answers to earlier requests no longer count.
        """
        self._epoch += 1
        self._parts.clear()
        self._repeated.clear()
        self._shown.clear()

    def pause(self) -> None:
        """Cancel outstanding requests, because blocks are now searched by compact filters."""
        self._parts.clear()
        self._repeated.clear()
        self._ask_all_again()

    def _ask_all_again(self) -> None:
        """Request all unwitnessed ranges again, from every peer."""
        for link in self._links.values():
            link.asked_to = -1

    def advance(self) -> None:
        """Load filters, send requests, record and compare as far as possible. Raises InexpressibleError."""
        if self._context.out.is_backed_up or self._context.is_held:
            return
        self._load_filters()
        self._ask()
        self._record()
        self._request_unwitnessed()

    # Filters

    @property
    def next_at(self) -> float:
        """When a peer may get a filter that its answers require (monotonic seconds); infinity if none needs one."""
        now, links = self._context.now.monotonic, self._links.values()
        due = (self._reload_at(link) for link in links if link.must_reload and link.filter is not None)
        return min((at for at in due if at > now), default=inf)

    def _reload_at(self, link: BloomLink) -> float:
        """Return when a peer's answers may next cause a reload: at any time below the tip, but rarely at the tip."""
        is_at_tip = self._context.books.cursor >= self._context.chain.height
        return link.may_reload_at if is_at_tip else 0.0

    def _load_filters(self) -> None:
        now = self._context.now.monotonic
        for peer in self.members:
            link = self.link(peer)
            is_old = link.filter is None or link.epoch != self._epoch
            link.must_reload = (
                is_old or link.is_in_doubt or (link.filter is not None and self._filters.has_drifted(link.filter))
            )
            if link.must_reload:
                if link.flights or (not is_old and (link.is_reloading or self._reload_at(link) > now)):
                    # Outstanding flights are tested with the previous filter. A peer causes one reload per round trip.
                    continue
                made = self._filters.make()
                if made is None:
                    return
                link.load(made, self._epoch, self._context.books.cursor, self._filters.elements)
                link.must_reload = False
                self._context.pool.demand(peer, Demand.RELAY, self._context.now)
                self._context.out.send(peer.number, FilterLoad.parse(bytes(made)))
                self._add(peer, link.teach([outpoint for each in link.hunted.values() for outpoint in each]))
                self._warn_of_listeners(peer)
                self.has_told = True
                is_anew = not is_old and not link.is_reloading
                if is_anew:
                    link.is_reloading = True
                    link.may_reload_at = now + _RELOAD_EVERY_S
                    self._context.pool.ask(peer, _RELOAD, self._context.now)
                self._context.out.fence(peer.number, partial(self._loaded, peer, link, is_anew))

    def _warn_of_listeners(self, peer: Peer) -> None:
        """Warn once per run if others on the network path to a peer can read its filter."""
        assert peer.profile is not None
        if self._has_warned or peer.profile.transport is Transport.V2 or is_sheltered(peer.profile.host):
            return
        self._has_warned = True
        danger = "receives the BIP-37 filter unencrypted: others on the network path can learn the wallet's addresses"
        advice = "use compact mode, a node with v2 transport, or an onion address"
        self._context.out.emit(PeerWarning(peer.address, PrivacyError(f"{danger}; {advice}"), False))

    def _loaded(self, peer: Peer, link: BloomLink, is_anew: bool) -> None:
        """Record that a peer has its new filter. `is_anew` is True if the peer's answers caused the reload."""
        link.loading -= 1
        if not link.loading:
            self._context.pool.grant(peer, Demand.RELAY)
        if is_anew:
            link.is_reloading = False
            self._context.pool.answered(peer, _RELOAD, self._context.now)
            self._context.changed()

    def disarm(self) -> list[Peer]:
        """Clear the peers' filters, because blocks are now searched by compact filters.

        A peer with a filter announces only its matches. If the client does not follow the mempool, a peer keeps its
        filter, because it would otherwise announce every transaction.

        Returns:
            The peers that had a filter.
        """
        armed = [peer for peer, link in self._links.items() if link.filter is not None and not link.flights]
        for peer in armed:
            self._links[peer] = BloomLink()
            if self._context.options.mempool:
                self._context.pool.demand(peer, Demand.RELAY, self._context.now)
                self._context.out.send(peer.number, FilterClear())
                self._context.out.fence(peer.number, partial(self._context.pool.grant, peer, Demand.RELAY))
        return armed

    def teach(self) -> None:
        """Add new elements to every peer's filter, except elements learned from the peer's answers.

        They are outpoints, because all filters are reloaded when entries change. Elements that a filter has already
        received are not looked up again.
        """
        armed = {
            peer: link for peer, link in self._links.items() if link.filter is not None and link.epoch == self._epoch
        }
        known = self._context.books.outpoint_elements() if armed else {}
        # New elements by the id of the known elements, which filters that were loaded together share.
        fresh: dict[int, list[bytes]] = {}
        for link in armed.values():
            if id(link.known) not in fresh:
                fresh[id(link.known)] = [element for element in known if element not in link.known]
        for peer, link in armed.items():
            self._add(peer, link.teach(fresh[id(link.known)]))
            link.covered, link.known = max(link.covered, self._context.books.cursor), known

    def _add(self, peer: Peer, elements: Iterable[bytes]) -> None:
        for element in elements:
            self._context.out.send(peer.number, FilterAdd(element))

    def hunt(self, peer: Peer, tx: Transaction) -> None:
        """Make a peer's filter also match double-spends of a transaction that the peer sent.

        The peer itself announced the inputs, and they are added whether or not the transaction involves the wallet, so
        the peer learns nothing.
        """
        self._add(peer, self.link(peer).hunt(tx, self._filters.most_hunted))

    # Asking

    def _ask(self) -> None:
        """Request the blocks above the cursor, each part from as many peers as there should be witnesses."""
        chain, timeouts = self._context.chain, self._context.options.timeouts
        while self._parts and self._parts[0].is_recorded and self._parts[0].asked <= self._parts[0].answers.keys():
            self._parts.popleft()
        while len(self._parts) > _MAX_PARTS and self._parts[0].is_recorded:
            self._parts.popleft()  # the range stays unwitnessed
        is_searching = any(not part.is_recorded for part in self._parts)
        next_height = self._parts[-1].last + 1 if is_searching else self._context.books.cursor + 1
        while sum(not part.is_recorded for part in self._parts) < timeouts.flights and next_height <= chain.height:
            end = min(next_height + timeouts.flight - 1, chain.height)
            self._parts.append(_Part(list(enumerate(chain.hashes(next_height, end), next_height))))
            next_height = end + 1
        for part in self._parts:
            self._ask_for(part)

    def _ask_for(self, part: _Part) -> None:
        """Request a part from one peer in each network group, and then from more peers until the first answer arrives.

        An attacker with many addresses in one network group must not become every witness.
        """
        prompt = {peer for peer in part.asked if peer.state is PeerState.READY or peer in part.answers}
        groups = {peer.group for peer in prompt}
        able = [peer for peer in self.members if peer not in part.asked and self._may_be_asked(peer, part)]
        able.sort(key=lambda peer: (peer.state is PeerState.SUSPECT, peer.number))
        for is_first in (True, False):
            for peer in able:
                if len(groups) >= WITNESSES or (peer.state is PeerState.SUSPECT and part.asked):
                    break
                is_new = peer.group not in groups
                may_double = not is_first and not part.answers and len(prompt) < WITNESSES
                if peer not in part.asked and (is_new or may_double):
                    self._send(peer, part)
                    groups.add(peer.group)
                    prompt.add(peer)
        if not part.asked:
            knowing = [peer for peer in self.members if self._headers.knows(peer) >= part.last]
            if not any(peer.has_block(self._context.chain.height - part.first) for peer in knowing):
                self._blocks.name_pruners(knowing, part.first)

    def _may_be_asked(self, peer: Peer, part: _Part) -> bool:
        link = self.link(peer)
        depth = self._context.chain.height - part.first
        has_blocks = self._headers.knows(peer) >= part.last and peer.has_block(depth)
        return (
            not link.must_reload
            and not self.is_refused_by(peer)
            and has_blocks
            and link.covered >= part.first - 1
            and link.flights < self._context.options.timeouts.flights
        )

    def is_refused_by(self, peer: Peer) -> bool:
        """True if the peer closes the connection when asked for filtered blocks."""
        return self._context.pool.refuses(peer, Demand.BLOCKS, self._context.now)

    def _send(self, peer: Peer, part: _Part) -> None:
        link = self.link(peer)
        self._context.pool.demand(peer, Demand.BLOCKS, self._context.now)
        part.asked.add(peer)
        link.covered = max(link.covered, part.last)
        flight = Flight(part.wanted, partial(self._landed, peer, part))
        link.begin(flight)
        question = GetData(tuple(InvItem(InvType.FILTERED_BLOCK, block_hash) for _, block_hash in part.wanted))
        key = ("flight", flight)
        self._context.pool.ask(peer, key, self._context.now, question)
        self._context.out.fence(peer.number, partial(self._fenced, peer, link, flight))

    def _fenced(self, peer: Peer, link: BloomLink, flight: Flight) -> None:
        if self._context.pool.has(peer):
            self._context.pool.answered(peer, ("flight", flight), self._context.now)
            self._context.changed()
            link.land(flight)

    def _landed(self, peer: Peer, part: _Part, blocks: list[ScannedBlock], whole: list[ScannedBlock]) -> None:
        if part not in self._parts and part not in self._repeated:
            return
        complete = {block.hash for block in whole}
        for block in blocks:
            omitted = self._shown.get(block.hash, {}).keys() - {tx.position for tx in block.txs}
            if omitted and block.hash not in complete:
                self._context.pool.drop(
                    peer, _omitted(self._shown[block.hash][min(omitted)], block.height), self._context.now
                )
                return
        part.answers[peer] = blocks
        for block in whole:
            if not part.is_recorded and block.hash not in self._raws:
                self._blocks.want(block.height, block.hash, partial(self._raw_came, block.height, block.hash))
            block.txs = ()
            block.raw = b""  # to be fetched
        if part.is_recorded:
            self._compare(part, peer)

    def _check_whole(self, peer: Peer, height: int, block_hash: bytes, raw: bytes) -> None:
        """Check a recorded block that was fetched whole because the peer's proof was not reliable.

        If all matches have been recorded, the peer is a witness for the block.
        """
        books = self._context.books
        if height > books.cursor or self._context.chain.hash_at(height) != block_hash:
            return
        there = {hit.position: hit.txid for hit in books.watch.table.scan_block(raw)}
        if shown := there.keys() - books.positions_at(height).keys():
            self._search_again(height, block_hash, {position: there[position] for position in shown})
        else:
            self._coverage.witnessed(height, height, peer.group, peer.address)

    def _raw_came(self, height: int, block_hash: bytes, raw: bytes) -> None:
        if height > self._context.books.cursor:
            self._raws[block_hash] = raw
            self._context.changed()

    # Recording

    def _record(self) -> None:
        for part in list(self._parts):
            if part.is_recorded:
                continue
            if not part.answers or part.first > self._context.books.cursor + 1:
                return
            peer, blocks = next(iter(part.answers.items()))
            first, is_done = max(part.first, self._context.books.cursor + 1), self._record_blocks(peer, blocks)
            if first <= (last := min(part.last, self._context.books.cursor)):
                self._coverage.answered(first, last, peer.group, peer.address)
            if not is_done:
                return
            part.is_recorded, self._recorded_at = True, self._context.now.monotonic
            for block in blocks:
                self._raws.pop(block.hash, None)
            self.teach()
            for other in list(part.answers):
                if other is not peer and part in self._parts:
                    self._compare(part, other)
            if part not in self._parts:
                return

    def _record_blocks(self, peer: Peer, blocks: Iterable[ScannedBlock]) -> bool:
        """Record those of a peer's blocks that are above the cursor.

        Returns False if a block must still be fetched, if the step is full, or if the next steps record a large block.
        """
        books, chain = self._context.books, self._context.chain
        above = [block for block in blocks if block.height > books.cursor]
        unseen = DoubleSpends(books, self._links.get(peer), above)

        def has_none(block: ScannedBlock) -> bool:
            if block.raw is None and unseen.may_be_in(block.height):
                block.txs, block.raw = (), b""  # to be fetched
            return block.raw is None and not block.txs

        for is_empty, run in groupby(above, has_none):
            if is_empty:
                self._record_empty(list(run))
                continue
            for block in run:
                if self._context.matches_left <= 0:
                    self._context.changed()
                    return False
                assert block.height == books.cursor + 1
                assert chain.hash_at(block.height) == block.hash
                if block.raw is not None:
                    raw = self._raws.pop(block.hash, None)
                    if raw is None:
                        if not self._blocks.is_wanted(block.hash):
                            self._blocks.want(
                                block.height, block.hash, partial(self._raw_came, block.height, block.hash)
                            )
                        return False
                    block.raw, block.branches = raw, None
                hits = block.hits(books.watch.table)
                self._context.matches_left -= len(hits)
                if is_long(len(hits)):
                    self._context.change.begin(self._connecting_many(peer, block, hits))
                    return False
                whole(self._connecting(block, hits))
        return True

    def _connecting(self, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[None]:
        events = yield from self._context.books.connect_in_parts(block, hits)
        yield from self._context.out.emit_in_parts(events)
        for hit in hits:
            self._found(hit.script)

    def _connecting_many(self, peer: Peer, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[None]:
        """Record a block at the end of a step as `_record` does, unless the rest of the step has moved the cursor."""
        if is_next(self._context, block):
            yield from self._connecting(block, hits)
            self._coverage.answered(block.height, block.height, peer.group, peer.address)
        self._context.changed()

    def _record_empty(self, blocks: Sequence[ScannedBlock]) -> None:
        """Record successive blocks in which the peer's filter matched nothing."""
        books, first, last = self._context.books, blocks[0].height, blocks[-1].height
        assert first == books.cursor + 1
        assert self._context.chain.hashes(first, last) == [block.hash for block in blocks]
        books.connect_empty(last, sum(block.total for block in blocks))
        told = blocks[-2:]  # the journal keeps only the last block below the tip
        self._context.out.emit(*(BlockConnected(block.height, block.hash) for block in told))

    # Comparing

    def _compare(self, part: _Part, peer: Peer) -> None:
        """Compare a peer's answer with the recorded transactions."""
        table, books = self._context.books.watch.table, self._context.books
        first, whole = part.first, list[int]()
        for block in part.answers[peer]:
            if block.raw is not None:
                whole.append(block.height)
                self._blocks.want(block.height, block.hash, partial(self._check_whole, peer, block.height, block.hash))
                continue
            if block.height > books.cursor:
                continue
            recorded = books.positions_at(block.height)
            theirs = {tx.position: tx.raw for tx in block.txs if table.scan_tx(tx.raw)}
            omitted = recorded.keys() - theirs.keys()
            if omitted:
                self._context.pool.drop(peer, _omitted(recorded[min(omitted)], block.height), self._context.now)
                return
            shown = theirs.keys() - recorded.keys()
            if shown:
                self._expose(part, block, shown)
                return
        for height in whole:
            self._coverage.witnessed(first, height - 1, peer.group, peer.address)
            first = height + 1
        self._coverage.witnessed(first, part.last, peer.group, peer.address)

    def _expose(self, part: _Part, block: ScannedBlock, shown: Iterable[int]) -> None:
        """Drop the peers that omitted a transaction of the wallet, and search its block again."""
        positions = set(shown)
        txids = {tx.position: Transaction.parse(tx.raw).txid for tx in block.txs if tx.position in positions}
        for other, blocks in list(part.answers.items()):
            same = next((each for each in blocks if each.hash == block.hash), None)
            if same is not None and same.raw is None and not any(tx.position in positions for tx in same.txs):
                self._context.pool.drop(other, _omitted(txids[min(txids)], block.height), self._context.now)
        self._search_again(block.height, block.hash, txids)

    def _search_again(self, height: int, block_hash: bytes, shown: Mapping[int, bytes]) -> None:
        """Search again, starting at a block that contains unrecorded transactions (`shown`: txids by position).

        They are remembered because the peers that omitted them may have answered for another part.
        """
        self._shown[block_hash] = {**self._shown.pop(block_hash, {}), **shown}
        while len(self._shown) > _MAX_SHOWN:
            del self._shown[next(iter(self._shown))]
        self._context.books.searches.rewind(height - 1)
        self.disconnect_to(height - 1)
        self._context.changed()

    # Unwitnessed ranges

    def _request_unwitnessed(self) -> None:
        """Request unwitnessed ranges from idle peers."""
        self._repeated = [part for part in self._repeated if part.asked and not part.asked <= part.answers.keys()]
        timeouts, chain = self._context.options.timeouts, self._context.chain
        for peer in self.members:
            link = self.link(peer)
            if peer.state is PeerState.SUSPECT or link.flights or link.must_reload or self.is_refused_by(peer):
                continue
            under_way = {part.first for part in (*self._parts, *self._repeated) if peer in part.asked}
            lowest = max(link.asked_to + 1, 0 if peer.has_block(chain.height) else chain.height - LIMITED_DEPTH + 1)
            span = self._coverage.unwitnessed_for(peer.group, peer.address, lowest - 1)
            while span is not None and max(span.first, lowest) in under_way:
                span = self._coverage.unwitnessed_for(peer.group, peer.address, span.last)
            if span is None:
                continue
            first = max(span.first, lowest)
            last = min(first + timeouts.flight - 1, span.last, self._context.books.cursor)
            wanted = list(enumerate(chain.hashes(first, last), first))
            part = _Part(wanted, is_recorded=True)
            if wanted and self._headers.knows(peer) >= last:
                self._repeated.append(part)
                self._send(peer, part)
                link.asked_to = last
                if self._recorded_at is None:
                    self._recorded_at = self._context.now.monotonic


def _omitted(txid: bytes, height: int) -> LieError:
    return LieError(f"transaction {hash_to_hex(txid)} of block {height}", cause=Lie.OMITTED_TX)
