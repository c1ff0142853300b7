"""Undo files: find the record of each block in a blk*.dat, in the rev*.dat with the same number.

A rev*.dat (Core node/blockstorage.cpp) is a sequence of records:

| bytes | field |
|---|---|
| 4 | magic of the network |
| 4 | size of the undo data, u32 LE |
| size | undo data |
| 32 | checksum: sha256d(hash of the previous block, undo data) |

A record does not name its block. Records are in the order in which blocks were connected.

- First, records are aligned with the blocks in chain order by their number of transactions, which requires reading very
  little. The kernel verifies the checksum of a record when it uses the record.
- If that fails, all checksums of the file are computed. The same happens if two blocks have the same parent, because
  the checksum matches both. The siblings are then distinguished by the coins that they spend.

A record that stays ambiguous is reported and not used.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, islice
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import FormatError, SourceError, UndoError, counted
from spvfilter.hashes import hash160, sha256d
from spvfilter.kernel import SpentCoin, TxSpan, spent_coins, walk_block
from spvfilter.network import Network
from spvfilter.primitives import Reader, hash_to_hex, read_compact_size, script_pushes
from spvfilter.protocol import HASH_SIZE, MAX_UNDO_SIZE
from spvfilter.scan.blockfile import Framing, Record, framed, owned, xor_key
from spvfilter.scan.remote import FilePath, opened

UNDO = Framing("undo record", 1, MAX_UNDO_SIZE - HASH_SIZE, HASH_SIZE)
_COUNT_SIZE = 9  # Size of the longest CompactSize, in bytes.

# Most bytes that are hashed to pair the records of a file: 64 times its size plus 256 MiB (our choice).
_PATIENCE = 64
_LEAST_PATIENCE = 1 << 28


class LinkedBlock(NamedTuple):
    """The facts about a block that are needed to find its undo record."""

    hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    previous: bytes
    """Hash of the previous block, 32 bytes in wire order."""
    transactions: int
    """Number of transactions in the block, or 0 if it is unknown."""
    time: int
    """Time of the block's header (Unix time)."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    read: Callable[[], bytes]
    """Function that reads and returns the bytes of the block."""


@dataclass(slots=True)
class Pairing:
    """The undo records of one file, and the blocks to which they belong."""

    places: dict[bytes, Record] = field(default_factory=dict)
    """Undo records, keyed by the hashes of the blocks to which they belong."""
    problems: list[str] = field(default_factory=list)
    """Sentences about records that belong to no block."""


@public
def block_coins(raw_block: bytes, record: bytes) -> list[list[SpentCoin]]:
    """Return the coins that a block spends, read from its undo record.

    Args:
        raw_block: The serialized block.
        record: The undo record of the block: the undo data, then the 32-byte checksum.

    Returns:
        A list for each transaction except the coinbase. It contains the coins that the inputs spend, in order.

    Raises:
        UndoError: The record is malformed, damaged or belongs to another block.
        FormatError: The block is malformed.
    """
    undo, check = record[:-HASH_SIZE], record[-HASH_SIZE:]
    if len(record) < HASH_SIZE or sha256d(raw_block[4:36] + undo) != check:
        raise UndoError("does not match the record and the previous block", offset=len(undo), field="undo check")
    coins = spent_coins(undo)
    shape = [len(tx.inputs) for tx in walk_block(raw_block)][1:]
    if [len(of_tx) for of_tx in coins] != shape:
        raise UndoError("the input counts do not match the block", offset=0, field="undo input count")
    return coins


