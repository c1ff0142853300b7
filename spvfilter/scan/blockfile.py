"""One block file: raw, hex, or a framed blk*.dat of Bitcoin Core.

A blk*.dat (Core node/blockstorage.cpp) is a sequence of records:

| bytes | field |
|---|---|
| 4 | magic of the network |
| 4 | size of the block, u32 LE |
| size | block |

Records need not be in height order. Zeros may follow any record, because Core allocates space in advance. The last
record may be half written. Since version 28, Core has XORed records with the 8-byte key in xor.dat, repeated from the
start of each file. It does not XOR the zeros after the records.

Core writes a block over zeros that it allocated earlier, so a half-written block has its full size but ends with zeros.
A record before zeros therefore counts only if its transactions match its header.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import check_block
from spvfilter.network import Network
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.scan.remote import FilePath, OpenFile, opened
from spvfilter.scan.wrongnetwork import A_TRANSACTION, begins_with_tx, contradiction, is_mined, other_magic

_MIN_BLOCK_SIZE = 81  # size of a header and a transaction count, in bytes
_SMALL_CHUNK, _LARGE_CHUNK = 1 << 12, 1 << 20  # bytes to read at a time (our choice)
_PRINTABLE = frozenset(b"\t\n\r" + bytes(range(32, 127)))
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")
_LARGEST_TX = 1_000_000
"""Bytes of a file that are read to recognize a transaction (our choice: more than the hex of a standard one)."""


class Record(NamedTuple):
    """A block, or an undo record with its checksum, in a file: its place there, and its first bytes."""

    offset: int
    """Offset of the record's first byte in the file."""
    size: int
    """Size of the record in bytes."""
    prefix: bytes
    """First bytes of the block or undo record."""


class Framing(NamedTuple):
    """The kind of records in a file, and the limits on their size."""

    name: str
    """Name of this kind of record, for messages."""
    least: int
    """Smallest size that a record's size field can give, in bytes."""
    most: int
    """Largest size that a record's size field can give, in bytes."""
    tail: int
    """Number of bytes after a record that its size field does not count: the checksum of an undo record."""


BLOCKS = Framing("block record", _MIN_BLOCK_SIZE, MAX_BLOCK_SIZE, 0)


