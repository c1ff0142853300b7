"""The journal of a wallet's books: their events numbered, in the form in which the database keeps them, and read back
from there.

An event goes into the batch of the change that it tells of, so that one commit has both. The next event gets the next
number: none is missing, and none is given twice, whenever the process is killed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args, get_type_hints  # values of every field

from spvfilter._public import deferred
from spvfilter.errors import FormatError
from spvfilter.primitives import OutPoint
from spvfilter.store.batch import Batch
from spvfilter.store.events import StoredEvent
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
    WalletEvent,
)
from spvfilter.watch.match import Completeness, Match, MatchKind

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

KINDS: dict[str, type[WalletEvent]] = {
    "found": MatchFound,
    "confirmed": MatchConfirmed,
    "withdrawn": MatchWithdrawn,
    "connected": BlockConnected,
    "disconnected": BlockDisconnected,
}
_NAMES = {cls: name for name, cls in KINDS.items()}


class Journal:
    """Numbers events and puts them into batches.

    Of blocks that are connected one after another below the tip, the last is told of.

    `connected` is that block: it waits for the next event, and a later block takes its place.
    """

    def __init__(self, sequence: int = 0, told: int = -1, untold: BlockConnected | None = None) -> None:
        """`sequence` is the number of the last event, `told` as the database has it; `untold` what the last run could
        not tell any more.
        """
        self.sequence: int = sequence
        self._told = told
        self.now = 0  # seconds since 1970
        self.connected = untold

    def put(self, event: WalletEvent, batch: Batch) -> Iterator[WalletEvent]:
        """What is to be told: the event with its number, and before it a block that waited."""
        if not isinstance(event, BlockConnected):
            yield from self.flush(batch)
        self.connected = None
        yield self._number(event, batch)

    def flush(self, batch: Batch) -> Iterator[WalletEvent]:
        """Tell of the block that waits, if there is one."""
        if self.connected is not None:
            waiting, self.connected = self.connected, None
            yield self._number(waiting, batch)

    def _number(self, event: WalletEvent, batch: Batch) -> WalletEvent:
        self.sequence += 1
        cls: Any = type(event)
        numbered: WalletEvent = cls(*_values(event), sequence=self.sequence)
        batch.events.append(StoredEvent(self.sequence, self.now, _NAMES[type(event)], encode(event)))
        if isinstance(event, BlockConnected):
            batch.told = self._told = max(self._told, event.height)
        elif isinstance(event, BlockDisconnected):
            batch.told = self._told = min(self._told, event.height - 1)
        return numbered


# In the database: JSON arrays of the fields in order, without the number; bytes in hex, a match as an array within


def encode(event: WalletEvent) -> bytes:
    """The bytes of an event, without its number."""
    return _encoder().encode(_plain(event)).encode("ascii")


@cache
def _encoder() -> json.JSONEncoder:
    return json.JSONEncoder(separators=(",", ":"))


def _plain(value: Any) -> list[object]:
    """The fields of an event or a match."""
    made: list[object] = []
    for each in _values(value):
        convert = _CONVERSIONS.get(type(each))
        made.append(each if convert is None else convert(each))
    return made


def _values(value: Any) -> tuple[Any, ...]:
    """What is stored of an event or a match."""
    cls: Any = type(value)
    found: tuple[Any, ...] = _getter(cls)(value)
    return found


@cache
def _getter(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*_fields(cls))


_CONVERSIONS: dict[type, Callable[[Any], object]] = {
    bytes: bytes.hex,
    OutPoint: lambda point: bytes(point).hex(),
    **dict.fromkeys((Completeness, MatchKind, Reason), attrgetter("value")),
    Match: _plain,
}


@cache
def _fields(cls: type[Any]) -> dict[str, Any]:
    """Names and types of the fields that are stored, without `| None`."""
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for each in fields(cls):
        hint = hints[each.name]
        if each.name != "sequence":
            found[each.name] = (
                next(part for part in get_args(hint) if part is not type(None))
                if isinstance(hint, types.UnionType)
                else hint
            )
    return found


def decode(stored: StoredEvent) -> WalletEvent:
    """The event. Raises FormatError for bytes that are none."""
    try:
        event: WalletEvent = _made(KINDS[stored.kind], json.loads(stored.data), sequence=stored.sequence)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise FormatError(
            f"event {stored.sequence} cannot be read as {stored.kind[:20]!r}: {error!r}", offset=0, field="event"
        ) from error
    return event


def _made(cls: type, values: list[Any], **named: Any) -> Any:
    known = _fields(cls)
    given = {
        name: None if value is None else _value(known[name], value) for name, value in zip(known, values, strict=True)
    }
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
        raise TypeError(f"{hint.__name__} expected, not {value!r}")
    return value