class UndoFile:
    """A file of undo records (rev*.dat) next to a block file."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        self.key: bytes = b""  # the 8-byte key that the file is XORed with, or empty

    @classmethod
    def beside(cls, blocks: FilePath) -> UndoFile | None:
        """Return the undo file of a blk*.dat, or None if there is none."""
        if not (blocks.name.startswith("blk") and blocks.suffix == ".dat"):
            return None
        path = blocks.with_name(f"rev{blocks.name[3:]}")
        return cls(path) if path.exists() else None

    def records(self, network: Network) -> Iterator[Record | str]:
        """Yield every record with its checksum, and a sentence about every part that is not a record.

        Raises OSError if the file cannot be read, and SourceError if the undo records belong to another network or the
        XOR key is wrong.
        """
        with opened(self.path) as file:
            self.key, owner, _ = owned(file, xor_key(self.path), 8, network)
            if owner not in (None, network):
                raise SourceError(f"these are {owner} undo records, not {network} ones")
            yield from framed(file, self.key, network, _COUNT_SIZE, UNDO)

    def read(self, record: Record) -> bytes:
        """Return a record with its checksum. Raises OSError and SourceError in the same cases as `UndoPlace.read`."""
        return self.place(0, record).read()

    def place(self, number: int, record: Record) -> UndoPlace:
        """Return where a record is stored in this undo file. It belongs to the block file with this number."""
        return UndoPlace(number, self.path, self.key, record.offset, record.size)


@public
class UndoPlace(NamedTuple):
    """The place of an undo record in a file."""

    number: int
    """Number of the block file that the undo file belongs to, within its source."""
    path: FilePath
    """Path of the undo file."""
    key: bytes
    """The 8-byte key with which the undo file is XORed, or b"" if it is not XORed."""
    offset: int
    """Offset of the record in the undo file, in bytes."""
    size: int
    """Size of the record with its checksum, in bytes."""

    def read(self) -> bytes:
        """Return the record with its checksum, which is not verified.

        Raises OSError if the file cannot be read, and SourceError if it has shrunk.
        """
        with opened(self.path) as file:
            raw = file.at(self.offset, self.size, self.key)
        if len(raw) != self.size:
            raise SourceError("the file changed while it was being read")
        return raw


def transactions_of(record: Record) -> int | None:
    """Return the number of transactions in the record's block, or None if this number is damaged."""
    try:
        return read_compact_size(record.prefix, 0, "count")[0] + 1
    except FormatError:
        return None


def pair(file: UndoFile, blocks: Sequence[LinkedBlock], network: Network) -> Pairing:
    """Return the undo record of each block in one file that spends coins.

    If every block has a record, the records are only aligned, not verified, so call `pair_exactly` if a record turns
    out to belong to another block. Raises OSError and SourceError in the same cases as `UndoFile.records`.
    """
    spending = _in_chain_order([block for block in blocks if block.transactions > 1])
    if len({block.previous for block in spending}) < len(spending):
        return pair_exactly(file, blocks, network)
    aligned = Pairing()
    at = 0
    for record in file.records(network):
        if isinstance(record, str):
            return pair_exactly(file, blocks, network)
        if (transactions := transactions_of(record)) == 1:
            continue  # the record of a block that spends nothing
        while at < len(spending) and spending[at].transactions != transactions:
            at += 1
        if at == len(spending):
            return pair_exactly(file, blocks, network)
        aligned.places[spending[at].hash] = record
        at += 1
    # some blocks have no record, so only checksums show which blocks the records belong to
    return aligned if len(aligned.places) == len(spending) else pair_exactly(file, blocks, network)


def pair_exactly(file: UndoFile, blocks: Sequence[LinkedBlock], network: Network) -> Pairing:
    """Return the undo record of each block in one file, found by computing the checksums of all records.

    Raises OSError and SourceError in the same cases as `UndoFile.records`.
    """
    spending = _in_chain_order([block for block in blocks if block.transactions > 1])
    claims: dict[bytes, list[Record]] = {}  # records, keyed by the parent of their block
    found = Pairing()
    with opened(file.path) as raw:
        search = _Search(spending, _PATIENCE * raw.size + _LEAST_PATIENCE)
    for record in file.records(network):
        if isinstance(record, str):
            found.problems.append(record)
        elif transactions_of(record) != 1:
            previous = search.previous_of(file.read(record), transactions_of(record))
            if previous is None:
                found.problems.append(
                    f"the undo record at byte {record.offset - 8} is damaged, or does not belong to a block in the"
                    " block file"
                )
            else:
                claims.setdefault(previous, []).append(record)
    followers: dict[bytes, list[LinkedBlock]] = {}
    for block in spending:
        followers.setdefault(block.previous, []).append(block)
    for previous, records in claims.items():
        _settle(file, records, followers[previous], found)
    return found


def _in_chain_order(blocks: Sequence[LinkedBlock]) -> list[LinkedBlock]:
    """Return the blocks, parents first. Runs that are not linked are sorted by the time of their first block."""
    known = {block.hash: block for block in blocks}
    children: dict[bytes, list[LinkedBlock]] = {}
    for block in blocks:
        children.setdefault(block.previous, []).append(block)
    roots = sorted(
        (block for block in blocks if block.previous not in known), key=lambda block: (block.time, block.hash)
    )
    order: list[LinkedBlock] = []
    waiting = roots[::-1]
    while waiting:
        order.append(block := waiting.pop())
        waiting += children.get(block.hash, [])
    return order