class BlockFile:
    """A block file. Its kind is detected when the file is first read."""

    def __init__(self, path: FilePath, key: bytes = b"", *, is_hex: bool = False) -> None:
        self.path = path
        self.key: bytes = key
        """The 8-byte key with which the file is XORed; empty if it is not XORed."""
        self.is_hex: bool = is_hex
        """True if the file is one block in hex digits."""
        self.is_assumed: bool = False
        """True if nothing in the file reveals the network of its block."""

    def records(self, network: Network, prefix_size: int) -> Iterator[Record | str]:
        """Yield every block in the file, and a sentence about each part that is not a block.

        Raises OSError and RemoteFileError if the file cannot be read. Raises SourceError if the file is empty, belongs
        to another network, or is too large to be a block.
        """
        with opened(self.path) as file:
            if not file.size:
                raise SourceError("the file is empty")
            self.is_hex = self.is_assumed = False
            self.key, owner, head = owned(
                file, xor_key(self.path) if self._is_blk() else b"", max(prefix_size, 2 * _MIN_BLOCK_SIZE), network
            )
            if owner not in (None, network):
                raise SourceError(f"these are {owner} blocks, but the network is {network}: choose {owner} instead")
            if owner is None and (other := other_magic(head)):
                raise SourceError(other)
            if owner is network or self._is_blk() or not any(head):
                yield from _whole(file, self.key, framed(file, self.key, network, prefix_size, BLOCKS))
            else:
                yield self._single(file, head, prefix_size, network)

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes of one record, with the XOR reversed.

        Raises OSError or RemoteFileError if the file cannot be read, and SourceError if it has shrunk.
        """
        with opened(self.path) as file:
            if self.is_hex:
                return _from_hex(file.at(0, 2 * MAX_BLOCK_SIZE + 2))
            return file.at(offset, size, self.key)

    def _is_blk(self) -> bool:
        return self.path.name.startswith("blk") and self.path.suffix == ".dat"

    def _check_network(self, raw: bytes, network: Network) -> None:
        """Assume that a block belongs to the network. Raises SourceError if its bytes contradict that."""
        if (cause := contradiction(raw, network)) is not None:
            raise SourceError(cause)
        self.is_assumed = True

    def _single(self, file: OpenFile, head: bytes, prefix_size: int, network: Network) -> Record:
        """Return the whole file as one block, raw or in hex."""
        size = file.size
        if not is_mined(head) and begins_with_tx(file.at(0, min(size, _LARGEST_TX))):
            raise SourceError(A_TRANSACTION)
        digits = head[: 2 * _MIN_BLOCK_SIZE]
        if len(digits.rstrip()) >= 2 * _MIN_BLOCK_SIZE - 2 and _HEX_DIGITS.issuperset(digits.rstrip()):
            if size > 2 * MAX_BLOCK_SIZE + 2:
                raise SourceError(f"{size} bytes of hex are too long for a block of at most {MAX_BLOCK_SIZE} bytes")
            self.is_hex = True
            raw = _from_hex(file.at(0, size))
            self._check_network(raw, network)
            return Record(0, len(raw), raw[:prefix_size])
        if size > MAX_BLOCK_SIZE:
            raise SourceError(
                f"{size} bytes without a network's magic: neither a blk*.dat nor one block of at most {MAX_BLOCK_SIZE}"
                " bytes"
            )
        self._check_network(head, network)
        if _PRINTABLE.issuperset(head):
            raise SourceError(
                "not a block file: expected a blk*.dat file of Bitcoin Core, or one block as bytes or hex digits"
            )
        return Record(0, size, head[:prefix_size])


def xor_key(path: FilePath) -> bytes:
    """Return the key in the xor.dat next to a file of records; b"" if there is none or it has no effect.

    Raises SourceError if the key is not 8 bytes long, and OSError if it cannot be read.
    """
    try:
        key = path.with_name("xor.dat").read_bytes()
    except FileNotFoundError:
        return b""
    if len(key) != 8:
        raise SourceError(f"the xor.dat next to it must be 8 bytes long, not {len(key)}")
    return key if any(key) else b""


def owned(file: OpenFile, key: bytes, size: int, network: Network) -> tuple[bytes, Network | None, bytes]:
    """Return the key that a file is XORed with, the network whose magic it starts with, and its first `size` bytes.

    A magic that two networks share counts as that of `network`.
    """
    head = file.at(0, size, key)
    owner = _owner_of(head, network)
    if key and owner is None:
        plain = file.at(0, len(head))
        if (owner := _owner_of(plain, network)) is not None:  # a file that is not XORed, although there is a key
            return b"", owner, plain
    return key, owner, head


def framed(file: OpenFile, key: bytes, network: Network, prefix_size: int, of: Framing) -> Iterator[Record | str]:
    """Yield every record of a file, and a sentence about every part that is not a record."""
    at, window, begun, size = 0, b"", 0, file.size
    while at < size:
        if not begun <= at <= begun + len(window) - 8 - prefix_size:
            begun, window = at, file.at(at, _SMALL_CHUNK, key)
        head = window[at - begun : at - begun + 8 + prefix_size]
        length = int.from_bytes(head[4:8], "little")
        whole = length + of.tail
        if head[:4] != network.magic or len(head) < 8 or not of.least <= length <= of.most:
            start = at
            at, padding = _gap(file, key, start, network.magic)
            if not padding:
                lost = not start and at == size and not key
                why = ": if it is XORed, copy the xor.dat that Bitcoin Core keeps next to it" if lost else ""
                yield f"{at - start} bytes from byte {start} contain no {of.name} of {network}{why}"
        elif at + 8 + whole <= size:
            yield Record(at + 8, whole, head[8 : 8 + whole])
            at += 8 + whole
        else:
            yield f"the record at byte {at} is incomplete: {size - at - 8} of {whole} bytes (half written?)"
            at, _ = _gap(file, key, at, network.magic)


def _end(record: Record) -> int:
    """Return the offset of the first byte after a record."""
    return record.offset + record.size


def _whole(file: OpenFile, key: bytes, found: Iterator[Record | str]) -> Iterator[Record | str]:
    """Yield what `framed` found in a block file, replacing half-written records with messages."""
    end: Record = Record(file.size + 8, 0, b"")  # as if a record followed the file
    for each, following in pairwise(chain(found, (end,))):
        is_padded = isinstance(following, Record) and isinstance(each, Record) and _end(each) < following.offset - 8
        if isinstance(each, Record) and is_padded:
            try:
                check_block(file.at(each.offset, each.size, key))
            except FormatError as error:
                yield f"the record at byte {each.offset - 8} is not a whole block (half written?): {error}"
                continue
        yield each


def _gap(file: OpenFile, key: bytes, start: int, magic: bytes) -> tuple[int, bool]:
    """Return the offset of the next magic after `start`, or the file's size, and whether only zeros precede it."""
    at, chunk, zeros, found, size = start, _SMALL_CHUNK, True, -1, file.size
    while at < size and found < 0:
        data = file.at(at, chunk)
        found = (file.at(at, chunk, key) if key else data).find(magic, at == start)
        last = len(data) < chunk
        passed = found if found >= 0 else len(data) if last else chunk - 3  # a magic may begin in the last 3 bytes
        zeros = zeros and not data[:passed].strip(b"\0")
        at = size if found < 0 and last else at + passed
        chunk = _LARGE_CHUNK
    return min(at, size), zeros


def _owner_of(head: bytes, network: Network) -> Network | None:
    """Return the network whose magic the file starts with, after any zeros, or None."""
    return Network.of_magic(head.lstrip(b"\0")[:4], network)


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise SourceError("it begins with hex digits, but contains other characters") from None
