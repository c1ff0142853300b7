"""The journal of a wallet's books: it numbers their events, and converts them to and from database rows.

An event goes into the batch of the change that it reports, so that both are committed together. Events in a run are
numbered consecutively, and a database never uses a number twice, no matter when the process is killed.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_type_hints  # values of every field

from spvfilter.errors import FormatError
from spvfilter.primitives import OutPoint
from spvfilter.store.batch import Batch
from spvfilter.store.events import END_OF_NUMBERS, FOREIGN, RUN_STARTED, StoredEvent
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    RunStarted,
    TxReplaced,
    WalletEvent,
)
from spvfilter.watch.match import Match

_LATEST_START = END_OF_NUMBERS - (1 << 40)
"""Highest number with which a run can begin, no matter what the clock says. It leaves room for many events."""
KINDS: dict[str, type[WalletEvent]] = {
    "found": MatchFound,
    "confirmed": MatchConfirmed,
    "unconfirmed": MatchUnconfirmed,
    "withdrawn": MatchWithdrawn,
    "replaced": TxReplaced,
    "connected": BlockConnected,
    "disconnected": BlockDisconnected,
    RUN_STARTED: RunStarted,
}
_NAMES = {cls: name for name, cls in KINDS.items()}
KINDS |= {FOREIGN + _NAMES[cls]: cls for cls in (MatchFound, MatchWithdrawn, TxReplaced)}
_WITHOUT_MATCH = (TxReplaced, BlockConnected, BlockDisconnected, RunStarted)
_NOT_ENCODED = ("sequence", "account")  # these have columns of their own


class Journal:
    """Numbers events and puts them into batches.

    If several blocks in a row are connected below the tip, only the last of them becomes an event. `connected` is the
    block that is waiting for the next event. A later block takes its place.
    """

    def __init__(self, sequence: int = 0, told: int = -1, untold: BlockConnected | None = None) -> None:
        """Continue after an earlier run.

        Args:
            sequence: Number of the last event.
            told: Height of the highest block that events have reported as connected, according to the database.
            untold: A block that the previous run connected without reporting it.
        """
        self.sequence: int = sequence
        self.first: int = sequence + 1  # number of the first event of this run
        self._told = told
        self.now = 0  # Unix time
        self.connected = untold

    def start(self, run_id: bytes, clock_us: int, batch: Batch) -> WalletEvent:
        """Begin a run: number its first event, and return the event.

        Its number is at least the clock's time. A restored copy of the database therefore does not reuse numbers from
        later runs of the original, unless the clock was set back.

        Args:
            run_id: Random id of the run, 16 bytes.
            clock_us: The clock's Unix time, in microseconds.
            batch: Batch to add the event to.
        """
        self.sequence = max(self.sequence, min(clock_us, _LATEST_START) - 1)
        self.first = self.sequence + 1
        return self._number(RunStarted(run_id), batch)

    def put(self, event: WalletEvent, batch: Batch, *, is_foreign: bool = False) -> Iterator[WalletEvent]:
        """Number an event and yield it. If a block is waiting for the next event, yield the block's event first.

        `ForeignEvents` recognizes foreign events.
        """
        if not isinstance(event, BlockConnected):
            yield from self.flush(batch)
        self.connected = None
        yield self._number(event, batch, is_foreign=is_foreign)

    def flush(self, batch: Batch) -> Iterator[WalletEvent]:
        """Yield the event of the waiting block, if there is one."""
        if self.connected is not None:
            waiting, self.connected = self.connected, None
            yield self._number(waiting, batch)

    def _number(self, event: WalletEvent, batch: Batch, *, is_foreign: bool = False) -> WalletEvent:
        self.sequence += 1
        cls: Any = type(event)
        numbered: WalletEvent = cls(*_values(event), sequence=self.sequence)
        account = None if isinstance(event, _WITHOUT_MATCH) else event.match.account
        kind = FOREIGN * is_foreign + _NAMES[type(event)]
        batch.events.append(StoredEvent(self.sequence, self.now, kind, encode(event), account))
        if isinstance(event, BlockConnected):
            batch.told = self._told = max(self._told, event.height)
        elif isinstance(event, BlockDisconnected):
            batch.told = self._told = min(self._told, event.height - 1)
        return numbered


# In the database: JSON arrays of the fields in order, without the number; bytes in hex, a match as an array within


def encode(event: WalletEvent) -> bytes:
    """Return the bytes of an event, without its number."""
    return _encoder().encode(_values(event)).encode("ascii")


@cache
def _encoder() -> json.JSONEncoder:
    return json.JSONEncoder(separators=(",", ":"), default=lambda value: _CONVERSIONS[type(value)](value))


def _values(value: Any) -> tuple[Any, ...]:
    """Return the stored fields of an event or a match."""
    cls: Any = type(value)
    found: tuple[Any, ...] = _getter(cls)(value)
    return found


@cache
def _getter(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = tuple(_fields(cls))
    if len(names) == 1:
        return lambda value: (getattr(value, names[0]),)  # attrgetter would return it without a tuple
    return attrgetter(*names)


_CONVERSIONS: dict[type, Callable[[Any], object]] = {
    bytes: bytes.hex,
    OutPoint: lambda point: bytes(point).hex(),
    Match: _values,
}


@cache
def _fields(cls: type[Any]) -> dict[str, Any]:
    """Return the names and types of a class's stored fields, leaving `| None` out of the types."""
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for each in fields(cls):
        hint = hints[each.name]
        if each.name not in _NOT_ENCODED:
            found[each.name] = (
                next(part for part in get_args(hint) if part is not type(None))
                if isinstance(hint, types.UnionType)
                else hint
            )
    return found


def decode(stored: StoredEvent) -> WalletEvent:
    """Return the event of a row. Raises FormatError if the bytes are not an event."""
    try:
        event: WalletEvent = _made(KINDS[stored.kind], json.loads(stored.data), sequence=stored.sequence)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise FormatError(
            f"event {stored.sequence} cannot be read as {stored.kind[:20]!r}: {error!r}", offset=0, field="event"
        ) from error
    if stored.account is None or isinstance(event, _WITHOUT_MATCH):
        return event
    return replace(event, match=replace(event.match, account=stored.account))


def _made(cls: type, values: list[Any], **named: Any) -> Any:
    """Make an event or a match from its stored fields. Older versions wrote fewer fields; the others have defaults."""
    known = _fields(cls)
    if len(values) > len(known):
        raise ValueError(f"{len(values)} fields, but {cls.__name__} has {len(known)}")
    pairs = zip(known, values, strict=False)
    given = {name: None if value is None else _value(known[name], value) for name, value in pairs}
    return cls(**given, **named)


def _value(hint: Any, value: Any) -> Any:
    if hint is bytes:
        return bytes.fromhex(value)
    if hint is OutPoint:
        return OutPoint.parse(bytes.fromhex(value))
    if hint is Match:
        return _made(Match, value)
    if issubclass(hint, Enum):
        return hint(value)
    if not isinstance(value, hint):
        raise TypeError(f"expected {hint.__name__}, not {value!r}")
    return value