class _Search:
    """Finds the parent of a record's block.

    The next block in chain order is tried first. The number of bytes that are hashed is bounded.
    """

    def __init__(self, blocks: Sequence[LinkedBlock], patience: int) -> None:
        self._by_count: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            self._by_count.setdefault(block.transactions, []).append(number)
        self._blocks = blocks
        self._next = 0
        self._patience = patience  # bytes that may still be hashed

    def previous_of(self, record: bytes, transactions: int | None) -> bytes | None:
        """Return the hash of the parent of a record's block, or None if no block matches the record."""
        undo, check = record[:-HASH_SIZE], record[-HASH_SIZE:]
        numbers = self._by_count.get(transactions or 0, [])
        ahead = bisect_left(numbers, self._next)
        for number in chain(islice(numbers, ahead, None), reversed(numbers[:ahead])):
            if self._patience < 0:
                return None
            self._patience -= len(record)
            previous = self._blocks[number].previous
            if sha256d(previous + undo) == check:
                self._next = number + 1
                return previous
        return None


def _settle(file: UndoFile, records: list[Record], siblings: list[LinkedBlock], found: Pairing) -> None:
    """Assign records to siblings, which are blocks with the same parent. A block has at most one record.

    The checksum of a record covers the parent. Only siblings, such as stale blocks, need a comparison.
    """
    if len(records) == len(siblings) == 1:
        found.places[siblings[0].hash] = records[0]
        return
    contents = [file.read(record) for record in records]
    distinct = [number for number, raw in enumerate(contents) if raw not in contents[:number]]
    raws = {block.hash: block.read() for block in siblings}
    fits = {
        number: [block for block in siblings if _fits(contents[number], raws[block.hash], block.height)]
        for number in distinct
    }
    while (single := next((number for number, of in fits.items() if len(of) == 1), None)) is not None:
        (block,) = fits.pop(single)
        found.places[block.hash] = records[single]
        fits = {number: [other for other in of if other.hash != block.hash] for number, of in fits.items()}
    for number, of in fits.items():
        where = f"the undo record at byte {records[number].offset - 8}"
        if not of:
            found.problems.append(f"{where} matches no block that follows {hash_to_hex(siblings[0].previous)}")
        elif len({tuple(_outpoints(raws[block.hash])) for block in of}) == 1 and len(fits) == 1:
            found.places |= {block.hash: records[number] for block in of}  # their coins are identical
        else:
            names = " and ".join(sorted(hash_to_hex(block.hash) for block in of))
            found.problems.append(f"{where} is ambiguous: it matches the blocks {names}")


def _outpoints(raw: bytes) -> list[tuple[bytes, ...]]:
    """Return the outpoints that a block spends, as one list for each transaction."""
    return [
        tuple(raw[at : at + 36] for at, _, _ in tx.inputs) for position, tx in enumerate(walk_block(raw)) if position
    ]


def _fits(record: bytes, raw: bytes, height: int | None) -> bool:
    """Return True if nothing in the block contradicts the record. The caller has verified the checksum."""
    try:
        coins = block_coins(raw, record)
    except FormatError:
        return False
    for tx, of_tx in zip(list(walk_block(raw))[1:], coins, strict=True):
        paid = [int.from_bytes(raw[at : at + 8], "little") for at, _, _ in tx.outputs]
        if sum(paid) > sum(coin.value for coin in of_tx):
            return False
        if height is not None and any((coin.height or 0) > height for coin in of_tx):
            return False
        stacks = _witnesses(raw, tx)
        for (_, start, end), stack, coin in zip(tx.inputs, stacks, of_tx, strict=True):
            if _contradicts(coin.script, raw[start:end], stack):
                return False
    return True


def _contradicts(script: bytes, script_sig: bytes, witness: list[bytes]) -> bool:
    """Return True if an input certainly spends a script other than `script`.

    This is certain if the script requires a hash, and the input reveals data with a different hash.
    """
    pushes = list(script_pushes(script_sig))
    # True if the scriptSig contains only pushes, so that the last push is on top of the stack
    only_pushes = b"".join(map(_push, pushes)) == script_sig.lstrip(b"\0")
    if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return bool(pushes) and only_pushes and hash160(pushes[-1]) != script[3:23]
    if len(script) == 23 and script[:2] == b"\xa9\x14" and script[22:] == b"\x87":
        return not script_sig or (bool(pushes) and only_pushes and hash160(pushes[-1]) != script[2:22])
    if script[:2] == b"\x00\x14" and len(script) == 22 and witness:
        return bool(script_sig) or len(witness) != 2 or hash160(witness[1]) != script[2:]
    if script[:2] == b"\x00\x20" and len(script) == 34 and witness:
        return bool(script_sig) or sha256(witness[-1]).digest() != script[2:]
    return False


