"""Reading files of blocks, XORed ones as well, and the memory they are read into: the readable reference."""

from __future__ import annotations

import os
import sys

from spvfilter.errors import ParameterError
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.protocol import MAX_BLOCK_SIZE

KEY_SIZE = 8  # bytes, Core node/blockstorage.cpp
_MAX_DESCRIPTOR = 0x7FFFFFFF


class ReadBuffer:
    """Memory that blocks of files are read into, used again for each: memory that is always new costs more than reading.

    It belongs to one thread at a time. (The compiled twin keeps the memory of the largest block so far; there is none here.)
    """

    __slots__ = ("_user",)

    def __init__(self) -> None:
        self._user = 0  # the process of the thread that reads into it; a child of fork has not that thread

    def __enter__(self) -> None:
        if self._user == os.getpid():
            raise BufferError("another thread uses this buffer")
        self._user = os.getpid()

    def __exit__(self, *error: object) -> None:
        self._user = 0


def read_at(descriptor: int, offset: int, size: int, key: bytes, /) -> bytes:
    """The bytes of an open file from `offset` on, `size` of them or as many as there are, XORed with `key`.

    The key has 8 bytes, repeated from the start of the file, or none. Raises OSError; ParameterError for another key, and for more bytes
    than a block may have.
    """
    descriptor, offset, size, key = checked(descriptor, offset, size, key)
    return xored(os.pread(descriptor, size, offset), offset, key)


def checked(descriptor: int, offset: int, size: int, key: bytes) -> tuple[int, int, int, bytes]:
    """Numbers that are in range, and a key that has the size of one."""
    key = snapshot(key)
    if len(key) not in (0, KEY_SIZE):
        raise ParameterError(f"a key has {KEY_SIZE} bytes or none, not {len(key)}")
    descriptor = whole(descriptor, 0, _MAX_DESCRIPTOR, "not a file descriptor")
    offset = whole(offset, 0, sys.maxsize - MAX_BLOCK_SIZE, "not an offset in a file")
    return descriptor, offset, whole(size, 0, MAX_BLOCK_SIZE, "not the size of a block"), key


def xored(data: bytes, offset: int, key: bytes) -> bytes:
    """Bytes that lie at `offset` of a file, with the key that is repeated from its start."""
    if not any(key):
        return data
    shift = offset % KEY_SIZE
    mask = ((key[shift:] + key[:shift]) * (len(data) // KEY_SIZE + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(len(data), "little")
