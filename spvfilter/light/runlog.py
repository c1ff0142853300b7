"""RunLog: a light client's log, which contains news for the operator (INFO) and every decision (DEBUG).

It never logs the wallet's addresses, scripts, txids or amounts. Text from peers is escaped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, assert_never

from spvfilter.errors import PeerError, StoreError, remedy
from spvfilter.light.engine.addresses import Purpose
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
from spvfilter.light.engine.engine import ClientEngine, SearchMode
from spvfilter.light.engine.inputs import (
    Abandon,
    Asked,
    BroadcastAsked,
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
from spvfilter.light.events import (
    BroadcastChanged,
    BroadcastProgress,
    Event,
    FeeWarning,
    PeerChanged,
    PeerWarning,
    PendingWarning,
    Progress,
    Synced,
)
from spvfilter.p2p.address import cause_of
from spvfilter.wallet.events import WalletEvent
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.fields import printable

_MANY = 8
"""Number of failed attempts after which the lack of peers is logged, even during another attempt (our choice)."""
_MOST_SAID = 1_000
"""Number of warnings that are kept in memory, so that none of them is logged again (our choice)."""
_PROGRESS_S = 60.0
"""Seconds between two lines about the progress of one phase (our choice)."""
_SEARCH_MODES = {SearchMode.COMPACT: "compact filters", SearchMode.BLOOM: "BIP-37"}


class _End(NamedTuple):
    """The end of a connection, or of an attempt to connect."""

    address: str
    """HOST:PORT of the peer."""
    cause: str
    """The reason, escaped."""
    was_attempt: bool
    """True if there was no connection yet."""


class RunLog:
    """Logs the inputs and effects of an engine, and the events of its run.

    Args:
        name: Name of the database. Each line begins with it, because a process may have many clients.
        engine: The engine of the run.
        now: The time when the run begins.
    """

    def __init__(self, name: str, engine: ClientEngine, now: Instant) -> None:
        self._name = name
        self._engine = engine
        self._logger = logging.getLogger(__name__)
        self._addresses: dict[int, str] = {}
        """Addresses of connections and attempts, by the peer's number."""
        self._peers: set[int] = set()
        """Peers whose connection was logged. Feelers and private connections are not included."""
        self._attempts: set[int] = set()
        """Attempts to connect, except private ones."""
        self._private: set[int] = set()
        """Private connections and attempts."""
        self._failures = 0
        """Number of failed attempts since a peer last connected."""
        self._last_end: _End | None = None
        """The last end of a connection in the current step."""
        self._is_out_told = False
        """True if the lack of peers was logged."""
        self._out_since = now.monotonic
        """When the last peer left (monotonic seconds)."""
        self._said: set[tuple[str, str]] = set()
        """Address and text of each warning that was logged."""
        self._search_mode = SearchMode.WAIT
        self._height = engine.chain.height
        self._synced: Synced | None = None
        """The last Synced event, until it is no longer true."""
        self._progress: Progress | None = None
        """The first Progress event of the current phase."""
        self._progress_at = now.monotonic
        self._waits_at = now.monotonic
        """When the waits of the engine's tasks were last logged."""

    def start(self, effects: Iterable[Effect], now: Instant) -> None:
        """Log the start of the run and the first effects."""
        engine = self._engine
        network, mode, entries = engine.chain.network, engine.options.mode.value, len(engine.books.watch)
        self._info("started: %s, mode %s, entries: %d, %s", network, mode, entries, self._heights())
        if not engine.checks_signatures:
            self._info("signatures are not checked without wallycore or btclib-secp256k1; %s", remedy("descriptors"))
        self._follow(effects, None)

    def step(self, event: Input, effects: Iterable[Effect], now: Instant) -> None:
        """Log an input, and the effects that the engine returned for it."""
        ended: Exception | None = None
        match event:
            case Heard() | HeardTogether():  # nearly all inputs
                pass
            case PeerConnected():
                self._connected(event, now)
            case Lost(number, ended):
                self._ended(number, ended)
            case Tick():
                self._check_synced(now)
                self._log_waits(now)
            case FencePassed() | Malformed() | Committed() | Worked() | Seeded():
                pass
            case Asked() | BroadcastAsked() | Abandon():
                pass
            case _:
                assert_never(event)
        self._follow(effects, ended)
        self._check_peers(now)
        if self._engine.search_mode is not self._search_mode:
            self._search_mode = self._engine.search_mode
            if self._search_mode in _SEARCH_MODES:
                self._info("searching blocks by %s", _SEARCH_MODES[self._search_mode])
        self._height = self._engine.chain.height

    def _log_waits(self, now: Instant) -> None:
        """Log, once a minute, what each task of the engine is waiting for."""
        if self._logger.isEnabledFor(logging.DEBUG) and now.monotonic - self._waits_at >= _PROGRESS_S:
            self._waits_at = now.monotonic
            for line in self._engine.waits():
                self._debug(line)

    def _follow(self, effects: Iterable[Effect], ended: Exception | None) -> None:
        """Log effects. If the input reported the end of a connection, `ended` is its error."""
        errors = [] if ended is None else [ended]
        is_verbose = self._logger.isEnabledFor(logging.DEBUG)
        for effect in effects:
            match effect:
                case Send() | Wake():  # nearly all effects
                    pass
                case Connect(number, address, is_private):
                    self._addresses[number] = address
                    (self._private if is_private else self._attempts).add(number)
                case Drop(number, error):
                    if error is not None:
                        errors.append(error)
                    self._ended(number, error)
                case Emit(PeerWarning() as warning):
                    self._warn(warning, is_told=any(error is warning.error for error in errors))
                case Commit(_, batch) if batch.fork is not None:
                    self._info(
                        "reorganization: blocks %d to %d were disconnected, and the best chain now ends at block %d",
                        *(batch.fork + 1, self._height, batch.fork + len(batch.headers) // 80),
                    )
                case Commit() | Emit() | AskSeeds() | AskSpent() | AskTweaks() | Fence():
                    pass
                case Work() | Read() | Answer() | Done() | End():
                    pass
                case _:
                    assert_never(effect)
            if is_verbose and (text := self._decision(effect)):
                self._debug(text)

    def _decision(self, effect: Effect) -> str:
        """Describe an effect in words. Returns an empty string if the effect is not a decision."""
        match effect:
            case Connect(_, address, is_private):
                return f"{address}: connect{' for a private broadcast' if is_private else ''}"
            case Send(number, message):
                return f"{self._addresses.get(number, '?')}: send {_described(message)}"
            case Fence(number):
                return f"{self._addresses.get(number, '?')}: send ping"
            case AskSeeds(services):
                return f"ask the DNS seeds for hosts with services {services:#x}"
            case Commit(number):
                return f"commit {number}"
            case Drop() | Emit() | AskSpent() | AskTweaks() | Work() | Read() | Answer() | Done() | End() | Wake():
                return ""
            case _:
                assert_never(effect)

    def reported(self, events: Iterable[Event], now: Instant) -> None:
        """Log events that the client is reporting."""
        for event in events:
            match event:
                case Synced():
                    self._synced = event
                    disputed = f", disputed ranges: {len(event.disputed)}" if event.disputed else ""
                    self._info("synced: block %d, confirmed by %s%s", event.height, ", ".join(event.peers), disputed)
                case PeerChanged(str(address)):
                    self._info("%s: blocks now come from this peer", address)
                case Progress():
                    self._report_progress(event, now)
                case PeerChanged() | PeerWarning() | FeeWarning() | PendingWarning():
                    pass
                case BroadcastProgress() | BroadcastChanged():
                    pass
                case _ if isinstance(event, WalletEvent):
                    pass
                case _:
                    assert_never(event)

    def end(self, error: Exception | None) -> None:
        """Log the end of the run, and its reason if the client stopped on its own."""
        if error is None:
            self._info("left: %s", self._heights())
            return
        # the text of another error may name an entry of the watch list
        reason = f": {_escaped(str(error))}" if isinstance(error, StoreError | PeerError) else ""
        self._info("ended with an error: %s%s", type(error).__name__, reason)

    # Peers

    def _connected(self, event: PeerConnected, now: Instant) -> None:
        peer = self._engine.pool.get(event.peer)
        self._attempts.discard(event.peer)
        if peer is None or peer.purpose is Purpose.FEELER:
            self._debug(f"{self._addresses.get(event.peer, '?')}: connected")
            return
        text = "%s: connected: %s, block %d"
        if self._is_out_told:
            text += f", after {now.monotonic - self._out_since:.0f} s without a peer"
        self._peers.add(event.peer)
        self._failures, self._is_out_told = 0, False
        self._said.clear()
        self._info(text, peer.address, _escaped(event.user_agent), event.start_height)
        self._debug(f"{peer.address}: transport {event.transport}")

    def _ended(self, number: int, error: Exception | None) -> None:
        """Log the end of a connection or of an attempt."""
        address = self._addresses.pop(number, None)
        if address is None:  # it has ended before
            return
        cause = _escaped(cause_of(error, address)) if error is not None else "no longer needed"
        was_private, was_attempt, is_logged = (number in each for each in (self._private, self._attempts, self._peers))
        for each in (self._private, self._attempts, self._peers):
            each.discard(number)
        if is_logged:
            self._info("%s: disconnected: %s", address, cause)
        else:
            self._debug(f"{address}: {'no connection' if was_attempt else 'disconnected'}: {cause}")
        self._failures += was_attempt
        if not was_private:
            self._last_end = _End(address, cause, was_attempt)

    def _check_peers(self, now: Instant) -> None:
        """Log, once, that the last peer has gone, or that no peer could be reached."""
        end, self._last_end = self._last_end, None
        if end is None or self._has_peers():
            return
        if not end.was_attempt:
            self._out_since = now.monotonic
        is_out = not end.was_attempt or not self._attempts or self._failures >= _MANY
        if is_out and not self._is_out_told:
            self._is_out_told = True
            self._info("no peer is connected: %s: %s", end.address, end.cause)

    def _has_peers(self) -> bool:
        return any(peer.purpose is not Purpose.FEELER for peer in self._engine.pool.connected())

    def _warn(self, warning: PeerWarning, *, is_told: bool) -> None:
        """Log a warning. `is_told` is True if its text has been logged as the end of a connection."""
        if warning.banned:
            self._info("%s: banned for %.0f hours", warning.address, self._engine.options.timeouts.ban_s / 3_600)
        said = warning.address, _escaped(warning.cause)
        if not is_told and said not in self._said:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said.add(said)
            self._info("%s: %s", *said)

    # Search

    def _check_synced(self, now: Instant) -> None:
        """Log it if no connected peer confirms the tip any more."""
        synced, engine = self._synced, self._engine
        if synced is None or engine.status.is_synced(now):
            return
        self._synced = None
        if self._has_peers() and engine.chain.tip_hash == synced.hash:
            self._info("no longer synced: no connected peer confirms block %d", synced.height)

    def _report_progress(self, event: Progress, now: Instant) -> None:
        is_same = self._progress is not None and self._progress.phase is event.phase
        if not is_same:
            self._progress, self._progress_at = event, now.monotonic
        elif now.monotonic - self._progress_at >= _PROGRESS_S:
            self._progress_at = now.monotonic
            self._info("%s: %d of %d", event.phase.value, event.done, event.total)

    def _heights(self) -> str:
        searched = self._engine.books.searched
        done = f"searched to block {searched}" if searched >= 0 else "no block searched"
        return f"tip: block {self._engine.chain.height}, {done}"

    # Lines

    def _info(self, text: str, *arguments: object) -> None:
        self._logger.info(f"%s: {text}", self._name, *arguments)

    def _debug(self, text: str) -> None:
        self._logger.debug("%s: %s (tip: block %d)", self._name, text, self._engine.chain.height)


def _described(message: wire.Message) -> str:
    """Return a message's command, with its first block or number of items, but nothing that reveals the wallet."""
    match message:
        case wire.GetCFilters(_, start) | wire.GetCFHeaders(_, start):
            return f"{wire.command_of(message)} from block {start}"
        case wire.GetData(items) | wire.Inv(items):
            return f"{wire.command_of(message)} of {len(items)}"
        case _:
            return wire.command_of(message)


def _escaped(text: str) -> str:
    """Return text as printable ASCII. Backslashes are kept, because most text from peers is already escaped."""
    return "\\".join(printable(part.encode("utf-8", "replace")) for part in text.split("\\"))
