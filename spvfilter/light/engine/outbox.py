"""The effects of one step, in order, and the functions to call once an effect has been carried out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar, cast

from spvfilter.chain import HeaderChain
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
from spvfilter.light.engine.tasks import Wait
from spvfilter.light.events import Broadcast, Event, Synced
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import BlockConnected, WalletEvent
from spvfilter.wallet.foreignevents import ForeignEvents
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.parts import Parts
from spvfilter.wire.messages.table import Message
from spvfilter.wire.transport import V2Policy

T = TypeVar("T")

COMMIT = "a commit"
"""The name of a Wait for a commit in the descriptions of tasks."""
MAX_UNCOMMITTED = 64  # With this many pending commits, no more blocks are searched.


class Outbox:
    """Collects effects.

    Changes to the books are committed together with their events, which are reported after the commit.
    """

    def __init__(
        self,
        books: Books,
        chain: HeaderChain,
        journal: Journal,
        add_notes: Callable[[], None] = lambda: None,
        mined: Iterable[bytes] = (),
    ) -> None:
        """Start with no effects.

        Args:
            books: The books whose changes are committed.
            chain: The best chain.
            journal: The journal that numbers the events.
            add_notes: Function that adds notes to the batch before each commit, so that a change and its note are in
                the same commit.
            mined: Txids of transactions whose blocks left the best chain.
        """
        self.journal = journal
        self._foreign = ForeignEvents(self._is_own, mined)
        self._add_notes = add_notes
        self._books = books
        self._chain = chain
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        self._ends: list[End] = []
        self._tokens = 0
        self._waiting: dict[int, Callable[[object], None]] = {}  # by the token of Work, Read or Fence
        self._fences: dict[int, set[int]] = {}  # tokens of pongs that have not arrived, by peer
        self._issued = 0  # commits
        self._durable = 0  # commits
        self._after: deque[tuple[int, Callable[[], None]]] = deque()  # calls that are waiting for a commit

    def take(self) -> list[Effect]:
        """Return the effects since the last call, including the commit of the books' changes."""
        self.flush()
        effects = [*self._effects, *map(Emit, self._events), *self._ends]
        self._effects, self._events, self._ends = [], [], []
        return effects

    def flush(self) -> None:
        """Commit the changes to the books."""
        self._tell_waiting(self._books.cursor)
        self.tell_foreign()
        self._add_notes()
        for batch in self._books.take_batches():
            self._issued += 1
            self._effects.append(Commit(self._issued, batch))

    def _tell_waiting(self, cursor: int) -> None:
        """Report the waiting connected block now if the search has moved below it, since it may be disconnected."""
        waiting = self.journal.connected
        if waiting is not None and waiting.height > cursor:
            self._events += self.journal.flush(self._books.batch)

    def tell_foreign(self) -> None:
        """Report the collected foreign events. The account of a match must not change before this call."""
        for event in self._foreign.take():
            self._events += self.journal.put(event, self._books.batch, is_foreign=True)

    def _is_own(self, txid: bytes) -> bool:
        record = self._books.facts.record(txid)
        return record is not None and record.is_own

    @property
    def is_backed_up(self) -> bool:
        """True if the database is so far behind that the search should wait."""
        return self._issued - self._durable >= MAX_UNCOMMITTED

    @property
    def is_busy(self) -> bool:
        """True if the database is so busy that only the search should write."""
        return self._issued - self._durable >= MAX_UNCOMMITTED // 4

    @property
    def awaits_commit(self) -> bool:
        """True if an action is waiting for pending commits to become durable."""
        return bool(self._after)

    # Effects

    def connect(
        self, peer: int, address: str, *, is_private: bool = False, v2: V2Policy = V2Policy.OFF, relay: bool = False
    ) -> None:
        """Open a connection."""
        self._effects.append(Connect(peer, address, is_private, v2, relay))

    def ask_seeds(self, services: int) -> None:
        """Ask DNS seeds for hosts with these services."""
        self._effects.append(AskSeeds(services))

    def send(self, peer: int, message: Message) -> None:
        """Send a message."""
        self._effects.append(Send(peer, message))

    def fence(self, peer: int, then: Callable[[], None]) -> int:
        """Call `then` once the peer has processed everything sent so far. Pass the token to `forget` to cancel this."""
        fences = self._fences.setdefault(peer, set())

        def came(_: object) -> None:
            fences.discard(token)
            then()

        token = self._token(came)
        fences.add(token)
        self._effects.append(Fence(peer, token))
        return token

    def fenced(self, peer: int) -> Wait[None]:
        """Wait until the peer has processed everything sent so far. If it disconnects, the Wait never completes."""
        wait = Wait[None]("a pong")
        self.fence(peer, partial(wait.set, None))
        return wait

    def drop(self, peer: int, error: Exception | None = None) -> None:
        """End a connection. The error is the reason, if there is one."""
        self._effects.append(Drop(peer, error))

    def gone(self, peer: int) -> None:
        """Record that a connection has ended, so its pongs will not arrive."""
        for token in self._fences.pop(peer, ()):
            self.forget(token)

    def start_run(self, run_id: bytes, clock_us: int) -> None:
        """Report the first event of the run, before all others."""
        self._events.append(self.journal.start(run_id, clock_us, self._books.batch))

    def emit(self, *events: Event) -> None:
        """Report events after all other effects of the step, so that the changes to the books need only one commit.

        Call this for an event of the books as soon as they have changed, so that both are in the same commit.
        """
        for event in events:
            if type(event) is BlockConnected and event.height < self._chain.height:
                self.tell_foreign()
                self._tell_waiting(event.height - 1)
                self.journal.connected = event  # these are nearly all events of a first sync
                continue
            if isinstance(event, WalletEvent):
                self._emit(event)
                continue
            if isinstance(event, Synced):
                self.tell_foreign()
                self._events += self.journal.flush(self._books.batch)
            self._events.append(event)

    def emit_in_parts(self, events: Sequence[Event]) -> Parts[None]:
        """Report events of a long change. They are committed with it, after its last part."""
        for event in events:
            self.emit(event)
            yield

    def tell_foreign_in_parts(self) -> Parts[None]:
        """Report the foreign events that have been collected, in parts."""
        for event in self._foreign.take():
            self._events += self.journal.put(event, self._books.batch, is_foreign=True)
            yield

    def _emit(self, event: WalletEvent) -> None:
        if is_foreign := self._foreign.is_foreign(event):
            told = self._foreign.join(event)
        else:
            self.tell_foreign()
            self._foreign.note(event)
            told = [event]
        for each in told:
            self._events += self.journal.put(each, self._books.batch, is_foreign=is_foreign)

    def work(self, function: Callable[[], object], then: Callable[[object], None]) -> None:
        """Call a slow function in a thread, then call `then` with its result, or with the exception that it raised."""
        self._effects.append(Work(self._token(then), function))

    def read(self, function: Callable[[Store], object], then: Callable[[object], None]) -> None:
        """Call a function with the database, after all changes so far, then call `then` with its result."""
        self.flush()
        self._effects.append(Read(self._token(then), function))

    def looked_up(self, function: Callable[[Store], T], what: str) -> Wait[T]:
        """Call a function with the database, after all changes so far, and wait for its result."""
        wait = Wait[T](what)
        self.read(function, partial(_give, wait))
        return wait

    def worked(self, function: Callable[[], T], what: str) -> Wait[T]:
        """Call a slow function in a thread, and wait for its result."""
        wait = Wait[T](what)
        self.work(function, partial(_give, wait))
        return wait

    def spent_by(self, block_hash: bytes, previous: bytes) -> Wait[bytes | None]:
        """Ask the user's source for the outputs that a block spends, and wait for the answer."""
        wait = Wait[bytes | None]("the outputs that a block spends")
        self._effects.append(AskSpent(self._token(partial(_give, wait)), block_hash, previous))
        return wait

    def tweaks_at(self, height: int) -> Wait[object]:
        """Ask the user's source for the tweaks of a block, and wait for the answer, which may be any object."""
        wait = Wait[object]("the tweaks of a block")
        self._effects.append(AskTweaks(self._token(partial(_give, wait)), height))
        return wait

    def committed_all(self) -> Wait[None]:
        """Wait until all changes to the books so far are durable."""
        wait = Wait[None](COMMIT)
        self.after_commit(partial(wait.set, None))
        return wait

    def answer(self, call: int, txid: bytes, answer: Broadcast | Exception) -> None:
        """Answer a call that is waiting for the result of a broadcast."""
        self._effects.append(Answer(call, txid, answer))

    def finish(self, token: int, value: object) -> None:
        """Finish the request with this token. If it failed, `value` is the exception."""
        self._effects.append(Done(token, value))

    def end(self, error: Exception) -> None:
        """End the client, after everything else."""
        self._ends = [End(error)]

    def wake(self, at: float) -> None:
        """Request a tick."""
        self._effects.append(Wake(at))

    def _token(self, then: Callable[[object], None]) -> int:
        self._tokens += 1
        self._waiting[self._tokens] = then
        return self._tokens

    # Results

    def done(self, token: int, value: object) -> None:
        """Pass on the result with this token. If its call was cancelled, the result is ignored."""
        then = self._waiting.pop(token, None)
        if then is not None:
            then(value)

    def forget(self, token: int) -> None:
        """Ignore the result with this token."""
        self._waiting.pop(token, None)

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call `then` once all changes to the books so far are durable."""
        self.flush()
        if self._durable >= self._issued:
            then()
        else:
            self._after.append((self._issued, then))

    def committed(self, number: int) -> None:
        """Record that the commits up to a number are durable."""
        self._durable = max(self._durable, number)
        while self._after and self._after[0][0] <= self._durable:
            self._after.popleft()[1]()


def _give(wait: Wait[T], value: object) -> None:
    """Pass a result, or the exception that a function raised, to the task that is waiting for it."""
    if isinstance(value, Exception):
        wait.fail(value)
    else:
        wait.set(cast(T, value))
