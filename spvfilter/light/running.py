"""Running: one run of a light client, from start to stop, with its engine, sockets, database and timers."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent import futures
from typing import Any, TypeVar, assert_never  # Any: results of any type

from spvfilter.chain import HeaderChain
from spvfilter.errors import EventGapError, NotRunningError, ParameterError, SourceError, UnknownAccountError
from spvfilter.kernel import EntryKind
from spvfilter.light.accountstream import AccountPage, AccountStream
from spvfilter.light.counters import Counters
from spvfilter.light.database import Database
from spvfilter.light.engine.effects import (
    Answer,
    AskSeeds,
    AskSpent,
    AskTweaks,
    Commit,
    Connect,
    Done,
    Drop,
    Effect,
    Emit,
    End,
    Fence,
    Read,
    Send,
    Wake,
    Work,
)
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.expressible import check_expressible, check_followable
from spvfilter.light.engine.inputs import (
    Abandon,
    Asked,
    BroadcastAsked,
    Input,
    Instant,
    SeedAnswer,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.engine.requests import CancelBlock, FetchBlock, RelabelEntries, Request
from spvfilter.light.engine.saved import Saved
from spvfilter.light.engine.start import StartHeight
from spvfilter.light.engine.windowgrowth import extend
from spvfilter.light.events import Broadcast, Event
from spvfilter.light.runlog import RunLog
from spvfilter.light.sockets import Sockets
from spvfilter.light.spentsource import SpentSource
from spvfilter.light.status import ClientStatus, Metrics
from spvfilter.light.stream import EventHub
from spvfilter.light.tweaksource import TweakSource
from spvfilter.light.workers import WORKERS, JobQueue
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.dns import SeedHosts, ask_seeds
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.primitives import Header, OutPoint
from spvfilter.signatures import find_curve, verify_spends
from spvfilter.store.batch import Batch
from spvfilter.store.events import check_number
from spvfilter.store.labels import ImportedLabels, script_of
from spvfilter.store.place import MEMORY
from spvfilter.store.sqlite import reading
from spvfilter.store.store import Store
from spvfilter.store.views import SearchedEntries, Snapshot, Views
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound, WalletEvent
from spvfilter.wallet.reader import decoded, run_id_of
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Settings

T = TypeVar("T")
SPENT_S = 120.0
"""Seconds that a source may take to return a block's spent outputs or its tweaks (our choice)."""
PER_TURN = 500
"""Number of matches to create in one turn of the event loop, which takes about three milliseconds (our choice)."""

BOOKMARK_NOTE = "told: "  # prefix of a bookmark's key in the database; the reader's name follows


