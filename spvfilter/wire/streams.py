"""Message streams of a session: their interface, the unencrypted stream, and the detection of encrypted ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import EnvelopeError
from spvfilter.protocol import COMMAND_SIZE
from spvfilter.wire.codec import Decoder, Filters, Frame, encode_message
from spvfilter.wire.events import Role
from spvfilter.wire.transport import Transport
from spvfilter.wire.v2 import V2Stream

# A message that a node ignores, as its command is unknown. Servers of other protocols, such as HTTP, read a line before
# they answer; their answer then names the protocol.
_PROMPT = "crlf", b"\r\n\r\n"


@public
class MessageStream(Protocol):
    """The interface of the two-way message streams that a `Session` uses, such as `V2Stream`."""

    joins_filters: bool
    """True if `next_item` returns consecutive cfilter messages as one list."""

    @property
    def transport(self) -> Transport:
        """Kind of the stream."""

    @property
    def outgoing(self) -> bytearray:
        """Bytes to write to the socket. The caller removes what it has taken."""

    @property
    def broken(self) -> EnvelopeError | None:
        """The error that ended the stream for good, or None while the stream can be decoded."""

    @property
    def buffered(self) -> int:
        """Number of bytes that the stream has received but not yet returned in messages."""

    @property
    def is_established(self) -> bool:
        """True once both sides agree on the kind of stream."""

    @property
    def other_protocol(self) -> str | None:
        """Description of the other protocol that the peer seems to speak, or None if there is no sign of one."""

    @property
    def next_command(self) -> str | None:
        """Command of the next message, or None if the message is, or may still be, incomplete or invalid."""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream. After an error that ended the stream they are discarded."""

    def next_item(self) -> Frame | Filters | None:
        """Return the next message or a list of joined filters, or None until it has arrived. Raises EnvelopeError."""

    def send(self, command: str, payload: bytes) -> None:
        """Add a message to `outgoing`. Raises ParameterError in the same cases as `encode_message`."""

    def prompt(self) -> None:
        """Add bytes to `outgoing` that a node ignores but a server for another protocol answers."""

    def close(self) -> None:
        """Discard all received bytes. The stream ignores any that arrive later."""


class V1Stream(Decoder):
    """Messages in envelopes, without encryption."""

    __slots__ = ("outgoing",)

    transport = Transport.V1
    is_established = True
    other_protocol = None  # the decoder names it in its error

    def __init__(self, magic: bytes, limits: Mapping[str, int] | None = None) -> None:
        super().__init__(magic, limits)
        self.outgoing: bytearray = bytearray()

    def send(self, command: str, payload: bytes) -> None:
        self.outgoing += encode_message(self._magic, command, payload)

    def prompt(self) -> None:
        self.send(*_PROMPT)

    def close(self) -> None:
        self._buffer = bytearray()
        self._sound.clear()


class UndecidedStream:
    """The stream of an incoming connection until its first bytes show whether it is encrypted.

    A connection without encryption begins with the magic of the network and the command "version" (Core net.cpp
    V2Transport). Any other bytes are the start of a key.
    """

    transport = Transport.V1
    broken = None
    is_established = False
    other_protocol = None
    next_command = None

    def __init__(
        self, magic: bytes, draw_bytes: Callable[[int], bytes], limits: Mapping[str, int] | None = None
    ) -> None:
        self.outgoing: bytearray = bytearray()
        self.joins_filters = False
        self._magic = magic
        self._draw_bytes = draw_bytes
        self._limits = limits
        self._first = bytearray()

    @property
    def buffered(self) -> int:
        return len(self._first)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._first += data

    def decided(self) -> V1Stream | V2Stream | None:
        """Return a stream of the kind that the first bytes indicate, fed with them, or None if there are too few."""
        start = self._magic + b"version".ljust(COMMAND_SIZE, b"\0")
        made: V1Stream | V2Stream
        if not start.startswith(self._first[: len(start)]):
            made = V2Stream(self._magic, Role.INBOUND, self._draw_bytes, self._limits)
        elif len(self._first) >= len(start):
            made = V1Stream(self._magic, self._limits)
        else:
            return None
        made.feed(self._first)
        return made

    def next_item(self) -> None:
        return None

    def send(self, command: str, payload: bytes) -> None:
        raise AssertionError(f"{command} before the peer's version message")

    def prompt(self) -> None:
        pass

    def close(self) -> None:
        self._first.clear()
