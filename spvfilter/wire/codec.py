"""Framing of P2P messages: encoding a message, and decoding messages from a byte stream.

The envelope, 24 bytes before each payload: magic (4 bytes), command (12, ASCII, NUL padded), length of the payload u32 LE, checksum (4,
the first bytes of sha256d(payload)).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from spvfilter._public import public
from spvfilter.errors import EnvelopeError, FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import sound_frames
from spvfilter.protocol import COMMAND_SIZE, ENVELOPE_SIZE, MAX_PAYLOAD_SIZE
from spvfilter.wire.foreign import foreign

T = TypeVar("T")
_ENVELOPE = struct.Struct("<4s12sI4s")
_AT_ONCE = 1 << 16  # bytes in which sound messages are looked for together


@public
def encode_message(magic: bytes, command: str, payload: bytes) -> bytes:
    """A complete message: the envelope and `payload` (Core protocol.h CMessageHeader).

    Raises ParameterError unless the magic has 4 bytes, the command 1 to 12 printable ASCII characters, and the payload at most 4,000,000
    bytes.
    """
    check_magic(magic)
    if not 1 <= len(command) <= COMMAND_SIZE or not (command.isascii() and command.isprintable()):
        raise ParameterError(f"a command is 1 to {COMMAND_SIZE} printable ASCII characters, not {command[:40]!r}")
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise ParameterError(f"a payload has at most {MAX_PAYLOAD_SIZE} bytes, not {len(payload)}")
    return _ENVELOPE.pack(magic, command.encode("ascii"), len(payload), sha256d(payload)[:4]) + payload


def check_magic(magic: bytes) -> None:
    """Raises ParameterError unless the magic has 4 bytes."""
    if len(magic) != 4:
        raise ParameterError(f"a network's magic has 4 bytes, not {len(magic)}")


@public
class Frame(NamedTuple):
    """One message of a stream: its command and its payload. The checksum has been verified."""

    command: str
    payload: bytes


@public
class Decoder:
    """An incremental decoder for a byte stream: `feed` what arrives, then call `next_frame` until it returns None.

    It takes linear time and one buffer. A message that is too long for its command is refused as soon as its envelope is read; `limits`
    maps commands to their longest payloads in bytes, the default being MAX_PAYLOAD_SIZE.
    Raises ParameterError unless `magic` has 4 bytes.
    """

    __slots__ = ("_buffer", "_envelope", "_limits", "_magic", "_sound", "_sound_size", "broken")

    def __init__(self, magic: bytes, limits: Mapping[str, int] | None = None) -> None:
        check_magic(magic)
        self._magic = bytes(magic)
        self._limits = limits or {}
        self._buffer = bytearray()
        self._envelope: tuple[str | EnvelopeError, int, bytes] | None = None  # of a message whose payload is incomplete
        self._sound: deque[tuple[str, bytes]] = deque()  # command and payload of messages that are next
        self._sound_size = 0  # bytes of these in the stream
        self.broken: EnvelopeError | None = None  # the error that ended the stream; permanent

    @property
    def buffered(self) -> int:
        """The number of bytes that were fed and not yet returned in frames."""
        return len(self._buffer) + self._sound_size + (ENVELOPE_SIZE if self._envelope else 0)

    @property
    def next_command(self) -> str | None:
        """The command of the next message, if it is known to be complete and sound; None tells nothing."""
        return self._sound[0][0] if self._sound else None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream. After a fatal error they are discarded."""
        if self.broken is None:
            self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next message, or None until it has arrived completely.

        Raises EnvelopeError. A message with a bad command or checksum is dropped, and the next call continues after it, as in Core. A
        wrong magic or an excessive length ends the stream: every later call raises the same error (Core net.cpp V1Transport).
        """
        if not self._sound:
            if self.broken is not None:
                raise self.broken.with_traceback(None)  # without it, the traceback would grow with every call
            if self._envelope is not None or not self._look():
                return self._next()
        command, payload = self._sound.popleft()
        self._sound_size -= ENVELOPE_SIZE + len(payload)
        return Frame(command, payload)

    def take_run(self, command: str, parse: Callable[[bytes], T | None], most: int) -> list[T]:
        """What `parse` makes of the payloads of the next messages, while they are of a command and known to be sound.

        It ends before a payload that `parse` refuses with FormatError or None, and after the one with which `most` bytes are reached.
        """
        sound, made, size = self._sound, list[T](), 0
        while size < most and sound and sound[0][0] == command:
            try:
                value = parse(sound[0][1])
            except FormatError:
                break
            if value is None:
                break
            _, payload = sound.popleft()
            size += len(payload)
            made.append(value)
        self._sound_size -= ENVELOPE_SIZE * len(made) + size
        return made

    def _look(self) -> bool:
        """Whether the stream goes on with sound messages. What is wrong with one, or whether it is incomplete, is for `_next` to say."""
        if len(self._buffer) < ENVELOPE_SIZE:
            return False
        frames, size = sound_frames(bytes(memoryview(self._buffer)[:_AT_ONCE]), self._magic)
        for number, (command, payload) in enumerate(frames):
            if len(payload) > self._limits.get(command, MAX_PAYLOAD_SIZE):
                del frames[number:]
                size = sum(ENVELOPE_SIZE + len(payload) for _, payload in frames)
                break
        del self._buffer[:size]  # moves a pointer, not the remaining bytes
        self._sound.extend(frames)
        self._sound_size = size
        return size > 0

    def _next(self) -> Frame | None:
        """The next message, one part after the other."""
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
            raise EnvelopeError(f"{command}: checksum {checksum.hex()}, but the payload's is {actual.hex()}", field="checksum")
        return Frame(command, payload)

    def _open(self) -> tuple[str | EnvelopeError, int, bytes] | None:
        """The next envelope, or None until it has arrived: its command or the error in it, its length and its checksum."""
        buffer = self._buffer
        if len(buffer) >= 4 and not buffer.startswith(self._magic):
            self._break(foreign(bytes(buffer[:4]), self._magic), "magic")
        if len(buffer) < ENVELOPE_SIZE:
            return None
        _, name, size, checksum = _ENVELOPE.unpack_from(buffer)
        command = _command(name)
        limit = MAX_PAYLOAD_SIZE if isinstance(command, EnvelopeError) else self._limits.get(command, MAX_PAYLOAD_SIZE)
        if size > limit:
            self._break(f"{ascii(name.rstrip(bytes(1)))[1:]} of {size} bytes, at most {limit}", "length")
        del buffer[:ENVELOPE_SIZE]
        return command, size, checksum

    def _break(self, message: str, field: str) -> None:
        self.broken = EnvelopeError(message, field=field)
        self._buffer = bytearray()
        raise self.broken


@lru_cache(maxsize=64)
def _text(name: bytes) -> str | None:
    """The command in its 12 bytes: 1 to 12 printable ASCII characters, then only NULs (Core CMessageHeader::IsMessageTypeValid)."""
    text = name.rstrip(b"\0").decode("ascii", "replace")
    return text if text and text.isascii() and text.isprintable() else None


def _command(name: bytes) -> str | EnvelopeError:
    """The command, or the error in it."""
    return _text(name) or EnvelopeError(f"command {name.hex()} is not printable ASCII padded with NULs", field="command")