class Running:
    """Passes inputs to the engine and carries out its effects, all in the event loop's thread."""

    def __init__(
        self,
        engine: ClientEngine,
        store: Store,
        jobs: JobQueue,
        watch: WatchList,
        *,
        proxy: Proxy | None,
        limits: Limits,
        clock: Clock,
        spent_source: SpentSource | None = None,
        tweak_source: TweakSource | None = None,
    ) -> None:
        self.engine: ClientEngine = engine
        self._spent_source = spent_source
        self._tweak_source = tweak_source
        self._last_before = engine.last_before
        self.hub: EventHub = EventHub(engine.last_before, self._stored)
        self.watch: WatchList = watch
        """The list of entries that the engine watches. While the client is running, it is read-only."""
        self.is_left: bool = False
        self._limits = limits
        self._clock = clock
        self._store = store
        self._jobs = jobs
        self._loop = asyncio.get_running_loop()
        self._database = Database(store, jobs, self.feed, self._emit, self.fail)
        self._sockets = Sockets(self._settings(), self.feed, proxy=proxy, limits=limits, clock=clock)
        self._inputs: deque[Input] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._calls: dict[int, asyncio.Future[Broadcast]] = {}  # waiting calls of `broadcast`, by number
        self._last_call = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}  # waiting calls of `ask`, by token
        self._works: set[asyncio.Future[Any]] = set()
        self._entered_at = clock.monotonic()
        self._counters = Counters()
        self._log = RunLog("memory" if str(store.path) == MEMORY else str(store.path), engine, self.now())

    def _settings(self) -> Callable[[], Settings]:
        network = self.engine.chain.network
        return lambda: Settings(network, start_height=self.engine.chain.height, joins_filters=True)

    @property
    def has_ended(self) -> bool:
        """True if the run has ended."""
        return self.is_left or self.hub.has_ended

    def check(self) -> None:
        """Raise NotRunningError if the `async with` block has ended, or the error that stopped the client."""
        if self.is_left:
            raise NotRunningError("the client is closed: its `with` block has ended")
        self.hub.check()

    def start(self) -> None:
        """Start the engine."""
        try:
            effects = self.engine.start(now := self.now())
            self._log.start(effects, now)
            self._counters.step(Tick(), effects)
            self._carry_out(effects)
        except Exception as error:
            self.fail(error)

    async def close(self) -> None:
        """End everything. A commit in progress is finished first."""
        self.is_left = True
        self._stop(None)
        try:
            await self._sockets.close()
        finally:
            for work in self._works:
                work.cancel()
            await self._jobs.end(self._store.close)

    def _stop(self, error: Exception | None) -> None:
        self._database.close()
        if self._timer is not None:
            self._timer.cancel()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(error or NotRunningError("the client is closed: its `with` block has ended"))
                future.exception()
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self._inputs.clear()
        if not self.hub.has_ended:
            self._log.end(error)
        self.hub.end(error)

    def fail(self, error: Exception) -> None:
        """End the run with an error."""
        if self.has_ended:
            return
        self._stop(error)
        closing = asyncio.ensure_future(self._sockets.close())
        self._works.add(closing)
        closing.add_done_callback(self._works.discard)

    # Inputs

    def now(self) -> Instant:
        """Return the current time on both clocks."""
        return Instant(self._clock.monotonic(), self._clock.wall())

    def feed(self, event: Input) -> None:
        """Pass an input to the engine. If it arrives during the step of another input, it waits."""
        if self.has_ended:
            return
        self._inputs.append(event)
        if len(self._inputs) > 1:
            return
        try:
            while self._inputs:
                effects = self.engine.step(event := self._inputs[0], now := self.now())
                self._log.step(event, effects, now)
                self._counters.step(event, effects)
                self._carry_out(effects)
                if self._inputs:
                    self._inputs.popleft()
            if self.engine.awaits_commit and not self.has_ended:
                self._database.hurry()
        except Exception as error:
            self.fail(error)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())

    def _emit(self, events: Sequence[Event]) -> None:
        self._log.reported(events, self.now())
        self.hub.put(events)

    async def settled(self) -> None:
        """Wait until the engine is not in the middle of a change, so that its books match one of its commits."""
        while self.engine.is_changing and not self.has_ended:  # noqa: ASYNC110  each turn of the loop makes a part
            await asyncio.sleep(0)

    # Effects

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if self.has_ended:
                return
            match effect:
                case Send(peer, message):
                    self._sockets.send(peer, message)
                case Commit() | Emit() | Read() | End():
                    self._database.put(effect)
                case Work(token, function):
                    self._work(token, function)
                case Fence(peer, token):
                    self._sockets.fence(peer, token)
                case Wake(at):
                    self._wake(at)
                case Connect(peer, address, is_private, v2, relay):
                    self._sockets.connect(peer, address, is_private=is_private, v2=v2, relay=relay)
                case Drop(peer):
                    self._sockets.drop(peer)
                case AskSeeds(services):
                    self._ask_seeds(services)
                case AskSpent(token, block_hash, previous):
                    self._ask_spent(token, block_hash, previous)
                case AskTweaks(token, height):
                    self._ask_tweaks(token, height)
                case Answer(call, _, answer):
                    _resolve(self._calls.pop(call), answer)
                case Done(token, value):
                    self._done(token, value)
                case _:
                    assert_never(effect)

    def _work(self, token: int, function: Callable[[], object]) -> None:
        future = asyncio.wrap_future(WORKERS.run(lambda: _caught(function)))
        self._works.add(future)

        def done(finished: asyncio.Future[object]) -> None:
            self._works.discard(finished)
            if not finished.cancelled():
                self.feed(Worked(token, finished.result()))

        future.add_done_callback(done)

    def _ask_spent(self, token: int, block_hash: bytes, previous: bytes) -> None:
        source = self._spent_source
        assert source is not None
        self._ask_source(token, lambda: source.undo_record(block_hash, previous, by_details=True))

    def _ask_tweaks(self, token: int, height: int) -> None:
        source = self._tweak_source
        assert source is not None
        self._ask_source(token, lambda: source.tweaks(height))

    def _ask_source(self, token: int, ask: Callable[[], Awaitable[object]]) -> None:
        """Report the answer of the user's source, or the error."""

        async def answered() -> object:
            try:
                async with asyncio.timeout(SPENT_S):
                    return await ask()
            except TimeoutError:
                return SourceError(f"no answer for {SPENT_S:g} s")
            except Exception as error:  # any error of the user's source
                return error

        asking = asyncio.ensure_future(answered())
        self._works.add(asking)

        def done(finished: asyncio.Future[object]) -> None:
            self._works.discard(finished)
            cancelled = SourceError("the source has cancelled the request")  # or the run has ended
            self.feed(Worked(token, cancelled if finished.cancelled() else finished.result()))

        asking.add_done_callback(done)

    def _ask_seeds(self, services: int) -> None:
        asking = asyncio.ensure_future(ask_seeds(self.engine.chain.network.dns_seeds, services))
        self._works.add(asking)

        def done(finished: asyncio.Future[list[SeedHosts]]) -> None:
            self._works.discard(finished)
            if finished.cancelled():
                return
            if (error := finished.exception()) is not None:
                self.fail(_plain(error))
            else:
                self.feed(Seeded(tuple(SeedAnswer(*each) for each in finished.result())))

        asking.add_done_callback(done)

    def _wake(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= self._loop.time():
                return  # it fires in this turn; otherwise, a peer that sends in every turn could delay it forever
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock.monotonic()), self._tick)

    # Calls of users

    async def status(self) -> ClientStatus:
        """Return the client's status, with heights and ranges from the database. Raises StoreError."""

        def read(store: Store) -> tuple[int, int, int, tuple[SearchedEntries, ...]]:
            tip = store.tip
            time = Header.parse(next(store.headers(tip))).time
            return tip, time, store.views.searched_height(), store.views.searched()

        found = await self.in_store(read)
        await self.settled()
        return self.engine.status_at(self.now(), *found)

    def metrics(self) -> Metrics:
        """Return the counters and gauges of this run."""
        engine, counters, now = self.engine, self._counters, self.now()
        chain, pool, last_heard = engine.chain, engine.books.intake.pool, engine.pool.last_heard
        bytes_received, bytes_sent = self._sockets.traffic
        return Metrics(
            uptime_s=now.monotonic - self._entered_at,
            peers=len(engine.pool.connected()),
            is_synced=engine.status.is_synced(now),
            tip_height=chain.height,
            tip_time=chain.time_at(chain.height),
            searched_height=engine.books.cursor,
            last_heard=None if last_heard is None else int(last_heard.wall),
            watched_entries=len(engine.books.watch),
            pending_transactions=len(pool),
            pending_bytes=pool.size,
            pending_matches=pool.matches,
            last_event=self.hub.sequence,
            connections=counters.connections,
            bans=counters.bans,
            bytes_received=bytes_received,
            bytes_sent=bytes_sent,
            messages_received=counters.messages_received,
            messages_sent=counters.messages_sent,
            headers_received=counters.headers_received,
            blocks_received=counters.blocks_received,
            filters_received=counters.filters_received,
            transactions_received=counters.transactions_received,
            transactions_turned_away=engine.books.intake.turned_away,
            reorganizations=counters.reorganizations,
            commits=counters.commits,
        )

    async def broadcast(
        self,
        tx: Transaction,
        input_values: tuple[int, ...] | None,
        *,
        is_private: bool,
        parents: Sequence[Transaction] = (),
        is_forced: bool = False,
        guest: str | None = None,
    ) -> Broadcast:
        """Record a transaction, then wait for the engine's answer. Cancelling the call only stops the wait.

        Raises ParameterError, PeerError, TxConflictError and PrivacyError.
        """
        call: asyncio.Future[Broadcast] = asyncio.get_running_loop().create_future()
        self._last_call += 1
        self._calls[self._last_call] = call
        earlier = tuple(parent.raw for parent in parents)
        self.feed(BroadcastAsked(tx.raw, input_values, is_private, self._last_call, earlier, is_forced, guest))
        await self._database.drain()
        self.check()
        await asyncio.wait([call])  # the engine answers when its time is up, if not before
        await self._database.drain()  # the result is stored, even if the client is left immediately
        self.check()
        return call.result()

    async def abandon_unsent(self, txid: bytes) -> bool:
        """Abandon one of the wallet's transactions if no peer can have it, and wait until the change has been stored.

        If the transaction was only relayed, it is forgotten.
        """
        await self.settled()
        self.check()
        if not self.engine.is_unsent(txid):
            return False
        await self._abandoned(Abandon(txid, is_unsent=True))
        return True

    async def abandon(self, txid: bytes) -> None:
        """Abandon one of the wallet's own transactions, and wait until the change has been stored.

        Raises ParameterError if the transaction cannot be abandoned.
        """
        await self.settled()
        self.check()
        self.engine.check_abandon(txid)
        await self._abandoned(Abandon(txid))

    async def _abandoned(self, event: Abandon) -> None:
        """Tell the engine to abandon a transaction, and wait until the change has been stored."""
        self.feed(event)
        await self.settled()  # the engine may commit this together with a change that this step started
        await self._database.drain()
        self.check()

    async def read(self, function: Callable[[Views], T]) -> T:
        """Call a function with the database's views, which include all reported events. Raises StoreError."""
        return await self.in_store(lambda store: function(store.views))

    async def matches(self) -> Snapshot[MatchFound]:
        """Return every match in the database, with its watch list entry. Raises StoreError and NotRunningError."""
        books = self.engine.books
        while True:
            stored, ids = await self.in_store(
                lambda store: (Snapshot(store.timed_matches(), store.events.log.last), store.ids)
            )
            found: list[MatchFound] = []
            # when entries are removed, the numbers of later entries change: read again
            while ids[-1:] == books.entries.ids[len(ids) - 1 : len(ids)]:
                part = stored[len(found) : len(found) + PER_TURN]
                found += (MatchFound(books.reports.match_of(each.hit, each), each.completeness) for each in part)
                if len(found) == len(stored):
                    return Snapshot(found, stored.sequence)
                await asyncio.sleep(0)
            self.check()

    async def in_store(self, function: Callable[[Store], T]) -> T:
        """Call a function with the database, in another thread. Raises StoreError and NotRunningError."""
        await self._database.drain()  # all earlier results must be stored first
        if self.is_left:
            raise NotRunningError("the client is closed: its `with` block has ended")
        return await asyncio.wrap_future(self._jobs.submit(lambda: function(self._store)))

    def check_since(self, since: int) -> None:
        """Check that a stream of events can start after this number. Numbers from earlier runs are checked on reading.

        Raises EventGapError and ParameterError.
        """
        check_number(since)
        if since > self._last_before and since not in self.engine.event_numbers:
            raise EventGapError(since, self.hub.sequence)

    async def run_id(self, sequence: int) -> bytes | None:
        """Return the id of the run that stored an event, or None.

        Raises EventGapError, ParameterError and StoreError.
        """
        return await self.in_store(lambda store: run_id_of(store.events.run_of(sequence), store.path))

    async def _stored(self, since: int, limit: int) -> list[WalletEvent]:
        return await self.in_store(lambda store: decoded(store.events.read(since, limit), store.path))

    def account_stream(self, name: str, since: int | None) -> AccountStream:
        """Return a stream of an account's events. Raises UnknownAccountError."""
        self.check()
        if not self.engine.books.watch.has_account(name):
            raise UnknownAccountError(name)
        # after earlier changes to the name, which may not be stored yet, and before later ones
        opening = self._database.submit(lambda store: store.account_id(name))

        async def load(after: int, limit: int) -> AccountPage:
            row = await asyncio.wrap_future(opening)

            def read(store: Store) -> AccountPage:
                found = store.events.read(after, limit, row)
                last = found[-1].sequence if len(found) == limit else store.events.log.last
                is_removed = len(found) < limit and not store.has_account(row)
                return AccountPage(decoded(found, store.path), last, is_removed)

            return await self.in_store(read)

        return AccountStream(self.hub, self._last_before if since is None else since, load)

    async def bookmark(self, reader: str) -> int | None:
        """Return a reader's bookmark. Raises ParameterError and StoreError."""
        name = _bookmark_of(reader)
        kept = await self.in_store(lambda store: store.note(name))
        with reading(self._store.path):
            return None if kept is None else int(kept)

    async def set_bookmark(self, reader: str, sequence: int) -> None:
        """Store the number of the last event that a reader has processed. Raises ParameterError and StoreError."""
        name = _bookmark_of(reader)

        def keep(store: Store) -> None:
            last = store.events.log.last
            if not isinstance(sequence, int) or not 0 <= sequence <= last:
                raise ParameterError(f"event {sequence!r} does not exist yet: the last event is {last}")
            store.commit(Batch(notes={name: b"%d" % sequence}))

        await self.in_store(keep)

    async def import_labels(self, labels: Sequence[Label]) -> ImportedLabels:
        """Store labels (BIP-329), and pass the labels of watched addresses to the engine. Raises StoreError."""
        imported = await self.in_store(lambda store: store.import_labels(labels))
        network = self.engine.books.watch.network
        scripts = {script_of(each, network): each.label for each in labels if each.label is not None}
        named = [(EntryKind.SCRIPT, script, label or None) for script, label in scripts.items() if script is not None]
        if named:  # an earlier request that has not been carried out yet may add or remove an entry
            await self.ask(RelabelEntries(tuple(named), may_lack=True))
        return imported

    async def take_labels(self, more: WatchList) -> None:
        """Apply labels that were imported earlier to new entries, unless these have labels. Raises StoreError."""
        table, own_label = self.engine.books.watch.table, self.engine.books.watch.own_label
        scripts = (value for kind, value, _ in more.entries() if kind == EntryKind.SCRIPT)
        bare = [script for script in scripts if own_label(table.find(EntryKind.SCRIPT, script)) is None]
        if labels := await self.in_store(lambda store: store.waiting_labels(bare)) if bare else []:
            await self.import_labels(labels)

    async def take_revealed(self, more: WatchList) -> bool:
        """Restore the indexes of new keychains that the wallet had revealed before the keychains were removed.

        Returns True if a window must now move. Raises StoreError.
        """

        def take(store: Store) -> bool:
            for each in more.keychains:
                if revealed := store.keychains.revealed_by(each.scripts(0)):
                    each.reveal(revealed - 1)
            return any(each.end < each.required for each in more.keychains)

        return await self.in_store(take)

    async def freeze(self, outpoint: OutPoint, *, is_frozen: bool) -> None:
        """Freeze or unfreeze a coin. Raises ParameterError and StoreError."""

        def keep(store: Store) -> None:
            if is_frozen and store.views.coin(outpoint) is None:
                raise ParameterError(f"the wallet has no coin {outpoint}: freeze an outpoint that `coins` lists")
            if not is_frozen and outpoint not in store.views.frozen():
                raise ParameterError(f"output {outpoint} is not frozen")
            store.commit(Batch(frozen={bytes(outpoint): is_frozen}))

        await self.in_store(keep)

    async def ask(self, request: Request) -> object:
        """Pass a request to the engine, wait until the change is stored, and return the answer.

        The engine carries out the request even if the wait is cancelled. Raises StoreError and ParameterError.
        """
        self.check()
        answered: asyncio.Future[object] = self._loop.create_future()
        token = max(self._asked, default=0) + 1
        self._asked[token] = answered
        self.feed(Asked(token, request))
        self._database.hurry()
        return await answered

    async def fetch_block(self, block_hash: bytes) -> bytes:
        """Fetch a whole block of the best chain from a peer. There is no time limit; cancel the call to stop it.

        Raises ParameterError if the best chain does not contain the block.
        """
        request = FetchBlock(block_hash)
        try:
            block = await self.ask(request)
        except asyncio.CancelledError:
            self.feed(Asked(0, CancelBlock(request)))
            raise
        assert isinstance(block, bytes)
        return block

    def _done(self, token: int, value: object) -> None:
        future = self._asked.pop(token)
        if future.done():
            return
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def _resolve(call: asyncio.Future[Broadcast], answer: Broadcast | Exception) -> None:
    if call.done():
        return
    if isinstance(answer, Exception):
        call.set_exception(answer)
        call.exception()  # the waiting task may have been cancelled
    else:
        call.set_result(answer)


