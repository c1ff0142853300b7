"""The light client's engine: it takes inputs and the time, and returns effects.

It makes the decisions, but does no I/O.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import assert_never

from spvfilter.chain import HeaderChain, Update
from spvfilter.errors import FormatError, InexpressibleError, LieError, PeerError, UselessPeerError
from spvfilter.hashes import sha256d
from spvfilter.light.engine.addresses import discovering
from spvfilter.light.engine.blockfetches import BlockFetches
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.bloomfilters import BloomFilters
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.broadcaster import Broadcaster
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import NOTE as COVERAGE_NOTE, Coverage
from spvfilter.light.engine.demands import Demand
from spvfilter.light.engine.effects import Effect, Wake
from spvfilter.light.engine.fees import fee_floor, fee_limits, low_fee
from spvfilter.light.engine.filterheaders import FilterHeaders
from spvfilter.light.engine.filterquestions import FilterQuestions
from spvfilter.light.engine.filtersearch import FilterSearch
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.inputs import (
    Abandon,
    Asked,
    BroadcastAsked as Sending,
    Committed,
    FencePassed,
    Heard,
    HeardTogether,
    Input,
    Instant,
    Lost,
    Malformed,
    PeerConnected,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.engine.mempool import MempoolWatch
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.ownbooks import OwnBooks
from spvfilter.light.engine.peers import BLOOM, COMPACT_FILTERS, Peer, PeerPool
from spvfilter.light.engine.privatebroadcast import PrivateBroadcast
from spvfilter.light.engine.relay import Relay
from spvfilter.light.engine.requests import CancelBlock, FetchBlock
from spvfilter.light.engine.saved import ANCHORS_NOTE, BANS_NOTE, Saved
from spvfilter.light.engine.silentblocks import SilentBlocks
from spvfilter.light.engine.staletip import StalePeers
from spvfilter.light.engine.start import StartHeight
from spvfilter.light.engine.status import StatusReports
from spvfilter.light.engine.timers import Timers
from spvfilter.light.engine.tweakblocks import TweakBlocks
from spvfilter.light.engine.watchchanges import WatchChanges
from spvfilter.light.events import FeeRates, Mode, Phase
from spvfilter.light.lies import Lie
from spvfilter.light.status import ClientStatus, PeerStatus
from spvfilter.store.txcheck import CheckFinding, check_package
from spvfilter.store.views import SearchedEntries
from spvfilter.transaction import Transaction
from spvfilter.wallet.bookfacts import BookFacts
from spvfilter.wallet.books import Books
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.intake import Verify
from spvfilter.wallet.refusals import refusal
from spvfilter.wallet.txgraph import TxRecord
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Received, ReceivedFilters
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import InvType, Message

_ROUNDS = 8  # Limit on rounds of decisions in one step. The next step continues.
_RUN_ID_SIZE = 16  # bytes
MATCHES_AT_ONCE = 100  # Matches after which a step records no more blocks: about six milliseconds (our choice).
_MOST_KEPT = 100  # Inputs that may wait for the end of a change. Beyond that, it ends without a pause (our choice).
_LOOKS_AT_ONCE = 200  # Pairs of an own transaction and a peer to check in a step: about 3 milliseconds (our choice).
_BLOCK_KINDS = (InvType.BLOCK, InvType.WITNESS_BLOCK, InvType.FILTERED_BLOCK)


def _run_id(random: random.Random) -> bytes:
    """Return a random id for the run, derived from the generator's state.

    No random number is drawn for it, so a given seed leads to the same decisions with or without the id.
    """
    return sha256d(repr(random.getstate()).encode("ascii"))[:_RUN_ID_SIZE]


class SearchMode(Enum):
    """How blocks are being searched."""

    WAIT = "wait"
    """No blocks are being searched, because the engine is waiting for peers before it chooses."""
    COMPACT = "compact"
    """Blocks are searched by compact filters."""
    BLOOM = "bip37"
    """Blocks are searched by BIP-37."""


class ClientEngine:
    """One run of a light client. `step` takes an input and returns the effects in order.

    It raises an exception only if there is a bug.
    """

    def __init__(
        self,
        options: Options,
        watch: WatchList,
        saved: Saved,
        addresses: Iterable[str],
        random: random.Random,
        verify: Verify | None = None,
    ) -> None:
        """Start with a watch list that Saved.read has merged with the database. `verify` checks signatures, if given.

        Raises InexpressibleError for entries that the mode cannot find.
        """
        self.options = options
        self.checks_signatures: bool = verify is not None
        """True if the signatures of spends are verified."""
        books = Books(watch, saved.books, options.pending, verify)
        out = Outbox(books, saved.chain, saved.journal(), self._add_notes, saved.mined)
        discovery = discovering(options, saved.chain, saved, random)
        pool = PeerPool(
            addresses,
            saved.bans,
            options.max_peers,
            options.timeouts,
            out,
            discovery,
            lambda: saved.coverage.disputing,
            options.v2,
            options.mode,
            mempool=options.mempool,
        )
        start = Instant(0.0, 0.0)
        self._context = context = Context(options, saved.chain, saved.rows, books, pool, out, random, start, 0.0)
        self.coverage: Coverage = saved.coverage
        self._headers = PeerHeaders(context, self._moved)
        self._blocks = BlockRequests(context, self._headers)
        self._fetches = BlockFetches(context, self._blocks)
        questions = FilterQuestions(context)
        self._questions = questions
        self._filter_headers = FilterHeaders(context, self._headers, questions, self._blocks, self.coverage)
        silent = SilentBlocks if options.tweak_source is None else TweakBlocks
        self._silent = silent(context, lambda scripts: self.changes.look_up_labels(scripts))
        self._compact = FilterSearch(
            context,
            self._filter_headers,
            questions,
            self._blocks,
            self.coverage,
            self._silent,
            has_filters=saved.has_filters,
        )
        bloom_filters = BloomFilters(context, saved.bip37_parameters, saved.secret)
        self._bloom = BloomSearch(
            context, self._headers, self._blocks, self.coverage, bloom_filters, self._compact.scripts.add
        )
        self._own_books = OwnBooks(books)
        self.broadcaster: Broadcaster = Broadcaster(context, self._own_books, self._recorded_own)
        self._facts = BookFacts(books, saved.chain, lambda: fee_limits(pool.connected()), self.broadcaster.is_accepted)
        self._private = PrivateBroadcast(context, self.broadcaster, self._own_books, saved.private)
        self.relay: Relay = Relay(context)
        self._mempool = MempoolWatch(context, self._compact.scripts, self._bloom, self.broadcaster, self.relay)
        self.last_before: int = saved.events.last
        """Number of the last event before this run."""
        self.status: StatusReports = StatusReports(context, self._headers, self.coverage)
        self._stale_peers = StalePeers(context, self._headers)
        self._search_mode = SearchMode.WAIT
        self._timers = Timers()
        self._kept: deque[Input] = deque()  # inputs that arrived during a change of the books
        start_height = StartHeight(options.from_height, options.birthday)
        if books.blocks.wanted is not None:
            start_height.lower(StartHeight(*books.blocks.wanted))
        elif (
            books.searched < 0 and books.blocks.start is not None
        ):  # the search was to begin there, but no block has been searched
            start_height.lower(StartHeight(books.blocks.start))
        self.changes: WatchChanges = WatchChanges(context, self.coverage, start_height, self._search_changed)
        if options.mode is Mode.BIP37 or not self._load_scripts():
            books.bloom_elements()  # raises for entries that neither kind of filter can find
            pool.want(BLOOM)

    # Parts that the shell may read

    @property
    def books(self) -> Books:
        """The wallet's books."""
        return self._context.books

    @property
    def chain(self) -> HeaderChain:
        """The best chain."""
        return self._context.chain

    @property
    def pool(self) -> PeerPool:
        """The peers."""
        return self._context.pool

    @property
    def event_numbers(self) -> range:
        """Numbers of this run's events. The latest may not be committed yet."""
        journal = self._context.out.journal
        return range(journal.first, journal.sequence + 1)

    @property
    def is_changing(self) -> bool:
        """True if the books are in the middle of a change. Do not read them until later steps have finished it."""
        return self._context.change.is_under_way or bool(self._kept)

    @property
    def awaits_commit(self) -> bool:
        """True if an action is waiting until the pending commits are durable."""
        return self._context.out.awaits_commit

    @property
    def search_mode(self) -> SearchMode:
        """How blocks are being searched."""
        return self._search_mode

    def waits(self) -> Iterator[str]:
        """Describe what each task is waiting for, and since when. The lines do not name entries of the wallet."""
        return self._context.tasks.lines()

    def check_abandon(self, txid: bytes) -> None:
        """Raise ParameterError if a transaction is not unconfirmed or was not broadcast by this wallet."""
        self._own_books.check_abandon(txid)

    def fee_rates(self) -> FeeRates:
        """Return the fee rates seen in blocks and announced by peers."""
        return self._blocks.fee_rates.rates(self.pool.connected())

    def status_at(
        self, now: Instant, tip: int, tip_time: int, height: int, searched: tuple[SearchedEntries, ...]
    ) -> ClientStatus:
        """Return the client's status at a given time.

        Args:
            now: The time.
            tip: Height of the tip in the database.
            tip_time: Time in the tip's header.
            height: Height up to which blocks have been searched, according to the database.
            searched: Blocks that have been searched for each group of entries, according to the database.
        """
        heard = self.pool.last_heard
        way = {SearchMode.WAIT: None, SearchMode.COMPACT: Mode.COMPACT, SearchMode.BLOOM: Mode.BIP37}[self._search_mode]
        peers = (
            PeerStatus(
                peer.address,
                peer.profile.user_agent,
                peer.services,
                self._headers.knows(peer),
                peer.profile.transport,
                peer.relays and self.options.mempool,
            )
            for peer in self.pool.connected()
            if peer.profile is not None
        )
        return ClientStatus(
            mode=self.options.mode,
            way=way,
            tip_height=tip,
            tip_time=tip_time,
            searched_height=height,
            is_synced=self.status.is_synced(now),
            last_heard=None if heard is None else int(heard.wall),
            peers=tuple(peers),
            proven_height=min(self.coverage.proven_search, tip) if way is not Mode.BIP37 else -1,
            disputed=self.coverage.in_doubt,
            start_height=self.books.blocks.start,
            turned_away=self.books.intake.turned_away,
            waiting=self.books.waiting_matches,
            checks_signatures=self.checks_signatures,
            searched=searched,
            unsent=tuple(self.broadcaster.unsent()),
            tasks=tuple(self.waits()),
            spent_problem=self._silent.problem,
            silent_source=self._silent.source if self._silent.is_needed else None,
        )

    # Steps

    def start(self, now: Instant) -> list[Effect]:
        """Return the first effects."""
        self._timers.started = now
        self._begin(now)
        self._context.out.start_run(_run_id(self._context.random), int(now.wall * 1e6))
        self._context.pool.check_timeouts(now)
        self.changes.begin()
        self._context.out.emit(*self.books.opening)
        self.broadcaster.start()
        return self._finish()

    def step(self, event: Input, now: Instant) -> list[Effect]:
        """Process an input, and return its effects.

        While a change to the books is in progress, a step only continues it, and keeps the input for later.
        """
        if not self.is_changing:
            return self._take(event, now)
        if isinstance(event, Tick):
            self._timers.rang()
        else:
            self._kept.append(event)
        if not self._context.change.is_under_way:
            return self._take(self._kept.popleft(), now)
        context, before = self._context, self.books.cursor
        context.now = now
        if not context.change.advance(to_end=len(self._kept) > _MOST_KEPT):
            return self._hurried([])
        self._begin(now)
        if self.books.cursor != before:
            self.status.report_search(Phase.FILTERS if self._search_mode is SearchMode.COMPACT else Phase.BLOCKS)
        context.tasks.run()  # the task that made the change
        context.changed()
        return self._hurried(context.out.take())

    def _begin(self, now: Instant) -> None:
        """Start a step that is not limited to continuing a change."""
        context, started = self._context, self._timers.started
        context.now = now
        context.tasks.tick(now.monotonic)
        context.matches_left, context.looks_left = MATCHES_AT_ONCE, _LOOKS_AT_ONCE
        context.unix_now = started.wall + now.monotonic - started.monotonic
        context.out.journal.now = int(context.unix_now)

    def _hurried(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects, and request the next step as soon as other callbacks of the event loop have run."""
        self._timers.forget()
        return [*effects, Wake(self._context.now.monotonic)]

    def _take(self, event: Input, now: Instant) -> list[Effect]:  # noqa: C901
        self._begin(now)
        if not isinstance(event, Tick):
            self._timers.stirred()
        self.status.look_back()  # before any message from a peer that may have been silent for too long
        if self._private.takes(event):
            return self._finish()
        match event:
            case Heard(number, what) | FencePassed(number, what):
                peer = self._context.pool.get(number)
                if peer is not None:
                    self._guarded(peer, what)
            case HeardTogether(number, heard):
                self._hear_all(number, heard)
            case Committed(number):
                self._context.out.committed(number)
                self._context.changed()
            case Worked(token, value):
                self._context.out.done(token, value)
                self._context.changed()
            case PeerConnected():
                self._connected(event)
            case Lost(number, error):
                self._context.pool.lost(number, error, now)
                self._context.changed()
            case Malformed(number, error):
                peer = self._context.pool.get(number)
                if peer is not None:
                    self._context.pool.drop(peer, error, now)
                    self._context.changed()
            case Asked(token, FetchBlock() as request):
                self._fetches.fetch(token, request)
            case Asked(_, CancelBlock(request)):
                self._fetches.cancel(request)
            case Asked(token, request):
                self.changes.ask(token, request)
                self._context.changed()
            case Sending():
                self._broadcast(event)
            case Seeded(answers):
                self._context.pool.seeded(answers, now)
                self._context.changed()
            case Abandon(txid, is_unsent):
                self.relay.withdraw(txid)
                self.broadcaster.abandon(txid, is_unsent=is_unsent)
            case Tick():
                self._tick()
            case _:
                assert_never(event)
        return self._finish()

    def _finish(self) -> list[Effect]:
        context, change = self._context, self._context.change
        context.tasks.run()
        if (
            not context.is_due
            and not self.is_changing
            and context.tasks.next_at >= self._timers.wakes_at  # mostly a part of an answer
        ):
            return context.out.take()
        for _ in range(_ROUNDS):
            if not context.is_due or context.matches_left <= 0 or change.is_under_way:
                break
            context.is_due = False
            self._advance()
        self.status.look_back()
        if self._search_mode is not SearchMode.WAIT and not change.is_under_way:
            self._mempool.record()
        if not change.advance():
            return self._hurried([])
        if context.tasks.next_at <= context.now.monotonic:
            context.changed()  # a task continues in the next step
        also_at = min(
            self.broadcaster.next_at,
            self.relay.next_at,
            self._private.next_at,
            self.status.next_at,
            self._headers.next_at,
            self._mempool.next_at,
            self._bloom.next_at,
            context.pool.next_ping(),
            context.tasks.next_at,
        )
        self._timers.set(context, also_at, is_done=not self.status.is_synced_due)
        return self._hurried(context.out.take()) if self._kept else context.out.take()

    def _add_notes(self) -> None:
        notes = self._context.books.batch.notes
        if self.coverage.is_changed:
            notes[COVERAGE_NOTE] = self.coverage.encode()
        if self._context.pool.bans_changed:
            self._context.pool.bans_changed = False
            notes[BANS_NOTE] = json.dumps(self._context.pool.bans).encode("ascii")
        changes, anchors = self._context.pool.take_changes(self._context.now)
        self._context.books.batch.addresses |= changes
        if anchors is not None:
            notes[ANCHORS_NOTE] = json.dumps(anchors).encode("ascii")

    def _guarded(self, peer: Peer, what: Message | ReceivedFilters | int) -> None:
        """Process a message, filters, or a pong. Drop the peer if it breaks the rules."""
        try:
            if isinstance(what, int):
                self._context.out.done(what, None)
            elif isinstance(what, ReceivedFilters):
                self._questions.take_filters(peer, what.filters)
            else:
                self._receive(peer, what)
        except FormatError as error:
            self._context.pool.drop(peer, LieError(str(error), cause=Lie.MALFORMED), self._context.now)
            self._context.changed()
        except PeerError as error:
            self._context.pool.drop(peer, error, self._context.now)
            self._context.changed()
        else:
            self._context.tasks.run()  # the tasks that are waiting for the message
            self._context.pool.spoke(peer, self._context.now)

    # Inputs

    def _hear_all(self, number: int, heard: Sequence[Received | ReceivedFilters]) -> None:
        """Process messages that arrived together, so that the engine decides only once what follows from them."""
        for each in heard:
            peer = self._context.pool.get(number)
            if peer is not None:  # else it was dropped for an earlier message, or is a private connection
                self._guarded(peer, each.message if isinstance(each, Received) else each)
            elif isinstance(each, Received):
                self._private.takes(Heard(number, each.message))

    def _connected(self, event: PeerConnected) -> None:
        peer = self._context.pool.welcome(event, self._context.now)
        if peer is not None:
            self._headers.greet(peer)
            self._context.changed()

    def _receive(self, peer: Peer, message: Message) -> None:
        match message:
            case wire.CFilter() | wire.CFHeaders() | wire.CFCheckpt():
                self._questions.take(peer, message)
            case wire.Headers(headers):
                self._headers.take(peer, b"".join(headers))
            case wire.Block(raw):
                self._blocks.take(peer, raw)
            case MerkleBlock():
                flight = self._bloom.link(peer).merkleblock(message)
                self._context.pool.heard(peer, ("flight", flight), self._context.now)
                self._context.pool.grant(peer, Demand.BLOCKS)
            case wire.Tx(raw):
                self._mempool.take(peer, raw)
            case wire.Inv(items):
                blocks = [item.hash for item in items if item.kind in _BLOCK_KINDS]
                if blocks:
                    self._headers.announced(peer, blocks)
                self._mempool.announced(peer, items)
            case wire.GetData(items):
                if others := self.relay.serve(peer, items):
                    self.broadcaster.serve(peer, others)
            case wire.Reject():
                self.broadcaster.rejected(peer, message)
                self.relay.rejected(peer, message)
            case wire.Addr(addresses) | wire.AddrV2(addresses):
                self._context.pool.told(peer, addresses, self._context.now)
            case wire.FeeFilter(rate):
                peer.limit_fee(rate)
            case wire.NotFound(items):
                for item in items:
                    self._blocks.not_found(peer, item.hash)
                    self._mempool.not_found(peer, item.hash)
            case _:
                pass

    def _moved(self, update: Update) -> None:
        """Handle a change to the best chain."""
        context = self._context
        if update.old_hashes:
            fork = update.fork_height
            self.changes.disconnect_to(fork)
            self._filter_headers.disconnect_to(fork)
            self._compact.disconnect_to(fork)
            self._bloom.disconnect_to(fork)
            self._mempool.forget()
            self.broadcaster.announce_again()
            hashes = [update.old_hashes[at : at + 32] for at in range(0, len(update.old_hashes), 32)]
            context.out.emit(*context.books.disconnect(fork, hashes, update.new_headers, context.stamp()))
            self._compact.scripts.refresh()
            self.broadcaster.look()
        elif update.new_headers:
            context.books.extend(update.new_headers)

    def check(
        self, transactions: Sequence[Transaction], input_values: Sequence[int] | None = None
    ) -> tuple[CheckFinding, ...]:
        """Return the problems with these transactions, which are to be sent together, parents first."""
        return check_package(transactions, self._facts, input_values)

    def _refusal(self, transactions: Sequence[Transaction], sending: Sending) -> Exception | None:
        """Return the error that prevents a broadcast, or None."""
        tx = transactions[-1]
        if self.books.facts.is_confirmed(tx.txid):
            return None
        own = self.broadcaster.find(tx.txid)
        is_known = own is not None and own.tx.raw == tx.raw  # it is announced again
        found = self.check(transactions, sending.input_values)
        return refusal(found, is_forced=sending.is_forced or is_known)

    def _broadcast(self, sending: Sending) -> None:
        tx, call, values = Transaction.parse(sending.raw), sending.call, sending.input_values
        parents = [Transaction.parse(raw) for raw in sending.parents]
        parents = [parent for parent in parents if not self.books.facts.is_confirmed(parent.txid)]
        if (error := self._refusal([*parents, tx], sending)) is not None:
            self._context.out.answer(call, tx.txid, error)
            return
        if sending.guest is not None and not self._concerns([*parents, tx]):
            self.relay.take([*parents, tx], call, sending.guest)
            return
        for parent in parents:
            self.broadcaster.broadcast(parent)
        if sending.is_private:
            is_shown = self._bloom.has_told or (
                self._search_mode is not SearchMode.COMPACT and self.options.mode is not Mode.COMPACT
            )
            recorded = self._private.broadcast(tx, call, values, is_shown=is_shown)
        else:
            recorded = self.broadcaster.broadcast(tx, call, values)
        fee = self._own_books.known_fee(tx, values)
        warning = low_fee(tx, fee, fee_floor(self._context.pool.connected()))
        if recorded is not None and warning is not None:
            self._context.out.emit(warning)

    def _concerns(self, transactions: Sequence[Transaction]) -> bool:
        """Return True if any of these transactions pays or spends a script of the wallet, or is in the books."""
        facts, hits = self.books.facts, self.books.hits
        return any(facts.record(tx.txid) is not None or hits.match(TxRecord.parse(tx.raw)) for tx in transactions)

    def is_sending(self, txid: bytes) -> bool:
        """Return True if the client is announcing this transaction, which may be somebody else's."""
        return txid in self.relay or self.broadcaster.find(txid) is not None

    def is_unsent(self, txid: bytes) -> bool:
        """Return True if the transaction was new in this run and no peer can have it."""
        return self.relay.is_unsent(txid) or self.broadcaster.is_unsent(txid)

    def lacking(self, txid: bytes) -> tuple[bytes, ...]:
        """Return the parents of a broadcast transaction that a peer requested and the client cannot serve."""
        return self.relay.lacking(txid) if txid in self.relay else self.broadcaster.lacking(txid)

    def _recorded_own(self, txid: bytes) -> None:
        """Also search blocks for the inputs and outputs of one of our transactions, which was just recorded."""
        self._compact.scripts.refresh()
        self._bloom.teach()

    def _search_changed(self, removed: Renumbering | None) -> None:
        """Adapt the search to a changed watch list, or to blocks that must be searched again."""
        context = self._context
        self._bloom.entries_changed()
        if removed is not None:
            self._compact.entries_removed(removed)
        context.books.entries_added()
        if self._search_mode is SearchMode.COMPACT:
            self._load_scripts()  # and the scripts of unconfirmed transactions, including new matches
        self._mempool.forget()
        self.status.unsynced()
        context.changed()

    def _tick(self) -> None:
        context = self._context
        self._timers.rang()
        context.pool.check_timeouts(context.now)
        context.pool.ping_quiet(context.now)
        if self.status.clock_is_right():  # a wrong clock also delays the end of the search, and keeps peers behind
            self._stale_peers.drop_one()
        self._stale_peers.try_another()
        if self._timers.is_expiry_due(context.now.monotonic):
            chain, began = context.chain, int(self._timers.started.wall)
            events = context.books.expire(int(context.unix_now), began, chain.median_time_at(chain.height))
            context.out.emit(*events)
            if context.books.is_expiry_left:
                self._timers.expire_again()
        context.changed()

    # Decisions

    def _advance(self) -> None:
        """Do what is due. Parts that change something request another round."""
        context = self._context
        pool = context.pool
        if pool.exhausted(context.now):
            context.out.end(UselessPeerError("no peers are left, because all of them lied: name other peers"))
            return
        pool.advance(context.now)
        self.changes.advance()
        self._private.advance()
        self.broadcaster.advance()
        self.relay.advance()
        self._headers.advance()
        if not pool.ready():
            if pool.connected():
                self.status.report_headers()
            self.status.follow(None)
            return
        self.status.report_headers_done()
        self._choose_search_mode()
        pool.settle(
            BLOOM if self._search_mode is SearchMode.BLOOM else COMPACT_FILTERS, context.now, self._headers.is_behind
        )
        if self._search_mode is SearchMode.WAIT:
            return
        if context.books.searched < 0 and not context.is_held and not self.changes.begin_search():
            self.status.somebody_has_tip()  # otherwise, peers without old blocks would be reported
            return
        if self._search_mode is SearchMode.COMPACT:
            self._advance_compact()
        else:
            self._advance_bloom()
        self._fetches.advance()
        self._blocks.advance()

    def _choose_search_mode(self) -> None:
        """Choose compact filters if a peer serves them and they can find all watched entries.

        Wait as long as such a peer may still connect.
        """
        search_mode = self._preferred_mode()
        self._drop_useless(search_mode)
        if search_mode is self._search_mode:
            return
        self._search_mode = search_mode
        self._compact.pause()
        self._bloom.pause()

    @property
    def _mode(self) -> Mode:
        """The mode that the user chose. Silent payments need compact mode, since no BIP-37 filter finds them."""
        return Mode.COMPACT if self._silent.is_needed else self.options.mode

    def _preferred_mode(self) -> SearchMode:
        pool, mode = self._context.pool, self._mode
        if mode is Mode.BIP37 or not self._load_scripts():
            pool.want(BLOOM)
            return SearchMode.BLOOM
        pool.want(COMPACT_FILTERS)
        if mode is Mode.COMPACT or any(map(pool.is_reliable, self._filter_headers.members)):
            return SearchMode.COMPACT
        is_greeting = any(peer.serves(COMPACT_FILTERS) and pool.is_reliable(peer) for peer in pool.connected())
        if is_greeting or pool.may_offer_filters(self._context.now):
            pool.make_room(COMPACT_FILTERS, self._context.now)
            return SearchMode.WAIT
        if not all(map(self._bloom.is_refused_by, self._bloom.members)) and self._bloom.can_find_all():
            return SearchMode.BLOOM
        return SearchMode.COMPACT if self._filter_headers.members else SearchMode.WAIT

    def _load_scripts(self) -> bool:
        """True if compact filters can find all watched entries."""
        try:
            self._compact.scripts.load()
        except InexpressibleError:
            if self.options.mode is Mode.COMPACT:
                raise
            return False
        return True

    def _drop_useless(self, search_mode: SearchMode) -> None:
        """Drop peers that lack the needed service."""
        mode = self._mode
        needed = {Mode.COMPACT: COMPACT_FILTERS, Mode.BIP37: BLOOM, Mode.AUTO: COMPACT_FILTERS | BLOOM}[mode]
        for peer in self._context.pool.ready():
            if peer.services & needed:
                continue
            if mode is Mode.COMPACT:
                error = UselessPeerError("does not serve compact filters (NODE_COMPACT_FILTERS)")
            elif mode is Mode.BIP37 or search_mode is SearchMode.BLOOM:
                error = UselessPeerError("does not serve BIP-37 filters (NODE_BLOOM)")
            else:
                error = UselessPeerError("serves neither compact filters nor BIP-37 filters")
            self._context.pool.drop(peer, error, self._context.now)

    def _advance_compact(self) -> None:
        context, filters = self._context, self._filter_headers
        members = filters.members
        filters.advance()
        followed = self.status.followed
        if followed not in members:
            followed = filters.leader if filters.leader in members else next(iter(members), None)
        self.status.follow(followed)
        if members:
            self.status.report_filter_headers()
        before = context.books.cursor
        awaits_witness = self.coverage.proven < context.chain.height and (
            self.status.awaits_others() or filters.is_hearing
        )
        self._compact.advance(may_record=not awaits_witness)
        if context.books.cursor != before:
            self.status.report_search(Phase.FILTERS)
            context.changed()
        context.books.mark_proven(self.coverage.proven_matches)
        if self.coverage.unwitnessed and not awaits_witness and not context.change.is_under_way:
            self._compact.search_unwitnessed()
        is_agreed = context.rows.height == context.chain.height and not filters.is_hearing
        if is_agreed and self.status.may_say_synced() and self.status.is_synced_due:
            self.broadcaster.look()  # so that the new statuses of own transactions come before Synced
            self.status.say_synced(filters.supporters(context.chain.height), proven=True)
        self._mempool.advance(is_synced=self.status.synced is not None, by_filter=False)

    def _advance_bloom(self) -> None:
        context, bloom = self._context, self._bloom
        members = bloom.members
        followed = self.status.followed
        self.status.follow(followed if followed in members else next(iter(members), None))
        before = context.books.cursor
        bloom.advance()
        if context.books.cursor != before:
            self.status.report_search(Phase.BLOCKS)
            context.changed()
        if not bloom.is_comparing and self.status.may_say_synced():
            knowing = [peer for peer in members if self._headers.knows(peer) >= context.chain.height]
            self.broadcaster.look()  # as in compact mode
            self.status.say_synced(knowing, proven=False)
        self._mempool.advance(is_synced=self.status.synced is not None, by_filter=True)
