"""Framing of P2P messages: a function that encodes a message, and a decoder for a stream of bytes.

Each message is an envelope and a payload (Core protocol.h CMessageHeader):

| bytes | field |
|---|---|
| 4 | magic of the network |
| 12 | command, ASCII, padded with NUL |
| 4 | length of the payload, u32 LE |
| 4 | checksum: the first bytes of sha256d(payload) |
| length | payload |
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from spvfilter._public import public
from spvfilter.errors import EnvelopeError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import joined_frames, sound_frames
from spvfilter.protocol import COMMAND_SIZE, ENVELOPE_SIZE, MAX_PAYLOAD_SIZE
from spvfilter.wire.wrongprotocol import wrong_protocol

Filters: TypeAlias = list[tuple[bytes, bytes]]  # of consecutive cfilter messages: (block hash, filter)
_ENVELOPE = struct.Struct("<4s12sI4s")
_AT_ONCE = 1 << 16  # bytes of the stream that one call of the kernel searches for valid messages (our choice)


@public
def encode_message(magic: bytes, command: str, payload: bytes) -> bytes:
    """Return the bytes of a complete message: its envelope, then its payload (Core protocol.h CMessageHeader).

    Args:
        magic: The 4 magic bytes of the network, which begin each message.
        command: Name of the message's type, 1 to 12 printable ASCII characters.
        payload: Payload, at most 4,000,000 bytes.

    Raises:
        ParameterError: An argument has the wrong size, or the command contains other characters.
    """
    check_magic(magic)
    check_message(command, payload)
    return _ENVELOPE.pack(magic, command.encode("ascii"), len(payload), sha256d(payload)[:4]) + payload


def check_message(command: str, payload: bytes) -> None:
    """Raise ParameterError unless a message can have this command and this payload."""
    if not 1 <= len(command) <= COMMAND_SIZE or not (command.isascii() and command.isprintable()):
        raise ParameterError(f"a command must be 1 to {COMMAND_SIZE} printable ASCII characters, not {command[:40]!r}")
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise ParameterError(f"a payload must be at most {MAX_PAYLOAD_SIZE} bytes long, not {len(payload)}")


def check_magic(magic: bytes) -> None:
    """Raise ParameterError unless the magic of a network is 4 bytes long."""
    if len(magic) != 4:
        raise ParameterError(f"a network's magic must be 4 bytes long, not {len(magic)}")


@public
class Frame(NamedTuple):
    """One message of a P2P stream. Its checksum has been verified, but its payload has not been parsed."""

    command: str
    """Name of the message type, such as "inv"."""
    payload: bytes
    """Bytes of the message after its envelope, not parsed."""


@public
class Decoder:
    """Decodes a byte stream incrementally: call `feed` with new bytes, then `next_frame` until it returns None.

    Decoding takes linear time and one buffer. A message that is too long for its command is refused as soon as its
    envelope has arrived. If `joins_filters` is True, call `next_item` instead of `next_frame`; cfilter payloads then
    have the default limit.

    Args:
        magic: The 4 magic bytes of the network, which begin each message.
        limits: Longest payload of each command, in bytes; the default is 4,000,000 (MAX_PAYLOAD_SIZE).

    Raises:
        ParameterError: The magic is not 4 bytes long.
    """

    __slots__ = ("_buffer", "_envelope", "_limits", "_magic", "_sound", "_sound_size", "broken", "joins_filters")

    def __init__(self, magic: bytes, limits: Mapping[str, int] | None = None) -> None:
        check_magic(magic)
        self._magic = bytes(magic)
        self._limits = limits or {}
        self._buffer = bytearray()
        # envelope of a message whose payload has not arrived: command, or the error in it; length; checksum
        self._envelope: tuple[str | EnvelopeError, int, bytes] | None = None
        # valid messages that come next: (command, payload), or (filters, their bytes in the stream)
        self._sound: deque[tuple[str, bytes] | tuple[Filters, int]] = deque()
        self._sound_size = 0  # bytes that the messages in `_sound` take in the stream
        self.broken: EnvelopeError | None = None
        """The error that ended the stream for good, or None while the stream can be decoded."""
        self.joins_filters: bool = False
        """True if `next_item` returns consecutive cfilter messages as one list."""

    @property
    def buffered(self) -> int:
        """Number of bytes that were fed to the decoder but not yet returned in messages."""
        return len(self._buffer) + self._sound_size + (ENVELOPE_SIZE if self._envelope else 0)

    @property
    def next_command(self) -> str | None:
        """Command of the next message, or None if the message is, or may still be, incomplete or invalid."""
        if not self._sound and (self._envelope is not None or not self._look()):
            return None
        command, _ = self._sound[0]
        return command if isinstance(command, str) else "cfilter"

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream. After an error that ended the stream they are discarded."""
        if self.broken is None:
            self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next message, or None until it has arrived completely.

        Raises EnvelopeError, as in Core (net.cpp V1Transport):

        - A message with a bad command or checksum is dropped. The next call continues after it.
        - A wrong magic or an excessive length ends the stream. Every later call raises the same error.
        """
        item = self.next_item()
        assert not isinstance(item, list), "call next_item: filters are joined"
        return item

    def next_item(self) -> Frame | Filters | None:
        """Return the next message as `next_frame` does, or a list with the filters of the next cfilter messages.

        It returns a list only if `joins_filters` is True. The list contains the (block hash, filter) pair of each of
        several consecutive messages. These are valid and complete, contain basic filters, and take up to 64 KiB of the
        stream. Raises EnvelopeError in the same cases as `next_frame`.
        """
        if not self._sound:
            if self.broken is not None:
                raise self.broken.with_traceback(None)  # else the traceback would grow with every call
            if self._envelope is not None or not self._look():
                return self._next()
        first, second = self._sound.popleft()
        if isinstance(first, str):
            assert isinstance(second, bytes)
            self._sound_size -= ENVELOPE_SIZE + len(second)
            return Frame(first, second)
        assert isinstance(second, int)
        self._sound_size -= second
        return first

    def _look(self) -> bool:
        """Decode the valid messages at the start of the buffer, and return True if there are any.

        An incomplete or invalid message is left in the buffer: `_next` handles it.
        """
        if len(self._buffer) < ENVELOPE_SIZE:
            return False
        look = joined_frames if self.joins_filters else sound_frames
        items, size = look(bytes(memoryview(self._buffer)[:_AT_ONCE]), self._magic)
        for number, (command, payload) in enumerate(items):
            if (
                isinstance(command, str)
                and isinstance(payload, bytes)
                and len(payload) > self._limits.get(command, MAX_PAYLOAD_SIZE)
            ):
                del items[number:]
                size = sum(ENVELOPE_SIZE + len(what) if isinstance(what, bytes) else what for _, what in items)
                break
        del self._buffer[:size]  # cheap: a bytearray moves a pointer, not the remaining bytes
        self._sound.extend(items)
        self._sound_size = size
        return size > 0

    def _next(self) -> Frame | None:
        """Decode the next message, or return None until it is complete. Raises EnvelopeError."""
        if self._envelope is None:
            self._envelope = self._open()
            if self._envelope is None:
                return None
        command, size, checksum = self._envelope
        if len(self._buffer) < size:
            return None
        payload = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._envelope = None
        if isinstance(command, EnvelopeError):
            raise command
        if (actual := sha256d(payload)[:4]) != checksum:
            raise EnvelopeError(
                f"{command}: checksum {checksum.hex()}, but the payload's checksum is {actual.hex()}", field="checksum"
            )
        return Frame(command, payload)

    def _open(self) -> tuple[str | EnvelopeError, int, bytes] | None:
        """Return the command, length and checksum of the next envelope, or None until the envelope has arrived.

        Instead of an invalid command it returns the EnvelopeError.
        """
        buffer = self._buffer
        if len(buffer) >= 4 and not buffer.startswith(self._magic):
            self._break(wrong_protocol(bytes(buffer[:4]), self._magic), "magic")
        if len(buffer) < ENVELOPE_SIZE:
            return None
        _, name, size, checksum = _ENVELOPE.unpack_from(buffer)
        command = _command(name)
        limit = MAX_PAYLOAD_SIZE if isinstance(command, EnvelopeError) else self._limits.get(command, MAX_PAYLOAD_SIZE)
        if size > limit:
            self._break(f"{ascii(name.rstrip(bytes(1)))[1:]} must be at most {limit} bytes long, not {size}", "length")
        del buffer[:ENVELOPE_SIZE]
        return command, size, checksum

    def _break(self, message: str, field: str) -> None:
        """End the stream: store an EnvelopeError with this message and field in `broken`, and raise it."""
        self.broken = EnvelopeError(message, field=field)
        self._buffer = bytearray()
        raise self.broken


@lru_cache(maxsize=64)
def command_text(name: bytes) -> str | None:
    """Return the command in a 12-byte field, or None if the field is not valid.

    A valid field has 1 to 12 printable ASCII characters, then only NULs (Core CMessageHeader::IsMessageTypeValid).
    """
    text = name.rstrip(b"\0").decode("ascii", "replace")
    return text if text and text.isascii() and text.isprintable() else None


def _command(name: bytes) -> str | EnvelopeError:
    """Return the command in a 12-byte envelope field, or an EnvelopeError if the field is not valid."""
    return command_text(name) or EnvelopeError(
        f"command {name.hex()} is not printable ASCII padded with NULs", field="command"
    )
