"""read_at and ReadBuffer: reading blocks from files, including files that are XORed with a key.

This is the readable reference.
"""

from __future__ import annotations

import os
import sys

from spvfilter import _system
from spvfilter.errors import ParameterError
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.protocol import MAX_BLOCK_SIZE

KEY_SIZE = 8  # Bytes of the key of block files, Core node/blockstorage.cpp.
_MAX_DESCRIPTOR = 0x7FFFFFFF


class ReadBuffer:
    """Memory for the block that `WatchTable.scan_files` reads.

    It is reused for every block, because fresh memory costs more time than reading. Only one thread can use it at a
    time. The compiled twin keeps memory for the largest block so far; the reference keeps none.
    """

    __slots__ = ("_user",)

    def __init__(self) -> None:
        self._user = 0  # id of the process whose thread uses the buffer; a forked child does not have that thread

    def __enter__(self) -> None:
        if self._user == os.getpid():
            raise BufferError("another thread is using this buffer")
        self._user = os.getpid()

    def __exit__(self, *error: object) -> None:
        self._user = 0


def read_at(descriptor: int, offset: int, size: int, key: bytes, /) -> bytes:
    """Read up to `size` bytes of an open file and XOR them with `key`. Fewer are read at the end of the file.

    Args:
        descriptor: File descriptor of the open file.
        offset: Offset of the first byte in the file.
        size: Number of bytes, at most MAX_BLOCK_SIZE.
        key: 8-byte key that is repeated from the start of the file, or empty bytes.

    Raises:
        ParameterError: The key has the wrong size, a number is negative, or the size is too large.
        OSError: The file cannot be read.
    """
    descriptor, offset, size, key = checked(descriptor, offset, size, key)
    return xored(_system.read_at(descriptor, size, offset), offset, key)


def checked(
    descriptor: int, offset: int, size: int, key: bytes, most: int = MAX_BLOCK_SIZE
) -> tuple[int, int, int, bytes]:
    """Return the arguments of read_at after checking them, with the key as bytes.

    Raises ParameterError in the same cases as read_at. `most` is the largest size allowed.
    """
    key = snapshot(key)
    if len(key) not in (0, KEY_SIZE):
        raise ParameterError(f"a key must be {KEY_SIZE} bytes long or empty, not {len(key)}")
    descriptor = whole(descriptor, 0, _MAX_DESCRIPTOR, "a file descriptor must be from 0 to 2^31 - 1")
    offset = whole(
        offset, 0, sys.maxsize - most, "an offset in a file must be from 0 to sys.maxsize minus the largest size"
    )
    expected = (
        "the size of a block must be from 0 to 4000000 bytes"
        if most == MAX_BLOCK_SIZE
        else "the size of an undo record must be from 0 to 250000000 bytes"
    )
    return descriptor, offset, whole(size, 0, most, expected), key


def xored(data: bytes, offset: int, key: bytes) -> bytes:
    """XOR bytes that start at `offset` in a file with the key, which is repeated from the start of the file."""
    if not any(key):
        return data
    shift = offset % KEY_SIZE
    mask = ((key[shift:] + key[:shift]) * (len(data) // KEY_SIZE + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(len(data), "little")