def _caught(function: Callable[[], object]) -> object:
    """Return the function's result, or the exception that it raised."""
    try:
        return function()
    except Exception as error:
        return error


def entered(
    path: str | os.PathLike[str], watch: WatchList, options: Options, addresses: list[str], *, rebuild: bool
) -> tuple[Store, ClientEngine]:
    """Open the database and build the engine.

    Call this as a job in the database's queue, because both steps read every match of the wallet. Raises StoreError,
    ParameterError and InexpressibleError.
    """
    store, saved = opened(path, watch, options, rebuild=rebuild)
    try:
        if not addresses and not saved.addresses and options.reach is Reach.PROXIED:
            raise ParameterError(
                "DNS seeds are not used with a proxy, and the database contains no peer addresses: name at least one"
                " peer"
            )
        verify = None if find_curve() is None else verify_spends
        drawn = random.Random(secrets.randbits(256))  # noqa: S311  its state is as unknown as the system's numbers
        return store, ClientEngine(options, watch, saved, addresses, drawn, verify)
    except BaseException:
        store.close()
        raise


def opened(path: str | os.PathLike[str], watch: WatchList, options: Options, *, rebuild: bool) -> tuple[Store, Saved]:
    """Open the database and merge the watch list with it. Call this as a job in the database's queue.

    Raises StoreError, ParameterError and InexpressibleError.
    """
    network = watch.network
    has_spent, has_tweaks = options.spent_source is not None, options.tweak_source is not None
    # not in the event loop, because this examines every entry
    check_followable(watch.index, has_spent=has_spent, has_tweaks=has_tweaks)
    store = Store.open(path, network, rebuild=rebuild)
    try:
        if store.tip < 0:
            store.commit(Batch(headers=network.genesis))
        chain = HeaderChain.restore(network, store.headers(1))
        extend(watch, options, settled := store.keychains.names())
        check_expressible(watch.index, options.mode)  # before the entries are written to the database
        start = StartHeight(options.from_height, options.birthday)
        since = start.first(chain) if start.is_given else None
        with reading(store.path):
            saved = Saved.read(store, watch, since, chain)
        settled |= {each.name for each in watch.keychains}
        while extend(watch, options, settled):  # used indexes in the database move windows: search for the new scripts
            with reading(store.path):
                saved = Saved.read(store, watch, since, chain)
        check_followable(watch.index, has_spent=has_spent, has_tweaks=has_tweaks)  # now with the database's keychains
        check_expressible(watch.index, options.mode)  # now with the database's entries
        if not len(watch):
            raise ParameterError("nothing to watch for: the watch list and the database are both empty")
    except BaseException:
        store.close()
        raise
    return store, saved


def close_opened(opening: futures.Future[tuple[Store, ClientEngine]]) -> None:
    """Close the database if it was opened."""
    if opening.exception() is None:
        store, _ = opening.result()
        store.close()


def _bookmark_of(reader: str) -> str:
    """Return the key of a reader's bookmark in the database. Raises ParameterError if the name is not text."""
    if not isinstance(reader, str) or any(0xD800 <= ord(char) < 0xE000 for char in reader):  # UTF-8 has no surrogates
        raise ParameterError(f"a reader's name must be text without surrogates, not {str(reader)[:80]!r}")
    return BOOKMARK_NOTE + reader
