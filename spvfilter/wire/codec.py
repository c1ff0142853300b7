"""The envelope of a P2P message, 24 bytes before every payload. What payloads mean is not known here."""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d

COMMAND_SIZE = 12  # bytes
MAX_PAYLOAD_SIZE = 4_000_000  # bytes, Core net.h MAX_PROTOCOL_MESSAGE_LENGTH


def encode_message(magic: bytes, command: str, payload: bytes) -> bytes:
    """A whole message: magic (4 bytes), command (12, ASCII, NUL padded), length u32 LE, checksum (4), payload.

    The checksum is the start of sha256d(payload). Raises ParameterError for a magic of another length, a command that is not
    1 to 12 printable ASCII characters, and a payload of more than 4,000,000 bytes (Core protocol.h CMessageHeader).
    """
    if len(magic) != 4:
        raise ParameterError(f"a network's magic has 4 bytes, not {len(magic)}")
    if not 1 <= len(command) <= COMMAND_SIZE or not all(32 <= ord(char) <= 126 for char in command):
        raise ParameterError(f"a command is 1 to {COMMAND_SIZE} printable ASCII characters, not {command[:40]!r}")
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise ParameterError(f"a payload has at most {MAX_PAYLOAD_SIZE} bytes, not {len(payload)}")
    name = command.encode("ascii").ljust(COMMAND_SIZE, b"\0")
    return bytes(magic) + name + len(payload).to_bytes(4, "little") + sha256d(payload)[:4] + bytes(payload)
