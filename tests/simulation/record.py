"""Record of a life: a digest of everything that happened, counters, and a trace for people to read."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache

from spvfilter.light.engine.effects import Effect
from spvfilter.light.engine.inputs import Heard, HeardTogether, Input, Instant
from spvfilter.wire.events import Received

_SHOWN = 24  # characters of a value
_BORING = ("BlockConnected", "CFilter", "Worked", "Emit", "Progress")  # kinds of lines that the trace merges


class Record:
    """Counters, trace and digest of a life. `show` takes the lines of the trace.

    If `is_full`, the digest covers every input and effect in full. Otherwise it covers the bytes sent.
    """

    def __init__(
        self, clock: Callable[[], float], *, is_full: bool = False, show: Callable[[str], None] | None = None
    ) -> None:
        self.messages = 0
        self.inputs: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.slowest = ""  # input of the slowest step
        self.wire: dict[str, hashlib.blake2b] = {}  # bytes sent to each host
        self._clock = clock
        self._digest = hashlib.blake2b(digest_size=16)
        self._is_full = is_full
        self._show = show
        self._run = ("", 0)  # kind of the latest line, and how many more of it followed

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def input(self, input: Input | None, now: Instant) -> None:
        """The engine is given an input."""
        kind = type(input).__name__
        self.inputs[kind] += 1
        match input:
            case Heard():
                self.messages += 1
            case HeardTogether(_, heard):
                self.messages += sum(1 if isinstance(each, Received) else len(each.filters) for each in heard)
        if self._is_full or self._show is not None:
            self._put(">", describe(input), full(input), now)

    def effect(self, effect: Effect) -> None:
        """The engine asks for an effect."""
        kind = type(effect).__name__
        self.effects[kind] += 1
        if kind == "Send":
            self.messages += 1
        if self._is_full or self._show is not None:
            self._put("<", describe(effect), full(effect), None)

    def keep_wire(self, host: str, data: bytes) -> None:
        """Bytes go to a host."""
        self._digest.update(data)
        kept = self.wire.get(host)
        if kept is None:
            kept = self.wire[host] = hashlib.blake2b(digest_size=16)
        kept.update(f"{self._clock()!r}".encode())
        kept.update(data)

    def note(self, what: str, *values: object) -> None:
        """Note an event of the world."""
        if self._is_full or self._show is not None:
            text = f"{what} {' '.join(map(str, values))}"
            self._put("*", text, text, None)

    def stepped(self, seconds: float, input: Input | None) -> None:
        """Note the processor time of a step. Only floods judge it."""
        if seconds > self.slowest_s:
            self.slowest_s = seconds
            self.slowest = type(input.message if isinstance(input, Heard) else input).__name__

    def _put(self, mark: str, short: str, whole: str, now: Instant | None) -> None:
        self._digest.update(f"{self._clock()!r} {mark} {whole} {now}".encode())
        if self._show is not None:
            self._tell(mark, short)

    def _tell(self, mark: str, short: str) -> None:
        """Show a line of the trace. A run of lines of one kind is its first line and a count."""
        assert self._show is not None
        kind = f"{mark} {_kind(short)}"
        if kind == self._run[0] and kind.endswith(_BORING):
            self._run = (kind, self._run[1] + 1)
            return
        if self._run[1]:
            self._show(f"{'':12} {self._run[0]} … and {self._run[1]} more")
        self._run = (kind, 0)
        self._show(f"{self._clock():12.4f} {mark} {short}")


def _kind(line: str) -> str:
    """The innermost interesting word of a line."""
    words: list[str] = re.findall(r"[A-Z]\w+", line)
    if words[:1] in (["Heard"], ["Emit"], ["Send"]):
        return words[1] if len(words) > 1 else words[0]
    return next((word for word in words if word in _BORING), words[0] if words else line)


def _fields(value: object) -> Sequence[str] | None:
    """The names of the fields of a dataclass or a named tuple, None for other values."""
    return _fields_of(type(value))  # type: ignore[arg-type]  # classes are hashable


@cache
def _fields_of(kind: type) -> Sequence[str] | None:
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def full(value: object) -> str:
    """A text that differs for different values. Functions are named, because their addresses change."""
    if (names := _fields(value)) is not None:
        return f"{type(value).__name__}({', '.join(full(getattr(value, name)) for name in names)})"
    if isinstance(value, (list, tuple, deque)):
        return f"[{', '.join(map(full, value))}]"
    if isinstance(value, (set, frozenset)):  # the order of a set differs between processes
        return f"{{{', '.join(sorted(map(full, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{full(key)}: {full(each)}' for key, each in value.items())}}}"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    return repr(value)


def describe(value: object) -> str:
    """A short text for the trace."""
    if isinstance(value, bytes):
        return f"{value[:4].hex()}…{len(value)}" if len(value) > _SHOWN // 2 else value.hex()
    if (names := _fields(value)) is not None:
        shown = (f"{name}={describe(getattr(value, name))}" for name in names if getattr(value, name))
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, (list, tuple, deque)):
        some = ", ".join(map(describe, list(value)[:2]))
        return f"{len(value)}[{some}{', …' if len(value) > 2 else ''}]"
    if isinstance(value, dict):
        return f"{len(value)}{{…}}"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return str(value)[:200]
