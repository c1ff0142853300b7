"""The envelope of P2P messages, 24 bytes before each payload: writing it, finding it in a stream. What payloads mean is not known here.

Magic (4 bytes), command (12, ASCII, NUL padded), length of the payload u32 LE, checksum (4, the start of sha256d(payload)), payload.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import EnvelopeError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.protocol import COMMAND_SIZE, ENVELOPE_SIZE, MAX_PAYLOAD_SIZE

_ENVELOPE = struct.Struct("<4s12sI4s")


@public
def encode_message(magic: bytes, command: str, payload: bytes) -> bytes:
    """A whole message: the envelope and `payload`.

    Raises ParameterError for a magic of another length, a command that is not 1 to 12 printable ASCII characters, and a payload of
    more than 4,000,000 bytes (Core protocol.h CMessageHeader).
    """
    check_magic(magic)
    if not 1 <= len(command) <= COMMAND_SIZE or not (command.isascii() and command.isprintable()):
        raise ParameterError(f"a command is 1 to {COMMAND_SIZE} printable ASCII characters, not {command[:40]!r}")
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise ParameterError(f"a payload has at most {MAX_PAYLOAD_SIZE} bytes, not {len(payload)}")
    return _ENVELOPE.pack(magic, command.encode("ascii"), len(payload), sha256d(payload)[:4]) + payload


def check_magic(magic: bytes) -> None:
    """Raises ParameterError unless a network's magic has its 4 bytes."""
    if len(magic) != 4:
        raise ParameterError(f"a network's magic has 4 bytes, not {len(magic)}")


@public
class Frame(NamedTuple):
    """One message of a stream: its command, and a payload whose checksum is right."""

    command: str
    payload: bytes


@public
class Decoder:
    """Finds the messages in a byte stream, however it is cut: `feed` what arrives, then take frames until there is none.

    Linear in the bytes fed, in one buffer of them. A message longer than its command allows is refused by its envelope alone:
    `limits` says how many bytes a command's payload may have, MAX_PAYLOAD_SIZE where it says nothing.
    Raises ParameterError unless `magic` has 4 bytes.
    """

    __slots__ = ("_buffer", "_envelope", "_limits", "_magic", "broken")

    def __init__(self, magic: bytes, limits: Mapping[str, int] | None = None) -> None:
        check_magic(magic)
        self._magic = bytes(magic)
        self._limits = limits or {}
        self._buffer = bytearray()
        self._envelope: tuple[str | EnvelopeError, int, bytes] | None = None  # read, its payload not yet here
        self.broken: EnvelopeError | None = None  # set for good once the stream cannot go on

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not yet given out."""
        return len(self._buffer) + (ENVELOPE_SIZE if self._envelope else 0)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the stream; they are dropped once it is broken."""
        if self.broken is None:
            self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next message, None while it is not all here.

        Raises EnvelopeError. For a bad command or checksum that message is dropped and the next call goes on behind it, as in
        Core; a foreign magic or an excessive length breaks the stream: every call raises it again (Core net.cpp V1Transport).
        """
        if self.broken is not None:
            raise self.broken.with_traceback(None)  # raised again and again, it would collect one more each time
        if self._envelope is None:
            self._envelope = self._open()
            if self._envelope is None:
                return None
        command, size, checksum = self._envelope
        if len(self._buffer) < size:
            return None
        payload = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]  # moves a pointer, not the bytes behind
        self._envelope = None
        if isinstance(command, EnvelopeError):
            raise command
        if (actual := sha256d(payload)[:4]) != checksum:
            raise EnvelopeError(f"{command}: checksum {checksum.hex()}, the payload's is {actual.hex()}", field="checksum")
        return Frame(command, payload)

    def _open(self) -> tuple[str | EnvelopeError, int, bytes] | None:
        """The next envelope, as soon as it is here: command, or what is wrong with it, length and checksum."""
        buffer = self._buffer
        if len(buffer) >= 4 and not buffer.startswith(self._magic):
            self._break(f"magic {buffer[:4].hex()}, this network's is {self._magic.hex()}", "magic")
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


def _command(name: bytes) -> str | EnvelopeError:
    """The command in its 12 bytes: 1 to 12 printable ASCII characters, then nothing but NULs (Core CMessageHeader::IsMessageTypeValid)."""
    text = name.rstrip(b"\0").decode("ascii", "replace")
    if text and text.isascii() and text.isprintable():
        return text
    return EnvelopeError(f"command {name.hex()} is not printable ASCII, NUL padded", field="command")
