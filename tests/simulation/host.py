"""The shell of the simulated world: it runs the engine, carries out its effects, and can be killed and restarted."""

from __future__ import annotations

import random
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from simulation.books import Books
from simulation.connection import Connection
from simulation.discovery import Discovery
from simulation.disk import SLOWEST_S, DiskQueue, open_store
from simulation.node import Node
from simulation.oracle import Place
from simulation.record import Record
from simulation.timeline import Timeline, Timer
from simulation.violation import Violation
from spvfilter.errors import SessionError, StoreError
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.context import Context
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
from spvfilter.light.engine.inputs import (
    Asked,
    BroadcastAsked,
    Heard,
    HeardTogether,
    Input,
    Instant,
    Lost,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.requests import Request
from spvfilter.light.events import Broadcast as Known, Event, Synced
from spvfilter.light.sockets import stranger
from spvfilter.light.status import ClientStatus
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.searched import BlockRange, Searched
from spvfilter.store.store import Store
from spvfilter.store.txcheck import CheckFinding
from spvfilter.store.views import SearchedEntries
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books as WalletBooks
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Cause, Received, Settings
from spvfilter.wire.messages.table import GetAddr, Inv, Message, Tx
from spvfilter.wire.transport import V2Policy
from support.wallets.storesqlite import sqlite_of

CONNECT_S = 5.0  # longest wait for a connection
_SLOWEST_WORK_S = 0.3
_MOST_EFFECTS = 20_000  # most effects of one step
_MOST_WAITING = 8_000_000  # most unsent bytes for one peer
_MOST_STEPS = 20_000  # most steps in a minute; sound lives take up to 2,200

Ranges = tuple[tuple[int, int], ...]
"""The first and the last height of each range of blocks."""


class EngineLike(Protocol):
    """The part of the engine that the world uses."""

    @property
    def books(self) -> WalletBooks: ...
    @property
    def _context(self) -> Context: ...
    def start(self, now: Instant) -> list[Effect]: ...
    def step(self, input: Input, now: Instant) -> list[Effect]: ...
    def check(self, transactions: Sequence[Transaction]) -> tuple[CheckFinding, ...]: ...
    def status_at(
        self, now: Instant, tip: int, tip_time: int, height: int, searched: tuple[SearchedEntries, ...]
    ) -> ClientStatus: ...


Make = Callable[[Options, WatchList, Store, int | None, list[str], random.Random], EngineLike]


class KilledError(Exception):
    """The process was killed."""


class Process:
    """One run of the client, until it ends or is killed. It owns all state that is not in the database."""

    def __init__(
        self,
        make: Make,
        options: Options,
        path: Path,
        scripts: list[bytes],
        since: int | None,
        directory: Mapping[str, Node],
        timeline: Timeline,
        rng: random.Random,
        wall: Callable[[], float],
        record: Record,
        hear: Callable[[Process, Event], None],
        ended: Callable[[Process, Exception], None],
        overhear: Callable[[str, Message], None],
        sent: Callable[[int, Message, bool], None],
        answered: Callable[[int, object], None],
        is_prompt: bool,
        give: Callable[[WatchList], None],
        discovery: Discovery | None,
        shadow: Path | None = None,
        ask_source: Callable[[AskSpent | AskTweaks], tuple[float, Callable[[], object]]] | None = None,
    ) -> None:
        self.options = options
        self.is_running = True
        self.connections: dict[int, Connection] = {}
        self.answers: dict[bytes, Known | Exception] = {}  # Answers to broadcasts, by txid.
        self.answered: list[int] = []  # The numbers of the broadcasts that were answered.
        self._broadcasts = 0
        self.steps_left: int | None = None  # Effects until the client is killed.
        self.private: set[int] = set()  # Numbers of connections that reveal nothing about the wallet.
        self.synced_at = 0.0  # When the engine reached Synced. The event follows the commit.
        self._dialling: dict[int, Timer] = {}
        self._directory = directory
        self._discovery = discovery
        self._timeline = timeline
        self._chances = rng.getrandbits(64)  # each connection draws from its own source of chance
        self._rng = random.Random(rng.random())  # for dialling and timers
        self._work_rng = random.Random(rng.random())
        self._slowest_work_s = 0.0 if is_prompt else _SLOWEST_WORK_S
        self._wall = wall
        self._record = record
        self._hear = partial(hear, self)
        self._ended = partial(ended, self)
        self._overhear = overhear
        self._sent = sent
        self._answered = answered
        self._ask_source = ask_source
        self.most_walked = 0  # records of components in one step
        self._minute = (-1.0, 0)  # the present minute of virtual time, and the number of steps in it
        self._timer: Timer | None = None
        self.lateness = 0.0 if is_prompt else rng.choice([0.0, 0.0, 0.01, 0.5])
        network = REGTEST if discovery is None else discovery.network
        self.watch = WatchList(network)
        for script in scripts:
            self.watch.add_script(script)
        give(self.watch)
        store = open_store(path, rng.randbytes(32), network)
        if store.tip < 0:
            store.commit(Batch(headers=REGTEST.genesis, cursor=None))
        addresses = list(directory if discovery is None else discovery.named)
        rng.shuffle(addresses)
        self.engine = make(options, self.watch, store, since, addresses, random.Random(rng.random()))
        self._walked = self.engine.books.facts.graph.walked  # while the books were loaded
        self.books = Books.start(_stored(store, self.watch))
        slowness = 0.0 if is_prompt else rng.choice([0.0, 0.001, 0.02, SLOWEST_S])
        self.disk = DiskQueue(
            store,
            timeline,
            random.Random(rng.random()),
            slowness,
            self.report,
            self._hear,
            self._fail,
            self.books.check_durable,
            shadow,
        )

    # Life

    def start(self) -> None:
        """Run the engine's first step."""
        self._step(None)

    def report(self, input: Input) -> None:
        """Give an input to the engine."""
        if self.is_running:
            self._step(input)

    def ask(self, token: int, request: Request) -> None:
        """The user changes the watched scripts or the blocks to search."""
        self.report(Asked(token, request))

    def ranges_of(self, scripts: Iterable[bytes]) -> dict[bytes, Ranges]:
        """The block ranges that the engine has searched for each script that it watches."""
        books, table = self.engine.books, self.engine.books.watch.table
        numbers = {script: table.find(EntryKind.SCRIPT, script) for script in scripts}
        rows = {script: books.entries.ids[number] for script, number in numbers.items() if number != NO_ENTRY}
        return _ranges_of(books.blocks, rows)

    def ranges_stored(self, scripts: Iterable[bytes]) -> dict[bytes, Ranges]:
        """The block ranges that the database says were searched for each script. A script that it lacks has none."""
        store = self.disk.store
        rows = dict(sqlite_of(store).execute("SELECT value, id FROM watch WHERE kind = ?", (int(EntryKind.SCRIPT),)))
        return _ranges_of(store.searched_blocks, {script: rows.get(script, 0) for script in scripts})

    @property
    def disputed(self) -> tuple[BlockRange, ...]:
        """The disputed ranges of the client's status."""
        return self.status.disputed

    @property
    def status(self) -> ClientStatus:
        """The client's status now, without the values of the database."""
        return self.engine.status_at(Instant(self._timeline.now, self._wall()), 0, 0, 0, ())

    @property
    def taken(self) -> set[bytes]:
        """Txids of own transactions that a peer has accepted."""
        return {txid for txid, answer in self.answers.items() if isinstance(answer, Known)}

    def broadcast(self, raw: bytes, *, is_private: bool = False, is_forced: bool = False) -> None:
        """The user sends a transaction."""
        self._broadcasts += 1
        self.report(BroadcastAsked(raw, is_private=is_private, is_forced=is_forced, call=self._broadcasts))

    def stop(self, error: Exception) -> None:
        """End at once: data that is not committed is lost."""
        if self.is_running:
            self.is_running = False
            for connection in self.connections.values():
                connection.abort()
            for timer in (*self._dialling.values(), self._timer):
                if timer is not None:
                    timer.cancel()
            self.disk.close()
            self._ended(error)

    def stored(self) -> set[Place]:
        """The confirmed matches of the database."""
        found = self.disk.store.matches(confirmed=True)
        return {
            Place("input" if hit.spend else "output", hit.txid, hit.n, height, block)
            for hit, block, height, *_ in found
            if height is not None and block is not None
        }

    def _fail(self, error: StoreError) -> None:
        self._record.note("disk", type(error).__name__)
        self.stop(error)

    # Steps

    def _step(self, input: Input | None) -> None:
        now = Instant(self._timeline.now, self._wall())
        self._record.input(input, now)
        minute, steps = now.monotonic // 60, self._minute[1]
        self._minute = (minute, steps + 1 if self._minute[0] == minute else 0)
        if steps > _MOST_STEPS:
            raise Violation("alive", f"{steps} steps in a minute, the last of {input}")
        begun = time.thread_time()
        try:
            effects = self.engine.start(now) if input is None else self.engine.step(input, now)
        except Exception as error:
            raise Violation("alive", f"the engine raised {error!r}\n{traceback.format_exc()}") from error
        self._record.stepped(time.thread_time() - begun, input)
        walked, self._walked = self._walked, self.engine.books.facts.graph.walked
        self.most_walked = max(self.most_walked, self._walked - walked)
        self._check_entries()
        if len(effects) > _MOST_EFFECTS:
            raise Violation("modest", f"{len(effects)} effects of one step")
        try:
            for effect in effects:
                if self.steps_left is not None:
                    self.steps_left -= 1
                    if self.steps_left < 0:
                        raise KilledError
                self._record.effect(effect)
                self._carry_out(effect)
                if not self.is_running:
                    return
        except KilledError as error:
            self._record.note("killed", error)
            self.stop(error)

    def _check_entries(self) -> None:
        """True: the database has as many entries as the watch list, unless entries are being stored."""
        books, is_storing = self.engine.books, self.engine._context.is_storing
        if not is_storing and len(books.entries.ids) != len(books.watch):
            raise Violation("true", f"{len(books.entries.ids)} entries are stored, but {len(books.watch)} are watched")

    def _carry_out(self, effect: Effect) -> None:  # noqa: C901
        match effect:
            case Send(peer, message):
                if (connection := self._ready(peer)) is not None:
                    self._sent(peer, message, peer in self.private)
                    if peer in self.private and not isinstance(message, Inv | Tx):
                        raise Violation("quiet", f"a private connection is sent {message}")
                    connection.send(message)
                    if self._discovery is not None and isinstance(message, GetAddr):
                        self._discovery.asked(connection.end)
                    if connection.pipe.waiting > _MOST_WAITING:
                        raise Violation(
                            "modest", f"{connection.pipe.waiting} bytes wait to be sent to {connection.node}"
                        )
            case Fence(peer, token):
                if (connection := self._ready(peer)) is not None:
                    connection.fence(token)
            case Commit() | Emit() | Read():
                if isinstance(effect, Emit) and isinstance(effect.event, Synced):
                    self.synced_at = self._timeline.now
                self.disk.put(effect)
            case Wake(at):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._timeline.at(at + self._rng.random() * self.lateness, self._ring)
            case Work(token, function):
                self._work(token, function)
            case Connect() as effect:
                self._connect(effect)
            case Drop(peer):
                self._drop(peer)
            case AskSeeds(services) if self._discovery is not None:
                self._timeline.after(self._discovery.delay(), partial(self._resolve, self._discovery, services))
            case AskSpent(token) | AskTweaks(token) if self._ask_source is not None:
                delay, answer_source = self._ask_source(effect)
                self._timeline.after(delay, lambda: self.report(Worked(token, answer_source())))
            case Answer(call, txid, answer):
                self.answers[txid] = answer
                self.answered.append(call)
            case Done(token, value):
                self._answered(token, value)
            case End(error):
                self.stop(error)

    def _resolve(self, discovery: Discovery, services: int) -> None:
        self.report(Seeded(discovery.resolve(services)))

    def _ring(self) -> None:
        self._timer = None
        self.report(Tick())

    def _work(self, token: int, function: Callable[[], object]) -> None:
        """Run the function now or when its result is due. A result that depends on the difference shows a bug."""
        delay = self._work_rng.random() * self._slowest_work_s
        if self._work_rng.random() < 0.5:
            self._timeline.after(delay, partial(self.report, Worked(token, _call(function))))
        else:
            self._timeline.after(delay, lambda: self.report(Worked(token, _call(function))))

    # Connections

    def _ready(self, peer: int) -> Connection | None:
        connection = self.connections.get(peer)
        return connection if connection is not None and connection.is_ready else None

    def _connect(self, effect: Connect) -> None:
        peer, address = effect.peer, effect.address
        if peer in self.connections or peer in self._dialling:
            raise Violation("alive", f"the number {peer} was used twice")
        node = self._directory.get(address)
        if node is None and self._discovery is None:
            raise Violation("alive", f"{address}, which nobody named, is connected")
        if node is not None and node.is_up:
            call, delay = partial(self._reach, effect, node), self._rng.random() * 0.3
        elif self._rng.random() < 0.7:
            call, delay = (
                partial(self._miss, peer, ConnectionRefusedError("connection refused")),
                self._rng.random() * 0.3,
            )
        else:
            call, delay = partial(self._miss, peer, TimeoutError("no connection")), CONNECT_S
        self._dialling[peer] = self._timeline.after(delay, call)

    def _reach(self, effect: Connect, node: Node) -> None:
        peer, v2 = effect.peer, effect.v2
        if not node.is_up:
            self._miss(peer, ConnectionRefusedError("connection refused"))
            return
        del self._dialling[peer]
        settings = Settings(REGTEST, relay=effect.relay, joins_filters=True)
        if effect.is_private:
            settings = stranger(REGTEST)
            self.private.add(peer)
        self.connections[peer] = Connection(
            peer,
            node,
            settings,
            self._timeline,
            random.Random(f"{self._chances} {peer}"),
            self._wall(),
            self._record.keep_wire,
            partial(self._came_first, partial(self._reach, effect._replace(v2=V2Policy.OFF), node), v2),
            v2,
        )

    def _miss(self, peer: int, error: Exception) -> None:
        del self._dialling[peer]
        self.report(Lost(peer, error))

    def _came_first(self, again: Callable[[], None], v2: V2Policy, input: Input) -> None:
        """Connect again without encryption in the same cases as `p2p.Connection.open`."""
        match input:
            case Lost(peer, SessionError(cause=Cause.NO_V2)) if v2 is V2Policy.PREFER:
                del self.connections[peer]
                self._dialling[peer] = self._timeline.after(0.0, again)
            case _:
                self._came(input)

    def _came(self, input: Input) -> None:
        if isinstance(input, Lost):
            del self.connections[input.peer]
        elif isinstance(input, Heard | HeardTogether):
            for message in messages_of(input):
                self._overhear(self.connections[input.peer].node.host, message)
        self.report(input)

    def _drop(self, peer: int) -> None:
        if (timer := self._dialling.pop(peer, None)) is not None:
            timer.cancel()
        elif (connection := self.connections.pop(peer, None)) is not None:
            connection.abort()
        else:
            return
        if self._rng.random() < 0.3:  # the server accepts both connections
            self._timeline.after(
                self._rng.random(), partial(self.report, Lost(peer, ConnectionAbortedError("dropped")))
            )

    def cut_lines(self) -> None:
        """Make every connection half-open."""
        for connection in self.connections.values():
            connection.cut()


def _ranges_of(blocks: Searched, rows: Mapping[bytes, int]) -> dict[bytes, Ranges]:
    """The blocks that were searched for each script, by row ids."""
    groups = blocks.groups()
    firsts = [group.id for group in groups]
    places = {script: bisect_right(firsts, row) - 1 for script, row in rows.items()}
    return {script: groups[at].ranges if at >= 0 else () for script, at in places.items()}


def messages_of(input: Heard | HeardTogether) -> list[Message]:
    """The messages of an input, without filters."""
    if isinstance(input, Heard):
        return [input.message]
    return [each.message for each in input.heard if isinstance(each, Received)]


def _call(function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:
        return error


def _stored(store: Store, watch: WatchList) -> list[tuple[Match, Completeness]]:
    found = []
    for hit, block, height, completeness, _ in store.matches():
        (match,) = watch.matches((hit,), block_hash=block, height=height)
        found.append((match, completeness))
    return found
