"""WatchTable: the scripts and outpoints that a WatchList watches, and the exact scan for them.

This is the readable reference.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from spvfilter import _system
from spvfilter.errors import FormatError, ParameterError, UndoError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure import blocks, scripts
from spvfilter.kernel.pure.address import address_of, check_network
from spvfilter.kernel.pure.arguments import offset, snapshot, snapshots, whole
from spvfilter.kernel.pure.files import ReadBuffer, checked, read_at, xored
from spvfilter.kernel.pure.image import KEY_SIZE, Image, full_key_in, image_of, image_size
from spvfilter.kernel.pure.packed import (
    MAX_ENTRY,
    MAX_VALUE,
    SUMS,
    check_sums,
    hit_of,
    label_of,
    packed_hit,
    unpack_hits,
)
from spvfilter.kernel.pure.undo import PackedCoin, coins_of_block, compressed_key, paid_by, script_of
from spvfilter.kernel.values import (
    MAX_PREFIX,
    NO_ENTRY,
    NO_VALUE,
    EntryKind,
    Hit,
    Place,
    ScriptType,
    TxSpan,
    WatchedCoin,
)
from spvfilter.primitives import script_pushes
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_BLOCK_SIZE, MAX_UNDO_SIZE, OUTPOINT_SIZE

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
_MOST_JOBS = 256  # threads that decode addresses
_PATTERNS = EntryKind.DATA_PREFIX  # Entries of this kind and later kinds are patterns.


class WatchTable:
    """The entries and coins of a watch list, and the scan for them.

    A scan does not change the table. `learn` adds the outputs that a scan found.

    Threads may scan and read a table while another thread changes it. A scan may or may not find an entry that is added
    during the scan. With the compiled kernel every operation is atomic: several threads may change a table, and a copy
    is consistent.

    Args:
        image: An image that `write_image` wrote. The table uses these bytes in place, and they must not change. By
            default the table is empty.

    Raises:
        FormatError: The header, the offsets or the coins of the image are malformed. Other damage can hide entries, and
            is not noticed.
        ParameterError: The image starts at an address that is not divisible by 8.
    """

    __slots__ = (
        *("_coins", "_counts", "_full_keys", "_given", "_image", "_kinds", "_numbers", "_prefix_sizes", "_values"),
    )

    def __init__(self, image: Buffer | None = None) -> None:
        self._given = None if image is None else _checked_buffer(image)  # None once the table has changed
        self._image = _NO_IMAGE if self._given is None else Image(self._given)
        self._counts = self._image.of_kind.copy()
        self._prefix_sizes = self._image.prefix_sizes
        # the entries after those of the image
        self._kinds = bytearray()
        self._values: list[bytes] = []
        self._numbers: tuple[dict[bytes, int], ...] = tuple({} for _ in EntryKind)  # numbers of the values, by kind
        self._coins: dict[bytes, WatchedCoin] = {}
        for outpoint, coin in self._image.coins():
            self._coins[outpoint] = _joined(self._coins.get(outpoint), coin)
        # from compressed to uncompressed keys, for the keys in P2PK scripts and data entries
        self._full_keys: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return self._image.count + len(self._kinds)

    def add(self, kind: EntryKind, value: bytes, /) -> int:
        """Add an entry, and return its number, from 0. An existing entry keeps its number.

        Raises ParameterError for an outpoint that is not 36 bytes long, a data prefix that is not 1 to 64 bytes long,
        and an unknown script type.
        """
        kind, value = EntryKind(kind), snapshot(value)
        _check_entry(kind, value)
        known = self.find(kind, value)
        if known != NO_ENTRY:
            return known
        self._given, number = None, len(self)
        self._kinds.append(kind)
        self._values.append(value)
        self._counts[kind] += 1
        key = full_key_in(kind, value)
        if key is not None and (short := compressed_key(key)) is not None:
            self._full_keys[short] = key
        if kind == EntryKind.OUTPOINT:
            coin = self._coins.get(value)
            self._coins[value] = (
                WatchedCoin(number, coin.value, coin.script) if coin else WatchedCoin(number, NO_VALUE, None)
            )
        else:
            self._numbers[kind][value] = number
        if kind == EntryKind.DATA_PREFIX:
            self._prefix_sizes |= 1 << (len(value) - 1)
        return number

    def find(self, kind: EntryKind, value: bytes, /) -> int:
        """Return the number of an entry, or NO_ENTRY."""
        kind, value = EntryKind(kind), snapshot(value)
        if kind != EntryKind.OUTPOINT:
            return self._find(kind, value)
        coin = self._coins.get(value)
        if coin is None or coin.entry >= len(self):  # the entry belongs to another table
            return NO_ENTRY
        return coin.entry if self.entry(coin.entry) == (EntryKind.OUTPOINT, value) else NO_ENTRY

    def _find(self, kind: EntryKind, value: bytes) -> int:
        """Return the number of an entry that is not an outpoint, or NO_ENTRY."""
        number = self._numbers[kind].get(value, NO_ENTRY)
        return self._image.find(kind, value) if number == NO_ENTRY else number

    def count_of(self, kind: EntryKind, /) -> int:
        """Return the number of entries of a kind."""
        return self._counts[EntryKind(kind)]

    def entry(self, number: int, /) -> tuple[EntryKind, bytes]:
        """Return the kind and the bytes of an entry. Raises IndexError if no entry has this number."""
        number = operator.index(number)
        if not 0 <= number < len(self):
            raise IndexError(f"there is no entry {number}")
        if number < self._image.count:
            return self._image.entry(number)
        number -= self._image.count
        return EntryKind(self._kinds[number]), self._values[number]

    def entries(self) -> Iterator[tuple[EntryKind, bytes]]:
        """Yield the entries as (kind, bytes), in the order of their numbers.

        The table may change during the iteration. Entries that are added after the call are not yielded.
        """
        return map(self.entry, range(len(self)))

    def packed_entries(self, first: int, most: int, /) -> bytes:
        """Return entries as bytes for a digest: for each, its kind (u8), its size (u32 LE) and its value.

        Args:
            first: Number of the first entry. If there is no such entry, the result is empty.
            most: Largest number of entries to return.

        Raises:
            ParameterError: A number is not between 0 and 2^32 - 1.
        """
        first = whole(first, 0, 0xFFFFFFFF, "the number of an entry must be from 0 to 2^32 - 1")
        most = whole(most, 0, 0xFFFFFFFF, "a number of entries must be from 0 to 2^32 - 1")
        found = map(self.entry, range(first, min(first + most, len(self))))
        return b"".join(bytes((kind,)) + len(value).to_bytes(4, "little") + value for kind, value in found)

    def image(self) -> memoryview | None:
        """Return the image over which the table was opened, or None if there was none or the table has changed."""
        return self._given

    def image_size(self) -> int:
        """Return the size of the table's image in bytes."""
        return image_size(self.entries(), self.coins())

    def write_image(self, room: Buffer, key: bytes, /) -> None:
        """Write the table's image. `WatchTable(image)` opens a table over it without reading all entries.

        Tables with the same contents, in the same order, have the same image for the same key.

        Args:
            room: Memory for the image, of `image_size()` bytes, at an address divisible by 8.
            key: Key of the hashes in the index, 64 random bytes: an attacker who knew it could choose entries whose
                hashes collide.

        Raises:
            ParameterError: The key is not 64 bytes long, or the address of the memory is wrong.
            FormatError: The memory has the wrong size, or the table uses a damaged image. In a damaged image, an entry
                may occur twice, be invalid, or change.
        """
        key = snapshot(key)
        if len(key) != KEY_SIZE:
            raise ParameterError(f"a key must be {KEY_SIZE} bytes long, not {len(key)}")
        size, found = self.image_size(), memoryview(room).nbytes
        if found != size:
            raise FormatError(f"the buffer must be {size} bytes long, not {found}", offset=0, field="image")
        image = image_of(list(self.entries()), list(self.coins()), key)
        with memoryview(room) as view:
            view[:] = image

    def coin(self, outpoint: bytes, /) -> WatchedCoin | None:
        """Return the known facts about an outpoint (36 bytes), or None if it is not watched."""
        return self._coins.get(snapshot(outpoint))

    def coins(self) -> Iterator[tuple[bytes, WatchedCoin]]:
        """Yield the watched outpoints (36 bytes), each with the current state of its coin.

        The table may change during the iteration. Outpoints that are added after the call are not yielded.
        """
        return ((outpoint, self._coins[outpoint]) for outpoint in list(self._coins))

    def set_coin(self, outpoint: bytes, entry: int, value: int, script: bytes | None, /) -> None:
        """Watch an outpoint. If it is already watched, it keeps its entry, and gains a missing value or script.

        Args:
            outpoint: The outpoint, 36 bytes.
            entry: Number of the entry for which it is watched. The entry may belong to another table.
            value: Value in satoshi, or NO_VALUE.
            script: scriptPubKey, or None.

        Raises:
            ParameterError: The outpoint is not 36 bytes long, or a number is out of range.
        """
        outpoint, coin = _checked(outpoint, entry, value, script)
        self._given = None
        self._coins[outpoint] = _joined(self._coins.get(outpoint), coin)

    def learn(self, hits: Iterable[Hit], /) -> None:
        """Watch the outpoints of the outputs among `hits`, except those of data prefixes and script types.

        Raises ParameterError in the same cases as `set_coin`; in that case no outpoint is added.
        """
        found = [
            _checked(hit.outpoint, hit.entry, hit.value, hit.script)
            for hit in [hit_of(hit) for hit in hits]
            if not hit.spend and not self._is_pattern(hit.entry)
        ]
        for outpoint, coin in found:
            self._given = None
            self._coins[outpoint] = _joined(self._coins.get(outpoint), coin)

    def learn_packed(self, packed: bytes, /) -> int:
        """Watch the outpoints of the outputs among packed hits, and return their number.

        Outputs that matched a data prefix or a script type are left out. Raises FormatError if the bytes are not
        packed hits; in that case no outpoint is added.
        """
        hits = unpack_hits(packed)
        self.learn(hits)
        return sum(not hit.spend and not self._is_pattern(hit.entry) for hit in hits)

    def _is_pattern(self, entry: int) -> bool:
        """Return True if an entry is a data prefix or a script type. No outpoint is learned for it."""
        return self._has_patterns and entry < len(self) and self.entry(entry)[0] >= _PATTERNS

    @property
    def _has_patterns(self) -> bool:
        return any(self._counts[_PATTERNS:])

    def copy(self) -> WatchTable:
        """Return an independent copy of the table."""
        twin = WatchTable()
        twin._given, twin._image = self._given, self._image
        twin._counts, twin._prefix_sizes = self._counts.copy(), self._prefix_sizes
        twin._kinds = self._kinds.copy()
        twin._values = self._values.copy()
        twin._numbers = tuple(numbers.copy() for numbers in self._numbers)
        twin._coins = self._coins.copy()
        twin._full_keys = self._full_keys.copy()
        return twin

    def without(self, outpoints: Iterable[bytes], /) -> WatchTable:
        """Return an independent copy of the table that does not watch these outpoints (36 bytes each).

        Outpoints that are entries are still watched. Raises ParameterError for an outpoint that is not 36 bytes long.
        """
        gone = snapshots(outpoints, "outpoints")
        for outpoint in gone:
            _check_outpoint(outpoint)
        twin = self.copy()
        for outpoint in gone:
            if self.find(EntryKind.OUTPOINT, outpoint) == NO_ENTRY:
                twin._coins.pop(outpoint, None)
        twin._given = None
        return twin

    def add_address_lines(
        self, chunk: bytes, at: int, p2pkh_version: int, p2sh_version: int, hrp: str, jobs: int, /
    ) -> tuple[int, int, list[tuple[int, bytes]]]:
        """Add the addresses on lines of text, up to the first line that is not taken.

        A line is `address` or `address,label`. The reference takes no lines. The compiled twin takes lines whose
        address `decode_address` decodes; watch/textfile.py handles all others.

        Args:
            chunk: The text. Only whole lines are taken.
            at: Offset in bytes at which the first line starts.
            p2pkh_version: Version byte of the network's P2PKH addresses.
            p2sh_version: Version byte of the network's P2SH addresses.
            hrp: Human-readable part of the network's bech32 addresses.
            jobs: Number of threads that decode addresses, 1 to 256. The entries are in the order of the lines.

        Returns:
            The number of bytes taken, the number of lines taken, and the labels as (entry, UTF-8 without control
            characters).

        Raises:
            ParameterError: A version byte is not between 0 and 255, the offset is negative, or the number of threads is
                out of range.
            IndexError: The offset is beyond the chunk.
        """
        chunk, at = snapshot(chunk), offset(at)
        check_network(p2pkh_version, p2sh_version, hrp)
        whole(jobs, 1, _MOST_JOBS, "the number of threads must be from 1 to 256")
        if at > len(chunk):
            raise IndexError(f"the offset must be at most {len(chunk)}, the size of the chunk, not {at}")
        return 0, 0, []

    def script_totals(
        self,
        sums: Buffer,
        first: int,
        label_places: bytes,
        label_texts: bytes,
        p2pkh_version: int,
        p2sh_version: int,
        hrp: str,
        /,
    ) -> tuple[bytes, int]:
        """Return the sums of scripts as CSV lines, and the number of the next entry.

        The columns are the entry as script:HEX, address, label, received, spent, unknown and matches. An entry without
        matches has no line. The lines end before the next entry with matches that is not a script, or at the last
        entry.

        Args:
            sums: The sums of entries in the format of `add_hit_sums`, starting with the entry `first`.
            first: Number of the first entry.
            label_places: Offsets of the labels, as for `hit_lines`.
            label_texts: The labels as CSV cells, as for `hit_lines`.
            p2pkh_version: Version byte of the network's P2PKH addresses.
            p2sh_version: Version byte of the network's P2SH addresses.
            hrp: Human-readable part of the network's bech32 addresses.

        Raises:
            FormatError: The label of an entry is outside `label_texts`.
            ParameterError: An argument is out of range, or an address cannot be encoded.
            TypeError: An argument has the wrong type.
        """
        numbers, number = (
            snapshot(sums),
            whole(first, 0, MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2"),
        )
        places, texts = snapshot(label_places), snapshot(label_texts)
        check_network(p2pkh_version, p2sh_version, hrp)
        check_sums(len(numbers))
        lines: list[bytes] = []
        for matches, received, spent, unknown in SUMS.iter_unpack(numbers):
            if matches:
                kind, script = self.entry(number) if number < len(self) else (None, b"")
                if kind is not EntryKind.SCRIPT:
                    break
                label = label_of(places, texts, number)
                address = address_of(script, p2pkh_version, p2sh_version, hrp) or ""
                lines.append(f"script:{script.hex()},{address},".encode() + label)
                lines.append(f",{received},{spent},{unknown},{matches}\n".encode())
            number += 1
        return b"".join(lines), number

    def match_script(self, script: bytes, /) -> int:
        """Return the entry that an output with this scriptPubKey matches, or NO_ENTRY.

        Entries are tried in this order: script, multisig key, data, the longest data prefix, script type.
        """
        script = snapshot(script)
        entry = self._find(EntryKind.SCRIPT, script)
        if entry == NO_ENTRY and self._counts[EntryKind.MULTISIG_KEY]:
            entry = self._first(EntryKind.MULTISIG_KEY, blocks.multisig_keys(script))
        if entry == NO_ENTRY and self._counts[EntryKind.DATA]:
            entry = self._first(EntryKind.DATA, script_pushes(script))
        if entry == NO_ENTRY and self._prefix_sizes:
            data = blocks.null_data(script)[:MAX_PREFIX]
            sizes = (size for size in range(len(data), 0, -1) if self._prefix_sizes >> (size - 1) & 1)
            entry = self._first(EntryKind.DATA_PREFIX, (data[:size] for size in sizes))
        if entry == NO_ENTRY and self._counts[EntryKind.SCRIPT_TYPE]:
            entry = self._find(EntryKind.SCRIPT_TYPE, bytes((scripts.solve(script),)))
        return entry

    def _first(self, kind: EntryKind, values: Iterable[bytes]) -> int:
        """Return the entry of the first of several values that is watched, or NO_ENTRY."""
        found = (self._find(kind, value) for value in values)
        return next((number for number in found if number != NO_ENTRY), NO_ENTRY)

    def scan_block(self, raw: bytes, found: WatchTable | None = None, undo: bytes | None = None) -> list[Hit]:
        """Return the outputs and inputs of a block that match the table: transactions in order, inputs before outputs.

        Spends of outputs that the scan found earlier in the same block are included. With `undo`, an input also matches
        by the script that it spends, every spend has its value and script, and every hit has the fee of its
        transaction.

        Args:
            raw: The block.
            found: Table that collects the coins of a run of blocks until they are learned. Spends of its coins are
                included, and the coins of this block are added to it.
            undo: The block's undo record with its checksum, or None.

        Raises:
            FormatError: The block is malformed, pays more than 21 million coins, or has a matching transaction twice
                (CVE-2012-2459: such a copy has the header of the genuine block).
            UndoError: The record does not belong to the block. After an error `found` is unchanged.
        """
        _check_found(found)
        raw = snapshot(raw)
        return self._scan_block(raw, found, None if undo is None else snapshot(undo))

    def _scan_block(self, raw: bytes, found: WatchTable | None, undo: bytes | None) -> list[Hit]:
        hits: list[Hit] = []
        earlier: dict[bytes, WatchedCoin] = found._coins if found is not None else {}
        fresh: dict[bytes, WatchedCoin] = {}
        txs = list(blocks.walk_block(raw))
        blocks.check_amounts_of(raw, txs)
        spent = None if undo is None else coins_of_block(undo, raw, txs)
        for position, tx in enumerate(txs):
            self._scan(
                raw, tx, position, (self._coins, earlier, fresh), hits, spent[position] if spent and position else None
            )
        if undo is None and any(raw[at : at + OUTPOINT_SIZE] in fresh for tx in txs for at, _, _ in tx.inputs):
            hits.clear()  # no node accepts a spend before its parent, but a second pass would find it
            for position, tx in enumerate(txs):
                self._scan(raw, tx, position, (self._coins, earlier, fresh), hits)
        if len({(hit.spend, hit.txid, hit.n) for hit in hits}) != len(hits):
            raise FormatError("duplicated transactions (CVE-2012-2459)", offset=HEADER_SIZE, field="transactions")
        earlier.update(fresh)
        if fresh and found is not None:
            found._given = None
        return hits

    @overload
    def scan_blocks(
        self,
        blocks: Iterable[bytes],
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[bytes | None] | None = None,
        packed: Literal[False] = False,
    ) -> list[list[Hit] | FormatError]: ...
    @overload
    def scan_blocks(
        self,
        blocks: Iterable[bytes],
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[bytes | None] | None = None,
        *,
        packed: Literal[True],
    ) -> list[bytes | FormatError]: ...
    def scan_blocks(
        self,
        blocks: Iterable[bytes],
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[bytes | None] | None = None,
        packed: bool = False,
    ) -> list[list[Hit] | FormatError] | list[bytes | FormatError]:
        """Scan several blocks in order.

        For a malformed block, the result is the error that scan_block raises.

        Args:
            blocks: The blocks.
            found: Table that collects coins, as in scan_block.
            check: True calls check_block for each block first.
            undo: The undo record of each block, or None for a block without one.
            packed: True returns the hits of each block as bytes, which `unpack_hits` unpacks.

        Raises:
            ParameterError: The number of undo records is not the number of blocks.
        """
        _check_found(found)
        raws = snapshots(blocks, "blocks")
        records = _for_each(undo, len(raws), "blocks")
        taken = [None if record is None else snapshot(record) for record in records]
        results = [self._hits_or_error(raw, found, check, record) for raw, record in zip(raws, taken, strict=True)]
        return [_packed(result) for result in results] if packed else results

    @overload
    def scan_files(
        self,
        places: Iterable[Place],
        buffer: ReadBuffer,
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[Place | None] | None = None,
        packed: Literal[False] = False,
    ) -> list[list[Hit] | FormatError | None]: ...
    @overload
    def scan_files(
        self,
        places: Iterable[Place],
        buffer: ReadBuffer,
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[Place | None] | None = None,
        *,
        packed: Literal[True],
    ) -> list[bytes | FormatError | None]: ...
    def scan_files(
        self,
        places: Iterable[Place],
        buffer: ReadBuffer,
        found: WatchTable | None = None,
        check: bool = False,
        undo: Iterable[Place | None] | None = None,
        packed: bool = False,
    ) -> list[list[Hit] | FormatError | None] | list[bytes | FormatError | None]:
        """Scan several blocks in open files, as scan_blocks does.

        Each block is read into the buffer and scanned before the next.

        For a place that cannot be read, or does not contain a block with the given hash, the result is None.

        Args:
            places: The places of the blocks.
            buffer: Memory for the block.
            found: Table that collects coins, as in scan_block.
            check: True calls check_block for each block first.
            undo: The place of each block's undo record, or None for a block without one.
            packed: True returns the hits of each block as bytes, which `unpack_hits` unpacks.

        Raises:
            ParameterError: A place is invalid, or the number of undo records is not the number of places. Nothing was
                read.
            BufferError: Another thread is using the buffer.
        """
        _check_found(found)
        if not isinstance(buffer, ReadBuffer):
            raise TypeError(f"expected a ReadBuffer, not {type(buffer).__name__}")
        wanted = [_place(place, MAX_BLOCK_SIZE) for place in places]
        beside = [
            None if place is None else _place(place, MAX_UNDO_SIZE) for place in _for_each(undo, len(wanted), "places")
        ]
        with buffer:
            results = [
                None if (raw := _block_at(place)) is None else self._hits_or_error(raw, found, check, record)
                for place, record in zip(wanted, beside, strict=True)
            ]
        return [None if result is None else _packed(result) for result in results] if packed else results

    def _hits_or_error(
        self, raw: bytes, found: WatchTable | None, check: bool, undo: bytes | Place | None
    ) -> list[Hit] | FormatError:
        try:
            if check:
                blocks.check_block(raw)
            if isinstance(undo, Place):
                undo = _record_at(undo, raw)
            return self._scan_block(raw, found, undo)
        except FormatError as error:
            return error

    def scan_tx(self, raw: bytes, /) -> list[Hit]:
        """Return the outputs and inputs of one transaction that match the table.

        Raises FormatError if it is malformed.
        """
        raw = snapshot(raw)
        hits: list[Hit] = []
        self._scan(raw, blocks.parse_tx(raw), 0, (self._coins, {}, {}), hits)
        return hits

    def _scan(
        self,
        raw: bytes,
        tx: TxSpan,
        position: int,
        coins: tuple[dict[bytes, WatchedCoin], dict[bytes, WatchedCoin], dict[bytes, WatchedCoin]],
        hits: list[Hit],
        by_undo: list[tuple[PackedCoin, int]] | None = None,
    ) -> None:
        known, earlier, fresh = coins
        has_data = bool(self._counts[EntryKind.DATA])
        counts, known_scripts = self._counts, self._numbers[EntryKind.SCRIPT]
        slow = self._image.count or sum(counts) != counts[EntryKind.SCRIPT] + counts[EntryKind.OUTPOINT]
        spent: list[tuple[int, bytes, WatchedCoin]] = []
        for index, (at, start, end) in enumerate(tx.inputs):
            outpoint = raw[at : at + 36]
            coin = known.get(outpoint)
            seen = earlier.get(outpoint) or fresh.get(outpoint)
            if seen is not None:
                coin = _joined(coin, seen)
            if coin is None and by_undo is not None:
                entry = self._match_packed(by_undo[index][0])
                coin = WatchedCoin(entry, NO_VALUE, None) if entry != NO_ENTRY else None
            if coin is None and has_data:
                entry = self._first(EntryKind.DATA, script_pushes(raw[start:end]))
                coin = WatchedCoin(entry, NO_VALUE, None) if entry != NO_ENTRY else None
            if coin is not None and by_undo is not None:
                packed, at = by_undo[index]
                coin = _joined(
                    coin, WatchedCoin(coin.entry, packed.value, script_of(packed, at) if coin.script is None else None)
                )
            if coin is not None:
                spent.append((index, outpoint, coin))
        paid: list[tuple[int, int, bytes, int]] = []
        for index, (at, start, end) in enumerate(tx.outputs):
            script = raw[start:end]
            entry = self.match_script(script) if slow else known_scripts.get(script, NO_ENTRY)
            if entry != NO_ENTRY:
                paid.append((index, at, script, entry))
        if not spent and not paid:
            return
        txid = blocks.txid(raw, tx)
        fee = NO_VALUE if by_undo is None else sum(coin.value for coin, _ in by_undo) - (paid_by(raw, tx) or 0)
        for index, outpoint, coin in spent:
            hits.append(Hit(True, position, txid, index, outpoint, coin.value, coin.script, coin.entry, fee))
        for index, at, script, entry in paid:
            outpoint = txid + index.to_bytes(4, "little")
            # consensus rejects negative values
            value = max(int.from_bytes(raw[at : at + 8], "little", signed=True), NO_VALUE)
            if not self._is_pattern(entry):
                fresh[outpoint] = WatchedCoin(entry, value, script)
            hits.append(Hit(False, position, txid, index, outpoint, value, script, entry, fee))

    def _match_packed(self, coin: PackedCoin) -> int:
        """Return the entry that a spent coin's script matches, or NO_ENTRY.

        An uncompressed key is looked up instead of computed, because that is faster.
        """
        if coin.kind in (4, 5):
            short = bytes((coin.kind - 2,)) + coin.body
            key = self._full_keys.get(short) or self._image.find_full_key(short)
            if key is None:
                return self._find(EntryKind.SCRIPT_TYPE, bytes((ScriptType.P2PK,)))
            return self.match_script(b"\x41" + key + b"\xac")
        return self.match_script(coin.script() or b"")


def _checked_buffer(image: object) -> memoryview:
    try:
        return memoryview(image)  # type: ignore[arg-type]  # memoryview decides whether it has a buffer
    except TypeError:
        raise TypeError(f"expected a bytes-like object, not {type(image).__name__}") from None


def _check_found(found: object) -> None:
    if found is not None and not isinstance(found, WatchTable):
        raise TypeError(f"found must be a WatchTable or None, not {type(found).__name__}")


def _packed(result: list[Hit] | FormatError) -> bytes | FormatError:
    return result if isinstance(result, FormatError) else b"".join(map(packed_hit, result))


def _for_each(items: Iterable[T | None] | None, count: int, of: str) -> list[T | None]:
    """Return the items as a list of `count` items.

    If `items` is None, each item is None. Raises ParameterError if the number of items is not `count`.
    """
    if items is None:
        return [None] * count
    listed = list(items)
    if len(listed) != count:
        raise ParameterError(f"the number of undo records ({len(listed)}) must equal the number of {of} ({count})")
    return listed


def _place(place: object, most: int) -> Place:
    if not isinstance(place, tuple) or len(place) != len(Place._fields):
        raise TypeError(f"expected a Place, not {type(place).__name__}")
    digest = snapshot(place[4])
    if len(digest) != HASH_SIZE:
        raise ParameterError(f"a block hash must be {HASH_SIZE} bytes long, not {len(digest)}")
    descriptor, start, size, key = place[:4]
    return Place(*checked(descriptor, start, size, key, most), digest)


def _block_at(place: Place) -> bytes | None:
    """Return the block at a place, or None."""
    try:
        raw = read_at(*place[:4])
    except OSError:
        return None
    whole = len(raw) == place.size >= HEADER_SIZE
    return raw if whole and sha256d(raw[:HEADER_SIZE]) == place.hash else None


def _record_at(place: Place, raw: bytes) -> bytes:
    """Return the undo record at a place.

    Raises UndoError if it cannot be read, or if the block does not follow the block that the place names.
    """
    try:
        record = xored(_system.read_at(place.descriptor, place.size, place.offset), place.offset, place.key)
    except OSError:
        record = b""
    if len(record) != place.size:
        raise UndoError(f"expected {place.size} bytes, got {len(record)}", offset=0, field="undo record")
    if raw[4:36] != place.hash:
        raise UndoError("the record belongs to a block with a different parent", offset=0, field="undo record")
    return record


def _check_entry(kind: EntryKind, value: bytes) -> None:
    """Raise ParameterError if an entry of this kind cannot have this value."""
    if kind == EntryKind.OUTPOINT:
        _check_outpoint(value)
    if kind == EntryKind.DATA_PREFIX and not 1 <= len(value) <= MAX_PREFIX:
        raise ParameterError(f"a data prefix must be 1 to {MAX_PREFIX} bytes long, not {len(value)}")
    if kind == EntryKind.SCRIPT_TYPE and (len(value) != 1 or value[0] >= len(ScriptType)):
        raise ParameterError("a script type must be one byte, the number of a ScriptType")


def _check_outpoint(value: bytes) -> None:
    if len(value) != OUTPOINT_SIZE:
        raise ParameterError(f"an outpoint must be {OUTPOINT_SIZE} bytes long, not {len(value)}")


def _checked(outpoint: bytes, entry: int, value: int, script: bytes | None) -> tuple[bytes, WatchedCoin]:
    """Return an outpoint and its coin after checking the arguments. Raises TypeError or ParameterError."""
    outpoint = snapshot(outpoint)
    _check_outpoint(outpoint)
    script = None if script is None else snapshot(script)
    entry = whole(entry, 0, MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2")
    return outpoint, WatchedCoin(
        entry, whole(value, NO_VALUE, MAX_VALUE, "a value must be at least 0 satoshi, or -1 if it is not known"), script
    )


def _joined(old: WatchedCoin | None, new: WatchedCoin) -> WatchedCoin:
    """Return the old coin. A missing value or script is taken from the new coin."""
    if old is None:
        return new
    return WatchedCoin(
        old.entry, new.value if old.value == NO_VALUE else old.value, new.script if old.script is None else old.script
    )


_NO_IMAGE = Image(image_of((), (), bytes(KEY_SIZE)))
