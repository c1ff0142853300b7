"""One file of blocks and its framing: raw, hex, or Bitcoin Core's blk*.dat. Which blocks are wanted is not its business.

A blk*.dat file (Core node/blockstorage.cpp) is a run of records: the network's magic (4 bytes), length u32 LE, that many bytes of block.
Records may be out of height order, zeros may lie between and behind them (Core allocates in advance), and the last may be half
written. Since Core 28 all bytes are XORed with the 8-byte key of xor.dat, repeated from the start of each file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spvfilter.errors import SourceError
from spvfilter.network import NETWORKS, Network

MAX_BLOCK_SIZE = 4_000_000  # bytes, Core MAX_BLOCK_SERIALIZED_SIZE
_MIN_BLOCK_SIZE = 81  # bytes: header and transaction count
_CHUNK = 1 << 20
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class Record(NamedTuple):
    """One block in a file."""

    offset: int  # of the block's first byte
    size: int  # bytes
    prefix: bytes  # its first bytes


class BlockFile:
    """A file whose kind is found out when it is first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = b""
        self._hex = False

    def records(self, network: Network, prefix_size: int) -> Iterator[Record | str]:
        """Every block in the file, and a sentence for every stretch that is none.

        Raises OSError; SourceError for an empty file, one of another network, or one too large to be a block.
        """
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                raise SourceError("the file is empty")
            self._key = self._xor_key()
            head = self._pread(descriptor, 0, max(prefix_size, 2 * _MIN_BLOCK_SIZE))
            if self._key and _magic_of(head) is None:
                plain = os.pread(descriptor, 4, 0)
                if _magic_of(plain) is not None:  # a key lies beside it, but this file is not XORed
                    self._key = b""
                    head = self._pread(descriptor, 0, len(head))
            owner = _magic_of(head)
            if owner is network or not any(head):
                yield from self._framed(descriptor, size, network, prefix_size)
            elif owner is not None:
                raise SourceError(f"these are blocks of {owner}, not of {network}")
            else:
                yield self._single(descriptor, head, size, prefix_size)
        finally:
            os.close(descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of one record, plain. Raises OSError, SourceError."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if self._hex:
                return _from_hex(os.pread(descriptor, 2 * MAX_BLOCK_SIZE + 2, 0))
            return self._pread(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def _xor_key(self) -> bytes:
        if not (self.path.name.startswith("blk") and self.path.suffix == ".dat"):
            return b""
        try:
            key = self.path.with_name("xor.dat").read_bytes()
        except FileNotFoundError:
            return b""
        if len(key) != 8:
            raise SourceError(f"the xor.dat beside it has {len(key)} bytes, not 8")
        return key if any(key) else b""

    def _pread(self, descriptor: int, offset: int, size: int) -> bytes:
        data = os.pread(descriptor, size, offset)
        if not self._key or not data:
            return data
        shift = offset % len(self._key)
        key = (self._key[shift:] + self._key[:shift]) * (len(data) // len(self._key) + 1)
        mixed = int.from_bytes(data, "little") ^ int.from_bytes(key[: len(data)], "little")
        return mixed.to_bytes(len(data), "little")

    def _single(self, descriptor: int, head: bytes, size: int, prefix_size: int) -> Record:
        """The whole file as one block, raw or in hex."""
        digits = head[: 2 * _MIN_BLOCK_SIZE]
        if len(digits.rstrip()) >= 2 * _MIN_BLOCK_SIZE - 2 and _HEX_DIGITS.issuperset(digits.rstrip()):
            if size > 2 * MAX_BLOCK_SIZE + 2:
                raise SourceError(f"{size} bytes of hex are more than one block of {MAX_BLOCK_SIZE} bytes")
            self._hex = True
            raw = _from_hex(os.pread(descriptor, size, 0))
            return Record(0, len(raw), raw[:prefix_size])
        if size > MAX_BLOCK_SIZE:
            raise SourceError(f"{size} bytes without a network's magic: neither blk*.dat nor one block of at most {MAX_BLOCK_SIZE} bytes")
        return Record(0, size, head[:prefix_size])

    def _framed(self, descriptor: int, size: int, network: Network, prefix_size: int) -> Iterator[Record | str]:
        at = 0
        while at < size:
            head = self._pread(descriptor, at, 8 + prefix_size)
            length = int.from_bytes(head[4:8], "little")
            if head[:4] == network.magic and len(head) >= 8 and _MIN_BLOCK_SIZE <= length <= MAX_BLOCK_SIZE:
                if at + 8 + length <= size:
                    yield Record(at + 8, length, head[8 : 8 + length])
                    at += 8 + length
                    continue
                yield f"the record at byte {at} is incomplete: {size - at - 8} of {length} bytes (half written?)"
                at += 4
                at = self._find(descriptor, at, size, network.magic)
            elif not any(head):
                at = self._skip_zeros(descriptor, at, size)
            elif not head[0]:
                at += len(head) - len(head.lstrip(b"\0"))
            else:
                start = at
                at = self._find(descriptor, at + 1, size, network.magic)
                yield f"{at - start} bytes from byte {start} are no block record of {network}"

    def _skip_zeros(self, descriptor: int, at: int, size: int) -> int:
        while at < size:
            chunk = self._pread(descriptor, at, _CHUNK)
            rest = chunk.lstrip(b"\0")
            if rest:
                return at + len(chunk) - len(rest)
            at += len(chunk)
        return size

    def _find(self, descriptor: int, at: int, size: int, magic: bytes) -> int:
        """Offset of the next magic at or behind `at`, or `size`."""
        while at < size:
            chunk = self._pread(descriptor, at, _CHUNK)
            found = chunk.find(magic)
            if found >= 0:
                return at + found
            if at + len(chunk) >= size:
                break
            at += len(chunk) - 3
        return size


def _magic_of(head: bytes) -> Network | None:
    return next((network for network in NETWORKS if head[:4] == network.magic), None)


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise SourceError("not hex throughout") from None