def _push(data: bytes) -> bytes:
    """Return a script that pushes this data."""
    size = len(data)
    if size < 0x4C:
        return bytes((size,)) + data
    return b"\x4c" + bytes((size,)) + data if size < 0x100 else b"\x4d" + size.to_bytes(2, "little") + data


def _witnesses(raw: bytes, tx: TxSpan) -> list[list[bytes]]:
    """Return the witness stack of each input of a transaction."""
    if not tx.witness:
        return [[] for _ in tx.inputs]
    reader = Reader(raw, tx.witness)
    return [
        [reader.take(reader.compact_size("length"), "item") for _ in range(reader.compact_size("count"))]
        for _ in tx.inputs
    ]


class _Paired:
    """One block file and its undo file, with the records paired so far."""

    __slots__ = ("blocks", "exact", "file", "network", "places")

    def __init__(self, file: UndoFile, blocks: list[LinkedBlock], network: Network) -> None:
        self.file = file
        self.blocks = blocks
        self.network = network
        self.exact = False
        self.places: dict[bytes, Record] = {}


class UndoFiles:
    """The undo records of all files, looked up by block. Several threads may use the object at the same time."""

    def __init__(self) -> None:
        self._paired: dict[int, _Paired] = {}
        self._lock = threading.Lock()
        self.problems: list[tuple[str, str]] = []  # path of the undo file, and a sentence

    def __getstate__(self) -> tuple[dict[int, _Paired], list[tuple[str, str]]]:
        return self._paired, self.problems

    def __setstate__(self, state: tuple[dict[int, _Paired], list[tuple[str, str]]]) -> None:
        self._paired, self.problems = state
        self._lock = threading.Lock()

    def add(self, number: int, file: UndoFile, blocks: list[LinkedBlock], network: Network) -> None:
        """Pair the records of file `number`'s undo file with its blocks. Unusable records become problems."""
        paired = self._paired[number] = _Paired(file, list({block.hash: block for block in blocks}.values()), network)
        self._pair(paired, pair)

    def _pair(self, paired: _Paired, how: Callable[[UndoFile, Sequence[LinkedBlock], Network], Pairing]) -> None:
        """Pair the records of one file with its blocks, using the function `how`, and record the problems."""
        name = str(paired.file.path)
        try:
            found = how(paired.file, paired.blocks, paired.network)
        except (FormatError, SourceError) as error:
            found = Pairing(problems=[str(error)])
        except FileNotFoundError:
            found = Pairing()  # a node has pruned the file
        except OSError as error:
            found = Pairing(problems=[error.strerror or str(error)])
        paired.places = found.places
        self.problems += [(name, problem) for problem in found.problems]

    def file(self, number: int) -> UndoFile | None:
        """Return the undo file of the block file `number`."""
        paired = self._paired.get(number)
        return None if paired is None else paired.file

    def find(self, number: int, block: bytes) -> UndoPlace | None:
        """Return the place of the undo record of a block in file `number`, or None if the block has none."""
        paired = self._paired.get(number)
        record = None if paired is None else paired.places.get(block)
        return None if paired is None or record is None else paired.file.place(number, record)

    def pair_again(self, block: bytes, tried: UndoPlace) -> list[tuple[str, str]] | None:
        """Compute the checksums of a file's records, because the record `tried` belongs to another block.

        The checksums are computed only once for each file.

        Returns:
            None if another record was found for the block. Otherwise the block has no record, and the problems say why.
        """
        with self._lock:
            paired, known = self._paired[tried.number], len(self.problems)
            if not paired.exact:
                paired.exact = True
                aligned = paired.places
                self._pair(paired, pair_exactly)
                lost = [hash_to_hex(each) for each in aligned if each not in paired.places]
                if lost:
                    self.problems.append(
                        (
                            str(paired.file.path),
                            f"no undo record for {counted(len(lost), 'block')}; the first is {lost[0]}",
                        )
                    )
            if self.find(tried.number, block) not in (None, tried):
                return None
            paired.places.pop(block, None)
            return self.problems[known:]
