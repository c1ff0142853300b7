"""read_at and ReadBuffer, which read blocks from files, XORed ones too: the readable reference."""

from __future__ import annotations

import os
import sys

from spvfilter.errors import ParameterError
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.protocol import MAX_BLOCK_SIZE

KEY_SIZE = 8  # bytes, Core node/blockstorage.cpp
_MAX_DESCRIPTOR = 0x7FFFFFFF


class ReadBuffer:
    """Memory for the block that `WatchTable.scan_files` reads.

    It is reused for every block, since fresh memory costs more than reading.

    One thread can use it at a time. The compiled twin keeps memory for the largest block so far; the reference keeps
    none.
    """

    __slots__ = ("_user",)

    def __init__(self) -> None:
        self._user = 0  # the process of the thread that uses it; a child of fork does not have that thread

    def __enter__(self) -> None:
        if self._user == os.getpid():
            raise BufferError("another thread uses this buffer")
        self._user = os.getpid()

    def __exit__(self, *error: object) -> None:
        self._user = 0


def read_at(descriptor: int, offset: int, size: int, key: bytes, /) -> bytes:
    """Up to `size` bytes of an open file, from `offset` on, XORed with `key`; fewer at the end of the file.

    The key has 8 bytes and is repeated from the start of the file, or it is empty. Raises OSError, and ParameterError
    for a key of another size, for negative numbers, and for a size above MAX_BLOCK_SIZE.
    """
    descriptor, offset, size, key = checked(descriptor, offset, size, key)
    return xored(os.pread(descriptor, size, offset), offset, key)


def checked(
    descriptor: int, offset: int, size: int, key: bytes, most: int = MAX_BLOCK_SIZE
) -> tuple[int, int, int, bytes]:
    """The arguments of read_at, with the key as bytes.

    Raises ParameterError as read_at does, with `most` as the limit of the size.
    """
    key = snapshot(key)
    if len(key) not in (0, KEY_SIZE):
        raise ParameterError(f"a key has {KEY_SIZE} bytes or none, not {len(key)}")
    descriptor = whole(descriptor, 0, _MAX_DESCRIPTOR, "not a file descriptor")
    offset = whole(offset, 0, sys.maxsize - most, "not an offset in a file")
    expected = "not the size of a block" if most == MAX_BLOCK_SIZE else "not the size of an undo record"
    return descriptor, offset, whole(size, 0, most, expected), key


def xored(data: bytes, offset: int, key: bytes) -> bytes:
    """The XOR of bytes at `offset` of a file with the key, which is repeated from the start of the file."""
    if not any(key):
        return data
    shift = offset % KEY_SIZE
    mask = ((key[shift:] + key[:shift]) * (len(data) // KEY_SIZE + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(len(data), "little")
